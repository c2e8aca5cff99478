"""Numbers of recipes of which code requires that one is a multiple of another, and that a change made another.

`assert self.queue_size % batch == 0` says so of what is called `queue_size` in a recipe. The batch that a tensor has by
its first dimension is the setting that is called after it; the recipes themselves show that the two go together.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Side
from validator.drift.names.occurrences import variable_or_link
from validator.facts.config_files import Setting, settings_of
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.source import SourceFile

_BATCH = "batch"
_APART = frozenset({"val", "valid", "validation", "eval", "test"})  # batches of other data
_DIMENSIONS = frozenset({"size", "shape"})


class Multiple(NamedTuple):
    """A requirement: what is called `name` is a multiple of what is called `divisor`; of a batch, if that is empty."""

    name: str
    divisor: str
    unit: Unit
    line: int


class Indivisible(NamedTuple):
    """A setting of a recipe that no longer divides another one of it, or is divided, as is required."""

    path: str
    changed: Setting
    whole: Setting
    part: Setting
    required: Multiple


class Multiples:
    """The recipes that a change brought out of step; asked for with `change.analysis(Multiples)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Indivisible]:
        found: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Indivisible] = {}
        for old, new in self.change.settings_files:
            before = {each.path: each.value for each in _numbers(old)}
            changed = [each for each in _numbers(new) if before.get(each.path, each.value) != each.value]
            for required in self._required if changed else ():
                for whole, part in _pairs(new, required):
                    was = before.get(whole.path), before.get(part.path)
                    edited = next((each for each in changed if each in (whole, part)), None)
                    if edited is None or not _divides(*was) or _divides(whole.value, part.value):
                        continue
                    if self._hold_elsewhere(new, whole, part):
                        key = (new.path, whole.path, part.path)
                        found.setdefault(key, Indivisible(new.path, edited, whole, part, required))
        return list(found.values())

    def _hold_elsewhere(self, source: SourceFile, whole: Setting, part: Setting) -> bool:
        """Whether all other recipes with both settings keep to it, and there are some."""
        others = []
        for each in self.change.after.mentioning(whole.path[-1]):
            known = {row.path: row.value for row in _numbers(each)} if each is not source else {}
            if whole.path in known and part.path in known and not is_test(each.path):
                others.append(_divides(known[whole.path], known[part.path]))
        return bool(others) and all(others)

    @cached_property
    def _required(self) -> list[Multiple]:
        return list(_of_side(self.change.after))


def _of_side(side: Side) -> Iterator[Multiple]:
    for source in side.project.files.values():
        module = side.project.modules.get(source.absolute)
        if module is None or b"%" not in source.data or is_test(source.path) or is_foreign(source.path):
            continue
        for unit in side.units(module).values():
            yield from _of_unit(unit)


def _of_unit(unit: Unit) -> Iterator[Multiple]:
    """The remainders that must be zero, or an error is raised."""
    values = unit.code.values
    for block in unit.code.blocks:
        test = values[block.end[1]] if block.end[0] == "branch" else None
        if test is None or test.op != "compare" or test.data not in ("Eq", "NotEq"):
            continue
        remainder, zero = (values[number] for number in test.args)
        if remainder.op != "binary" or remainder.data != "Mod" or zero.op != "const" or zero.data != 0:
            continue
        otherwise = unit.code.blocks[block.end[3 if test.data == "Eq" else 2]]
        name, divisor = variable_or_link(unit, remainder.args[0]), _divisor(unit, remainder.args[1])
        if otherwise.end[0] == "raise" and name and divisor is not None:
            yield Multiple(name, divisor, unit, unit.at(test.at)[0])


def _divisor(unit: Unit, number: int) -> str | None:
    """What a divisor is called; empty for the first dimension of a tensor, None where nothing is known."""
    value = unit.code.values[unit.root(number)]
    if value.op == "unpack" and value.data[0] == 0 or value.op == "item" and _is_zero(unit, value.args[1]):
        held = unit.code.values[unit.root(value.args[0])]
        asked = unit.code.values[held.args[0]] if held.op == "call" else held
        return "" if asked.op == "attr" and asked.data in _DIMENSIONS else None
    return variable_or_link(unit, number) or None


def _is_zero(unit: Unit, number: int) -> bool:
    value = unit.code.values[number]
    return value.op == "const" and value.data == 0


def _pairs(source: SourceFile, required: Multiple) -> Iterator[tuple[Setting, Setting]]:
    """The settings of a file that a requirement is about; of what is there once."""
    rows = list(_numbers(source))
    wholes = [each for each in rows if each.path[-1] == required.name]
    parts = [each for each in rows if _is_part(each, required)]
    if len(wholes) == 1:
        yield from ((wholes[0], part) for part in parts)


def _is_part(setting: Setting, required: Multiple) -> bool:
    words = {word for link in setting.path for word in link.lower().split("_")}
    if required.divisor:
        return setting.path[-1] == required.divisor
    return _BATCH in setting.path[-1].lower().split("_") and words.isdisjoint(_APART)


def _numbers(source: SourceFile) -> Iterator[Setting]:
    """The whole numbers of a file of settings."""
    return (each for each in settings_of(source).settings if type(each.value) is int and each.value > 0)


def _divides(whole: object, part: object) -> bool:
    return isinstance(whole, int) and isinstance(part, int) and whole % part == 0
