"""In which rounds of a loop a test of the loop's number comes true, tried on small sizes.

A test such as `(i + size) > total` in `for i in range(0, total, size)` is computed in each round, for all small numbers
in the place of what the loop leaves alone (`total`, `size`); what a range begins with may be 0, too. What comes true in
no round then comes true in none.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator
from itertools import product
from typing import Any, NamedTuple

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of
from validator.ir.model import Loop

_SIZES = range(1, 9)
_MANY = 3  # sizes in one test, beyond which there is too much to try
_LONG = 64  # rounds of a loop whose length is written out
_FEW = 4  # cases, below which nothing is said
_WAYS = 16  # ways to one place, beyond which no more are told apart
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "FloorDiv": operator.floordiv,
    "Mod": operator.mod, "Div": operator.truediv,
}  # fmt: skip
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt,
    "GtE": operator.ge,
}  # fmt: skip
_CALLED: dict[str, Callable[..., Any]] = {
    "min": min, "max": max, "int": int, "abs": abs, "ceil": math.ceil, "floor": math.floor
}  # fmt: skip
_AROUND = frozenset({"tqdm", "trange", "list", "tuple", "iter"})  # give what they are given, in its order

Term = Hashable


class Rounds(NamedTuple):
    """A test that comes out alike in all rounds: as `outcome`. `always`: whatever the sizes, else where the smaller of
    the sizes divide the larger ones, as they mostly do."""

    test: Place
    outcome: bool
    always: bool


class Switch(NamedTuple):
    """A comparison that decides over something, which happens where it comes out as `holds`."""

    test: Place
    holds: bool


Way = tuple[Switch, ...]  # comparisons that together bring something about


class _NotComputed(Exception):
    """Something in a test is neither a number, nor the loop's, nor the same in all rounds."""


def rounds(test: Place, calls: Callable[[Unit], list[Place]]) -> Rounds | None:
    """A comparison that comes out alike in all rounds of the loop whose number it asks for; None for others.

    Where its function is given that number, in all rounds of the loops in which `calls` says that it is called.
    """
    if test.value.op != "compare" or test.value.data not in _COMPARED:
        return None
    if (own := _in_loop(test, test)) is not None:
        return own
    if not any(test.operand(i).root.value.op == "param" for i in (0, 1)):
        return None
    found = [_in_loop(test, call) for call in calls(test.unit)]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found) or len({each.outcome for each in known}) > 1:
        return None
    return known[0]._replace(always=all(each.always for each in known))


def _in_loop(test: Place, at: Place) -> Rounds | None:
    """How a test comes out in the rounds of the loop in which a place stands: its own, or the call of its function."""
    code = at.unit.code
    header = code.blocks[at.value.block].loop
    for expands in (False, True) if header in code.loops else ():
        try:
            found = _Loop(test, at, code.loops[header], expands).tried()
        except _NotComputed:
            continue
        if found is not None:
            return found
    return None


def coincide(one: Way, other: Way) -> bool:
    """Whether in some round of the loop in which the comparisons of two ways stand all of both come out as they are to,
    whatever the sizes above one that divide each other evenly, and for which those of the second one come out so at
    all; False where one of them cannot be computed."""
    tests = [switch.test for switch in (*one, *other)]
    headers = {test.unit.code.blocks[test.value.block].loop for test in tests}
    if len(headers) != 1 or len({test.unit for test in tests}) != 1:
        return False
    loop = tests[0].unit.code.loops.get(headers.pop())
    if loop is None:
        return False
    for expands in (False, True):
        try:
            if _coincide(*([(_Loop(s.test, s.test, loop, expands), s.holds) for s in way] for way in (one, other))):
                return True
        except _NotComputed:
            continue
    return False


