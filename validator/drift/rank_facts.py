"""What a function does among ranks, as the flow knows it in both revisions, and where the two no longer agree.

Facts are compared, not text: over which group a collective works and on what, by which number of ranks a value is
scaled, which part of something is this rank's, which ranks have files of their own. A function that was rewritten, or
did the same under another name, says the same in both revisions.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from functools import cache, cached_property
from typing import NamedTuple

from validator.domains.axes import LOCAL, NODE, SOME, WHOLE, Axes, axes_of
from validator.domains.spmd import UNIFORM, Causes, only, varying
from validator.drift.change import Change, Pair, Side
from validator.drift.rank_blocks import part_taken
from validator.drift.statements.differences import Edit, Statement, in_head
from validator.drift.statements.drops import Drops
from validator.drift.statements.intention import Intention
from validator.drift.statements.named_effects import collective, table
from validator.drift.statements.surroundings import (
    called_names,
    condition,
    is_about_rank,
    is_about_ranks,
    last_name,
    names_called,
)
from validator.effects.files import Files
from validator.finding import Severity
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, numbers_of, spanned
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.random_draws import drawn_apart, draws, orders, rows_of
from validator.flow.queries.ranks.rank_shares import axes_of_rank
from validator.flow.substitution import instantiated_causes
from validator.models import models
from validator.project import Project

_ALIKE = "alike"
_FEW = 3  # edits of a function, beyond which it does something else now
_ORDERED = frozenset({"sorted", "list", "tuple"})
_SCALING = {"Div": "divided", "FloorDiv": "divided", "Mult": "multiplied"}
_LOST = frozenset({"collective", "scale"})  # kinds of facts of which it matters, too, that nothing is said any more
_FROM_ELSEWHERE = frozenset({"param", "attr", "free", "item", "unpack", "name"})  # who gave it may have made it alike
_SIDES = {"Add": "after", "Sub": "before"}
_POSITIONS = {"Mod": "remainder", "FloorDiv": "quotient"}
_AMONG = {WHOLE: "the whole job", frozenset({LOCAL}): "one host", frozenset({NODE}): "the hosts"}


class Fact(NamedTuple):
    """What is said of one thing. `about`: the thing, the same in both revisions; `said`: axes, or another description;
    `text`: both in words."""

    kind: str
    about: Hashable
    said: Hashable
    text: str
    place: Place
    named: bool = True  # whether the thing has a name, by which it is found again


class Differing(NamedTuple):
    """A fact that holds no longer, and the one in its stead (None: nothing is said of the thing any more)."""

    pair: Pair
    old: Fact
    new: Fact | None
    line: int
    severity: Severity = "warning"


class RankFacts:
    """The facts about ranks that a change altered."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def differing(self) -> list[Differing]:
        found: list[Differing] = []
        for pair, old, new, edits in self.change.analysis(Drops).small:
            if 0 < len(edits) <= _FEW and not is_test(pair.new.path):
                found += self._of_pair(pair, old, new, edits)
                found += self._of_some(pair, new, edits)
        came = {(fact.kind, fact.said) for fact in self._came} if any(each.new is None for each in found) else set()
        return [each for each in found if each.new is not None or (each.old.kind, each.old.said) not in came]

    def _of_pair(
        self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]
    ) -> Iterator[Differing]:
        held = [each.old for each in edits if each.old is not None and self._may_tell(each.old, pair)]
        if not held or not any(_facts(self.change.before, pair.old, held)):
            return  # what the edited statements do is asked first: to follow a whole function takes its time
        before, after = _by_thing(self.change.before, pair.old), _by_thing(self.change.after, pair.new)
        if any(key[0] == "collective" and key not in before for key in after):
            return  # it meets the other ranks in another way now: what goes with that is meant
        for key, facts in before.items():
            others: Sequence[Fact | None] = after.get(key, [])
            if len(facts) == 1 and not others:
                others = [_left_own(self.change.after, pair.new, facts[0])]
            if len(facts) != len(others) or not all(fact.named for fact in facts):
                continue
            for fact, other in zip(facts, others, strict=True):
                edit = next((each for each in edits if _holds(each.old, fact.place)), None)
                if edit is None or fact.kind == "result" and not all(_is_return(each) for each in edit):
                    continue
                if fact.kind == "result" and (self._meet_elsewhere(pair) or self._is_let_go(edit)):
                    continue
                if other is None:
                    if fact.kind in _LOST and not _is_called_still(pair, fact):
                        yield Differing(pair, fact, None, _next_line(old, new, edit))
                elif fact.said != other.said and other.said != _ALIKE and not _is_renamed(pair, fact, other):
                    yield Differing(pair, fact, other, other.place.at[0])

    def _meet_elsewhere(self, pair: Pair) -> bool:
        """Whether ranks meet less often in a function than before the change, and more often in another one."""
        if not _met(pair.old) - _met(pair.new):
            return False
        others = (each for each in self.change.pairs if each is not pair)
        return any(_met(each.new) - _met(each.old) for each in others)

    def _is_let_go(self, edit: Edit) -> bool:
        """Whether the change takes away a function that a statement called: ranks no longer meet in this way at all."""
        names = names_called(edit.old.node) if edit.old is not None else set()
        return any(name in self.change.before.methods and name not in self.change.after.methods for name in names)

    def _of_some(self, pair: Pair, new: list[Statement], edits: list[Edit]) -> Iterator[Differing]:
        """The calls that change what each rank has, and that a condition now leaves to some ranks. A warning where it
        is made of a test of the rank elsewhere; where it tests the rank right here, somebody wrote so: a note."""
        if not any(_speaks_of_ranks(edit.new) for edit in edits if edit.new is not None):
            return
        before, after = (
            _alone(side, unit) for side, unit in ((self.change.before, pair.old), (self.change.after, pair.new))
        )
        for text, place in after.items():
            statement = next((each for each in new if each.node.lineno == place.at[0]), None)
            was = before.get(text)
            if was is None or statement is None:
                continue
            if _ranks_around(place) and not _ranks_around(was) and _changes_state(place):
                old = Fact("reach", text, "all", f"all ranks made the call `{text}`", was)
                some = Fact("reach", text, "some", "only some ranks make it", place)
                severity: Severity = "note" if any(map(_asks_for_rank, statement.inside)) else "warning"
                yield Differing(pair, old, some, place.at[0], severity)

    def _may_tell(self, statement: Statement, pair: Pair) -> bool:
        """Whether a statement scales something, or calls what a library or the project has, or gives back what may have
        come out of a collective: no other tells of ranks."""
        if isinstance(statement.node, ast.Return) and not collective().isdisjoint(called_names(pair.old)):
            return True
        for node in in_head(statement.node):
            if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op).__name__ in (*_SCALING, *_POSITIONS):
                return True
            if isinstance(node, ast.Subscript) and is_about_rank(node.slice):
                return True
            name = last_name(node.func) if isinstance(node, ast.Call) else ""
            if name in _of_libraries() or name in _seeding() or name in _ORDERED or name in self.change.before.methods:
                return True
        return False

    @cached_property
    def _came(self) -> list[Fact]:
        """The facts of changed code that were not there before: what moved is not lost."""
        found: list[Fact] = []
        for old, new in self.change.modules:
            was = self.change.before.units(old) if old is not None else {}
            for key, unit in self.change.after.units(new).items() if new is not None else ():
                known = _by_thing(self.change.before, was[key]) if key in was else {}
                found += [f for thing, facts in _by_thing(self.change.after, unit).items() for f in facts
                          if thing not in known]  # fmt: skip
        return found

    @cached_property
    def files(self) -> list[tuple[Pair, str, Axes, Axes]]:
        """Files that other ranks have for their own now: where, their name, and the axes that told them apart before
        and do so no longer, and those that do now."""
        words: Intention = self.change.analysis(Intention)
        touched = [
            pair
            for pair in self.change.pairs
            if pair.new.code.kind == "function" and any("rank" in word.lower() for word in words.changed_in(pair))
        ]
        if not touched:
            return []
        before, after = (_apart(side) for side in (self.change.before, self.change.after))
        found = []
        for pair in touched:
            for name in sorted(before.keys() & after.keys()):
                if before[name].isdisjoint(after[name]) and _names(pair.old, name):
                    was, now = (frozenset[str]().union(*several[name]) for several in (before, after))
                    if was - now and not (was | now) & SOME:
                        found.append((pair, name, was - now, now))
        return found


