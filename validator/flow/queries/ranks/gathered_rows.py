"""Tensors in which the rows of all ranks of a group lie one behind another, as gathering leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import Axes
from validator.flow.queries.base import Place

_JOINING = frozenset({"cat", "concat", "concatenate", "vstack"})
_SPREAD = frozenset({"repeat_interleave", "sort", "flip", "roll", "repeat"})  # these move rows, or make more of them


class Gathered(NamedTuple):
    """A collective, and the axes whose ranks' rows it has laid one behind another."""

    call: Place
    axes: Axes


def gathered(tensor: Place) -> Gathered | None:
    """The collective whose rows a tensor has, in the order of the ranks: what is computed row by row keeps them."""
    seen, queue = {tensor}, [tensor]
    for place in queue:
        if (call := _gathers(place)) is not None:
            return Gathered(call, call.group)
        fresh = [each for each in _before(place) if each not in seen]
        seen.update(fresh)
        queue += fresh
    return None


def _gathers(place: Place) -> Place | None:
    """The collective of which a value is the result, or into whose output it is."""
    value = place.value
    if value.op == "call":
        if any(operation.row.rows and operation.sure for operation in place.operations):
            return place
        return _gathers_into(place.argument("tensors", 0), "into") if _joins(place) else None
    if value.op == "mut":
        return _writes(place, "times")
    return None


def _joins(call: Place) -> bool:
    dim = call.argument("dim", 1) or call.argument("axis", 1)
    return call.method in _JOINING and _is_function(call) and (dim is None or dim.val.is_const(0))


def _gathers_into(parts: Place | None, field: str) -> Place | None:
    """The collective that fills a list."""
    while parts is not None and parts.value.op == "mut":
        if (call := _writes(parts, field)) is not None:
            return call
        parts = parts.operand(0)
    return None


def _writes(place: Place, field: str) -> Place | None:
    """The collective that writes what a value is, behind its call, into the list (`into`) or the tensor (`times`)."""
    call = place.operand(1)
    for operation in call.operations if call.value.op == "call" else ():
        told = getattr(operation.row, field)
        output = call.argument(*(told[1] if field == "times" else told)) if told is not None else None
        if output is not None and output.root == place.operand(0).root and operation.sure:
            return call
    return None


def _is_function(call: Place) -> bool:
    return any(o[0] == "ext" and o[1].startswith("torch.") for o in call.operand(0).closed.each)


def _before(place: Place) -> Iterator[Place]:
    """The tensors whose rows a value has, one step before."""
    value, tensors = place.value, place.flow.models.tensors
    if value.op == "mut":
        yield place.operand(0)
    elif value.op in ("phi", "binary"):
        yield from (place.value_at(number) for number in value.args if number >= 0)
    elif value.op == "call":
        dim = place.argument("dim") or place.argument("axis")
        whole = place.method in tensors["reducing"] and (dim is None or dim.val.is_const(0))
        known = {*tensors["keep"], *tensors["moves"], *tensors["casts"], *tensors["reducing"]} - _SPREAD
        if place.method in known and not whole:
            of = place.argument("", 0) if _is_function(place) else place.receiver
            yield from [of] if of is not None else []
