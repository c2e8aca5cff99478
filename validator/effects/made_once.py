"""What is made once, by whoever asks first: `if self._model is None: self._model = wrap(…)`, a cached function.

Whether such a call makes anything depends on what ran before it, mostly on all ranks alike. Behind a call it counts as
made already; a collective that makes it proves nothing about the ranks that get there.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import Module
from validator.effects.condition_keys import Key, keys_of
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit

_CACHES = frozenset({"cache", "lru_cache", "cached_property", "lazy_property"})
_ABSENT = frozenset({"Is", "IsNot", "Eq", "NotEq", "In", "NotIn"})


def is_cached(unit: Unit) -> bool:
    """Whether a function runs once and what it gave is given ever after."""
    method = unit.method
    decorators = method.facts.decorators if method is not None else ()
    return any(each.partition("(")[0].rpartition(".")[2] in _CACHES for each in decorators)


def made_already(flow: Flow, unit: Unit, block: int) -> int | None:
    """The way of a branch on which something is there already that the other way makes; None for other branches."""
    end = unit.code.blocks[block].end
    asked = frozenset(_asked(flow, unit, end[1]))
    ways = [way for way in dict.fromkeys(end[2:4]) if asked and asked & frozenset(_stored(flow, unit, block, way))]
    return next(way for way in end[2:4] if way != ways[0]) if len(ways) == 1 else None


def _asked(flow: Flow, unit: Unit, number: int) -> Iterator[Key]:
    """What a condition asks to be there: attributes, variables of the module and elements, each by its owner."""
    values, keys = unit.code.values, keys_of(flow, unit)
    value = values[unit.root(number)]
    if unit.connective(number):
        for part in value.args:
            yield from _asked(flow, unit, part)
    elif value.op == "unary" and value.data == "Not":
        yield from _asked(flow, unit, value.args[0])
    elif value.op == "compare" and value.data in ("In", "NotIn"):
        yield ("element", keys.of(unit.root(value.args[1])))
    elif value.op == "compare" and value.data in _ABSENT and values[value.args[1]].data is None:
        yield from _asked(flow, unit, value.args[0])
    elif value.op == "call" and values[value.args[0]].data in ("hasattr", "getattr") and len(value.args) > 2:
        yield ("attribute", keys.of(unit.root(value.args[1])), values[value.args[2]].data)
    elif value.op == "attr":
        yield ("attribute", keys.of(unit.root(value.args[0])), value.data)
    elif value.op == "name":
        yield ("variable", value.data)


def _stored(flow: Flow, unit: Unit, block: int, way: int) -> Iterator[Key]:
    """What is stored only where a branch goes one way, there or in methods of the same object that it calls."""
    keys = keys_of(flow, unit)
    for number, value in enumerate(unit.code.values):
        if value.op not in ("store_attr", "store_global", "store_item", "call") or not unit.control.leads(
            value.block, block, way
        ):
            continue
        if value.op == "store_attr":
            yield ("attribute", keys.of(unit.root(value.args[0])), value.data)
        elif value.op == "store_global":
            yield ("variable", value.data)
        elif value.op == "store_item":
            yield ("element", keys.of(unit.root(value.args[0])))
        else:
            called = unit.code.values[value.args[0]]
            owner = keys.of(unit.root(called.args[0])) if called.op == "attr" else None
            for callee in _callees(flow, unit, number):
                yield from _made_by(flow, unit.module, callee, owner, {unit})


def _callees(flow: Flow, unit: Unit, number: int) -> Iterator[Unit]:
    site = flow.result(unit).sites.get(number)
    return (target.unit for target in site.targets) if site is not None else iter(())


def _made_by(flow: Flow, module: Module, callee: Unit, owner: Key | None, seen: set[Unit]) -> Iterator[Key]:
    """What a function and those that it calls store: in the object on which it is called (`owner`), in variables of the
    module, and in what these hold."""
    if callee in seen:
        return
    seen.add(callee)
    values = callee.code.values
    for number, value in enumerate(values):
        if value.op == "store_attr" and owner is not None and callee.is_receiver(value.args[0]):
            yield ("attribute", owner, value.data)
        elif value.op == "store_global" and callee.module is module:
            yield ("variable", value.data)
        elif value.op == "store_attr" and values[held := callee.root(value.args[0])].op == "name":
            if callee.module is module:
                yield ("attribute", keys_of(flow, callee).of(held), value.data)
        elif value.op == "call":
            called = values[value.args[0]]
            own = called.op == "attr" and callee.is_receiver(called.args[0])
            for inner in _callees(flow, callee, number):
                yield from _made_by(flow, module, inner, owner if own else None, seen)


__all__ = ["is_cached", "made_already"]
