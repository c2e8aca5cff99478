"""What a unit gives as a whole: what it returns and yields, whom it calls, what it stores and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from validator.domains.spmd import NONE, Causes
from validator.flow.calls.elements import element
from validator.flow.calls.group_loops import around_groups
from validator.flow.calls.protocols import rounds
from validator.flow.containers import fillings
from validator.flow.merging.conditions import stored_under
from validator.flow.merging.equality import is_one_thing
from validator.flow.merging.one_rank import is_turn
from validator.flow.merging.phis import times_grown
from validator.flow.program.answers import Passed, Result, Site, Target
from validator.flow.transfer.storing import attribute_stored
from validator.flow.values import NONE_OBJ, NOT_YET, Val, in_parts, join, join_ways, obj

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.unit import Unit

K = TypeVar("K")
T = TypeVar("T")
_PERHAPS_NONE = frozenset({"top", "more", "param", "part", "ext", "made"})


class _Left(NamedTuple):
    """What a unit yields, and stores where others find it."""

    yielded: list[Val]
    attributes: list[tuple[Val, str, Val]]  # (object, name, what is stored)
    global_names: dict[str, tuple[Val, ...]]
    class_names: dict[str, tuple[Val, ...]]


def result_of_unit(at: Evaluation) -> Result:
    """The result of a unit whose values are known."""
    placings, placed = _placed_in_place(at)
    unshared = at.alone.unshared()
    returned, ways = _returned(at, unshared)
    left = _left(at, placed)
    sites = dict(sorted(at.sites.items()))
    return Result(
        tuple(at.vals), returned, join(left.yielded),
        dict(_outs(at, unshared)), sites, left.global_names, left.class_names,
        _together(row for made in at.made.values() for row in made.items()),
        _together(at.switched.values()), _passed({**sites, **at.parts}, attrgetter("targets")),
        _together((name, (owner, kept)) for owner, name, kept in left.attributes),
        _together((name, (owner, content)) for name, owner, content in fillings(at)),
        tuple(placings), {**at.wrapped, **at.steps}, NOT_YET in at.vals, _passed(sites, attrgetter("guessed")),
        _rounds(at), ways,
    )  # fmt: skip


def _left(at: Evaluation, placed: dict[int, frozenset[str]]) -> _Left:
    """What is yielded and stored. `placed`: by store in an attribute how that is placed after it."""
    left = _Left([], [], {}, {})
    for number, rows in sorted(at.named.items()):
        left.attributes.extend((at.vals[number], name, given) for name, given in rows)
    for number in at.leaving.stored:
        value = at.code.values[number]
        if value.op == "yield":
            left.yielded.append(at.known(value.args[0], value.block))
        elif value.op == "yield from":
            left.yielded.append(element(at, at.vals[value.args[0]]))
        elif value.op == "store_attr":
            kept = attribute_stored(at, value)
            kept = kept.placed(placed[number]) if number in placed else kept
            left.attributes.append((at.vals[value.args[0]], value.data, kept))
        elif value.op == "store_global" and number not in at.unit.overwritten:
            filling = around_groups(at, value.args[0], value.block)
            _also(left.global_names, value.data, stored_under(at, value.block, at.vals[value.args[0]], filling))
        elif value.op == "store_class":
            _also(left.class_names, value.data, at.vals[value.args[0]])
    return left


def _rounds(at: Evaluation) -> Causes:
    """By what it varies how often a generator yields: not where a loop without an end, or until some number is reached,
    goes around a `yield`, which makes up for what it leaves out; nor as a branch does of which all ways yield once."""
    stored = [at.code.values[number] for number in at.leaving.stored]
    yielding = [value for value in stored if value.op in ("yield", "yield from")]
    deciding: set[int] = set()
    handed: Causes = NONE
    for value in yielding:
        loops = at.unit.control.loops_around(value.block)
        if any(at.code.loops[header].iterator < 0 for header in loops):
            return NONE
        branches = at.unit.control.deciding(value.block)
        deciding.update(branch for branch in branches if not is_turn(at.unit, at.vals, branch))
        if value.op == "yield from":
            handed |= rounds(at, at.vals[value.args[0]])
    causes = at.conditions(frozenset(deciding))
    blocks = [value.block for value in yielding if value.op == "yield"]
    if causes and len(blocks) == len(yielding) == len(set(blocks)):
        causes = at.conditions(frozenset(deciding) - at.unit.control.passing_one(frozenset(blocks)))
    return causes | handed


def _returned(at: Evaluation, unshared: frozenset[int]) -> tuple[Val, dict[int, Val]]:
    """What a unit returns, and by block what it does there, where parameters decide at which; of several returns it
    varies as the branches do that choose between them, if these do not all give back one value, which some have changed
    in place (`if rank != 0: return config`)."""
    if len({(at.root(number), times_grown(at, number)) for _, number in at.leaving.returns}) < 2:
        return join([at.vals[number] for _, number in at.leaving.returns]), {}
    here = _always_there(at)
    returned: dict[int, Val] = {}
    causes: Causes = NONE
    for block, number in at.leaving.returns:
        given = at.known(number, block)
        back = _returned_under(at, block, given, here)
        causes |= back.v - given.v
        returned[block] = _returned_alone(back) if block in unshared else back
    left = join_ways(returned.values())
    left = in_parts(left, list(returned.values()), causes) if causes else left
    return left, returned if at.unit.return_tests else {}


def _returned_under(at: Evaluation, block: int, value: Val, here: frozenset[int]) -> Val:
    """A value that is returned only where branches let it: it varies as they do; so does whether there is one, but
    for branches (`here`) of which every way returns something."""
    deciding = at.unit.control.deciding(block) if at.code.blocks[block].preds else frozenset()
    causes = at.conditions(deciding)
    differs = NONE if is_one_thing(at, at.code.returned) else causes
    return value.with_causes(v=differs, p=at.conditions(deciding - here) if value.objs else NONE)


def _returned_alone(value: Val) -> Val:
    """What is returned where there is one process: nothing differs there, and what is false is so only there."""
    constant = value.constant()
    return obj("several", True) if constant is False else value.alone()


def _always_there(at: Evaluation) -> frozenset[int]:
    """The branches behind which no return gives None."""
    behind: dict[int, bool] = {}
    for block, number in at.leaving.returns:
        there = _is_there(at.vals[number])
        for branch in at.unit.control.deciding(block):
            behind[branch] = behind.get(branch, True) and there
    return frozenset(branch for branch, there in behind.items() if there)


def _is_there(value: Val) -> bool:
    """Whether a value is known to be something else than None."""
    return not value.p and all(o[0] not in _PERHAPS_NONE and o != NONE_OBJ for o in value.each)


def _placed_in_place(at: Evaluation) -> tuple[list[tuple[Val, str, str]], dict[int, frozenset[str]]]:
    """Attributes that a call places otherwise where they are (`fully_shard(self.model)`).

    Where the attribute was stored here before, that store is what is left: by its number, how it is placed.
    """
    placings: list[tuple[Val, str, str]] = []
    placed: dict[int, frozenset[str]] = {}
    values = at.code.values
    for number in at.leaving.changed if at.steps else ():
        value = values[number]
        steps = at.steps.get((value.args[1], value.data))
        if not steps:
            continue
        root = at.root(number)
        if values[root].op == "attr":
            placings += [(at.vals[values[root].args[0]], values[root].data, step) for step in steps]
        for each in at.leaving.stores_of(root):
            always = at.unit.control.deciding(value.block) <= at.unit.control.deciding(values[each].block)
            if each < number:
                placed[each] = at.vals[number].state | (frozenset() if always else at.vals[root].state)
    return placings, placed


def _outs(at: Evaluation, unshared: frozenset[int]) -> list[tuple[int, Val]]:
    """What parameters that calls have changed in place are at the end, where several processes get there."""
    changed = at.leaving.changed_parameters(but=unshared)
    return [(position, join(at.vals[n] for n in ends)) for position, ends in changed]


def _passed(sites: dict[int, Site], of: Callable[[Site], tuple[Target, ...]]) -> dict[Unit, tuple[Passed, ...]]:
    return _together(
        (target.unit, Passed(number, target.bindings, site.away, site.under))
        for number, site in sites.items()
        for target in of(site)
    )


def _together(rows: Iterable[tuple[K, T]]) -> dict[K, tuple[T, ...]]:
    found: dict[K, tuple[T, ...]] = {}
    for key, value in rows:
        _also(found, key, value)
    return found


def _also(found: dict[K, tuple[T, ...]], key: K, value: T) -> None:
    found[key] = (*found.get(key, ()), value)
