"""Defaults that several places state alike, and that a change altered in one of them.

An option has a default where it is parsed, a field where it is declared, a parameter where it is taken, and
`getattr(config, "name", 3)` where it is read. Which of them wins depends on the way that the program takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import Module
from validator.drift.change import Change, Side
from validator.drift.names.occurrences import option_name
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.ir.model import Value
from validator.models.members import is_telling

_BITS = 2000  # of a number that can be shown: Python does not write out longer ones
_TRIVIAL = (None, True, False, 0, 1, "", 0.0, 1.0)


class Default(NamedTuple):
    """A place that states the default of a name; `flag` is the option as it is written."""

    name: str
    flag: str
    value: object
    kind: str  # option, field, parameter, read
    path: str
    at: At


class Changed(NamedTuple):
    """A default that differs now from the others, which are as they were."""

    old: object
    new: Default
    others: tuple[Default, ...]


class Defaults:
    """The defaults that a change altered in one of several places."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Changed]:
        found = []
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path) or is_foreign(new.path):
                continue
            before, after = _by_place(self.change.before, old), _by_place(self.change.after, new)
            for key, now in ((key, each) for key, rows in after.items() for each in rows):
                earlier = before.get(key, [])
                gone = [d for d in earlier if not any(_same(d.value, each.value) for each in after[key])]
                was = gone[0] if len(gone) == 1 else None  # of several of one name, the one that is not there any more
                if was is None or any(_same(d.value, now.value) for d in earlier) or was.value in _TRIVIAL:
                    continue
                if not is_telling(now.name):
                    continue
                others = tuple(d for d in self._others(now) if not _same(d.value, now.value))
                if any(self.change.wrote(d.path, d.at[0]) for d in others):
                    continue  # who wrote both means both
                if others and all(_same(d.value, was.value) for d in others) and not self._agrees(now):
                    found.append(Changed(was.value, now, others))
        return found

    def _others(self, now: Default) -> Iterator[Default]:
        for source in self.change.after.mentioning(now.name):
            module = self.change.after.project.modules.get(source.absolute)
            if module is None or is_test(source.path) or is_foreign(source.path):
                continue
            for _, each in _of_module(self.change.after, module):
                if each.name != now.name or (each.path, each.at) == (now.path, now.at) or each.value is None:
                    continue
                if each.kind != now.kind or each.flag == now.flag:  # `--eval.n` and `--train.n` are two options
                    yield each

    def _agrees(self, now: Default) -> bool:
        """Whether some other place states the new value too: then there are two kinds of them."""
        return any(_same(each.value, now.value) for each in self._others(now))


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _by_place(side: Side, module: Module) -> dict[tuple[str, str, str], list[Default]]:
    """The defaults of a module by name as it is written, kind and function."""
    found: dict[tuple[str, str, str], list[Default]] = {}
    for scope, each in _of_module(side, module):
        found.setdefault((each.flag, each.kind, scope), []).append(each)
    return found


def _of_module(side: Side, module: Module) -> Iterator[tuple[str, Default]]:
    for unit in side.units(module).values():
        for each in _of_unit(unit):
            if not isinstance(each.value, int) or each.value.bit_length() < _BITS:
                yield unit.qualname, each


def _of_unit(unit: Unit) -> Iterator[Default]:
    values = unit.code.values
    for inner in values:
        if inner.op == "store_class" and unit.code.kind == "class":
            held = values[inner.args[0]]
            value = held.data if held.op == "const" else _keyword(unit, held, "default")
            if value is not None:
                yield Default(str(inner.data), str(inner.data), value, "field", unit.path, unit.at(held.at))
        elif inner.op == "call":
            callee = values[inner.args[0]]
            first = values[inner.args[1]] if len(inner.args) > 1 else None
            if callee.op == "attr" and callee.data == "add_argument" and first is not None:
                value = _keyword(unit, inner, "default")
                if value is not None and isinstance(first.data, str) and first.data.startswith("--"):
                    yield Default(option_name(first.data), first.data, value, "option", unit.path, unit.at(inner.at))
            elif callee.op == "name" and callee.data == "getattr" and len(inner.args) == 4:
                key, given = values[inner.args[2]], values[inner.args[3]]
                if isinstance(key.data, str) and key.op == given.op == "const" and given.data is not None:
                    yield Default(key.data, key.data, given.data, "read", unit.path, unit.at(given.at))
    outer = unit.outer
    if outer is not None:
        for name, number in unit.code.defaults.items():
            held = outer.code.values[number]
            if held.op == "const" and held.data is not None:
                yield Default(name, name, held.data, "parameter", unit.path, unit.at(held.at))


def _keyword(unit: Unit, call: Value, keyword: str) -> object:
    """The constant that a call passes under a keyword."""
    if call.op != "call":
        return None
    for name, number in zip(call.data.names, call.args[1:], strict=True):
        if name == keyword and unit.code.values[number].op == "const":
            return unit.code.values[number].data
    return None