def among(axes: Axes) -> str:
    """Axes in words."""
    return _AMONG.get(axes) or f"ranks along {', '.join(sorted(axes))}"


def _by_thing(side: Side, unit: Unit) -> dict[tuple[str, Hashable], list[Fact]]:
    found: dict[tuple[str, Hashable], list[Fact]] = {}
    for fact in _facts(side, unit):
        found.setdefault((fact.kind, fact.about), []).append(fact)
    return found


def _facts(side: Side, unit: Unit, within: list[Statement] | None = None) -> Iterator[Fact]:
    """The facts of a unit, or of some of its statements."""
    results = _of_results(side, unit)
    yield from (fact for fact in results if within is None or any(_holds(each, fact.place) for each in within))
    names = {number: name for name, numbers in unit.code.definitions.items() for number in numbers}
    for number, value in enumerate(unit.code.values):
        place = Place(side.flow, unit, number)
        if within is not None and not any(_holds(each, place) for each in within):
            continue
        if value.op == "call":
            yield from _of_call(place)
            yield from _of_agreement(place, names)
            yield from _of_order(place, names)
            yield from _of_seeds(place)
            yield from _of_generators(place, names)
        elif value.op == "binary":
            yield from _of_scale(place, names) if value.data in _SCALING else ()
            yield from _of_position(place, names) if value.data in _POSITIONS else ()
            yield from _of_divisor(place, names) if _SCALING.get(value.data) == "divided" else ()
        if value.op == "item" and (taken := part_taken(place)) is not None:
            yield Fact("part", taken[0], taken[1], f"`{taken[0]}` is dealt out {taken[1]}", place)
        if value.op in ("item", "unpack") and number in names and UNIFORM in place.val.v:
            text = f"all ranks had the same value of `{names[number]}`"
            yield Fact("agreement", names[number], _ALIKE, text, place)


