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

SIZES = range(1, 9)
MANY = 3  # sizes in one test, beyond which there is too much to try
_LONG = 64  # rounds of a loop whose length is written out
FEW = 4  # cases, below which nothing is said
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "FloorDiv": operator.floordiv,
    "Mod": operator.mod, "Div": operator.truediv,
}  # fmt: skip
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
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


class NotComputed(Exception):
    """Something in a test is neither a number, nor the loop's, nor the same in all rounds."""


def rounds(test: Place, calls: Callable[[Unit], list[Place]]) -> Rounds | None:
    """A comparison that comes out alike in all rounds of the loop whose number it asks for; None for others.

    Where its function is given that number, in all rounds of the loops in which `calls` says that it is called.
    """
    if test.value.op != "compare" or test.value.data not in COMPARED:
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
            found = Tried(test, (at,), code.loops[header], expands).tried()
        except NotComputed:
            continue
        if found is not None:
            return found
    return None


class Tried:
    """A loop over numbers, with a test in it, or in a function that is called there. `calls`: what leads to the test,
    the loop's own call first; the test itself, if it stands in the loop. `expands`: whether a variable from before the
    loop is what it was made of, not a size of its own."""

    def __init__(self, test: Place, calls: tuple[Place, ...], loop: Loop, expands: bool) -> None:
        self.test = test
        self.at = at = calls[0]
        self.calls = dict(zip([*(call.unit for call in calls[1:]), test.unit], calls, strict=True))
        self.loop = loop
        self.expands = expands
        self.named = at.unit.variables
        self.terms: dict[Term, int] = {}  # what stands for a size, with its value in the case at hand
        self.of_loop: dict[str, int] = {}  # the number of the loop in the round at hand, by what it counts
        self.starts: set[Term] = set()  # the terms of which the first number of a range is made
        self._starting = False  # whether that is being computed
        self._asked = False  # whether the test asks for that number

    def tried(self) -> Rounds | None:
        self.case(0, [])  # to meet the terms
        terms = list(self.terms)
        if not 0 < len(terms) <= MANY or not self.of_loop:
            return None
        cases = even_cases = 0
        outcomes: set[bool] = set()
        evenly: set[bool] = set()  # the outcomes where sizes divide
        for sizes in product(*(range(SIZES.stop) if term in self.starts else SIZES for term in terms)):
            self.terms = dict(zip(terms, sizes, strict=True))
            several = self.rounds()
            if not several:
                continue
            found = {self.case(number, several) for number in range(len(several))}
            even = len(several) > 1 and all(max(a, b) % min(a, b) == 0 for a in sizes for b in sizes if a and b)
            cases, even_cases = cases + 1, even_cases + even
            outcomes |= found
            evenly |= found if even else set()
        if cases < FEW or even_cases < FEW or len(evenly) > 1:
            return None
        return Rounds(self.test, evenly.pop(), len(outcomes) == 1)

    def rounds(self) -> list[int]:
        """The numbers that the loop goes through; of one over a list their places."""
        counted = self._counted()
        if self._is_range(counted):
            bounds = [self._bound(counted, i) for i in range(1, len(counted.value.args))]
            if not 0 < len(bounds) < 4 or not all(isinstance(each, int) for each in bounds) or bounds[2:] == [0]:
                raise NotComputed
            if len(range(*bounds)) > _LONG:
                raise NotComputed
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
            raise NotComputed
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

    def case(self, number: int, several: list[int]) -> bool:
        """Whether the test holds in one round."""
        several = several or self.rounds()
        element = several[number] if number < len(several) else 0
        self.of_loop = {"place": number, "element": element}
        left, right = (self._number(self.test.operand(i)) for i in (0, 1))
        if not self._asked:
            raise NotComputed
        return bool(COMPARED[self.test.value.data](left, right))

    def _passed(self, place: Place) -> Place:
        """A value as the loop's function spells it: what a call passes for a parameter."""
        while place.unit is not self.at.unit and place.value.op == "param":
            given = passed_by(self.calls[place.unit], place)
            if given is None:
                break
            place = given.root
        return place

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
                raise NotComputed from None
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
        raise NotComputed

    @staticmethod
    def _is_zero(place: Place) -> bool:
        return bool(place.val.constant() == 0)

    def _is_inside(self, place: Place) -> bool:
        """Whether a value may be another one in each round: made in the loop, or by the function that it calls."""
        return place.unit is not self.at.unit or self.loop.header in place.unit.control.loops_around(place.value.block)


def passed_by(call: Place, parameter: Place) -> Place | None:
    """What a call passes for a parameter, or the reading of a property for its object."""
    if call.value.op == "attr":
        return call.operand(0) if parameter.value.data[0] == 0 else None
    given = argument_of(call.unit, call.number, parameter.unit, parameter.value.data[0])
    return None if given is None else call.value_at(given)


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
