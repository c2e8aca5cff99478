"""What functions do with a parameter that only some kinds of values can do: go through it, take an item, call it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of

# Built-in functions that go through an argument that is passed by position (of `map` and `filter` not the first).
_GOING = frozenset(
    {"zip", "enumerate", "list", "tuple", "set", "frozenset", "sorted", "reversed", "iter", "sum", "any", "all"}
)
_MAPPING = frozenset({"map", "filter"})
_METHODS = {"iter": "__iter__", "item": "__getitem__", "call": "__call__", "len": "__len__"}
_WORDS = {"iter": "goes through it", "item": "takes an item of it", "call": "calls it", "len": "asks for its length"}
_CLASSES = {each.__name__: each for each in (int, float, str, bool, list, tuple, dict, set, bytes, complex)}


Known = Mapping[int, Any]  # what some parameters of a function are, by position


class Demand(NamedTuple):
    """What is done with a value at a place: `iter`, `item`, `call`, `len`, or an attribute that is asked of it
    (`.name`); `sure`: nothing but constants decides whether that is reached."""

    place: Place
    what: str
    sure: bool

    def is_met_by(self, kind: type) -> bool:
        """Whether objects of a built-in class can do it."""
        return hasattr(kind, _METHODS.get(self.what, self.what[1:]))

    @property
    def told(self) -> str:
        return _WORDS.get(self.what, f"asks it for `{self.what}`")


class Demands:
    """Answers for one project."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    def of(self, unit: Unit, position: int, known: Known) -> Iterator[Demand]:
        """What a function, and those that it passes the parameter on to, do with a parameter, where some of its
        parameters are constants, that one among them."""
        queue, seen = [(unit, position, True)], {(unit, position)}
        for here, number, sure in queue:
            for demand, passed in self._uses(here, number, known if here is unit else {number: known[position]}):
                if demand is not None:
                    yield demand._replace(sure=demand.sure and sure)
                for each in passed:
                    if each[:2] not in seen:
                        seen.add(each[:2])
                        queue.append((*each[:2], sure and each[2]))

    def _uses(
        self, unit: Unit, position: int, known: Known
    ) -> Iterator[tuple[Demand | None, list[tuple[Unit, int, bool]]]]:
        for held in self._held(unit, position, known):
            for user in held.users:
                reached = _reached(user, position, known)
                if reached is None or user.is_tried:
                    continue
                what = _what(user, held)
                if what:
                    yield Demand(user, what, reached), []
                elif user.value.op == "call" and held.number in user.value.args[1:]:
                    yield None, [(*each, reached) for each in _handed_on(user, held)]

    def _held(self, unit: Unit, position: int, known: Known) -> list[Place]:
        """The values of a unit that are the parameter, as it was passed."""
        found = [place for place in self.queries.values(unit, "param") if place.value.data[0] == position]
        for each in found:
            for user in each.users:
                same = user.value.op == "mut" and user.value.args[0] == each.number
                same = same or user.value.op == "phi" and _is_still(user, found, known)
                if same and user not in found:
                    found.append(user)
        return found


def only_target(call: Place) -> Unit | None:
    """The one function that a call surely runs; not one that was set on a class: to what its parameters are paired is
    not written at it."""
    site = call.result.sites.get(call.number)
    called = call.operand(0).closed.each
    sure = all(o[0] in ("unit", "class") or o[0] == "bound" and o[1].has_receiver for o in called)
    return site.targets[0].unit if site is not None and sure and not site.others and len(site.targets) == 1 else None


def passed_to(call: Place, target: Unit) -> Iterator[tuple[int, int | None]]:
    """The parameters of a function that take one argument, by position, each with what a call passes for it."""
    for position, (_, kind) in enumerate(target.code.params):
        if kind in ("pos", "any", "kw"):
            yield position, argument_of(call.unit, call.number, target, position)