def _coincide(one: list[tuple[_Loop, bool]], other: list[tuple[_Loop, bool]]) -> bool:
    loops = [loop for loop, _ in (*one, *other)]
    met: dict[Term, int] = {}
    for loop in loops:
        loop.terms = met
        loop._case(0, [])
    cases = 0
    for sizes in product(_SIZES[1:], repeat=len(met)) if 0 < len(met) <= _MANY else ():
        terms = dict(zip(met, sizes, strict=True))
        for loop in loops:
            loop.terms = terms
        several = loops[0]._rounds()
        if len(several) < 2 or not all(max(a, b) % min(a, b) == 0 for a in sizes for b in sizes):
            continue
        rounds = [n for n in range(len(several)) if all(each._case(n, several) is holds for each, holds in other)]
        cases += bool(rounds)
        if rounds and not any(all(each._case(n, several) is holds for each, holds in one) for n in rounds):
            return False
    return cases >= _FEW


class _Loop:
    """A loop over numbers, with a test in it, or in the function that `at` calls there. `expands`: whether a variable
    from before the loop is what it was made of, not a size of its own."""

    def __init__(self, test: Place, at: Place, loop: Loop, expands: bool) -> None:
        self.test = test
        self.at = at
        self.loop = loop
        self.expands = expands
        self.named = at.unit.variables
        self.terms: dict[Term, int] = {}  # what stands for a size, with its value in the case at hand
        self.of_loop: dict[str, int] = {}  # the number of the loop in the round at hand, by what it counts
        self.starts: set[Term] = set()  # the terms of which the first number of a range is made
        self._starting = False  # whether that is being computed
        self._asked = False  # whether the test asks for that number

    def tried(self) -> Rounds | None:
        self._case(0, [])  # to meet the terms
        terms = list(self.terms)
        if not 0 < len(terms) <= _MANY or not self.of_loop:
            return None
        cases = even_cases = 0
        outcomes: set[bool] = set()
        evenly: set[bool] = set()  # the outcomes where sizes divide
        for sizes in product(*(range(_SIZES.stop) if term in self.starts else _SIZES for term in terms)):
            self.terms = dict(zip(terms, sizes, strict=True))
            several = self._rounds()
            if not several:
                continue
            found = {self._case(number, several) for number in range(len(several))}
            even = len(several) > 1 and all(max(a, b) % min(a, b) == 0 for a in sizes for b in sizes if a and b)
            cases, even_cases = cases + 1, even_cases + even
            outcomes |= found
            evenly |= found if even else set()
        if cases < _FEW or even_cases < _FEW or len(evenly) > 1:
            return None
        return Rounds(self.test, evenly.pop(), len(outcomes) == 1)

    def _rounds(self) -> list[int]:
        """The numbers that the loop goes through; of one over a list their places."""
        counted = self._counted()
        if self._is_range(counted):
            bounds = [self._bound(counted, i) for i in range(1, len(counted.value.args))]
            if not 0 < len(bounds) < 4 or not all(isinstance(each, int) for each in bounds) or bounds[2:] == [0]:
                raise _NotComputed
            if len(range(*bounds)) > _LONG:
                raise _NotComputed
            return list(range(*bounds))
        return list(range(self._size(("len", self._term(counted)))))

    def _bound(self, counted: Place, index: int) -> Any:
        self._starting = index == 1 and len(counted.value.args) > 2
        number = self._number(counted.operand(index))
        self._starting = False
        return number

    def _counted(self) -> Place:
        """What the loop goes through, without `enumerate`."""
        place = self._iterable()
        return self._within(place.operand(1)) if self._is_counting(place) else place

    def _iterable(self) -> Place:
        if self.loop.iterator < 0:
            raise _NotComputed
        return self._within(self.at.value_at(self.loop.iterator).operand(0))

    @staticmethod
    def _within(place: Place) -> Place:
        place = place.root
        while place.value.op == "call" and place.method in _AROUND and len(place.value.args) > 1:
            place = place.operand(1).root
        return place

    @staticmethod
    def _is_range(place: Place) -> bool:
        return place.value.op == "call" and place.method == "range"

    @staticmethod
    def _is_counting(place: Place) -> bool:
        return place.value.op == "call" and place.method == "enumerate" and len(place.value.args) == 2

    def _case(self, number: int, several: list[int]) -> bool:
        """Whether the test holds in one round."""
        several = several or self._rounds()
        element = several[number] if number < len(several) else 0
        self.of_loop = {"place": number, "element": element}
        left, right = (self._number(self.test.operand(i)) for i in (0, 1))
        if not self._asked:
            raise _NotComputed
        return bool(_COMPARED[self.test.value.data](left, right))

    def _passed(self, place: Place) -> Place:
        """A value as the loop's function spells it: what a call passes for a parameter."""
        if place.unit is self.at.unit or place.value.op != "param":
            return place
        given = argument_of(self.at.unit, self.at.number, place.unit, place.value.data[0])
        return place if given is None else self.at.value_at(given).root

    def _number(self, place: Place) -> Any:
        place = self._passed(place.root)
        value = place.value
        if value.op == "const" and isinstance(value.data, int | float):
            return value.data
        if (of_loop := self._of_loop(place)) is not None:
            self._asked = True
            return of_loop
        if place.number in self.named and not self.expands and not self._is_inside(place):
            return self._size(("value", place.number))
        if value.op == "unary" and value.data == "USub":
            return -self._number(place.operand(0))
        if value.op == "binary" and value.data in _BINARY:
            left, right = (self._number(place.operand(i)) for i in (0, 1))
            try:
                return _BINARY[value.data](left, right)
            except ZeroDivisionError:
                raise _NotComputed from None
        if value.op == "call" and place.method in _CALLED and value.data.names and not any(value.data.names):
            given = [self._number(place.operand(i)) for i in range(1, len(value.args))]
            if len(given) > 1 or place.method not in ("min", "max"):  # of one thing they take what is in it
                return _CALLED[place.method](*given)
        return self._size(self._term(place))

    def _size(self, term: Term) -> int:
        if self._starting:
            self.starts.add(term)
        return self.terms.setdefault(term, 1)

    def _of_loop(self, place: Place) -> int | None:
        """The number that a value is in the round at hand, if it is the loop's own."""
        position = -1
        if place.value.op == "unpack":
            position, place = place.value.data[0], place.operand(0)
        if place.unit is not self.at.unit or place.value.op != "next" or place.value.args[0] != self.loop.iterator:
            return None
        counting, is_range = self._is_counting(self._iterable()), self._is_range(self._counted())
        if counting:
            kind = "place" if position == 0 else "element" if position == 1 and is_range else ""
        else:
            kind = "element" if position < 0 and is_range else ""
        return self.of_loop.get(kind)

    def _term(self, place: Place) -> Term:
        """What a value is that is the same in all rounds, by how it is spelled."""
        place = self._passed(place.root)
        value = place.value
        if value.op in ("param", "name", "free"):
            return (value.op, str(value.data))
        if value.op == "item" and place.operand(0).root.value.data == "shape" and self._is_zero(place.operand(1)):
            return ("len", self._term(place.operand(0).root.operand(0)))
        if value.op == "attr":
            return ("attr", self._term(place.operand(0)), value.data)
        if value.op == "call" and place.method == "len" and len(value.args) == 2:
            return ("len", self._term(place.operand(1)))
        if value.op == "call" and place.method == "size" and len(value.args) == 2 and self._is_zero(place.operand(1)):
            return ("len", self._term(place.operand(0).operand(0)))
        if not self._is_inside(place):
            return ("value", place.number)
        raise _NotComputed

    @staticmethod
    def _is_zero(place: Place) -> bool:
        return bool(place.val.constant() == 0)

    def _is_inside(self, place: Place) -> bool:
        """Whether a value may be another one in each round: made in the loop, or by the function that it calls."""
        return place.unit is not self.at.unit or self.loop.header in place.unit.control.loops_around(place.value.block)


