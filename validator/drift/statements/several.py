"""Calls that a function makes for what they do, on several things, and on which of these it makes them no longer.

`actor_opt.zero_grad()` and `critic_opt.zero_grad()` do the same to two things. Where a change takes one away, the other
stood there before and takes nobody's place; it may move, get other arguments, or go into a function of its own. What a
function does is counted with all that the functions do which it calls, in its own terms: a method that makes the call
on the same object does as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from validator.drift.change import Change, Pair, Side
from validator.drift.statements.differences import Statement, own_paths, paths, statements
from validator.drift.statements.intention import words_in
from validator.drift.statements.named_effects import tables
from validator.drift.statements.surroundings import called, exclude, name_of_call
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, numbers_of
from validator.flow.queries.escapes import argument_of


class Thing(NamedTuple):
    """That on which a call is made, as a function knows it: `path` from a variable (`("self", ".critic_opt")`), `of`
    the function of a library that is given it, or that is given nothing; of what a method is given `*`."""

    path: tuple[str, ...]
    of: str = ""

    def is_same(self, other: Thing) -> bool:
        """Whether two are the same, a method is given the one, or a variable has the name of an attribute."""
        if self == other or self.path and "*" in (self.of, other.of) and self.path == other.path:
            return True
        bare = self.of == other.of and 1 in (len(self.path), len(other.path)) and self.path and other.path
        return bool(bare) and self.path[-1].lstrip(".") == other.path[-1].lstrip(".")

    def in_terms(self, given: dict[str, Thing | None]) -> Thing | None:
        """The thing in terms of a caller that gives something for each parameter; None where that has no name."""
        if not self.path:
            return self
        owner = given.get(self.path[0], self if len(self.path) == 1 else None)
        if owner is None:
            return Thing((), "*") if self.of == "*" else None  # what a method is given besides says nothing
        return Thing((*owner.path, *self.path[1:]), self.of)

    @property
    def text(self) -> str:
        path = "".join(self.path)
        return f"{self.of}({path})" if self.of else path

    @property
    def words(self) -> frozenset[str]:
        return words_in(" ".join(self.path)) - {"self", "cls"}


_Things = frozenset[Thing | None]  # None: one of which nothing is known


class Missed(NamedTuple):
    """A thing on which a function makes a call no longer, and the statement that made it. `words`: those that tell the
    thing from the others on which it is still made."""

    name: str
    thing: Thing
    statement: Statement
    words: frozenset[str]


class Several:
    """The things on which functions make calls, in both revisions."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self._leading: dict[tuple[bool, str], frozenset[str]] = {}
        self._callers: dict[bool, dict[str, set[str]]] = {}

    def missed(self, pair: Pair, old: list[Statement], new: list[Statement], names: frozenset[str]) -> Iterator[Missed]:
        """The things on which a function leaves out a call by one of some names now, and which it still has at hand."""
        rows = [each for each in old if name_of_call(each) in names]
        made = self._made_alone(pair, rows) if rows else {}
        for name in sorted({name for name, _ in made}):
            before = {thing: row for (each, thing), row in made.items() if each == name}
            if len(before) < 2 or before.keys() <= _made(Place(self.change.after.flow, pair.new, 0), name):
                continue
            after = self._all(self.change.after, pair.new, name)
            if None in after and None not in self._all(self.change.before, pair.old, name):
                continue
            left = [thing for thing in before if _is_among(thing, after)]
            words = frozenset[str]().union(*(thing.words for thing in left))
            for thing in before if left else ():
                if all(exclude(before[thing], before[other]) for other in left):
                    continue  # on each way one of them was made
                if _is_among(thing, after) or _is_in_whole(name, thing, after, new):
                    continue
                if self._is_at_hand(thing, pair.new):
                    yield Missed(name, thing, before[thing], thing.words - words)

    def is_still_made(self, pair: Pair, statement: Statement, name: str, new: list[Statement]) -> bool:
        """Whether a function makes a call that went on the same thing: by what it calls, or on a whole of which that is
        a part."""
        things = [thing for (each, thing), row in self._made_alone(pair, [statement]).items() if each == name]
        if not things:
            return False
        here = _made(Place(self.change.after.flow, pair.new, 0), name)
        beyond = self._all(self.change.after, pair.new, name) - here
        return all(_is_among(each, beyond) or _is_in_whole(name, each, here, new) for each in things)

    def _is_at_hand(self, thing: Thing, unit: Unit) -> bool:
        """Whether a function still speaks of a thing, or of what it is a part of; of its own object's the class."""
        own = thing.path[:1] == ("self",) and unit.cls is not None
        units = self.change.after.units(unit.module).values() if own else ()
        rows = (statements(each) for each in (unit, *(other for other in units if other.cls is unit.cls)))
        spoken = frozenset[str]().union(*(own_paths(each.node) for row in rows for each in row))
        return not thing.path or any("".join(thing.path[:n]) in spoken for n in range(1 + own, len(thing.path) + 1))

    def _made_alone(self, pair: Pair, rows: list[Statement]) -> dict[tuple[str, Thing], Statement]:
        """The calls before the change, by name and thing, whose results nobody takes."""
        alone = {(each.node.lineno, each.node.col_offset): each for each in rows if called(each.node) is not None}
        found: dict[tuple[str, Thing], Statement] = {}
        for number in numbers_of(pair.old, ("call",)):
            call = Place(self.change.before.flow, pair.old, number)
            if (statement := alone.get(call.value.at[:2])) is not None:
                things = (thing for thing in _of_call(call) if thing is not None and thing.of != "*")
                found |= {(call.method, thing): statement for thing in things}
        return found

    def _all(self, side: Side, unit: Unit, name: str) -> _Things:
        """The things on which a function makes a call, itself or by what it calls."""
        leading = self._leading_to(side, name)
        found, seen = (
            set(_made(Place(side.flow, unit, 0), name)),
            set[tuple[Unit, frozenset[tuple[str, Thing | None]]]](),
        )
        given: dict[str, Thing | None] = {param: Thing((param,)) for param, _ in unit.code.params}
        stack = [(unit, given)]
        while stack:
            caller, given = stack.pop()
            key = (caller, frozenset(given.items()))
            if key in seen:
                continue
            seen.add(key)
            for number in numbers_of(caller, ("call",)):
                call = Place(side.flow, caller, number)
                site = call.result.sites.get(number) if call.method in leading else None
                for target in site.targets if site is not None else ():
                    inner = _bound(call, target.unit, given, caller is unit)
                    things = _made(Place(side.flow, target.unit, 0), name)
                    found |= {each and each.in_terms(inner) for each in things}
                    stack.append((target.unit, inner))
        return frozenset(found)

    def _leading_to(self, side: Side, name: str) -> frozenset[str]:
        """The names of functions of the project, and of classes, from whose calls a way leads to a call by a name."""
        key = (side is self.change.after, name)
        if key not in self._leading:
            callers, found, queue = self._callers_on(side), set[str](), [name]
            while queue:
                fresh = callers.get(queue.pop(), set()) - found
                found |= fresh
                queue += fresh
            self._leading[key] = frozenset(found)
        return self._leading[key]

    def _callers_on(self, side: Side) -> dict[str, set[str]]:
        """By the name of what is called the names of those that call it; a constructor has that of its class."""
        key = side is self.change.after
        if key not in self._callers:
            found = self._callers[key] = {}
            for function in side.project.functions():
                made = function.cls if function.name == "__init__" else None
                for call in function.facts.calls:
                    found.setdefault(call.method, set()).add(made.name if made is not None else function.name)
        return self._callers[key]


