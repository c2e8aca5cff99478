"""Operators: arithmetic on values, on ranks, and of containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.axes import LOCAL, WHOLE
from validator.domains.placement import UNPLACED
from validator.domains.spmd import NONE, combined, folded, only, rank, unsure
from validator.flow.calls.groups import axes_in
from validator.flow.merging.conditions import truth_at
from validator.flow.queries.values.tensors import computed
from validator.flow.texts import spelled
from validator.flow.values import Obj, Val, as_long_as, beside, const, elements, is_text, join2, sequence
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

_OF_SETS = frozenset({"Sub", "BitOr", "BitAnd", "BitXor"})
_CONTAINERS = ("seq", "tuple", "dict")
_FOLDING = frozenset({"FloorDiv", "Mod", "BitAnd", "RShift"})


def binary(at: Evaluation, number: int, value: Instruction) -> Val:
    """An operator of two operands."""
    left, right = map(at.operand, value.args)
    kept = frozenset(o for o in left.objs | right.objs if o[0] in _CONTAINERS)
    kept |= _numbered(value.data, left, right) | computed(value.data, left, right)
    holds = any(o[0] in _CONTAINERS for o in kept)
    if value.data == "Add" and is_text(left):
        kept |= spelled([left, right])
    if value.data == "Add" and holds:
        return _concatenated(at, value, left, right)
    if value.data == "Mult" and holds:
        return _repeated(left, right, kept)
    if value.data in _OF_SETS and beside(left, "unordered"):
        return Val(kept | beside(left, "unordered"), left.v | right.v, left.n | right.n | left.v | right.v)
    return _arithmetic(value.data, left, right, kept)


def _concatenated(at: Evaluation, value: Instruction, left: Val, right: Val) -> Val:
    """One container behind another."""
    whole = sequence(join2(elements(left), elements(right)))
    filled = _filled_up_to(at, value)
    n = at.vals[filled].v if filled >= 0 else left.n | right.n
    if only(left.n, "rank", "member") and only(right.n, "rank", "member"):
        n = unsure(n)  # `rows[rank:] + rows[:rank]` is as long everywhere
    return Val(whole.objs | _order(left, right), left.v | right.v, n)


def _repeated(left: Val, right: Val, kept: frozenset[Obj]) -> Val:
    """A container several times; `[None] * size` is as long as the group whose size it is."""
    whole = sequence(join2(elements(left), elements(right)))
    single = any(len(o[1]) == 1 for o in left.of("tuple"))
    as_long = as_long_as(right) if single else NONE
    n = left.n | right.n | (right.v if left.objs & kept else left.v)
    return Val(whole.objs | as_long | _order(left, right), left.v | right.v, n)


def _order(left: Val, right: Val) -> frozenset[Obj]:
    return beside(left, "unordered") | beside(right, "unordered")


def _arithmetic(operator: str, left: Val, right: Val, kept: frozenset[Obj]) -> Val:
    """What is reckoned of two numbers or tensors. `kept`: what it may be."""
    if operator == "Sub" and _are_bounds(left, right):  # pieces whose ends move together are as long everywhere
        return Val(kept, combined(*(v - only(v, "rank", "member") for v in (left.v, right.v))), left.n | right.n)
    if operator == "Mod" and _is_within_node(left, right):
        return Val(kept, rank({LOCAL}), left.n | right.n)
    state = (left.state | right.state) - UNPLACED
    if operator in _FOLDING or only(left.v, "rank", "member") and only(right.v, "rank", "member"):
        return Val(kept, folded(combined(left.v, right.v)), left.n | right.n, state=state)
    if operator == "Div" and not kept:
        kept = frozenset(o for o in left.each if o == ("ext", "pathlib.Path"))
    return Val(kept, combined(left.v, right.v), combined(left.n, right.n), state=state)


def _filled_up_to(at: Evaluation, value: Instruction) -> int:
    """The number of elements that a list has when enough are put behind it: `size` in `rows + [None] * (size -
    len(rows))`; -1 otherwise."""
    values, (rows, more) = at.code.values, map(at.root, value.args)
    for factor in values[more].args if (values[more].op, values[more].data) == ("binary", "Mult") else ():
        lacking = values[at.root(factor)]
        length = values[at.root(lacking.args[1])] if (lacking.op, lacking.data) == ("binary", "Sub") else None
        if length is not None and length.op == "call" and values[length.args[0]].data == "len":
            return lacking.args[0] if at.root(length.args[1]) == rows else -1
    return -1


def unary(at: Evaluation, number: int, value: Instruction) -> Val:
    """An operator of one operand."""
    operand = at.operand(value.args[0])
    if value.data == "Not":
        return Val(
            frozenset(("several", not o[1]) for o in operand.each if o[0] == "several"),
            truth_at(at.unit, value.args[0], operand, at.sites),
        )
    constant = operand.constant()
    if value.data == "USub" and isinstance(constant, int | float):
        return const(-constant)
    return Val(v=operand.v, n=operand.n, state=operand.state)


def _are_bounds(*ends: Val) -> bool:
    """Whether both ends of a piece vary with the rank, and neither is the number of a rank."""
    return all(only(end.v, "rank", "member") and not end.of("ordinal") for end in ends)


def _is_within_node(left: Val, right: Val) -> bool:
    """Whether a remainder is the number of a process within its host: of its rank by the number of devices."""
    local = frozenset({LOCAL})
    return any(o[1] == "job" for o in left.of("ordinal")) and any(axes_in(o[1]) == local for o in right.of("size"))


def _numbered(operator: str, left: Val, right: Val) -> frozenset[Obj]:
    """The rank that arithmetic makes of another one (`rank - 1`, `(rank + 1) % size`) or of the number of ranks
    (`size - 1`, the last one): it is counted where those are. How many more or fewer than ranks a number is."""
    step = right.constant()
    if operator in ("Add", "Sub") and isinstance(step, int):
        more = step if operator == "Add" else -step
        found: set[Obj] = {("beyond", o[1], more) for o in left.of("size") if more}
        found |= _counted(left)
        for o in left.of("size") if operator == "Sub" and step > 0 else ():
            axes = axes_in(o[1])
            found.add(("ordinal", "job" if axes == WHOLE else "group", axes))
        return frozenset(found)
    if operator == "Mod" and _is_within_node(left, right):
        return frozenset({("ordinal", "node", frozenset({LOCAL}))})
    if operator == "Mod" and right.of("size"):
        return _counted(left)
    return frozenset()


def _counted(value: Val) -> frozenset[Obj]:
    """Among which ranks a number counts that was computed from another one: whose that was does not matter any more."""
    return frozenset(("ordinal", "job", WHOLE) if o[1] == "job" else o for o in value.of("ordinal") if o[1] != "node")