def _of_results(side: Side, unit: Unit) -> Iterator[Fact]:
    """Which parts of what a unit returns a collective has made alike on all ranks."""
    for number in unit.code.returned if len(unit.code.returned) == 1 else ():
        at = Place(side.flow, unit, number)
        for index, part in enumerate(at.value.args if at.value.op == "tuple" else (number,)):
            place = at.value_at(part)
            if UNIFORM in place.val.v:
                yield Fact("result", index, _ALIKE, f"`{unit.name}` gave back the same on all ranks", at)
            elif place.val.v:
                yield Fact("result", index, "else", f"it gives back `{place.text}` as each rank has it", at)


def _of_call(place: Place) -> Iterator[Fact]:
    site = place.result.sites.get(place.number)
    for operation in site.operations if site is not None and not site.targets else ():
        axes, sure = spanned(operation.group, _group_hint(place, operation.row))
        given = operation.row.tensor or operation.row.equal or operation.row.reads
        tensor = place.argument(*given) if given is not None else None
        if tensor is not None and tensor.text:
            text = f"`{operation.name}` of `{tensor.text}` is among {among(axes)}"
            yield Fact("collective", (operation.name, tensor.text), axes if axes != SOME else sure, text, place)


def _of_agreement(place: Place, names: dict[int, str]) -> Iterator[Fact]:
    """Whether what is drawn at random, or else asked of the process, is the same on all ranks: where a collective gives
    it, or a generator with a seed that no rank has for itself."""
    rows = [row for _, row in rows_of(place) if row is not None]
    mixes = next((row.mixes for row in rows if row.mixes is not None), None)
    mixed = place.argument(*mixes) if mixes is not None else None
    thing = _named(place, names) if mixed is None else names.get(mixed.root.number) or mixed.hint
    if not thing:
        return
    causes = place.val.v if mixed is None else drawn_apart(place)
    if mixed is None and orders(place):
        causes |= drawn_apart(place)
    causes = instantiated_causes(causes, lambda position: place.flow.parameters.assumed(place.unit, position))
    kind = "order" if mixed is not None else "value"
    if UNIFORM in causes or draws(place) and not varying(causes):
        yield Fact("agreement", thing, _ALIKE, f"all ranks had the same {kind} of `{thing}`", place)
    elif varying(causes) and (draws(place) or any(map(_is_asked_of_process, place.sources))):
        word = "draws" if draws(place) else "has"
        yield Fact("agreement", thing, "own", f"each rank {word} its own {kind} of `{thing}`", place)


