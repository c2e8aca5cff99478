"""Tensors that are cut for the ranks of a group: each rank holds the part that its number tells."""

from __future__ import annotations

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of

RING = "cp"
_CUTTING = frozenset({"narrow", "index_select", "select", "gather", "slice"})
_SAME = frozenset({  # calls whose result has the tokens of its receiver in the same places
    "squeeze", "unsqueeze", "contiguous", "to", "cuda", "cpu", "long", "int", "bool", "float", "clone", "detach",
    "view", "reshape", "flatten", "type_as", "masked_fill", "pin_memory",
})  # fmt: skip
_PASSING = frozenset({"phi", "mut", "unpack", "tuple", "list", "await", "next", "iter"})
_GROWING = frozenset({"append", "extend"})


def varies_on(place: Place, axis: str) -> bool:
    """Whether a value tells the rank in groups of an axis, as far as is known of the group."""
    return any(c.kind == "rank" and c.axis == axis for c in place.closed.v)


def cut_of(queries: Queries, tensor: Place, axis: str = RING) -> Place | None:
    """Where a tensor is cut for the ranks of an axis: it still has the tokens of that part and no others."""
    seen: set[tuple[Unit, int]] = set()
    stack = [tensor]
    while stack:
        place = stack.pop()
        if (place.unit, place.number) in seen or not varies_on(place, axis):
            continue
        seen.add((place.unit, place.number))
        value = place.value
        if value.op == "item":
            if varies_on(place.operand(1), axis):
                return place
            stack.append(place.operand(0))
        elif value.op in _PASSING:
            grown = place.operand(1) if value.op == "mut" else None
            if grown is not None and grown.value.op == "call" and grown.method in _GROWING:
                stack += [grown.value_at(each) for each in grown.value.args[1:]]
            stack += [place.value_at(each) for each in value.args if value.op != "mut" or each == value.args[0]]
        elif value.op == "collect":
            stack += [place.value_at(each) for each in value.args[: value.data[1]]]
        elif value.op == "call":
            targets = queries.targets(place)
            for unit in targets:
                stack += [Place(place.flow, unit, number) for number in unit.code.returned]
            if place.method in _CUTTING and any(varies_on(place.value_at(n), axis) for n in value.args[1:]):
                return place
            if not targets and place.method in _SAME:
                stack += [place.receiver] if place.receiver is not None else []
        elif value.op == "param":
            stack += _passed(queries, place)
    return None


def _passed(queries: Queries, parameter: Place) -> list[Place]:
    """What the only call of a function passes for a parameter."""
    call = parameter.flow.only_call(parameter.unit)
    if call is None:
        return []
    given = argument_of(call[0], call[1], parameter.unit, parameter.value.data[0])
    return [Place(parameter.flow, call[0], given)] if given is not None else []
