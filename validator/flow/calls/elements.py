"""What things hold that are iterated: elements of containers, batches of loaders, what generators yield."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.placement import inherited
from validator.domains.spmd import data
from validator.flow.calls.libraries.batches import batch_of
from validator.flow.calls.protocols import iterated, yielded
from validator.flow.values import NOT_YET, UNKNOWN, Val, elements, join

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def element(at: Evaluation, iterable: Val) -> Val:
    """One element of what is iterated."""
    found = [elements(iterable)]
    v = iterable.v
    for o in iterable.each:
        if o[0] == "made" and at.models.library(o[1]).iterates == "data":
            v |= data()
            found.append(batch_of(at, iterable))
        elif o[0] == "keeping":
            continue  # of the loader beside it
        elif o[0] == "generator":
            found.append(yielded(at, o))
        elif o[0] == "made" and any(each[0] in ("seq", "dict") for each in iterable.each):
            continue  # what it holds stands beside it
        elif o[0] in ("param", "made", "ext", "inst", "self"):
            found.append(iterated(o))
    result = join(found)
    if not result.objs and not result.v:
        if NOT_YET in found:
            return NOT_YET
        result = UNKNOWN
    return Val(result.objs, result.v | v, result.n, result.p, inherited(result.state, iterable.state))