def _left_own(side: Side, unit: Unit, fact: Fact) -> Fact | None:
    """What is said of a variable that a collective no longer makes alike, where each rank surely has its own."""
    numbers = unit.code.definitions.get(str(fact.about), ()) if fact.kind == "agreement" else ()
    places = (Place(side.flow, unit, number) for number in numbers)
    own = [place for place in places if place.users and varying(place.closed.v)]
    if not own:
        return None
    return Fact("agreement", fact.about, "own", f"each rank has its own `{fact.about}`", own[-1])


def _of_order(place: Place, names: dict[int, str]) -> Iterator[Fact]:
    """Whether a variable holds things in an order that is the same in each process: that of a set of texts is not."""
    name = names.get(place.number)
    if name is None or place.method not in _ORDERED:
        return
    if any(o[1] == "set" for o in place.val.of("unordered")):
        text = f"each process has an order of its own of `{name}`, that of a set,"
        yield Fact("order", name, "own", text, place)
    elif not place.val.of("unordered"):
        yield Fact("order", name, _ALIKE, f"`{name}` was in the same order on all ranks", place)


def _named(place: Place, names: dict[int, str]) -> str:
    """The variable that holds a value, or the first part of it."""
    parts = (user.number for user in place.users if user.value.op == "unpack")
    return next((names[number] for number in (place.number, *parts) if number in names), "")


def _of_seeds(place: Place) -> Iterator[Fact]:
    """Whether ranks seed a state alike out of which the same function draws an order, or PyTorch's own in a program
    that splits tensors over ranks: those of one group must draw the same dropout."""
    seeded = _seeded(place)
    seed = place.argument("seed", 0) if seeded else None
    if seed is None:
        return
    calls = (place.value_at(number) for number in numbers_of(place.unit, ("call",)))
    orders_here = any(seeded & _mixing(call) for call in calls)
    if not orders_here and not ("torch" in seeded and place.flow.project.analysis(_TensorParallel).used):
        return
    library = min(seeded)
    causes = instantiated_causes(seed.val.v, lambda position: place.flow.parameters.assumed(place.unit, position))
    if not varying(causes):
        yield Fact("agreement", f"the seed of {library}", _ALIKE, f"all ranks had the same seed of `{library}`", place)
    elif (own := only(causes, "rank", "member")) and (orders_here or any(cause.axis != "dp" for cause in own)):
        why = "out of which an order is drawn here" if orders_here else "also within a tensor-parallel group"
        text = f"each rank has its own, `{seed.text}`, {why}"
        yield Fact("agreement", f"the seed of {library}", "own", text, place)


class _TensorParallel:
    """Whether a project has functions of its own about the ranks among which tensors are split."""

    def __init__(self, project: Project) -> None:
        self.used = any("tp" in axes_of(method.name) for method in project.functions())


def _of_generators(place: Place, names: dict[int, str]) -> Iterator[Fact]:
    """Whether ranks seed a generator alike out of which the same function draws an order."""
    generator = place.receiver if place.method in _seeding() else None
    seed = place.argument("seed", 0) if generator is not None else None
    if generator is None or seed is None:
        return
    calls = (place.value_at(number) for number in numbers_of(place.unit, ("call",)))
    if not any(_is_same(generator, call) for call in calls if orders(call)):
        return
    name = names.get(generator.root.number) or generator.hint
    thing = f"the seed of {name}"
    causes = instantiated_causes(seed.val.v, lambda position: place.flow.parameters.assumed(place.unit, position))
    if not varying(causes):
        yield Fact("agreement", thing, _ALIKE, f"all ranks had the same seed of `{name}`", place)
    elif only(causes, "rank", "member"):
        text = f"each rank has its own, `{seed.text}`, out of which an order is drawn here"
        yield Fact("agreement", thing, "own", text, place)


@cache
def _seeding() -> frozenset[str]:
    """The last names of the calls that seed a generator or a library."""
    return frozenset(name.rpartition(".")[2] for calls in models().seeds.values() for name in calls)


def _is_same(generator: Place, call: Place) -> bool:
    """Whether a call draws out of a generator."""
    given = call.argument("generator") or call.receiver
    return given is not None and given.root.value.at == generator.root.value.at