def _handed_on(call: Place, held: Place) -> Iterator[tuple[Unit, int]]:
    """The parameters for which a call passes a value."""
    target = only_target(call)
    rows = passed_to(call, target) if target is not None else ()
    yield from ((target, position) for position, number in rows if target is not None and number == held.number)


def _is_still(phi: Place, found: list[Place], known: Known) -> bool:
    """Whether a variable is the parameter still: what else it may be comes to it on ways that constants close."""
    held = {each.number for each in found}
    others = [phi.value_at(number) for number in phi.value.args if number not in held and number != phi.number]
    return bool(phi.value.data) and all(_is_closed(each, known) for each in others)


def _is_closed(place: Place, known: Known) -> bool:
    """Whether constants among the parameters close every way to a place."""
    tests = (each.asserted(way) for each, way in place.settled_tests)
    return any(_truth(test, known) is (not holds) for test, holds in tests)


def _reached(place: Place, position: int, known: Known) -> bool | None:
    """Whether a place is reached where parameters are constants: surely, perhaps (False), or not (None). Not, too,
    where the parameter is asked first what it is, in a way that is not known here."""
    for test, holds in (each.asserted(way) for each, way in place.settled_tests):
        told = _truth(test, known)
        if told is not None and told is not holds:
            return None
        if told is None and any(_position(part) == position for part in test.parts):
            return None
    return all(_truth(test.asserted(True)[0], known) is not None for test in place.tests_inside)


def _position(place: Place) -> int | None:
    """The position of the parameter that a value is."""
    root = place.root
    return root.value.data[0] if root.value.op == "param" else None


def _truth(test: Place, known: Known) -> bool | None:
    """How a test comes out where some parameters are constants; None where it asks for something else."""
    value = test.value
    if (position := _position(test)) is not None:
        return bool(known[position]) if position in known else None
    asked = 0 if value.op == "compare" else 1 if value.op == "call" and test.method == "isinstance" else -1
    which = _position(test.operand(asked)) if asked >= 0 and len(value.args) == asked + 2 else None
    if which is None or which not in known:
        return None
    given, other = known[which], test.operand(asked + 1).root
    if value.op == "call":
        return _is_of(given, other)
    if other.value.op == "const" and value.data in ("Is", "IsNot") and other.value.data is None:
        return (given is None) is (value.data == "Is")
    if other.value.op == "const" and value.data in ("Eq", "NotEq"):
        return bool(given == other.value.data) is (value.data == "Eq")
    return None


def _is_of(given: Any, asked: Place) -> bool | None:
    """Whether a constant is an object of one of some classes; None where not all of them are known."""
    parts = [asked.value_at(n) for n in asked.value.args] if asked.value.op == "tuple" else [asked]
    answers = {_is_of_class(given, part) for part in parts}
    return True if True in answers else None if None in answers else False


def _is_of_class(given: Any, asked: Place) -> bool | None:
    """The same of one class; what is written as a constant is of no class of the project."""
    known = _CLASSES.get(str(asked.value.data)) if asked.value.op == "name" else None
    if known is not None:
        return isinstance(given, known)
    objs = asked.closed.each
    return False if objs and all(o[0] == "class" for o in objs) else None


def _what(user: Place, held: Place) -> str:
    """What an instruction does with a value; empty where any value will do."""
    value, number = user.value, held.number
    if value.op in ("iter", "item") and value.args[0] == number:
        return value.op
    if value.op == "attr":
        return "" if user.may_lack(str(value.data)) else f".{value.data}"
    if value.op != "call":
        return ""
    if value.args[0] == number:
        return "call"
    callee = user.operand(0).closed.objs
    name = user.method if callee == {("ext", user.method)} else ""
    places = [i for i, each in enumerate(value.args[1:]) if each == number and value.data.names[i] is None]
    if name == "len" and places:
        return "len"
    return "iter" if places and (name in _GOING or name in _MAPPING and 0 not in places) else ""
