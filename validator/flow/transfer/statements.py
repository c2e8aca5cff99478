"""Statements that give a value: `with`, `await`, `match`, `yield`, `except`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.flow.calls.protocols import drain, enter, leave
from validator.flow.values import BOTTOM, UNKNOWN, Val, fetched
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def entered(at: Evaluation, number: int, value: Instruction) -> Val:
    """What a context manager gives."""
    return enter(at, number, at.operand(value.args[0]), is_async=value.data == "async")


def left(at: Evaluation, number: int, value: Instruction) -> Val:
    """A context manager is left: what runs then is noted."""
    leave(at, number, at.operand(value.args[0]), is_async=value.data == "async")
    return BOTTOM


def awaited(at: Evaluation, number: int, value: Instruction) -> Val:
    """What an awaitable gives."""
    return fetched(at.operand(value.args[0]))


def matched(at: Evaluation, number: int, value: Instruction) -> Val:
    """Whether a subject fits a pattern."""
    return Val(v=at.operand(value.args[0]).v)


def sent_in(at: Evaluation, number: int, value: Instruction) -> Val:
    """What a `yield` gives. Generators to which it hands over (`yield from`) run from here."""
    if value.op == "yield from":
        drain(at, number, at.operand(value.args[0]))
    return UNKNOWN


def caught(at: Evaluation, number: int, value: Instruction) -> Val:
    """An exception that is caught."""
    return UNKNOWN