def _seeded(call: Place) -> frozenset[str]:
    """The libraries whose random state a call seeds."""
    paths = {o[1] for o in call.operand(0).val.each if o[0] == "ext"}
    return frozenset(name for name, calls in models().seeds.items() if not paths.isdisjoint(calls))


def _mixing(call: Place) -> frozenset[str]:
    """The libraries out of whose random state a call draws an order."""
    rows = [row for _, row in rows_of(call) if row is not None]
    return frozenset(row.draws for row in rows if row.draws and (row.orders or row.mixes is not None))


def _is_asked_of_process(place: Place) -> bool:
    """Whether a call asks for what each process has for itself: its clock, say."""
    return place.value.op == "call" and any(row is not None and row.result == "own" for _, row in rows_of(place))


def _group_hint(place: Place, row: object) -> str:
    which = getattr(row, "group", None)
    group = place.argument(*which) if which else None
    return group.hint if group is not None else ""


def _of_scale(place: Place, names: dict[int, str]) -> Iterator[Fact]:
    """By which numbers of ranks a product or quotient multiplies or divides, however it is bracketed."""
    if any(user.value.op == "binary" and user.value.data in _SCALING for user in place.users):
        return  # a part of a larger one
    factors = list(_factors(place, False))
    counts = [(leaf, inverse) for leaf, inverse in factors if leaf.val.of("size") and len(leaf.val.objs) == 1]
    rest = [leaf for leaf, _ in factors if not leaf.val.of("size")]
    if len(counts) != 1 or not rest or any(axes_of_rank(leaf) != SOME for leaf in rest):
        return
    (count, inverse), scaled = counts[0], rest[0]
    axes, _ = spanned(next(iter(count.val.of("size")))[1], "")
    thing = names.get(place.number) or scaled.hint
    word = "divided" if inverse else "multiplied"
    text = f"`{scaled.text}` is {word} by the number of {'all ranks' if axes == WHOLE else among(axes)}"
    yield Fact("scale", (word, thing), axes, text, place, bool(thing))


def _factors(place: Place, inverse: bool) -> Iterator[tuple[Place, bool]]:
    """The factors of a product, and whether each divides."""
    for index in (0, 1):
        part, under = place.operand(index), inverse != (index == 1 and place.value.data != "Mult")
        if part.value.op == "binary" and part.value.data in _SCALING:
            yield from _factors(part, under)
        else:
            yield part, under


def _of_divisor(place: Place, names: dict[int, str]) -> Iterator[Fact]:
    """Whether a quotient is by a number that a collective gave all ranks, or by what is counted of something else."""
    divisor = place.operand(1)
    thing = names.get(place.number) or place.operand(0).hint
    if divisor.value.op == "const" or not thing or divisor.val.of("size"):
        return
    if UNIFORM in divisor.val.v:
        text = f"`{thing}` was divided by `{divisor.text}`, which a collective gave all ranks"
        yield Fact("divisor", thing, _ALIKE, text, place)
    elif divisor.root.value.op not in _FROM_ELSEWHERE:
        yield Fact("divisor", thing, "own", f"it is divided by `{divisor.text}`, which no collective gave them", place)


def _of_position(place: Place, names: dict[int, str]) -> Iterator[Fact]:
    divisor = place.operand(1)
    axes = axes_of_rank(place.operand(0))
    shifted = place.operand(0).root
    is_shifted = place.value.data == "Mod" and shifted.value.op == "binary" and shifted.value.data in _SIDES
    if is_shifted and axes_of_rank(shifted.operand(0)) != SOME and not varying(shifted.operand(1).val.v):
        side = _SIDES[shifted.value.data]
        yield Fact("neighbour", shifted.operand(1).text, side, f"`{place.text}` is a rank {side} this one", place)
    if axes != SOME and (thing := names.get(place.number, "") or _taken_from(place)):
        word = _POSITIONS[place.value.data]
        shown = f"the index into `{thing[:-2]}`" if thing.endswith("[]") else f"`{thing}`"
        text = f"{shown} is the {word} of a rank by `{divisor.text}`"
        yield Fact("position", thing, (axes, word, _called(divisor)), text, place)


