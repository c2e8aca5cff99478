"""The call in hand: what the functions that evaluate one call tell each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.flow.calls.arguments import Arguments
from validator.flow.values import BOTTOM, Obj, Val
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


class Call:
    """One call of a unit while it is evaluated.

    `at`: the evaluation of the unit; `number`, `value`: the instruction; `name`: under which the callee is known there,
    of an attribute or a global name; `receiver`: the value whose attribute is called; `arguments`: those that the call
    spells. What is called may get others: a `partial` has some of its own.
    """

    __slots__ = ("arguments", "at", "certain", "name", "number", "receiver", "told", "value")

    def __init__(self, at: Evaluation, number: int, value: Instruction) -> None:
        callee = at.code.values[value.args[0]]
        self.at = at
        self.number = number
        self.value = value
        self.arguments: Arguments = list(zip(value.data.names, at.arguments(value), strict=True))
        self.name: str = callee.data if callee.op in ("attr", "name") else ""
        self.receiver = at.known(callee.args[0], value.block) if callee.op == "attr" else BOTTOM
        self.certain = True  # whether what is called is known for certain
        self.told = True  # whether all is known that callers pass for the parameters which are called

    @property
    def is_of_attribute(self) -> bool:
        """Whether an attribute is called: a method, or what is stored under its name."""
        return self.at.code.values[self.value.args[0]].op == "attr"

    def apply(self, o: Obj, arguments: Arguments) -> Val:
        """What calling one object with some arguments gives; what runs is noted at the site of the call."""
        raise NotImplementedError
