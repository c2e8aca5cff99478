"""By which tests of a loop's number a place is reached, or a condition comes true, in a round of the loop.

The tests may stand in functions that the loop calls: in what gives a condition (`if self.closes(index)`), or around
the place itself. They are computed as `loop_rounds` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from operator import itemgetter
from typing import NamedTuple

from validator.definitions import Method
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.training.loop_rounds import (
    COMPARED,
    FEW,
    MANY,
    SIZES,
    NotComputed,
    Term,
    Tried,
    passed_by,
)

_WAYS = 16  # ways to one place, beyond which no more are told apart
_MAKING = frozenset({"__init__", "__post_init__"})
_ASKING = frozenset({"hasattr", "isinstance", "callable", "bool", "len"})

Calls = tuple[Place, ...]  # calls that lead to another function, that of the loop first


class Switch(NamedTuple):
    """A comparison that decides over something, which happens where it comes out as `holds`."""

    test: Place
    holds: bool
    calls: Calls = ()

    @property
    def at(self) -> Place:
        """Where the loop comes to the test: the call that leads there, or the test itself."""
        return self.calls[0] if self.calls else self.test

    @property
    def header(self) -> int:
        return self.at.unit.code.blocks[self.at.value.block].loop


class Way(NamedTuple):
    """Comparisons that together bring something about; `whole`: whether nothing else decides, that may change between
    rounds."""

    switches: tuple[Switch, ...]
    whole: bool = True


class _Case(NamedTuple):
    """For some sizes what ways are open in each round; `is_even`: whether the sizes divide each other."""

    is_even: bool
    rounds: list[tuple[bool, ...]]


def coincide(one: Way, other: Way) -> bool:
    """Whether in some round of the loop in which the comparisons of two ways stand all of both come out as they are to,
    whatever the sizes above one that divide each other evenly, and for which those of the second one come out so at
    all; False where one of them cannot be computed."""
    return any(_asked(_coincide, one, other))


def _coincide(cases: Iterator[_Case]) -> bool:
    found = 0
    for case in cases:
        met = [open_one for open_one, open_other in case.rounds if open_other] if case.is_even else []
        if met and not any(met):
            return False
        found += bool(met)
    return found >= FEW


def coincide_unevenly(one: Way, other: Way) -> bool:
    """Whether one way is open in all rounds in which another one is, whatever the sizes that do not divide each other;
    False where there are hardly such rounds, or something decides over the first that cannot be computed."""
    answers = list(_asked(_coincide_unevenly, one, other)) if one.whole else []
    return bool(answers) and all(answers)


def _coincide_unevenly(cases: Iterator[_Case]) -> bool:
    found = 0
    for case in cases:
        met = [open_one for open_one, open_other in case.rounds if open_other] if not case.is_even else []
        if not all(met):
            return False
        found += bool(met)
    return found >= FEW


def _asked(question: Callable[[Iterator[_Case]], bool], *ways: Way) -> Iterator[bool]:
    """A question about ways in one loop, with its variables taken apart or not, as far as they can be computed."""
    switches = [switch for way in ways for switch in way.switches]
    places = {(switch.at.unit, switch.header) for switch in switches}
    unit, header = min(places, key=itemgetter(1))
    loop = unit.code.loops.get(header) if len(places) == 1 else None
    if loop is None:
        return
    for expands in (False, True):
        tried = [[(Tried(s.test, s.calls or (s.test,), loop, expands), s.holds) for s in w.switches] for w in ways]
        try:
            yield question(_cases(tried))
        except NotComputed:
            continue


def _cases(ways: list[list[tuple[Tried, bool]]]) -> Iterator[_Case]:
    loops = [loop for way in ways for loop, _ in way]
    met: dict[Term, int] = {}
    for loop in loops:
        loop.terms = met
        loop.case(0, [])
    for sizes in product(SIZES[1:], repeat=len(met)) if 0 < len(met) <= MANY else ():
        terms = dict(zip(met, sizes, strict=True))
        for loop in loops:
            loop.terms = terms
        several = loops[0].rounds()
        if len(several) > 1:
            numbers = range(len(several))
            rounds = [tuple(all(t.case(n, several) is holds for t, holds in way) for way in ways) for n in numbers]
            yield _Case(all(max(a, b) % min(a, b) == 0 for a in sizes for b in sizes), rounds)


def deciding(place: Place, calls: Calls = ()) -> Iterator[Switch]:
    """The comparisons by whose outcome a place is reached, in the same loop."""
    blocks = place.unit.code.blocks
    for branch, way in place.unit.control.settled(place.value.block):
        end = blocks[branch].end
        test, holds = place.value_at(end[1]).asserted(way == end[2])
        if test.value.op == "compare" and blocks[branch].loop == blocks[place.value.block].loop:
            yield Switch(test, holds, calls)


def ways_to(place: Place, calls: Calls = ()) -> list[Way]:
    """The ways by which a place is reached in a round of its loop, as far as they hang on the loop's number: each is
    enough, where nothing else stands against it. Behind `if a or b` either of both, behind `if a and b` both at once.
    `calls`: those that lead from the loop to the function in which the place stands.
    """
    return [way for way in map(_of_rounds, _come_to(place, calls)) if way.switches]


def ways_of(place: Place, condition: Place, holds: bool, calls: Calls = ()) -> list[Way]:
    """The ways by which a place is reached in a round of its loop and a condition comes out so there."""
    found = _both(_come_to(place, calls), _outcomes(condition, holds, calls))
    return [way for way in map(_of_rounds, found) if way.switches]


def _come_to(place: Place, calls: Calls) -> list[Way]:
    found = [Way(())]
    for number, each in enumerate((*calls, place)):
        found = _both(found, _reaching(each, each.value.block, calls[:number]))
    return found


def _reaching(place: Place, block: int, calls: Calls) -> list[Way]:
    """The ways to a block of the function of a place, in the same loop."""
    control, blocks = place.unit.control, place.unit.code.blocks
    loop = blocks[block].loop
    settled = [row for row in control.settled(block) if blocks[row[0]].loop == loop != row[0]]
    found = [Way((), whole=not calls or loop < 0)]
    for row in settled:
        found = _both(found, _by(place, row, calls))
    for each in (block, *(branch for branch, _ in settled)):
        arms = [row for row in control.arms.get(each, ()) if blocks[row[0]].loop == loop]
        if len(arms) > 1:
            found = _both(found, [way for row in arms for way in _by(place, row, calls)])
    return found


def _by(place: Place, row: tuple[int, int], calls: Calls) -> list[Way]:
    """The ways by which a branch goes one way."""
    kind, *end = place.unit.code.blocks[row[0]].end
    return _outcomes(place.value_at(end[0]), row[1] == end[1], calls) if kind == "branch" else [Way((), False)]


def _outcomes(place: Place, holds: bool, calls: Calls) -> list[Way]:
    """The ways by which a condition comes out so; an empty one where that hangs on something else."""
    place, holds = place.asserted(holds)
    while calls and place.value.op == "param" and (given := passed_by(calls[-1], place)) is not None:
        calls = calls[:-1]
        place, holds = given.asserted(holds)
    if place.value.op == "compare":
        return [Way((Switch(place, holds, calls),))]
    chosen = _short_circuit(place)
    if chosen is not None:
        return _of_parts(
            [_outcomes(part, holds, calls) for part in map(place.value_at, place.value.args)], chosen is holds
        )
    unit = _asked_unit(place)
    if unit is None or unit is place.unit or any(unit is call.unit for call in calls):
        return [Way((), _stays(place))]
    ends = [(block, each.end[1]) for block, each in enumerate(unit.code.blocks) if each.end[0] == "return"]
    inner = (*calls, place)
    return [way for block, end in ends for way in _given_back(Place(place.flow, unit, end), block, holds, inner)]


def _of_parts(parts: list[list[Way]], is_any: bool) -> list[Way]:
    if is_any:
        return [way for part in parts for way in part]
    found = [Way(())]
    for part in parts:
        found = _both(found, part)
    return found


def _given_back(value: Place, block: int, holds: bool, calls: Calls) -> list[Way]:
    """The ways by which a function comes to one of its ends and gives back what comes out so."""
    if value.value.op == "const":
        return _reaching(value, block, calls) if bool(value.value.data) is holds else []
    return _both(_reaching(value, block, calls), _outcomes(value, holds, calls))


def _asked_unit(place: Place) -> Unit | None:
    """The one function of the project that a call runs, or that a property is."""
    if place.value.op == "call":
        site = place.result.sites.get(place.number)
        units = {target.unit for target in site.targets} if site is not None and not site.away else set()
    elif place.value.op == "attr":
        units = {unit for unit in map(place.flow.unit_of, _properties(place)) if unit is not None}
    else:
        return None
    return units.pop() if len(units) == 1 else None


def _properties(place: Place) -> list[Method]:
    """The properties that an attribute reads."""
    classes = {o[1] for o in place.operand(0).closed.each if o[0] in ("inst", "self")}
    found = (
        each for cls in classes for each in (cls.find(place.value.data), *cls.find_below(place.value.data).values())
    )
    return list(dict.fromkeys(method for method in found if method is not None and method.facts.is_property))


def _short_circuit(place: Place) -> bool | None:
    """Which outcome of one part is that of the whole: True of `a or b`, False of `a and b`; None of other values."""
    value, code = place.value, place.unit.code
    if value.op != "phi" or len(value.args) < 2:
        return None
    ends = [(number, code.blocks[code.values[number].block].end) for number in value.args[:-1]]
    if any(end[:2] != ("branch", number) for number, end in ends):
        return None
    outcomes = {end[2] == value.block for _, end in ends}
    decided = all(value.block in end[2:] and end[2] != end[3] for _, end in ends)
    return outcomes.pop() if decided and len(outcomes) == 1 else None


def _both(one: list[Way], other: list[Way]) -> list[Way]:
    """The ways that take one of the first and one of the second; only the first, where there are too many."""
    pairs = product(one, other)
    found = [Way(tuple(dict.fromkeys((*a.switches, *b.switches))), a.whole and b.whole) for a, b in pairs]
    return found if len(found) <= _WAYS else [way._replace(whole=False) for way in one]


def _of_rounds(way: Way) -> Way:
    """The comparisons of a way that can be computed in the loop in which they stand."""
    computed = tuple(switch for switch in way.switches if _is_computed(switch))
    left = (switch.test for switch in way.switches if switch not in computed)
    return Way(computed, way.whole and all(map(_stays, left)))


def _is_computed(switch: Switch) -> bool:
    loop = switch.at.unit.code.loops.get(switch.header)
    if loop is None or switch.test.value.data not in COMPARED:
        return False
    for expands in (False, True):
        try:
            Tried(switch.test, switch.calls or (switch.test,), loop, expands).case(0, [])
        except NotComputed:
            continue
        return True
    return False


def _stays(place: Place) -> bool:
    """Whether a value surely is the same in all rounds of a loop: made of constants, parameters, and of attributes
    that objects get when they are made."""
    place = place.root
    value = place.value
    if value.op in ("const", "import", "param"):
        return True
    if value.op == "name":
        return any(o[0] in ("ext", "unit", "class", "module") for o in place.val.each)
    if value.op == "attr":
        return _is_field(place) and _stays(place.operand(0))
    if value.op == "call":
        asked = place.method in _ASKING and place.operand(0).value.op == "name"
        return asked and all(_stays(place.value_at(number)) for number in value.args[1:])
    parts = value.args if value.op in ("unary", "binary", "compare") or _short_circuit(place) is not None else ()
    return bool(parts) and all(_stays(place.value_at(number)) for number in parts)


def _is_field(place: Place) -> bool:
    """Whether an attribute is one of an object of the program, and stored where such objects are made alone."""
    name, owners = place.value.data, place.operand(0).closed.each
    if not owners or any(o[0] not in ("inst", "self") for o in owners):
        return False
    methods = [o[1].find(name) for o in owners] + [each for o in owners for each in o[1].find_below(name).values()]
    writers = place.flow.stores.writers(name)
    return not any(methods) and all(each.name.rpartition(".")[2] in _MAKING for each in writers)
