"""Of which list of sizes the first dimension of a tensor is the sum: `torch.empty(sum(sizes), n)`."""

from __future__ import annotations

from typing import Any

from validator.flow.queries.base import Place

_NUMBER = frozenset({"int", "item", "sum"})
_LISTING = frozenset({"tolist", "list", "tuple", "numpy"})


def summed_sizes(tensor: Place) -> Place | None:
    """The list, as it was first, whose sum is the first size of a tensor that was made with it."""
    made = tensor.origin
    if made.value.op != "call" or not _takes_sizes(made):
        return None
    size = made.argument("size", 0)
    if size is not None and size.root.value.op in ("tuple", "list"):
        size = size.root.operand(0) if size.root.value.args else None
    is_sum = False
    while size is not None and (place := size.origin).value.op == "call" and place.method in _NUMBER:
        is_sum = is_sum or place.method == "sum"
        size = _converted(place)
    return listed(size) if size is not None and is_sum else None


def listed(sizes: Place) -> Place:
    """A list or tensor before it was turned into another form: `counts` of `counts.cpu().tolist()`."""
    tensors = sizes.flow.models.tensors
    place = sizes.origin
    while place.value.op == "call" and (
        place.method in _LISTING or place.method in tensors["moves"] or place.method in tensors["casts"]
    ):
        before = _converted(place)
        if before is None:
            break
        place = before.origin
    return place


def are_same(one: Place, other: Place) -> bool:
    """Whether two lists are the same as they were first."""
    key: tuple[Any, ...] = listed(one).key
    return key == listed(other).key


def _converted(call: Place) -> Place | None:
    """What a call gives in another form: its only argument, or the object on which it is made."""
    known = any(o[0] == "ext" for o in call.operand(0).val.each)
    if known or call.receiver is None:
        return call.operand(1) if len(call.value.args) == 2 else None
    return call.receiver


def _takes_sizes(call: Place) -> bool:
    """Whether the arguments of a call are the sizes of the tensor that it makes."""
    models = call.flow.models
    rows = [models.call(o[1]) for o in call.operand(0).val.of("ext")] or [models.methods.get(call.method)]
    return any(row is not None and row.layout in ("sizes", "receiver") for row in rows)
