"""What ranks have in common where a condition comes out differently on them.

Of `a and b`, where all ranks agree on `a`, they differ only if `a` holds. The same behind a function that asks, and
behind an attribute that is made once, by the constructor, of such a condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from validator.domains.spmd import Causes, only, varying
from validator.effects.condition_keys import Key, substituted
from validator.flow.program.answers import Target
from validator.flow.program.unit import Unit
from validator.flow.queries.pure_functions import Computed, computed, origin
from validator.flow.substitution import instantiated_causes
from validator.flow.values import BOTTOM, Val
from validator.ir.model import Value

if TYPE_CHECKING:
    from validator.effects.trace import Traces

Common = tuple[Key, bool, Causes]  # a part of a condition, how it comes out on one way, and by what that varies


def common_parts(traces: Traces, unit: Unit, number: int) -> Iterator[Common]:
    """The parts of a condition that all hold, or all fail, on one of its ways; of one part by which alone ranks may
    differ its own, too."""
    number = _plain(traces, unit, number)
    value = unit.code.values[number]
    if kind := unit.connective(number):
        truths = {part: traces.truth(unit, part) for part in value.args}
        for part, causes in truths.items():
            yield traces.keys(unit).of(part), kind == "and", causes
        apart = [part for part, causes in truths.items() if _may_vary(causes)]
        if len(apart) == 1:
            yield from common_parts(traces, unit, apart[0])
    elif value.op == "call":
        yield from _of_call(traces, unit, number)
    elif value.op == "attr":
        yield from _of_attribute(traces, unit, value)


def _plain(traces: Traces, unit: Unit, number: int) -> int:
    """A condition without its negations, where it comes from."""
    number = origin(traces.flow, unit, number)
    value = unit.code.values[number]
    while value.op == "unary" and value.data == "Not":
        number = origin(traces.flow, unit, value.args[0])
        value = unit.code.values[number]
    return number


def _may_vary(causes: Causes) -> bool:
    return bool(varying(causes) or only(causes, "param"))


def _of_call(traces: Traces, unit: Unit, number: int) -> Iterator[Common]:
    """What a function has in common that only computes, or that asks before it answers with constants."""
    made = computed(traces.flow, unit, number)
    if made is not None:
        target = traces.flow.result(unit).sites[number].targets[0]
        yield from _from_inside(traces, unit, number, target, common_parts(traces, made.unit, made.number))
        return
    site = traces.flow.result(unit).sites.get(number)
    if site is None or site.away or site.others or len(site.targets) != 1:
        return
    target = site.targets[0]
    asked = [test for test in _answers(target.unit) if _may_vary(traces.truth(target.unit, test))]
    if len(asked) == 1:
        yield from _from_inside(traces, unit, number, target, common_parts(traces, target.unit, asked[0]))


def _answers(unit: Unit) -> list[int]:
    """The tests of a function that returns constants: which of them it is, they alone decide."""
    code = unit.code
    if code.kind != "function" or code.is_async or code.is_generator or code.loops:
        return []
    ends = [(block, code.blocks[block].end) for block in code.in_order()]
    returned = [(block, end[1]) for block, end in ends if end[0] == "return"]
    if any(number < 0 or code.values[number].op != "const" for _, number in returned):
        return []
    deciding = {branch for block, _ in returned for branch in unit.control.deciding(block)}
    return [code.blocks[branch].end[1] for branch in sorted(deciding)]


def _from_inside(traces: Traces, unit: Unit, number: int, target: Target, inner: Iterator[Common]) -> Iterator[Common]:
    """The parts of a condition of a function in the terms of a call of it; without what the call does not tell."""
    for key, holds, causes in inner:
        here = traces.keys(unit).from_inside(key, Computed(target.unit, number), number)
        if here is not None:
            yield here, holds, instantiated_causes(causes, lambda i: target.argument(i) or BOTTOM)


def _of_attribute(traces: Traces, unit: Unit, value: Value) -> Iterator[Common]:
    """What an attribute of the object itself has in common that its constructor alone stores, once."""
    name = str(value.data)
    owner = unit.code.values[unit.root(value.args[0])]
    if unit.cls is None or owner.op != "param" or owner.data[0] != 0 or not unit.has_receiver:
        return
    maker, stored = _only_store(traces, unit, name)
    if maker is None:
        return
    kept = {maker.code.values[each.args[1]].data[0]: each for each in maker.code.values if _keeps(maker, each)}
    names = {place: str(each.data) for place, each in kept.items() if _only_store(traces, unit, str(each.data))[0]}
    itself: Key = ("param", unit, 0)

    def here(position: int) -> Key:
        """What the constructor was passed: the object itself, what it keeps, or what only the constructor knew."""
        if position == 0:
            return itself
        return ("attr", itself, names[position]) if position in names else ("passed", maker, position)

    def passed(position: int) -> Val:
        found: Val = traces.flow.solver.settled(("argument", maker, position))
        return found

    for key, holds, causes in common_parts(traces, maker, stored):
        yield substituted(key, maker, here), holds, instantiated_causes(causes, passed)


def _keeps(maker: Unit, value: Value) -> bool:
    """Whether an instruction stores a parameter as it is in an attribute of the object that is made."""
    if value.op != "store_attr" or maker.code.values[value.args[1]].op != "param":
        return False
    owner = maker.code.values[maker.root(value.args[0])]
    return owner.op == "param" and owner.data[0] == 0


def _only_store(traces: Traces, unit: Unit, name: str) -> tuple[Unit | None, int]:
    """The constructor that alone stores an attribute of objects of a class, once and always, and what it stores."""
    assert unit.cls is not None
    flow = traces.flow
    family = {*unit.cls.mro, *unit.cls.descendants()}
    units = {each.unit for each in flow.fields.stores(unit.cls, name, family)}
    if len(units) != 1:
        return None, -1
    (maker,) = units
    stores = [each for each in maker.code.values if each.op == "store_attr" and each.data == name]
    if maker.name != "__init__" or len(stores) != 1 or maker.control.deciding(stores[0].block):
        return None, -1
    return maker, stores[0].args[1]
