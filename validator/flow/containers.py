"""What a unit puts into containers that others see: `self.parts.append(x)`, `TABLE[name] = cls`, `cls.x[a][b] = y`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from validator.definitions import Value as Variable
from validator.flow.values import Val, bare, obj, sequence
from validator.ir import Value

if TYPE_CHECKING:
    from validator.flow.transfer import Evaluation

GROWING = frozenset({"append", "extend", "add", "insert", "update", "appendleft", "put"})
_WHOLE = frozenset({"extend", "update"})  # what is added is a container itself

Filling = tuple[str, Val, Val]  # the name of the container, the object that has it, the container with what is put in


def fillings(at: Evaluation) -> Iterator[Filling]:
    """What a unit puts into attributes and global variables that are containers."""
    for value in at.unit.filling:
        if value.op == "store_item":
            owner, key, stored = value.args
            yield from _into(at, owner, _keyed(at, key, at.vals[stored]))
        else:
            callee = at.code.values[value.args[0]]
            added = at.vals[value.args[-1]]
            yield from _into(at, callee.args[0], added if callee.data in _WHOLE else sequence(added))


def _into(at: Evaluation, number: int, content: Val) -> Iterator[Filling]:
    """The container at a value, with what is put in, as a part of the containers in which it lies itself."""
    value = at.code.values[at.root(number)]
    while (outer := _outer(at, value)) is not None:
        number, key = outer
        content = _keyed(at, key, content)
        value = at.code.values[at.root(number)]
    if value.op == "attr":
        yield value.data, at.vals[value.args[0]], bare(content)
    elif value.op == "name":
        symbol = at.flow.symbol(at.unit, value)
        if isinstance(symbol, Variable):
            yield symbol.name, obj("module", symbol.module), bare(content)


def _outer(at: Evaluation, value: Value) -> tuple[int, int] | None:
    """The container in which one lies, and under which key: `table[key]`, `table.setdefault(key, [])`."""
    if value.op == "item" and at.code.values[value.args[1]].op != "slice":
        return value.args[0], value.args[1]
    if value.op == "call" and len(value.args) > 1:
        callee = at.code.values[value.args[0]]
        if callee.op == "attr" and callee.data == "setdefault":
            return callee.args[0], value.args[1]
    return None


def _keyed(at: Evaluation, key: int, content: Val) -> Val:
    """A container that has something under a key; of a number nobody knows whether it is a place in a list."""
    constant = at.vals[key].constant()
    if isinstance(constant, str):
        return obj("dict", ((constant, content),), None)
    if isinstance(constant, int):
        return Val(sequence(content).objs | obj("dict", (), content).objs)
    return obj("dict", (), content)
