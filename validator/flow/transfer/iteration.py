"""Instructions of loops: what is gone through, whether there is more of it, the next element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.flow.calls.elements import element
from validator.flow.calls.protocols import drain
from validator.flow.values import Val
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def iterated(at: Evaluation, number: int, value: Instruction) -> Val:
    """What a loop goes through; generators run from here."""
    iterable: Val = at.operand(value.args[0])
    n = drain(at, number, iterable)
    return Val(iterable.objs, iterable.v, n, iterable.p, iterable.state)


def more(at: Evaluation, number: int, value: Instruction) -> Val:
    """Whether there is another round: it varies as the length does."""
    return Val(v=at.operand(value.args[0]).n)


def next_element(at: Evaluation, number: int, value: Instruction) -> Val:
    """The element of a round."""
    return element(at, at.operand(value.args[0]))
