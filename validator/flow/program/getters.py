"""Functions that give back a parameter, or what lies in an attribute of one (`model.module if hasattr(model, "module")
else model`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from validator.flow.program.unit import Unit


class Got(NamedTuple):
    """One thing that a function gives back: the parameter, the attributes that lead from it, and in which block that
    was decided, behind whose tests the parameter is what it can be there."""

    number: int
    position: int
    names: tuple[str, ...]
    block: int
    is_changed: bool  # whether calls were given it before


def got(unit: Unit) -> tuple[Got, ...]:
    """All that a function gives back; nothing where it gives back anything else, too."""
    found: list[Got] = []
    for number, block in _returned(unit):
        names: list[str] = []
        is_changed = unit.code.values[number].op == "mut"
        number = unit.root(number)
        value = unit.code.values[number]
        while value.op == "attr":
            names.insert(0, value.data)
            is_changed = is_changed or unit.code.values[value.args[0]].op == "mut"
            number = unit.root(value.args[0])
            value = unit.code.values[number]
        if value.op != "param":
            return ()
        found.append(Got(number, value.data[0], tuple(names), block, is_changed))
    return tuple(dict.fromkeys(found))


def _returned(unit: Unit) -> Iterator[tuple[int, int]]:
    """What a function returns, and in which block: of a choice each part, where it comes from."""
    code = unit.code
    ends = ((number, code.blocks[number].end) for number in code.in_order())
    stack = [(end[1], number) for number, end in ends if end[0] == "return"]
    seen = set()
    while stack:
        number, block = stack.pop()
        if (number, block) in seen:
            continue
        seen.add((number, block))
        value = code.values[number]
        preds = [pred for pred, raised in code.blocks[value.block].preds if not raised]
        if value.op == "phi" and len(preds) == len(value.args):
            stack += zip(value.args, preds, strict=True)
        else:
            yield number, block
