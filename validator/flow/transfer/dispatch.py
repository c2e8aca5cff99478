"""Evaluates one unit: what each of its values may be, given what is known of everything else.

The values are walked in the order of the blocks until nothing changes; an instruction has one transfer function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from validator.flow.attributes import attribute
from validator.flow.calls import dispatch as calls
from validator.flow.evaluation import Evaluation
from validator.flow.merging import phis
from validator.flow.program.answers import Result
from validator.flow.transfer import comparisons, displays, items, iteration, names, operators, statements, storing
from validator.flow.transfer.result import result_of_unit
from validator.flow.values import NOT_YET, Val
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit
    from validator.flow.solver import Read

_TRANSFER: dict[str, Callable[[Evaluation, int, Instruction], Val]] = {
    "param": names.parameter, "const": names.constant, "name": names.global_name, "free": names.free_variable,
    "import": names.imported, "closure": names.closure,
    "attr": items.attribute_of, "item": items.item, "unpack": items.unpacked,
    "call": calls.call, "part": calls.part, "mut": storing.changed, "store_item": storing.store_item,
    "binary": operators.binary, "unary": operators.unary, "compare": comparisons.compare,
    "tuple": displays.tuple_display, "list": displays.display, "set": displays.display, "dict": displays.display,
    "join": displays.formatted, "slice": items.slice_of, "collect": displays.comprehension,
    "iter": iteration.iterated, "more": iteration.more, "next": iteration.next_element,
    "enter": statements.entered, "leave": statements.left, "await": statements.awaited, "match": statements.matched,
    "yield": statements.sent_in, "yield from": statements.sent_in, "caught": statements.caught, "phi": phis.phi,
}  # fmt: skip

# By op: how many of the first operands must be known before there is a value.
_ALL = 1_000_000
_WANTED = {
    "attr": 1, "item": 2, "call": _ALL, "part": _ALL, "mut": 2, "binary": 2, "unary": 1, "compare": 2, "join": _ALL,
    "slice": 3,
    "iter": 1, "more": 1, "next": 1, "unpack": 1, "enter": 1, "leave": 1, "await": 1, "match": 1, "store_item": 2,
}  # fmt: skip


def is_evaluated(op: str) -> bool:
    """Whether instructions of a kind have a value (or an effect on others)."""
    return op in _TRANSFER


class Transfer(Evaluation):
    """The evaluation of one unit, with a transfer function for each instruction."""

    def __init__(self, flow: Flow, unit: Unit) -> None:
        super().__init__(flow, unit)
        self._last: Result | None = None

    def run(self, news: frozenset[Read] | None) -> Result:
        """The result of the unit. `news`: what has changed since it was asked for last, None at first."""
        self.walk(news)
        if self._moved or self._last is None:
            self._last = result_of_unit(self)
        return self._last

    def evaluate(self, number: int, value: Instruction) -> Val:
        wanted = _WANTED.get(value.op, 0)
        if wanted and NOT_YET in map(self.operand, value.args[:wanted]):
            return NOT_YET
        return _TRANSFER[value.op](self, number, value)

    def attribute(self, number: int, owner: Val, name: str) -> Val:
        return attribute(self, number, owner, name)
