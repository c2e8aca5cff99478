"""Choices of an option that a change took away or renamed, and places that still give or ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change
from validator.drift.names.occurrences import option_name
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test
from validator.source import SourceFile


class Choices(NamedTuple):
    """The literal choices of an option or a field."""

    name: str
    flag: str
    values: frozenset[str]
    unit: Unit
    at: At


class Stale(NamedTuple):
    """A place that still gives a choice that is none any more."""

    option: Choices
    value: str
    path: str
    at: At
    where: str


class Removed:
    """The choices that a change took away."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def stale(self) -> list[Stale]:
        found: list[Stale] = []
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path):
                continue
            before = {row.flag: row for unit in self.change.before.units(old).values() for row in _choices(unit)}
            for unit in self.change.after.units(new).values():
                for row in _choices(unit):
                    if row.flag in before:
                        for value in sorted(before[row.flag].values - row.values):
                            found += self._given(row, value)
        return found

    def _given(self, option: Choices, value: str) -> Iterator[Stale]:
        """Where a value is still given to the option, or it is asked whether it has it."""
        side = self.change.after
        for source in side.mentioning(value):
            module = side.project.modules.get(source.absolute)
            if is_test(source.path) or option.name.encode() not in source.data.replace(b"-", b"_"):
                continue
            if module is None:
                yield from _in_settings(source, option, value)
                continue
            for unit in side.units(module).values():
                for at in _in_unit(unit, option.name, value):
                    yield Stale(option, value, unit.path, at, unit.qualname)


def _choices(unit: Unit) -> Iterator[Choices]:
    values = unit.code.values
    for call in values:
        if call.op != "call" or "choices" not in call.data.names:
            continue
        listed = values[call.args[1 + call.data.names.index("choices")]]
        parts = [values[each].data for each in listed.args]
        if listed.op not in ("list", "tuple") or not all(isinstance(each, str) for each in parts):
            continue
        first = values[call.args[1]].data if len(call.args) > 1 else None
        if isinstance(first, str) and first.startswith("--"):
            yield Choices(option_name(first), first, frozenset(parts), unit, unit.at(call.at))


def _in_unit(unit: Unit, name: str, value: str) -> Iterator[At]:
    """The places of one unit where the value stands beside the name."""
    values = unit.code.values
    for each in values:
        if each.op == "dict":
            for key, held in zip(each.args[::2], each.args[1::2], strict=True):
                if key >= 0 and values[key].data == name and values[held].data == value:
                    yield unit.at(values[held].at)
        elif each.op == "call" and name in each.data.names:
            passed = values[each.args[1 + each.data.names.index(name)]]
            if passed.op == "const" and passed.data == value:
                yield unit.at(passed.at)
        elif each.op == "compare" and each.data in ("Eq", "NotEq"):
            left, right = (values[number] for number in each.args)
            if left.op == "attr" and left.data == name and right.op == "const" and right.data == value:
                yield unit.at(right.at)


def _in_settings(source: SourceFile, option: Choices, value: str) -> Iterator[Stale]:
    settings = source.facts.extra.get("settings")
    for each in settings.settings if settings is not None else ():
        if each.path[-1].replace("-", "_") == option.name and each.value == value:
            yield Stale(option, value, source.path, each.value_at, ".".join(each.path))