def _taken_from(place: Place) -> str:
    """That of which a value says which element is taken; empty where it is no index."""
    users = [user for user in place.users if user.value.op == "item" and user.value.args[1] == place.number]
    return f"{users[0].operand(0).text}[]" if users else ""


@cache
def _of_libraries() -> frozenset[str]:
    return frozenset(name.rpartition(".")[2] for name in models().calls)


def _met(unit: Unit) -> Counter[str]:
    """How often a unit calls each collective."""
    return Counter({name: count for name, count in called_names(unit).items() if name in collective()})


def _is_called_still(pair: Pair, fact: Fact) -> bool:
    """Whether a collective is called as often as before, by its name: on an object that knows its group, say."""
    if fact.kind != "collective":
        return False
    before, after = (called_names(unit)[fact.place.method] for unit in pair)
    return after >= before


def _speaks_of_ranks(statement: Statement) -> bool:
    return any(isinstance(node, ast.expr) and is_about_ranks(node) for node in in_head(statement.node))


def _asks_for_rank(head: str) -> bool:
    test = condition(head)
    return test is not None and is_about_ranks(test)


def _alone(side: Side, unit: Unit) -> dict[str, Place]:
    """The calls of a unit whose results nobody takes, by their text, where that stands once."""
    found: dict[str, list[Place]] = {}
    for number in numbers_of(unit, ("call",)):
        place = Place(side.flow, unit, number)
        if all(user.value.op == "mut" for user in place.users):
            found.setdefault(place.text, []).append(place)
    return {text: places[0] for text, places in found.items() if len(places) == 1}


def _ranks_around(place: Place) -> Causes:
    return only(place.around(), "rank", "member")


def _changes_state(call: Place) -> bool:
    """Whether a method changes its object, or tensors in place, and neither writes files nor tells people anything."""
    site = call.result.sites.get(call.number)
    units = [target.unit for target in site.targets] if site is not None else []
    names = {str(name) for unit in units for name in called_names(unit)}
    stores = any(value.op == "store_attr" for unit in units for value in unit.code.values)
    in_place = any(name.endswith("_") and not name.startswith("_") for name in names)
    return (stores or in_place) and names.isdisjoint({*table()["writing"], "print", "info", "log", "write"})


def _is_renamed(pair: Pair, old: Fact, new: Fact) -> bool:
    """Whether two positions only divide by what bears another name now."""
    if old.kind != "position" or old.said[:2] != new.said[:2]:  # type: ignore[index]
        return False
    was, now = _called(old.place.operand(1)), _called(new.place.operand(1))
    return not (_knows(pair.new, was) and _knows(pair.old, now))


def _called(place: Place) -> str:
    """The variable, attribute or parameter that a value stands for."""
    return place.hint or place.unit.variables.get(place.root.number, "")


def _knows(unit: Unit, name: str) -> bool:
    return name in unit.named or name in unit.code.definitions


def _holds(statement: Statement | None, place: Place) -> bool:
    """Whether a value of the old revision is in a statement."""
    if statement is None:
        return False
    line = place.value.at[0]
    return statement.node.lineno <= line <= (statement.node.end_lineno or line)


def _is_return(statement: Statement | None) -> bool:
    return statement is not None and isinstance(statement.node, ast.Return)


def _next_line(old: list[Statement], new: list[Statement], edit: Edit) -> int:
    """The line of the new function at which the lost statement would stand."""
    from validator.drift.statements.effects import line_of

    return edit.new.node.lineno if edit.new is not None else line_of(old, new, edit.old) if edit.old else 0


def _apart(side: Side) -> dict[str, set[Axes]]:
    """By name of a file the axes of the ranks that have one of their own, for each place that reads or writes it."""
    found: dict[str, set[Axes]] = {}
    for access in side.project.analysis(Files).accesses:
        if access.name and access.apart and not is_test(access.place.unit.path):
            found.setdefault(access.name, set()).add(frozenset(c.axis for c in access.apart))
    return found


def _names(unit: Unit, name: str) -> bool:
    """Whether a unit spells a part of a file's name."""
    parts = [part for part in name.replace("{rank}", "*").split("*") if len(part) > 2]
    texts = [str(value.data) for value in unit.code.values if value.op == "const" and isinstance(value.data, str)]
    return bool(parts) and any(parts[0].strip("_-.") in text for text in texts)
