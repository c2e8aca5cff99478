"""Tests that leave one rank: what only this rank brings where ways meet, and what it sends to the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from validator.domains.spmd import UNIFORM, only
from validator.flow.merging.arriving import way_from
from validator.flow.values import Val
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.unit import Unit


def of_one_rank(at: Evaluation, value: Instruction) -> set[int]:
    """The operands of a phi that only the rank brings which a test compares with its own (`if rank == src`): by
    what they would differ elsewhere does not matter."""
    preds = at.code.blocks[value.block].preds
    differing = [(each, pred) for each, (pred, _) in zip(value.args, preds, strict=True) if at.operand(each).n]
    return {each for each, pred in differing if _is_one_rank(at, way_from(at, pred, value.block))}


def is_sent(at: Evaluation, value: Instruction, ways: dict[int, Val]) -> bool:
    """Whether a phi holds on one rank what this rank gives a collective, and on the others what came out of one."""
    rows = [(each, pred) for each, (pred, _) in zip(value.args, at.code.blocks[value.block].preds, strict=True)]
    around = at.unit.control.settled(value.block)
    own = {
        each
        for each, pred in rows
        if any(
            _leaves_one(at, branch, way) for branch, way in at.unit.control.settled(pred) if (branch, way) not in around
        )
    }
    others = [ways[each] for each, _ in rows if each in ways and each not in own]
    return (
        bool(own and others) and all(UNIFORM in each.v for each in others) and all(_goes_out(at, each) for each in own)
    )


def _leaves_one(at: Evaluation, branch: int, way: int) -> bool:
    """Whether the way from a branch leaves the rank of one number."""
    end = at.code.blocks[branch].end
    return _is_one_rank(at, (end[1], end[2] == way))


def _goes_out(at: Evaluation, number: int) -> bool:
    """Whether a value, or what is made of it, is given to a collective, which leaves it equal on all ranks; or is
    what a function gives back that does so."""
    if at.code.values[number].op == "call" and UNIFORM in at.vals[number].v:
        return True
    seen, queue = {at.root(number)}, [at.root(number)]
    while queue:
        for user in at.unit.users.get(queue.pop(), ()):
            if at.code.values[user].op in ("mut", "unpack") and UNIFORM in at.vals[user].v:
                return True
            if user not in seen:
                seen.add(user)
                queue.append(user)
    return False


def _is_one_rank(at: Evaluation, way: tuple[int, bool] | None) -> bool:
    """Whether a test that holds, or does not, leaves the rank of one number."""
    test = at.code.values[at.root(way[0])] if way is not None else None
    if way is None or test is None or test.op != "compare" or test.data != ("Eq" if way[1] else "NotEq"):
        return False
    return any(o[0] == "ordinal" for each in test.args for o in at.vals[each].each)


def is_turn(unit: Unit, vals: Sequence[Val], branch: int) -> bool:
    """Whether a branch lets rank after rank do what all do (`for turn in range(size): if rank == turn`)."""
    code = unit.code
    test = code.values[unit.root(code.blocks[branch].end[1])]
    if code.blocks[branch].loop < 0 or test.op != "compare" or test.data != "Eq":
        return False
    ranks = [bool(only(vals[each].v, "rank")) for each in test.args]
    turns = [code.values[unit.root(each)].op == "next" for each in test.args]
    return any(ranks[i] and turns[1 - i] for i in (0, 1))
