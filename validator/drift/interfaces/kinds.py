"""Parameters and options that were texts and are numbers since a change, or the other way round, and who still takes
them for what they were.

A value is followed through the functions that it is handed to. What is done there must fit the new kind as well: a
number has no length and no `split`, of a text nothing can be taken away.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import Method, Module
from validator.drift.change import Change, Side
from validator.drift.interfaces.signatures import outline
from validator.drift.names.occurrences import option_name
from validator.facts.model import At
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test

_TEXT, _NUMBER = "text", "number"
_OF_TYPES = {"str": _TEXT, "int": _NUMBER, "float": _NUMBER}
_NUMERIC = frozenset({"Sub", "Div", "FloorDiv", "Pow", "MatMult"})


class Misfit(NamedTuple):
    """A place that takes a value for what it was. `name`: the parameter or option; `given`: where it has its kind."""

    unit: Unit
    at: At
    name: str
    was: str
    now: str
    text: str
    given: tuple[str, int]


class _Start(NamedTuple):
    """Where a value of another kind comes in: a parameter, or a place that asks for an option."""

    unit: Unit
    number: int
    name: str
    was: str
    now: str
    given: tuple[str, int]


class Kinds:
    """The places that a change of kind left behind."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def misfits(self) -> list[Misfit]:
        found: dict[tuple[Unit, str], Misfit] = {}
        for start in (*self._parameters(), *self._options()):
            for misfit in self._followed(start):
                if not self.change.wrote(misfit.unit.path, misfit.at[0]):
                    found.setdefault((misfit.unit, misfit.name), misfit)
        return list(found.values())

    def _parameters(self) -> Iterator[_Start]:
        """The parameters whose default is of another kind now."""
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path) or is_foreign(new.path):
                continue
            for name in sorted(old.functions.keys() & new.functions.keys()):
                before, after = old.functions[name], new.functions[name]
                unit = self.change.after.unit_of(after)
                if unit is None or outline(before.facts.params) != outline(after.facts.params):
                    continue
                for one, other in zip(before.facts.params, after.facts.params, strict=True):
                    was, now = _kind(one.default), _kind(other.default)
                    if was and now and was != now and (number := _param(unit, other.name)) is not None:
                        yield _Start(unit, number, other.name, was, now, (after.path, other.at[0]))

    def _options(self) -> Iterator[_Start]:
        """The places of a file that ask for an option of it whose type is another one now."""
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path):
                continue
            before, after = dict(_of_parsers(self.change.before, old)), dict(_of_parsers(self.change.after, new))
            for name in sorted(before.keys() & after.keys()):
                was, now = before[name][0], after[name][0]
                if not was or not now or was == now:
                    continue
                for row in self.change.after.of_file(new.source).get(name, ()):
                    if row.kind == "attribute" and row.role == "asks" and row.unit is not None:
                        yield _Start(row.unit, row.number, name, was, now, (new.path, after[name][1]))

    def _followed(self, start: _Start) -> Iterator[Misfit]:
        side = self.change.after
        waiting, seen = [(start.unit, start.number)], set[tuple[Unit, int]]()
        while waiting:
            unit, number = waiting.pop()
            if (unit, number) in seen:
                continue
            seen.add((unit, number))
            for user in unit.users.get(number, ()):
                value = unit.code.values[user]
                if value.op == "phi":
                    waiting += [(unit, user)] if _comes_in(unit, number, user, start.now) else []
                elif not _may_be_here(unit, unit.class_tests.around(number, value.block), start.now):
                    continue
                elif text := _unfit(unit, number, user, start.now):
                    yield Misfit(unit, unit.at(value.at), start.name, start.was, start.now, text, start.given)
                elif value.op == "call" and number in value.args[1:]:
                    waiting += _entered(side, unit, number, user)


