"""Over which dimensions a tensor is reduced: all of them, where none is named, or each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.flow.values import NOT_YET

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

_NAMES = ("dim", "axis")
_BESIDE = frozenset({"dtype", "out", "p", "keepdim", "keepdims"})  # keywords that say nothing of them
_COUNTING = frozenset({"dim", "ndimension"})
_CONTAINERS = frozenset({"tuple", "list", "range"})


def over_all(at: Evaluation, number: int, given: int) -> bool:
    """Whether the reduction that a call makes leaves one element of a tensor, in whatever shape. `given`: how many
    arguments come before the dimensions."""
    call = at.code.values[number]
    if call.op != "call":
        return False
    rows = list(zip(call.data.names, call.args[1:], strict=True))[given:]
    rows = [(name, each) for name, each in rows if name not in _BESIDE]
    named = [each for index, (name, each) in enumerate(rows) if name in _NAMES or name is None and index == 0]
    return len(named) == len(rows) and all(_is_all(at, each, frozenset()) for each in named)


def _is_all(at: Evaluation, number: int, seen: frozenset[int]) -> bool:
    """Whether a value names all dimensions, or none: None, `tuple(range(x.dim()))`, what callers pass as None."""
    number = at.unit.root(number)
    value = at.code.values[number]
    if number in seen:
        return True
    if value.op == "phi":
        return all(_is_all(at, each, seen | {number}) for each in value.args if each >= 0)
    if value.op == "const":
        return value.data is None
    if value.op == "param":
        passed = at.flow.get("argument", at.unit, value.data[0])
        return passed is NOT_YET or passed.is_const(None)
    if value.op == "call" and len(value.args) == 2:
        name = at.code.values[value.args[0]]
        made = name.op == "name" and name.data in _CONTAINERS
        return made and (
            _counts_dimensions(at, value.args[1]) if name.data == "range" else _is_range(at, value.args[1])
        )
    return False


def _is_range(at: Evaluation, number: int) -> bool:
    """Whether a value is a range over all dimensions."""
    value = at.code.values[at.unit.root(number)]
    made = value.op == "call" and len(value.args) == 2 and at.code.values[value.args[0]].data == "range"
    return made and _counts_dimensions(at, value.args[1])


def _counts_dimensions(at: Evaluation, number: int) -> bool:
    """Whether a value is how many dimensions a tensor has: `x.dim()`, `x.ndim`, `len(x.shape)`."""
    value = at.code.values[at.unit.root(number)]
    if value.op == "attr":
        return bool(value.data == "ndim")
    callee = at.code.values[value.args[0]] if value.op == "call" else value
    if callee.op == "attr" and callee.data in _COUNTING:
        return len(value.args) == 1
    if callee.op != "name" or callee.data != "len" or len(value.args) != 2:
        return False
    held = at.code.values[at.unit.root(value.args[1])]
    asked = at.code.values[held.args[0]] if held.op == "call" and len(held.args) == 1 else held
    return asked.op == "attr" and asked.data == ("size" if held.op == "call" else "shape")
