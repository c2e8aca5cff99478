"""Settings whose options take what the type of their default takes, and whose default is a whole number since a change.

`ml_collections` makes a flag of each setting of a `ConfigDict` and lets the first value decide what it parses: with
`1.0` it is a number, with `1` a whole number, and `--config.fraction=0.5` is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import External
from validator.drift.change import Change
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test

_FIXING = ("ml_collections.ConfigDict", "ml_collections.config_dict.ConfigDict")


class Narrowed(NamedTuple):
    """A setting that was a number and is a whole number now."""

    unit: Unit
    at: At
    name: str
    old: float
    new: int


class DefaultTypes:
    """The settings that a change narrowed; asked for with `change.analysis(DefaultTypes)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def narrowed(self) -> list[Narrowed]:
        found: list[Narrowed] = []
        for old, new in self.change.pairs:
            if not is_test(new.path) and not is_foreign(new.path) and b"ConfigDict" in new.module.source.data:
                before = {name: value for name, value, _ in _settings(Place(self.change.before.flow, old, 0))}
                for name, value, at in _settings(Place(self.change.after.flow, new, 0)):
                    was = before.get(name)
                    if isinstance(was, float) and type(value) is int:
                        found.append(Narrowed(new, at, name[-1], was, value))
        return found


def _settings(unit: Place) -> Iterator[tuple[tuple[str, ...], object, At]]:
    """The settings that a function gives the dictionaries that it makes: the path, the constant, the place."""
    values = unit.unit.code.values
    for number, value in enumerate(values):
        if value.op == "store_attr" and _is_made(unit.value_at(value.args[0])):
            owner = unit.unit.text(values[value.args[0]].at)
            yield (owner, str(value.data)), _constant(unit.unit, value.args[1]), unit.unit.at(value.at)
        elif value.op == "call" and _is_made(unit.value_at(number)):
            owner = next((name for name, made in unit.unit.code.definitions.items() if number in made), "")
            for name, held in _given(unit.unit, number):
                yield (owner, name), _constant(unit.unit, held), unit.unit.at(values[held].at)


def _given(unit: Unit, call: int) -> Iterator[tuple[str, int]]:
    """The keys and values with which a call makes a dictionary: `ConfigDict({"x": 1})`, `ConfigDict(dict(x=1))`."""
    values = unit.code.values
    for operand in values[call].args[1:2]:
        held = values[unit.root(operand)]
        if held.op == "dict":
            rows = zip(held.args[::2], held.args[1::2], strict=True)
            yield from ((str(values[key].data), each) for key, each in rows if key >= 0 and values[key].op == "const")
        elif held.op == "call" and values[held.args[0]].data == "dict":
            yield from ((name, each) for name, each in zip(held.data.names, held.args[1:], strict=True) if name)


def _is_made(place: Place) -> bool:
    """Whether an object is a dictionary that the function makes, or one that it put into such a one: not what another
    function made, whose settings have a type already."""
    root = place.root
    if root.value.op == "attr":
        stored = [v for v in root.unit.code.values if v.op == "store_attr" and v.data == root.value.data]
        return len(stored) == 1 and _is_made(root.value_at(stored[0].args[1]))
    if root.value.op != "call":
        return False
    symbol = root.unit.module.project.lookup(root.unit.scope, root.operand(0).text)
    return isinstance(symbol, External) and symbol.path in _FIXING


def _constant(unit: Unit, number: int) -> object:
    value = unit.code.values[unit.root(number)]
    return value.data if value.op == "const" else None
