"""Which part of a row of things a rank takes: a block of those that follow each other, or every so manieth.

`x.reshape(ranks, n)[rank]`, `x.chunk(ranks)[rank]` and `x[rank * n : (rank + 1) * n]` are the block that a gather put
there for the rank; `x.reshape(n, ranks)[:, rank]` and `x[rank::ranks]` are others.
"""

from __future__ import annotations

from validator.domains.axes import SOME
from validator.flow.queries.base import Place
from validator.flow.queries.ranks.rank_shares import axes_of_rank

BLOCK, STRIDE = "in blocks, one for each rank", "in turn, to one rank after the other"
_SHAPING = frozenset({"reshape", "view", "unflatten"})
_CHUNKING = frozenset({"chunk", "tensor_split", "array_split", "split"})


def part_taken(item: Place) -> tuple[str, str] | None:
    """What a look-up by a rank takes a part of, and which part: BLOCK or STRIDE; None where it is no such thing."""
    owner, index = item.operand(0).root, item.operand(1)
    if index.value.op == "slice":
        first, _, step = (index.value_at(number) if number >= 0 else None for number in index.value.args)
        if step is not None:
            return (owner.text, STRIDE) if first is not None and _is_rank(first) else None
        product = first is not None and first.root.value.op == "binary" and first.root.value.data == "Mult"
        by_rank = product and any(_is_rank(first.root.operand(each)) for each in (0, 1))  # type: ignore[union-attr]
        return (owner.text, BLOCK) if by_rank else None
    place = _place_of_rank(index)
    if place < 0 or owner.value.op != "call" or owner.receiver is None:
        return None
    if owner.method in _CHUNKING:
        return (owner.receiver.text, BLOCK) if place == 0 else None
    return (owner.receiver.text, STRIDE if place else BLOCK) if owner.method in _SHAPING else None


def _place_of_rank(index: Place) -> int:
    """By which dimension a rank is looked up, all before it taken as a whole; -1 where none is."""
    if index.value.op != "tuple":
        return 0 if _is_rank(index) else -1
    for place, number in enumerate(index.value.args):
        part = index.value_at(number)
        if part.value.op != "slice":
            return place if _is_rank(part) else -1
    return -1


def _is_rank(place: Place) -> bool:
    return axes_of_rank(place) != SOME
