"""Which values, and which tests, are the same: one thing, one constant, one rank asked for twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from validator.flow.values import NONE_OBJ, Val
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

_OPPOSITES = ({"Eq", "NotEq"}, {"Is", "IsNot"}, {"In", "NotIn"}, {"Lt", "GtE"}, {"Gt", "LtE"})
_REMAKING = frozenset(("ext", name) for name in ("tuple", "frozenset", "sorted", "str", "int"))
_THINGS = frozenset({"inst", "class", "unit", "module"})


def is_thing(value: Val) -> bool:
    """Whether a value is an object of one class, a function or a class: whichever way it was made, it is that."""
    return len(value.objs) == 1 and value.each[0][0] in _THINGS


def is_one_thing(at: Evaluation, numbers: Iterable[int]) -> bool:
    """Whether values are one thing, or None: they differ in whether it is there, and in nothing else."""
    found = {at.vals[number].objs - {NONE_OBJ} for number in numbers} - {frozenset()}
    return len(found) == 1 and is_thing(Val(found.pop()))


def is_none(value: Instruction) -> bool:
    """Whether an instruction is the constant None."""
    return value.op == "const" and value.data is None


def agree(at: Evaluation, one: tuple[int, bool], other: tuple[int, bool]) -> bool:
    """Whether two tests, holding or not, are met by the same ranks."""
    (first, holds), (second, also) = one, other
    a, b = at.code.values[first], at.code.values[second]
    while a.op == "unary" and a.data == "Not":
        a, holds = at.code.values[a.args[0]], not holds
    while b.op == "unary" and b.data == "Not":
        b, also = at.code.values[b.args[0]], not also
    if a.op != "compare" or b.op != "compare":
        return a is b and holds is also
    if a.data != b.data:
        if {a.data, b.data} not in _OPPOSITES:
            return False
        also = not also
    return holds is also and _are_same(at, a.args, b.args)


def is_same(at: Evaluation, one: int, other: int) -> bool:
    """Whether two values are equal: one value, one constant, one rank asked for twice, what is made of these."""
    one, other = at.root(one), at.root(other)
    a, b = at.code.values[one], at.code.values[other]
    if one == other:
        return True
    if a.op == b.op == "const":
        return bool(a.data == b.data)
    if a.op == b.op and a.data == b.data and len(a.args) == len(b.args) and _is_repeatable(at, a):
        return _are_same(at, a.args, b.args)
    told = at.vals[one]
    return told is at.vals[other] and bool(told.of("ordinal")) and len(told.objs) == 1


def _are_same(at: Evaluation, some: tuple[int, ...], others: tuple[int, ...]) -> bool:
    return all(is_same(at, one, other) for one, other in zip(some, others, strict=False))


def _is_repeatable(at: Evaluation, value: Instruction) -> bool:
    """Whether an instruction with equal operands gives what is equal."""
    if value.op == "call":
        return any(o in _REMAKING for o in at.vals[value.args[0]].objs)
    return value.op in ("attr", "name", "tuple", "list")
