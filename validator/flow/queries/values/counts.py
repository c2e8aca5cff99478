"""Of what a number is the count, and a sum the sum: rows, elements, what a mask selects, rounds of a loop."""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.queries.base import Place
from validator.flow.queries.values.sums import KEEPING

# What is counted, or added up, and along what: dimension 0, all elements (None), or rounds (-1).
Amount = tuple[Place, int | None]
_MAKING = frozenset({"tensor", "as_tensor", "FloatTensor", "LongTensor", "DoubleTensor", "int"})
_AT_LEAST = frozenset({"clamp", "clamp_min", "clamp_", "clip"})
_RETYPING = frozenset({"float", "double", "half", "bfloat16", "bool", "int", "long", "to", "type", "type_as"})
_ROUNDS, _ALL = -1, None


def number_of(place: Place) -> Place:
    """A number before `.item()`, `torch.tensor([…])` and their like."""
    while place.value.op == "call" and place.method in KEEPING | _MAKING:
        inner = place.receiver if place.method not in _MAKING else place.argument("data", 0)
        inner = inner or place.argument("", 0)
        if inner is None:
            break
        place = inner.root
        if place.value.op in ("list", "tuple") and len(place.value.args) == 1:
            place = place.operand(0).root
    return place


def element(place: Place) -> tuple[Place, int | None]:
    """The tensor in which a number lies, as what that is after what was done to it, and at which place; the number
    itself and None where it lies in none."""
    here = place
    while here.value.op == "call" and here.method in KEEPING and here.receiver is not None:
        here = here.receiver
    index = here.operand(1).val.constant() if here.value.op == "item" else None
    if here.value.op == "unpack":
        index = here.value.data[0]
    if not isinstance(index, int) or isinstance(index, bool):
        return place, None
    whole = here.operand(0)
    while whole.value.op == "call" and whole.method in KEEPING | {"tolist"} and whole.receiver is not None:
        whole = whole.receiver
    return whole, index


def laid_together(tensor: Place, position: int) -> Place | None:
    """The number at a place of a tensor that is made of several: `torch.stack([a, b])`, `torch.tensor([a, b])`."""
    while tensor.value.op == "call" and tensor.method in KEEPING and tensor.receiver is not None:
        tensor = tensor.receiver.root
    if tensor.value.op != "call" or tensor.method not in _MAKING | {"stack", "cat", "hstack"}:
        return None
    parts = tensor.operand(1).root if len(tensor.value.args) > 1 else tensor
    known = parts.value.op in ("list", "tuple") and 0 <= position < len(parts.value.args)
    return parts.operand(position).root if known else None


def counted(count: Place) -> Amount | None:
    """Of what a value is the number of rows, of elements or of rounds, or the sum of weights."""
    count = _kept_from_zero(number_of(count))
    if (loop := grows(count)) is not None:
        return loop, _ROUNDS
    value = count.value
    if value.op == "item" and count.operand(1).val.is_const(0) and count.operand(0).root.value.data == "shape":
        return count.operand(0).root.operand(0).root, 0
    if value.op != "call":
        return None
    if count.method == "len" and count.receiver is None and len(value.args) == 2:
        return count.operand(1).root, 0
    if count.method == "size" and count.receiver is not None and len(value.args) == 2:
        return (count.receiver.root, 0) if count.operand(1).val.is_const(0) else None
    if count.method == "numel" and count.receiver is not None:
        return count.receiver.root, _ALL
    return _of_call(count) if count.method in ("sum", "count_nonzero") else None


def added_up(total: Place) -> Iterator[Amount]:
    """Of what a value is the sum, over rows, elements or rounds; of a product also each factor, which may be a mask."""
    total = number_of(total)
    if (loop := grows(total)) is not None:
        yield loop, _ROUNDS
    elif total.value.op == "call" and total.method == "sum" and (found := _of_call(total)) is not None:
        whole, dimension = found
        yield whole, dimension
        if dimension is _ALL:
            yield from ((factor, dimension) for factor in _weights(whole))


def grows(place: Place) -> Place | None:
    """The loop, by the value that its rounds are counted with, in each round of which something is added to a value."""
    queue, seen = [place], {place.number}
    for each in queue:  # where a loop may be broken off, what comes from there, too
        loop = each.unit.code.loops.get(each.value.block) if each.value.op == "phi" else None
        parts = [each.value_at(number).root for number in each.value.args] if each.value.op == "phi" else []
        added = [part for part in parts if part.value.op == "binary" and part.value.data == "Add"]
        if loop is not None and any(each.number in map(each.unit.root, part.value.args) for part in added):
            return place.value_at(loop.iterator) if loop.iterator >= 0 else None
        parts += [part.value_at(number).root for part in added for number in part.value.args]
        queue += [part for part in parts if part.value.op in ("phi", "binary") and part.number not in seen]
        seen.update(part.number for part in parts)
    return None


def _kept_from_zero(count: Place) -> Place:
    """A number before `clamp(min=1)`, `max(n, 1)` and `+ eps`."""
    while True:
        root = number_of(count.root)
        if root.value.op == "call" and root.method in _AT_LEAST and root.receiver is not None:
            count = root.receiver
        elif root.value.op == "call" and root.method == "max" and root.receiver is None and len(root.value.args) == 3:
            count = next((root.operand(n) for n in (1, 2) if root.operand(n).root.value.op != "const"), root)
            if count == root:
                return root
        elif root.value.op == "binary" and root.value.data == "Add" and root.operand(1).root.value.op == "const":
            count = root.operand(0)
        else:
            return root


def _of_call(call: Place) -> Amount | None:
    """What `sum` adds up, and along which dimension: the first, or all."""
    function = call.receiver is None or any(o[0] in ("ext", "module") for o in call.receiver.val.each)
    tensor = call.argument("input", 0) if function else call.receiver
    dimension = call.argument("dim", 1 if function else 0)
    if tensor is None or dimension is not None and not dimension.val.is_const(0):
        return None
    return _retyped(tensor), _ALL if dimension is None else 0


def _retyped(tensor: Place) -> Place:
    """A tensor before it was turned to another type."""
    tensor = tensor.root
    while tensor.value.op == "call" and tensor.method in _RETYPING and tensor.receiver is not None:
        tensor = tensor.receiver.root
    return tensor


def _weights(whole: Place) -> Iterator[Place]:
    """The factors of a product, and what selects the elements of a tensor."""
    value = whole.value
    if value.op == "binary" and value.data in ("Mult", "BitAnd"):
        for side in (_retyped(whole.operand(0)), _retyped(whole.operand(1))):
            yield side
            yield from _weights(side)
    elif value.op == "item":
        yield _retyped(whole.operand(1))
