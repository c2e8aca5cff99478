"""Decorators to which a change gave another argument on one of two twins: `@register(mode=Mode.METRICS)` on
`update_critic`, while `update_actor` has `Mode.PROTO` as both had it.

What a decorator is told says how callers get the result. Callers of two methods that are called alike take both alike.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import ClassDef
from validator.drift.change import Change, Side
from validator.drift.statements.differences import alike_syntax, node_of
from validator.flow.queries.outside_program import is_foreign, is_test

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Redecorated(NamedTuple):
    """A keyword of a decorator with another value than before; `twin`: the method that has the one of before still."""

    cls: ClassDef
    function: _Function
    name: str
    old: ast.Attribute
    new: ast.Attribute
    twin: _Function


class Decorators:
    """The decorators that a change altered on one of two twins; asked for with `change.analysis(Decorators)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Redecorated]:
        return [
            row
            for old, new in self.change.classes
            if not is_test(new.path) and not is_foreign(new.path)
            for row in _of_class(new, _functions(self.change.before, old), _functions(self.change.after, new))
        ]


def _functions(side: Side, cls: ClassDef) -> dict[str, _Function]:
    """The methods of a class by name, as syntax."""
    units = ((name, side.unit_of(method)) for name, method in cls.methods.items())
    found = ((name, node_of(unit)) for name, unit in units if unit is not None)
    return {name: node for name, node in found if isinstance(node, _Function)}


def _of_class(cls: ClassDef, old: dict[str, _Function], new: dict[str, _Function]) -> Iterator[Redecorated]:
    found = [row for name in old.keys() & new.keys() for row in _changed(old[name], new[name])]
    for function, call, name, was, now in found:
        others = [each for each in new.values() if each is not function and each.name in old]
        twins = [each for each in others if _has(each, call, name, was) and _has(old[each.name], call, name, was)]
        alike = [each for each in twins if _first_word(each.name) == _first_word(function.name)]
        if len(found) == 1 and alike:
            yield Redecorated(cls, function, name, was, now, alike[0])


def _changed(old: _Function, new: _Function) -> Iterator[tuple[_Function, ast.Call, str, ast.Attribute, ast.Attribute]]:
    """The one keyword of a decorator that is given another member of the same class."""
    for one, other in zip(_calls(old), _calls(new), strict=False):
        if not alike_syntax(one.func, other.func) or len(one.keywords) != len(other.keywords):
            continue
        pairs = [(a, b) for a, b in zip(one.keywords, other.keywords, strict=True) if not alike_syntax(a, b)]
        for was, now in pairs if len(pairs) == 1 else ():
            a, b = was.value, now.value
            if was.arg != now.arg or not isinstance(a, ast.Attribute) or not isinstance(b, ast.Attribute):
                continue
            if alike_syntax(a.value, b.value):
                yield new, other, str(was.arg), a, b


def _calls(function: _Function) -> list[ast.Call]:
    return [each for each in function.decorator_list if isinstance(each, ast.Call)]


def _has(function: _Function, call: ast.Call, name: str, value: ast.expr) -> bool:
    """Whether a function has the same decorator with a keyword of that value."""
    rows = (each for each in _calls(function) if alike_syntax(each.func, call.func))
    return any(k.arg == name and alike_syntax(k.value, value) for each in rows for k in each.keywords)


def _first_word(name: str) -> str:
    return name.strip("_").split("_")[0]
