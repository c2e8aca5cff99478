"""What arrives where ways meet: without ways that no call takes, and ways that exclude each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.flow.merging.equality import agree, is_none
from validator.flow.values import Val
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def arriving(at: Evaluation, value: Instruction, vals: dict[int, Val]) -> list[int]:
    """The operands of a phi, without those of ways that no call of the program takes.

    A parameter that all callers leave at None, or give the same flag, closes a way. It is asked only where the
    operands differ in how they vary.
    """
    if len({each.v for each in vals.values()}) < 2:
        return list(value.args)
    preds = at.code.blocks[value.block].preds
    left = [each for each, (pred, _) in zip(value.args, preds, strict=True) if not _is_closed(at, pred, value.block)]
    return left or list(value.args)


def completed(at: Evaluation, value: Instruction, operands: list[int]) -> list[int]:
    """The operands of a phi, where branches on one test complete each other.

    Behind `if rank == 0: x = a` and `if rank != 0: x = b` the first `x` is only left where its own branch was
    taken: what stood before both (None, mostly) does not arrive.
    """
    preds = at.code.blocks[value.block].preds
    if len(operands) != 2 or len(value.args) != 2 or len(preds) != 2:
        return operands
    for index, (pred, _) in enumerate(preds):
        inner = at.code.values[value.args[index]]
        way = way_from(at, pred, value.block)
        if inner.op != "phi" or len(inner.args) != 2 or way is None:
            continue
        ways = [way_from(at, each, inner.block) for each, _ in at.code.blocks[inner.block].preds]
        same = [arg for arg, other in zip(inner.args, ways, strict=True) if other and agree(at, way, other)]
        if len(same) == 1:
            return [value.args[1 - index], same[0]]
    return operands


def _is_closed(at: Evaluation, block: int, following: int) -> bool:
    """Whether no call of the unit comes from a block to the next one."""
    ways = list(at.unit.control.arms.get(block, ()))
    if at.code.blocks[block].end[0] == "branch":
        ways.append((block, following))
    for branch, way in ways:
        _, test, then, otherwise = at.code.blocks[branch].end
        truth = _decided(at, test) if then != otherwise else None
        if truth is not None and way == (otherwise if truth else then):
            return True
    return False


def _decided(at: Evaluation, test: int) -> bool | None:
    """What a test of a parameter gives in every call of the unit, where that is known."""
    value = at.code.values[test]
    if value.op == "unary" and value.data == "Not":
        inner = _decided(at, value.args[0])
        return None if inner is None else not inner
    absent = value.op == "compare" and value.data in ("Is", "IsNot") and is_none(at.code.values[value.args[1]])
    asked = at.code.values[at.root(value.args[0] if absent else test)]
    if asked.op != "param" or asked.data[0] == 0 and at.unit.has_receiver:
        return None
    given: Val = at.flow.get("argument", at.unit, asked.data[0])
    if absent:
        return value.data == "Is" if given.is_const(None) else None
    constants = [o[2] for o in given.each if o[0] == "const"]
    if len(constants) != len(given.objs) or not constants:
        return None
    truths = {bool(each) for each in constants}
    return truths.pop() if len(truths) == 1 else None


def way_from(at: Evaluation, pred: int, block: int) -> tuple[int, bool] | None:
    """The test that leads from a predecessor into a block, and whether it holds there; None where several do."""
    end = at.code.blocks[pred].end
    if end[0] == "branch" and end[2] != end[3]:
        return end[1], end[2] == block
    before = at.code.blocks[pred].preds
    if len(before) != 1:
        return None
    end = at.code.blocks[before[0][0]].end
    return (end[1], end[2] == pred) if end[0] == "branch" and end[2] != end[3] else None
