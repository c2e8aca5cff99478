"""Containers into which some ranks put something that the others do not: loops over them make more rounds from then on.

What reads one and what is put in meet where the container, or the object that holds it, is made: there both are known
by one path from that value, through whatever calls. What all ranks put in under the same key as well makes no
difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.domains.spmd import Causes, only, varying
from validator.effects.condition_keys import Assumed, assume, holding, keys_of
from validator.effects.condition_keys import Key as Condition
from validator.effects.trace import Traces
from validator.flow.access_paths import Path
from validator.flow.control import reachable
from validator.flow.merging.conditions import truth_of
from validator.flow.merging.phis import AS_LONG
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.changed_containers import (
    NEW,
    Change,
    Changes,
    Key,
    Site,
    first_keys,
    is_default,
    is_fresh,
    is_list,
    made_for_field,
    path_of,
    seen_from,
)
from validator.flow.queries.values.unfilled import JOINING
from validator.flow.values import Val

_WHOLE = AS_LONG | {"range", "len", "set", "frozenset"}
_VIEWS = frozenset({"items", "values", "keys", "copy"})


class Grown(NamedTuple):
    """What some ranks alone put into a container. `causes`: who does."""

    place: Place
    causes: Causes


class _Use(NamedTuple):
    """Where a container is read, as it is seen from a unit: by which path there, through which calls."""

    unit: Unit
    path: Path
    sites: tuple[Site, ...]


class UnevenContainers:
    """The containers of a program into which some ranks alone have put something, where loops go through them that
    issue collectives, or tensors are made of them that collectives are given."""

    def __init__(self, traces: Traces) -> None:
        self.traces = traces
        self.flow = traces.flow

    def behind(self, place: Place) -> Grown | None:
        """What some ranks alone put, before, into the container through which an iterator goes, or of which a tensor is
        made."""
        rounds = self._uses.get((place.unit, place.number), ())
        return next((grown for each in rounds for grown in self._put(each)), None)

    @cached_property
    def _uses(self) -> dict[Site, list[_Use]]:
        """By iterator or tensor the units in which its container, or the object that holds it, is made."""
        found: dict[Site, list[_Use]] = {}
        for place in self._asked():
            number, site = place.number, place.number
            while (inner := _inside(place.value_at(number).root)) is not None:
                site, number = place.unit.root(number), inner
            path = path_of(place.unit, number) if number != place.number else None
            if path is not None:
                first = _Use(place.unit, path, ((place.unit, site),))
                found[place.unit, place.number] = list(self._made(first))
        return found

    def _asked(self) -> Iterator[Place]:
        """The iterators of loops with collectives, and the tensors that must be as large on all ranks."""
        for unit in sorted(self.traces.effectful, key=lambda u: (u.path, u.code.at, u.qualname)):
            loops = (unit.code.loops[repeat.header] for repeat in self.traces.tracer(unit).repeats)
            yield from (Place(self.flow, unit, loop.iterator) for loop in loops if loop.iterator >= 0)
            for number, site in self.flow.result(unit).sites.items():
                call = Place(self.flow, unit, number)
                for operation in site.operations if call.value.op == "call" else ():
                    tensor = call.argument(*operation.row.alike) if operation.row.alike is not None else None
                    yield from (tensor,) if tensor is not None else ()

    def _made(self, first: _Use) -> Iterator[_Use]:
        """A use as it is seen where the object is made from which the container is reached; a function that calls
        itself is entered once, as the path may grow each time."""
        seen, queue = {(first.unit, first.path)}, [first]
        for each in queue:
            root = each.unit.code.values[each.path[0]]  # type: ignore[index]
            if root.op != "param":
                yield each
                continue
            for caller, passed in self.flow.calls_of(each.unit):
                path = seen_from(caller, passed.site, each.unit, each.path)
                site = self.flow.result(caller).sites.get(passed.site)
                alone = site is not None and len(site.targets) == 1 and not site.others
                again = any(unit is caller for unit, _ in each.sites)
                if path is not None and alone and not again and (caller, path) not in seen:
                    seen.add((caller, path))
                    queue.append(_Use(caller, path, ((caller, passed.site), *each.sites)))

    @cached_property
    def _changes(self) -> Changes:
        paths = (each.path for uses in self._uses.values() for each in uses)
        return Changes(self.flow, frozenset(step[1:] for path in paths for step in path if isinstance(step, str)))

    # -- what is put in ------------------------------------------------------------------------------------

    def _put(self, each: _Use) -> Iterator[Grown]:
        """What some ranks alone put into a container that all read."""
        unit = each.unit
        under = self.flow.solver.settled(("under", unit)).v
        tested = is_test(unit.path) and not is_test(each.sites[-1][0].path)
        if tested or _of_ranks(under) or any(self._chosen(*site) for site in each.sites):
            return
        changes = self._changes.of(unit)
        aliases = {c.path: c.stored for c in changes if c.kind == "store" and c.stored is not None}
        path = _by_first_name(each.path, aliases)
        here = [c for c in changes if _by_first_name(c.path, aliases) == path and c.kind != "store"]
        stores = [c for c in changes if c.kind == "store"]
        made = self._container(unit, path, stores)
        if made is None or any(c.kind == "take" for c in here):
            return
        adding = [c for c in here if c.kind == "put" or is_default(made)]
        known: set[Key] = set()
        if is_list(made):
            adding = [c for c in adding if c.key == NEW]
        else:
            known.update(first_keys(made), (c.key for c in adding if not self._causes(c, unit)))
        for change in adding:
            causes = self._causes(change, unit)
            if not causes or not change.sure or _is_there(change.key, known) or self._is_met(change, adding):
                continue
            remade = any(_leads_to(change, c.sites, path) for c in stores if c.path == path[: len(c.path)])
            if _leads_to(change, each.sites, path) and not remade:
                yield Grown(self._where(change), causes)

    def _chosen(self, unit: Unit, number: int) -> Causes:
        """By what it varies between ranks who comes to a place in a unit."""
        found = (_of_ranks(self.flow.close(Val(v=v), unit).v) for v in self._changes.guards(unit, number))
        return frozenset(c for causes in found for c in causes)

    def _causes(self, change: Change, unit: Unit) -> Causes:
        """By what it varies between ranks who makes a change that is reached from a unit."""
        found = (_of_ranks(self.flow.close(Val(v=causes), unit).v) for causes in change.guards)
        return frozenset(c for causes in found for c in causes)

    def _is_met(self, change: Change, others: list[Change]) -> bool:
        """Whether other ranks may make up for a change: with one on the other way of a branch, or with the same one
        under a condition of which nobody knows whether it is another one."""
        mine = self._conditions(change)
        for other in others:
            if other is change:
                continue
            again = other.key == change.key and not (mine and self._conditions(other) == mine)
            if again or _are_opposite(self.flow, change, other):
                return True
        return False

    def _conditions(self, change: Change) -> set[tuple[Condition, bool]]:
        """The conditions under which a change is made that tell ranks apart."""
        found: set[tuple[Condition, bool]] = set()
        for unit, number in change.sites:
            rows = _around(self.flow, unit, number)
            found |= {(key, holds) for test, key, holds in rows if self._tells_ranks(unit, test)}
        return found

    def _tells_ranks(self, unit: Unit, test: int) -> bool:
        """Whether a condition tells ranks apart."""
        return bool(_of_ranks(self.flow.close(Val(v=truth_of(self.flow.result(unit).vals[test])), unit).v))

    def _where(self, change: Change) -> Place:
        """Where a reader sees that some ranks alone make a change."""
        site = next((site for site in change.sites if self._chosen(*site)), change.sites[-1])
        return Place(self.flow, *site)

    def _container(self, unit: Unit, path: Path, stores: list[Change]) -> Place | None:
        """Where the container at a path is made, if nothing else is ever stored there."""
        place: Place | None = Place(self.flow, unit, path[0])  # type: ignore[arg-type]
        for length, step in enumerate(path[1:], 2):
            rows = [c for c in stores if c.path == path[:length]]
            owner, place = place, None
            if len(rows) == 1:
                place = Place(self.flow, *rows[0].sites[-1]).operand(1).root
            elif owner is not None and not rows:
                place = made_for_field(owner, str(step)[1:])
        return place if place is not None and is_fresh(place) else None


def _inside(place: Place) -> int | None:
    """What has as many elements as a value: a container before a call that only gives it in another form."""
    value, unit = place.value, place.unit
    if value.op == "iter":
        return value.args[0]
    if value.op == "collect":
        one = value.data[2] == 1 and len(value.args) == value.data[1] + 1  # no condition
        return value.args[-1] if one else None
    if value.op == "list":
        return _filled_from(unit, place.number) if not value.args else None
    if value.op != "call":
        return None
    callee, tensors = place.operand(0), place.flow.models.tensors
    names = [place.flow.models.named(o[1]) for o in callee.val.each if o[0] == "ext"]
    if callee.value.op == "attr" and not any(name.startswith("torch.") for name in names):
        moves = callee.value.data in {*tensors["moves"], *tensors["casts"], *tensors["keep"]}
        return callee.value.args[0] if moves or callee.value.data in _VIEWS and len(value.args) == 1 else None
    rows = (place.flow.models.call(name) for name in names)
    wraps = not _WHOLE.isdisjoint(names) or place.method in JOINING
    wraps = wraps or any(row is not None and row.layout == "contents" for row in rows)
    return value.args[1] if wraps and value.data.names[:1] == (None,) else None


def _filled_from(unit: Unit, made: int) -> int | None:
    """What a loop goes through that puts one element into an empty list in each round, which nothing else fills."""
    values = unit.code.values
    calls = [v for v in values if v.op == "call" and values[v.args[0]].op == "attr"]
    calls = [v for v in calls if unit.root(values[v.args[0]].args[0]) == made]
    loop = unit.code.loops.get(unit.code.blocks[calls[0].block].loop) if len(calls) == 1 else None
    if loop is None or values[calls[0].args[0]].data != "append" or loop.iterator < 0:
        return None
    outside = unit.control.deciding(values[made].block) | {loop.header}
    return loop.iterator if unit.control.deciding(calls[0].block) <= outside else None


def _of_ranks(causes: Causes) -> Causes:
    return only(varying(causes), "rank", "member")


def _by_first_name(path: Path, aliases: dict[Path, Path]) -> Path:
    """A path from where the object was made that is stored on the way. Each name is replaced once: an object may be
    stored in what it holds itself (`self.model = self.model.module`)."""
    used: set[Path] = set()
    while (inner := next((n for n in range(len(path), 1, -1) if path[:n] in aliases and path[:n] not in used), 0)) > 0:
        used.add(path[:inner])
        path = (*aliases[path[:inner]], *path[inner:])
    return path


def _is_there(key: Key, known: Iterable[Key]) -> bool:
    """Whether a container may hold something under a key already, or get it from all ranks."""
    if key == NEW:
        return False
    several = frozenset(known)
    return bool(several) if key[0] != "const" else any(each == key or each[0] != "const" for each in several)


def _leads_to(change: Change, sites: tuple[Site, ...], path: Path) -> bool:
    """Whether what is done at some place may come after a change, with the same object still."""
    outermost = change.sites[0][0]
    for (unit, early), (_, late) in zip(change.sites, sites, strict=False):
        if early != late:
            return _leads(unit, early, late, path[0] if unit is outermost else -1)  # type: ignore[arg-type]
    return False  # one calls the other


def _leads(unit: Unit, early: int, late: int, made: int) -> bool:
    """Whether a way leads from a value to another one that does not come by a third."""
    blocks, values = unit.code.blocks, unit.code.values
    start, end = values[early].block, values[late].block
    if start == end and early < late:
        return not early < made < late
    stop = values[made].block if made >= 0 else -1
    if stop == end and made < late:
        return False
    ways = (*blocks[start].successors(), *blocks[start].handlers)
    return any(end in reachable(unit.code, but=stop, start=way) for way in ways)


def _are_opposite(flow: Flow, change: Change, other: Change) -> bool:
    """Whether of two changes each rank makes one: where one is made, a condition fails under which the other one is."""
    for (unit, one), (_, two) in zip(change.sites, other.sites, strict=False):
        if one != two:
            assumed: Assumed = {}
            for _, key, holds in _around(flow, unit, one):
                assumed = assume(assumed, key, holds)
            return any(holding(key, assumed) is (not holds) for _, key, holds in _around(flow, unit, two))
    return False


def _around(flow: Flow, unit: Unit, number: int) -> Iterator[tuple[int, Condition, bool]]:
    """The conditions that decide whether a value is reached: the test, its key, and whether that holds there."""
    blocks, keys = unit.code.blocks, keys_of(flow, unit)
    for branch, way in unit.control.settled(unit.code.values[number].block):
        test = blocks[branch].end[1]
        key, positive = keys.test(test)
        yield test, key, positive is (way == blocks[branch].end[2])
