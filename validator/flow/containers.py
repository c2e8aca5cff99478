"""What a unit puts into containers that others see: `self.parts.append(x)`, `TABLE[name] = cls`, `cls.x[a][b] = y`,
or `self.meters.setdefault(name, Meter())`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from validator.definitions import Module
from validator.definitions import Value as Variable
from validator.flow.values import BOTTOM, UNKNOWN, Val, bare, obj, sequence
from validator.ir import Value

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.unit import Unit

GROWING = frozenset({"append", "extend", "add", "insert", "update", "appendleft", "put"})
_WHOLE = frozenset({"extend", "update"})  # what is added is a container itself

Filling = tuple[str, Val, Val]  # the name of the container, the object that has it, the container with what is put in


class Filled(NamedTuple):
    """Where a unit puts something into an attribute or a global variable that is a container.

    `owner`: the value whose attribute the container is, or the module whose variable it is. `added`: the value that is
    put in, as an element of a list (`listed`) or as it is; `keys`: under which keys, the innermost first. `counted`:
    what is put in may as well be keys: of a set, or of a `Counter`.
    """

    name: str
    owner: int | Module
    added: int
    listed: bool
    keys: tuple[int, ...]
    counted: bool = False


def filled(unit: Unit) -> list[Filled]:
    """What puts something into a container that others see (`a[k] = v`, `a.append(v)`), as the code says."""
    values, found = unit.code.values, []
    growing = {n for n, v in enumerate(values) if v.op == "attr" and v.data in GROWING}
    for value in values:
        if value.op == "store_item" and not unit.is_augmented(value):
            owner, key, added = value.args
            found.append(_into(unit, owner, added, False, (key,)))
        elif value.op == "call" and len(value.args) > 1 and value.args[0] in growing:
            callee = values[value.args[0]]
            row = _into(unit, callee.args[0], value.args[-1], callee.data not in _WHOLE, ())
            found.append(row._replace(counted=callee.data == "update") if row is not None else None)
        elif value.op == "call" and len(value.args) == 3 and (outer := _outer(values, value)) is not None:
            found.append(_into(unit, outer[0], value.args[2], False, (outer[1],)))
    return [row for row in found if row is not None]


def _into(unit: Unit, number: int, added: int, listed: bool, keys: tuple[int, ...]) -> Filled | None:
    """The container at a value, or the one in which that lies."""
    values = unit.code.values
    value = values[unit.root(number)]
    while (outer := _outer(values, value)) is not None:
        number, key = outer
        keys = (*keys, key)
        value = values[unit.root(number)]
    if value.op == "attr":
        return Filled(value.data, value.args[0], added, listed, keys)
    symbol = unit.symbol(value) if value.op in ("name", "import") else None
    if isinstance(symbol, Variable):
        return Filled(symbol.name, symbol.module, added, listed, keys)
    name = unit.stored_globals.get(unit.root(number))
    return Filled(name, unit.module, added, listed, keys) if name is not None else None


def _outer(values: list[Value], value: Value) -> tuple[int, int] | None:
    """The container in which one lies, and under which key: `table[key]`, `table.setdefault(key, [])`."""
    if value.op == "item" and values[value.args[1]].op != "slice":
        return value.args[0], value.args[1]
    if value.op == "call" and len(value.args) > 1:
        callee = values[value.args[0]]
        if callee.op == "attr" and callee.data == "setdefault":
            return callee.args[0], value.args[1]
    return None


def fillings(at: Evaluation) -> Iterator[Filling]:
    """What a unit puts into attributes and global variables that are containers."""
    for name, owner, added, listed, keys, counted in at.unit.filled:
        content = sequence(at.vals[added]) if listed else at.vals[added]
        if counted and (content.of("tuple") or content.of("seq") or _is_listed(at.unit, added)):
            content = Val(content.objs | obj("dict", (), UNKNOWN).objs, content.v, content.n, content.p, content.state)
        for key in keys:
            content = _keyed(at, key, content)
        yield name, at.vals[owner] if isinstance(owner, int) else obj("module", owner), bare(content)


def _is_listed(unit: Unit, number: int) -> bool:
    """Whether a value is what callers pass by position: `*rows`."""
    value = unit.code.values[unit.root(number)]
    return value.op == "param" and unit.code.params[value.data[0]][1] == "*"


def _keyed(at: Evaluation, key: int, content: Val) -> Val:
    """A container that has something under a key, and whatever else where it was made (`BOTTOM`); of a number nobody
    knows whether it is a place in a list."""
    constant = at.vals[key].constant()
    if isinstance(constant, str):
        return obj("dict", ((constant, content),), BOTTOM)
    if isinstance(constant, int):
        return Val(sequence(content).objs | obj("dict", (), content).objs)
    return obj("dict", (), content)
