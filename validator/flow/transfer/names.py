"""What names mean: parameters, names of modules, of functions around, of imports, and nested functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.placement import of_parameter
from validator.domains.spmd import Cause
from validator.flow.annotations import objects_of
from validator.flow.program.symbols import meaning
from validator.flow.values import UNKNOWN, Obj, Val, const, join, join2, obj
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def parameter(at: Evaluation, number: int, value: Instruction) -> Val:
    """What a unit is passed: the object or class of a method, else a hole that callers fill."""
    position, name = value.data
    kind = at.code.params[position][1]
    unit = at.unit
    if position == 0 and unit.has_receiver and unit.cls is not None and unit.method is not None:
        if unit.method.name == "__init_subclass__":  # it gets each class below, never its own
            below = unit.cls.descendants()
            return join(obj("class", each) for each in below) if below else UNKNOWN
        if unit.method.facts.is_classmethod:
            return obj("class", unit.cls)
        return obj("self", unit.cls)
    objs: set[Obj] = {("param", position)}
    if unit.method is not None and kind not in ("*", "**"):
        objs |= objects_of(at.flow.parameters.declared(unit, name))
    v, n, p = (frozenset({Cause("param", "", True, facet, position)}) for facet in "vnp")
    return Val(frozenset(objs), v, n, p, of_parameter(position))


def constant(at: Evaluation, number: int, value: Instruction) -> Val:
    """A literal."""
    return const(value.data)


def global_name(at: Evaluation, number: int, value: Instruction) -> Val:
    """A name of the module, or of the language."""
    if value.data == "__file__" or value.data == "__name__":
        return UNKNOWN
    if value.data == "super":
        return obj("ext", "super")
    # a lambda or a nested unit sees the module's names through the function around it
    return join(meaning(at, symbol, value.data) for symbol in at.flow.meanings(at.unit, value))


def free_variable(at: Evaluation, number: int, value: Instruction) -> Val:
    """A variable of a function around."""
    distance, name = value.data
    outer = at.unit.above(distance)
    if outer is None:
        return UNKNOWN
    numbers = tuple(outer.code.definitions.get(name, ()))
    return at.flow.close(join(at.flow.vals(outer, numbers)), outer)


def imported(at: Evaluation, number: int, value: Instruction) -> Val:
    """What an import in a function gives."""
    return meaning(at, at.flow.symbol(at.unit, value), "")


def closure(at: Evaluation, number: int, value: Instruction) -> Val:
    """A function or class that is defined here; of a wrapper also what it wraps."""
    inner = at.flow.units_of(at.unit.module).get(value.data)
    if inner is None:
        return UNKNOWN
    if inner.code.kind == "class":
        return obj("class", inner.cls) if inner.cls is not None else UNKNOWN
    name, _ = inner.wraps
    if not name:
        return obj("unit", inner)
    wrapped: Val = at.vals[at.unit.root(at.code.definitions[name][0])]
    return join2(wrapped, obj("unit", inner)) if at.flow.may_communicate(inner) else wrapped
