"""The part of something that a rank gets where all get as much: `x[rank * n : (rank + 1) * n]` with
`n = len(x) // ranks`, and `x.chunk(ranks)[rank]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import MODEL_PARALLEL, SOME, WORLD, of_parallelism
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.ranks.rank_shares import axes_of_rank, axes_of_size, chunk_of

_PARTICIPANTS = MODEL_PARALLEL | {WORLD, "dp"}
_DIVIDING = frozenset({"FloorDiv", "Div"})
_SUMS = frozenset({"Add", "Sub"})


class Block(NamedTuple):
    """`place` takes the part of a rank of `whole`, which `ranks` ranks (a value) divide among themselves."""

    place: Place
    whole: Place
    ranks: Place
    chunked: bool


def blocks(queries: Queries) -> Iterator[Block]:
    """All blocks of a program."""
    for unit in queries.of_program():
        if any(value.op == "slice" for value in unit.code.values) or "chunk" in unit.named:
            for place in queries.values(unit, "item"):
                yield from _of_item(place)


def _of_item(place: Place) -> Iterator[Block]:
    chunk = chunk_of(place)
    if chunk is not None and chunk.whole is not None and chunk.rank is not None and chunk.size is not None:
        if place.operand(0).root.method == "chunk" and _is_rank(chunk.rank) and _counts_ranks(chunk.size):
            yield Block(place, chunk.whole, chunk.size, True)
        return
    index = place.operand(1).root
    parts = [index.value_at(n).root for n in index.value.args] if index.value.op == "tuple" else [index]
    for part in parts:
        ranks = _divided_among(part) if part.value.op == "slice" else None
        if ranks is not None:
            yield Block(place, place.operand(0), ranks, False)


def _divided_among(bounds: Place) -> Place | None:
    """The number of ranks of bounds `rank * n`, `(rank + 1) * n` or `rank * n + n`, where `n` is a quotient by it."""
    lower, upper, step = (bounds.value_at(n).root if n >= 0 else None for n in bounds.value.args)
    if lower is None or upper is None or step is not None and step.value.data is not None:
        return None
    for rank, size in _operands(lower, "Mult"):
        ends = any(_is_rank_after(r, rank) and _same(s, size) for r, s in _operands(upper, "Mult"))
        ends = ends or any(_same(a, lower) and _same(b, size) for a, b in _operands(upper, "Add"))
        if ends and _is_rank(rank):
            return _divisor(size)
    return None


def _operands(place: Place, operator: str) -> Iterator[tuple[Place, Place]]:
    """The two sides of an operator, either way round."""
    if place.value.op == "binary" and place.value.data == operator:
        one, other = place.operand(0).root, place.operand(1).root
        yield one, other
        yield other, one


def _is_rank_after(place: Place, rank: Place) -> bool:
    return any(_same(one, rank) and other.value.data == 1 for one, other in _operands(place, "Add"))


def _same(one: Place, other: Place) -> bool:
    return one.number == other.number or one.text == other.text and one.value.op == other.value.op


def _divisor(size: Place) -> Place | None:
    """The number of ranks by which something is divided: no sum, for `(n + ranks - 1) // ranks` rounds up, and no width
    of a model that a configuration states."""
    if size.value.op == "call" and size.method == "int" and len(size.value.args) == len(("int", "size")):
        size = size.operand(1).root
    if size.value.op != "binary" or size.value.data not in _DIVIDING:
        return None
    whole, ranks = size.operand(0).root, size.operand(1)
    if whole.value.op in ("unary", "attr") or _is_sum(whole):
        return None
    return ranks if _counts_ranks(ranks) else None


def _is_sum(place: Place) -> bool:
    value = place.root.value
    return value.op == "binary" and (value.data in _SUMS or any(_is_sum(place.value_at(n)) for n in value.args))


def _is_rank(place: Place) -> bool:
    """Whether a value is the number of this rank, as the flow knows or as its name says; not one that a loop counts."""
    if place.root.value.op in ("next", "unpack"):
        return False
    return axes_of_rank(place) != SOME or _name(place).lower().split("_")[-1] == "rank"


def _counts_ranks(place: Place) -> bool:
    """The same of the number of ranks that divide data or a model among themselves."""
    axes = axes_of_size(place)
    if axes == SOME:
        name = _name(place)
        axes = frozenset({WORLD}) if name.lower().endswith("world_size") else of_parallelism(name)
    return len(axes) == 1 and axes <= _PARTICIPANTS


def _name(place: Place) -> str:
    """What a value is called, or the function that gives it."""
    value = place.root.value
    if value.op in ("param", "free"):
        return str(value.data[1])
    if value.op == "call":
        return str(place.root.method or "")
    return value.data if value.op in ("attr", "name") and isinstance(value.data, str) else ""
