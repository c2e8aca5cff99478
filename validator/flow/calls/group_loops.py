"""Groups that loops make, one in each round, of which each rank keeps its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def around_groups(at: Evaluation, stored: int, block: int) -> frozenset[int]:
    """Of a group that a loop makes for some ranks in each round, and each rank keeps if it belongs to it: the
    branches in the loop. Each rank belongs to one, so it is there on all ranks.

    The loop goes over lists of ranks, or each list is a `range`; a list that is picked out in the loop may leave
    ranks out.
    """
    value = at.code.values[at.root(stored)]
    loop = at.code.blocks[value.block].loop
    if value.op != "call" or loop < 0 or not at.vals[stored].of("group") or not is_of_every_rank(at, value):
        return frozenset()
    first = at.code.loops[loop].header
    return frozenset(b for b in at.unit.control.deciding(block) if _is_inside(at, b, first))


def is_of_every_rank(at: Evaluation, call: Instruction) -> bool:
    """Whether a call in a loop that makes groups gets lists that leave no rank out, as far as one can tell."""
    named = zip(call.data.names, call.args[1:], strict=True)
    ranks = [n for place, (name, n) in enumerate(named) if name == "ranks" or (name is None and place == 0)]
    return any(_is_range_or_turn(at, each) for each in ranks)


def _is_range_or_turn(at: Evaluation, number: int) -> bool:
    """Whether a list of ranks is what a loop goes through, a `range` or what is reckoned from one, or holds just
    what a loop goes through."""
    value = at.code.values[at.root(number)]
    if value.op == "call":
        called = at.code.values[value.args[0]].data
        return called == "range" or called == "list" and any(_is_range_or_turn(at, each) for each in value.args[1:])
    if value.op == "collect":
        _, count, iterators = value.data
        return len(value.args) == count + iterators and all(_is_reckoned(at, each) for each in value.args[:count])
    if value.op in ("unpack", "list", "tuple") and len(value.args) == 1:
        return _is_range_or_turn(at, value.args[0])
    return value.op == "next"


def _is_reckoned(at: Evaluation, number: int) -> bool:
    """Whether a number is made by arithmetic of what stands before all loops and of what they count, not picked out
    of what holds it."""
    value = at.code.values[at.root(number)]
    if value.op == "binary":
        return all(_is_reckoned(at, each) for each in value.args)
    return value.op not in ("item", "call") or at.code.blocks[value.block].loop < 0


def _is_inside(at: Evaluation, block: int, header: int) -> bool:
    """Whether a block lies in the body of a loop, or of a loop in it; the test of the loop itself does not."""
    loop = at.code.blocks[block].loop
    while loop not in (-1, header):
        loop = at.code.blocks[at.code.loops[loop].after].loop  # the loop around
    return block != header and loop == header
