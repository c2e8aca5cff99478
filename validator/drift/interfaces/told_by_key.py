"""Calls of objects of which nothing is known, told to be those of one method by a key of its result.

A registry or a configuration hands an object in, and no value leads from there to its class. Where the project puts a
key into no dictionary but the one that a method gave back, who subscripts what a call gives by that key means the
method.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import Method
from validator.drift.change import Change, Pair, Side
from validator.drift.interfaces.calls import RUN_UNNAMED
from validator.drift.interfaces.result_shapes import Forms, Use, fits
from validator.drift.names.occurrences import Occurrence
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.ir.model import Value
from validator.models.members import is_telling

_MAKING = frozenset({"key", "keyword", "field", "option", "text"})  # what may put a key into something


class Subscripted(NamedTuple):
    """A subscript of what a call gives, and the call."""

    unit: Unit
    number: int
    made: int

    @property
    def call(self) -> Value:
        return self.unit.code.values[self.made]

    @property
    def callee(self) -> str:
        """The last name of what is called."""
        return self.unit.known_as(self.call.args[0])


class ToldByKey:
    """The calls that only a key tells, in both revisions."""

    def __init__(self, change: Change) -> None:
        self.change = change

    def left(self, pair: Pair, before: Forms, after: Forms) -> Iterator[tuple[Subscripted, str]]:
        """The subscripts by a key that the result of a method had and has not any more. A word that objects of
        libraries may have too, and a result of which nothing is known now, need another call of what is called like
        this one that the change adapted."""
        method = pair.new.method
        if method is None or method.cls is None:
            return
        keys = {key for form in before if form is not None for key in form.keys or ()}
        for key in sorted(keys):
            has = fits(after, Use("item", key))
            if has or before == after or not self._is_only_of(pair, key):
                continue
            for each in _subscripts(self.change.after, key):
                told = (each.callee, key) in self._adapted or has is False and is_telling(key)
                if told and self._may_run(each, method) and self._stood(each, key):
                    yield each, key

    def _is_only_of(self, pair: Pair, key: str) -> bool:
        """Whether nothing but the method gave something the key, and nothing does now."""
        if any(row.unit is None or row.unit is not pair.old for row in _made(self.change.before, key)):
            return False
        return not any(True for _ in _made(self.change.after, key))

    def _may_run(self, each: Subscripted, method: Method) -> bool:
        """Whether a call may run the method: of an object of which nothing is known."""
        unit, side = each.unit, self.change.after
        number = unit.root(each.call.args[0])
        callee = unit.code.values[number]
        if callee.op not in ("attr", "param", "item") or method.name not in (*RUN_UNNAMED, str(callee.data)):
            return False
        mention = side.mention(unit, number) if callee.op == "attr" else None
        if callee.op == "attr" and (mention is None or mention.symbol is not None):
            return False
        place = Place(side.flow, unit, each.made)
        if any(isinstance(run, Method) for run in side.project.analysis(Objects).run_by(place)):
            return False
        own = mention is not None and mention.cls is not None  # a base of a library may have it, as far as is known
        return own or not Place(side.flow, unit, number).closed.objs

    def _stood(self, each: Subscripted, key: str) -> bool:
        """Whether the same call was subscripted by the key in the same function before."""
        before = self.change.before.twin(each.unit)
        text = each.unit.text(each.call.at)
        return any(
            one.unit is before and before is not None and before.text(one.call.at) == text
            for one in _subscripts(self.change.before, key)
        )

    @cached_property
    def _adapted(self) -> frozenset[tuple[str, str]]:
        """The names of what is called and the keys by which a function subscripted the result and does not any more."""
        found = set[tuple[str, str]]()
        for old, new in self.change.pairs:
            called = {new.known_as(value.args[0]) for value in new.code.values if value.op == "call"}
            found |= {row for row in _pairs_in(old) - _pairs_in(new) if row[0] in called}
        return frozenset(found)


def _pairs_in(unit: Unit) -> frozenset[tuple[str, str]]:
    """What a unit calls and subscripts by a text: (last name of what is called, key)."""
    found = (_subscripted(unit, number) for number, value in enumerate(unit.code.values) if value.op == "item")
    keys = ((each, unit.code.values[unit.code.values[each.number].args[1]].data) for each in found if each is not None)
    return frozenset((each.callee, key) for each, key in keys if isinstance(key, str))


def _subscripted(unit: Unit, number: int) -> Subscripted | None:
    made = unit.root(unit.code.values[number].args[0])
    return Subscripted(unit, number, made) if unit.code.values[made].op == "call" else None


def _subscripts(side: Side, key: str) -> Iterator[Subscripted]:
    """Where the project subscripts what a call gives by a key."""
    for row in side.occurrences(key):
        if row.kind != "key" or row.role != "asks" or row.unit is None or is_test(row.path) or is_foreign(row.path):
            continue
        for user in row.unit.users.get(row.number, ()):
            if row.unit.code.values[user].op == "item" and (found := _subscripted(row.unit, user)) is not None:
                yield found


def _made(side: Side, key: str) -> Iterator[Occurrence]:
    """What may put a key into a dictionary, but for tests."""
    for row in side.occurrences(key):
        if row.role in ("defines", "spells") and row.kind in _MAKING and not is_test(row.path):
            yield row