def _kind(default: str | None) -> str:
    """What a default is, as it is written: a text, a number; empty for all else."""
    try:
        value = ast.literal_eval(default) if default is not None else None
    except (ValueError, SyntaxError):
        return ""
    if isinstance(value, str):
        return _TEXT
    return _NUMBER if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _of_parsers(side: Side, module: Module) -> Iterator[tuple[str, tuple[str, int]]]:
    """The options of the parsers of a file, by the name of their attribute: their type, and the line."""
    for unit in side.units(module).values():
        values = unit.code.values
        for value in values:
            callee = values[value.args[0]] if value.op == "call" else value
            if value.op != "call" or callee.op != "attr" or callee.data != "add_argument" or len(value.args) < 2:
                continue
            flag = values[value.args[1]].data
            said = dict(zip(value.data.names, value.args[1:], strict=True))
            if isinstance(flag, str) and flag.startswith("--") and "nargs" not in said and "type" in said:
                kind = _OF_TYPES.get(str(values[said["type"]].data), "")
                yield option_name(flag), (kind, unit.at(value.at)[0])


def _param(unit: Unit, name: str) -> int | None:
    return next((n for n, v in enumerate(unit.code.values) if v.op == "param" and v.data[1] == name), None)


def _may_be_here(unit: Unit, tests: list[tuple[int, bool]], kind: str) -> bool:
    """Whether a value of a kind passes some tests of its class (classes, whether it is of them)."""
    for classes, holds in tests:
        named = unit.code.values[unit.root(classes)]
        several = named.args if named.op == "tuple" else (classes,)
        known = {str(unit.code.values[unit.root(each)].data) for each in several}
        if not known <= _OF_TYPES.keys():
            return False  # a class of others: what is of it is not known here
        if holds != any(_OF_TYPES[name] == kind for name in known):
            return False
    return True


def _comes_in(unit: Unit, number: int, phi: int, kind: str) -> bool:
    """Whether a value of a kind may reach a place where several ways meet, on one of the ways that bring it."""
    value = unit.code.values[phi]
    tests = unit.class_tests.by_subject.get(unit.root(number), [])
    for operand, (before, _) in zip(value.args, unit.code.blocks[value.block].preds, strict=False):
        passed = unit.class_tests.around(number, before)
        for test in tests:
            ways = ((test.holds, True), (test.fails, False)) if test.branch == before else ()
            passed += [(test.classes, holds) for way, holds in ways if way == value.block]
        if operand == number and _may_be_here(unit, passed, kind):
            return True
    return False


def _unfit(unit: Unit, number: int, user: int, kind: str) -> str:
    """What is done with a value that one of its new kind does not take; empty where it does."""
    values, value = unit.code.values, unit.code.values[user]
    if kind == _NUMBER:
        if value.op == "attr" and hasattr("", str(value.data)) and not hasattr(0, str(value.data)):
            return f"asks it for `.{value.data}`"
        if value.op == "call" and value.args[1:] == (number,) and values[value.args[0]].data == "len":
            return "takes its length"
        return "takes an element of it" if value.op == "item" and value.args[0] == number else ""
    other = next((values[each] for each in value.args if each != number), None) if value.op == "binary" else None
    if other is not None and other.op == "const" and isinstance(other.data, int | float):
        return "reckons with it" if value.data in _NUMERIC or value.data == "Add" else ""
    return ""


def _entered(side: Side, unit: Unit, number: int, user: int) -> Iterator[tuple[Unit, int]]:
    """The parameters that a value becomes in the functions that a call runs."""
    call = unit.code.values[user]
    for method in side.project.analysis(Objects).run_by(Place(side.flow, unit, user)):
        target = side.unit_of(method) if isinstance(method, Method) else None
        if target is None or "*" in call.data.names:
            continue
        skipped = implicit(unit, call, target)
        plain = [name for name, kind in target.code.params if kind in ("pos", "any")][skipped:]
        for index, (keyword, operand) in enumerate(zip(call.data.names, call.args[1:], strict=True)):
            name = keyword or (plain[index] if index < len(plain) else "")
            if operand == number and name and (place := _param(target, name)) is not None:
                yield target, place