def decided_by(test: Place) -> Iterator[Place]:
    """The calls that are made or given something, and the methods that are chosen, by how a test turns out."""
    unit = test.unit
    derived, queue = {test.number}, [test.number]
    while queue:
        for user in unit.users.get(queue.pop(), ()):
            value = unit.code.values[user]
            if value.op in ("unary", "phi", "mut") and user not in derived:
                derived.add(user)
                queue.append(user)
    branches = {b for b, block in enumerate(unit.code.blocks) if block.end[0] == "branch" and block.end[1] in derived}
    for number, value in enumerate(unit.code.values):
        given = value.op in ("call", "store_attr") and not derived.isdisjoint(value.args[1:])
        if given or value.op in ("call", "attr") and not branches.isdisjoint(unit.control.around(value.block)):
            yield test.value_at(number)


def deciding(place: Place) -> Iterator[Switch]:
    """The comparisons by whose outcome a place is reached, in the same loop."""
    blocks = place.unit.code.blocks
    for branch, way in place.unit.control.settled(place.value.block):
        end = blocks[branch].end
        found = switch(place.value_at(end[1]), way == end[2])
        if found is not None and blocks[branch].loop == blocks[place.value.block].loop:
            yield found


def switch(place: Place, holds: bool) -> Switch | None:
    """The comparison that a value is, or that it is the opposite of."""
    place, holds = place.asserted(holds)
    return Switch(place, holds) if place.value.op == "compare" else None