def _made(at: Place, name: str) -> _Things:
    """The things on which a unit itself makes a call."""
    calls = (at.value_at(number) for number in numbers_of(at.unit, ("call",)))
    return frozenset(thing for call in calls if call.method == name for thing in _of_call(call))


def _of_call(call: Place) -> Iterator[Thing | None]:
    """The things on which a call is made: its receiver, and what that is given; of a function of a library its first
    argument, or nothing."""
    receiver = call.receiver
    given = list(_things(call.operand(1))) if call.value.data.names[:1] == (None,) else []
    if receiver is not None and not _is_module(receiver):
        yield from _things(receiver)
        yield from (thing._replace(of="*") for thing in given if thing is not None)
        return
    function = min((str(o[1]) for o in call.operand(0).val.of("ext")), default=call.method)
    yield from (thing and thing._replace(of=function) for thing in given)
    if not given:
        yield Thing((), function)


def _is_module(place: Place) -> bool:
    """Whether a value can only be a module, or a class, of a library."""
    return bool(place.val.each) and all(o[0] == "ext" for o in place.val.each)


def _things(place: Place) -> Iterator[Thing | None]:
    """What a value is called in its unit; where a loop goes through a row that is written out, each of its elements."""
    place = place.root
    value, names = place.value, place.unit.variables
    if value.op in ("attr", "item"):
        step = f".{value.data}" if value.op == "attr" else f"[{place.operand(1).text}]"
        yield from _stepping(place.operand(0), step)
    elif value.op == "next" and place.iterable is not None:
        row = place.iterable.root
        if row.value.op in ("tuple", "list"):
            yield from (thing for index in range(len(row.value.args)) for thing in _things(row.operand(index)))
        else:
            yield from _stepping(row, "[]")
    elif value.op == "call" and place.number not in names and place.receiver is not None:
        yield from _stepping(place.receiver, f".{place.method}()")
    else:
        name = place.hint if value.op in ("param", "free", "name", "import") else names.get(place.number, "")
        yield Thing((name,)) if name else None


def _stepping(place: Place, step: str) -> Iterator[Thing | None]:
    """The things to which a step leads from a value."""
    yield from (thing and thing._replace(path=(*thing.path, step)) for thing in _things(place))


def _bound(call: Place, unit: Unit, given: dict[str, Thing | None], outermost: bool) -> dict[str, Thing | None]:
    """What a call gives for the parameters of a function, in the terms of the outermost caller."""
    found: dict[str, Thing | None] = {}
    for position, (name, _) in enumerate(unit.code.params):
        number = argument_of(call.unit, call.number, unit, position)
        things = list(_things(call.value_at(number))) if number is not None else []
        thing = things[0] if len(things) == 1 else None
        found[name] = thing if outermost or thing is None else thing.in_terms(given)
    return found


def _is_among(thing: Thing, things: _Things) -> bool:
    return any(other is not None and thing.is_same(other) for other in things)


def _is_in_whole(name: str, thing: Thing, things: _Things, new: list[Statement]) -> bool:
    """Whether one of some things is a module that holds a thing, or was made of it, and a call does the same for all
    that a module holds."""
    if name not in tables()["effects"]["recursive"]:
        return False
    made = {each.node for each in new if "".join(thing.path) in paths(each.node)}
    stored = frozenset[str]().union(*(own_paths(each, ast.Store) for each in made))
    wholes = [other.path for other in things if other is not None and other.path and other.of == thing.of]
    held = (len(each) < len(thing.path) and thing.path[: len(each)] == each for each in wholes)
    return any(held) or any("".join(each) in stored for each in wholes)
