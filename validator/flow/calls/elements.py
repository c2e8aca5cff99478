"""What things hold that are iterated: elements of containers, batches of loaders, what generators yield."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.placement import inherited
from validator.domains.spmd import NONE, data, decided_by, only
from validator.flow.calls.libraries.batches import batch_of
from validator.flow.calls.protocols import iterated, yielded
from validator.flow.values import COUNTED, NOT_YET, UNKNOWN, Val, elements, join

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

_HOLDING = frozenset({"tuple", "seq", "dict", "generator", "keeping", "made", "unordered", *COUNTED})


def element(at: Evaluation, iterable: Val) -> Val:
    """One element of what is iterated."""
    found = [elements(iterable)]
    v = iterable.v
    for o in iterable.each:
        if o[0] == "made" and at.models.library(o[1]).iterates == "data":
            v |= data()
            found.append(batch_of(at, iterable))
        elif o[0] == "keeping" or o[0] == "generator" and o[3:] == ("beside",):
            continue  # of the loader, or the sequence, beside it
        elif o[0] == "generator":
            found.append(yielded(at, o))
        elif o[0] == "made" and _holds_what_is_beside(at, o[1], iterable):
            continue
        elif o[0] == "param":
            found.append(_of_passed(at, o[1]))
        elif o[0] in ("made", "ext", "inst", "self"):
            found.append(iterated(o))
    result = join(found)
    if not result.objs and not result.v:
        if NOT_YET in found:
            return NOT_YET
        result = UNKNOWN
    v = decided_by(result.v, v)  # equal elements in an order of each rank's own are no longer equal
    return Val(result.objs, v, result.n, result.p, inherited(result.state, iterable.state))


def _holds_what_is_beside(at: Evaluation, made: str, iterable: Val) -> bool:
    """Whether what something holds that a library made stands beside it, and is not another thing that may be there."""
    row = at.models.call(made)
    return (row is not None and row.elements is not None) and any(o[0] in ("seq", "dict") for o in iterable.each)


def _of_passed(at: Evaluation, position: int) -> Val:
    """One element of what callers pass, where all of it is known; by what it varies the parameter says, but for data
    that each rank loads for itself, whoever calls."""
    passed: Val = at.flow.get("argument", at.unit, position)
    if passed is NOT_YET:
        return NOT_YET
    if not passed.objs or any(o[0] not in _HOLDING for o in passed.each):
        return UNKNOWN
    held = element(at, passed)
    return held if held is NOT_YET else Val(held.objs, only(held.v, "data") if _is_loader(at, passed) else NONE)


def _is_loader(at: Evaluation, passed: Val) -> bool:
    """Whether callers pass loaders of data, and nothing else."""
    made = [o for o in passed.each if o[0] != "keeping"]
    return bool(made) and all(o[0] == "made" and at.models.library(o[1]).iterates == "data" for o in made)