def ways_to(place: Place) -> list[Way]:
    """The ways by which a place is reached in a round of its loop, as far as they hang on the loop's number: each is
    enough, where nothing else stands against it. Behind `if a or b` either of both, behind `if a and b` both at once.
    """
    return [way for way in map(_of_rounds, _reaching(place)) if way]


def ways_of(place: Place, holds: bool) -> list[Way]:
    """The ways by which a condition comes out so in a round of its loop, as far as they hang on the loop's number."""
    return [way for way in map(_of_rounds, _outcomes(place, holds)) if way]


def _reaching(place: Place) -> list[Way]:
    control, blocks = place.unit.control, place.unit.code.blocks
    loop = blocks[place.value.block].loop
    settled = [row for row in control.settled(place.value.block) if blocks[row[0]].loop == loop]
    found: list[Way] = [()]
    for row in settled:
        found = _both(found, _by(place, row))
    for block in (place.value.block, *(branch for branch, _ in settled)):
        arms = [row for row in control.arms.get(block, ()) if blocks[row[0]].loop == loop]
        if len(arms) > 1:
            found = _both(found, [way for row in arms for way in _by(place, row)])
    return found


def _by(place: Place, row: tuple[int, int]) -> list[Way]:
    """The ways by which a branch goes one way."""
    kind, *end = place.unit.code.blocks[row[0]].end
    return _outcomes(place.value_at(end[0]), row[1] == end[1]) if kind == "branch" else [()]


def _outcomes(place: Place, holds: bool) -> list[Way]:
    """The ways by which a condition comes out so; the empty one where that hangs on something else."""
    place, holds = place.asserted(holds)
    if place.value.op == "compare":
        return [(Switch(place, holds),)]
    chosen = _short_circuit(place)
    if chosen is None:
        return [()]
    parts = [_outcomes(place.operand(index), holds) for index in range(len(place.value.args))]
    if chosen is holds:
        return [way for part in parts for way in part]
    found: list[Way] = [()]
    for part in parts:
        found = _both(found, part)
    return found


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
    found = [tuple(dict.fromkeys((*first, *second))) for first, second in product(one, other)]
    return found if len(found) <= _WAYS else one


def _of_rounds(way: Way) -> Way:
    """The comparisons of a way that can be computed in the loop in which they stand."""
    return tuple(switch for switch in way if _is_computed(switch.test))


def _is_computed(test: Place) -> bool:
    code = test.unit.code
    loop = code.loops.get(code.blocks[test.value.block].loop)
    if loop is None or test.value.data not in _COMPARED:
        return False
    for expands in (False, True):
        try:
            _Loop(test, test, loop, expands)._case(0, [])
        except _NotComputed:
            continue
        return True
    return False
