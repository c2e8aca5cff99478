"""Names by which the source knows values. They rank candidates and prove nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.axes import WHOLE, Axes, axes_of, of_dimension
from validator.flow.calls.arguments import Arguments, place_of
from validator.ir import Value as Instruction
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def hint_of(at: Evaluation, number: int) -> str:
    """The name by which the source knows a value; empty where it has none."""
    value = at.code.values[at.root(number)]
    if value.op == "param":
        return str(value.data[1])
    if value.op in ("attr", "phi", "name") and value.data:
        return str(value.data)
    if value.op == "free":
        return str(value.data[1])
    if value.op == "call":
        return hint_of(at, value.args[0])
    root = at.root(number)
    return next((name for name, held in at.code.definitions.items() if root in held), "")


def asked_object(at: Evaluation, value: Instruction) -> str:
    """The name of the object on which a method is called."""
    callee = at.code.values[value.args[0]]
    return hint_of(at, callee.args[0]) if callee.op == "attr" else ""


def asked_axes(at: Evaluation, name: str, value: Instruction, arguments: Arguments) -> Axes:
    """The axis of a coordinate, by a mesh dimension that is named, or by names of receiver and method."""
    for _, given in arguments:
        constant = given.constant()
        if isinstance(constant, str):
            return frozenset({of_dimension(constant)})
    callee = at.code.values[value.args[0]]
    hinted = axes_of(name) or (axes_of(hint_of(at, callee.args[0])) if callee.op == "attr" else frozenset())
    if name in at.models.ranks["stages"] and not hinted:
        return frozenset({"pp"})
    return hinted - {"world"} or WHOLE


def told_by_name(at: Evaluation, number: int, row: Row, arguments: Arguments) -> Axes:
    """The axes of which the name of the group speaks, where the group itself is not known."""
    place = place_of(row.group or row.rank_of or ("", -1), arguments)
    value = at.code.values[number]
    return axes_of(hint_of(at, value.args[place + 1])) - WHOLE if place >= 0 and value.op == "call" else frozenset()
