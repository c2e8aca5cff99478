"""The evaluation of one unit: what is known of its values by now, and what they note beside.

Functions that evaluate instructions, calls and phis get it as `at`; which function does which instruction it does not
know.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from validator.definitions import ClassDef
from validator.domains.spmd import Causes
from validator.flow.control import Control
from validator.flow.having import having
from validator.flow.merging.conditions import truth_of
from validator.flow.merging.one_process import WaysAlone
from validator.flow.narrowing import narrowed
from validator.flow.program.answers import Site
from validator.flow.program.leaving import Leaving
from validator.flow.values import NOT_YET, Val
from validator.flow.worklist import Walk
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit


class Evaluation(Walk):
    """The evaluation of one unit."""

    def __init__(self, flow: Flow, unit: Unit) -> None:
        super().__init__(unit)
        self.flow = flow
        self.models = flow.models
        self.sites: dict[int, Site] = {}
        self.parts: dict[int, Site] = {}  # what functions are passed whose bodies stand here
        self.steps: dict[tuple[int, int], tuple[str, ...]] = {}  # (call, position) -> how the argument is placed by it
        self.wrapped: dict[tuple[int, int], tuple[str, ...]] = {}  # the same of arguments that the result is made from
        self.made: dict[int, dict[ClassDef, tuple[tuple[str, Val], ...]]] = {}
        self.named: dict[int, tuple[tuple[str, Val], ...]] = {}  # attributes that a call gives the holder it makes
        self.switched: dict[int, tuple[str, Val]] = {}
        self.late: dict[int, bool] = {}  # by test of an attribute whether that is made where it is missing
        self.leaving = Leaving(unit)
        self.alone = WaysAlone(self)

    def noted(self, number: int) -> object:
        steps = [row for rows in (self.steps, self.wrapped) for row in rows.items() if row[0][0] == number]
        rows = (self.sites, self.made, self.named, self.switched)
        return *(noted.get(number) for noted in rows), steps

    def forget(self, number: int) -> None:
        for noted in (self.sites, self.parts, self.made, self.named, self.switched):
            noted.pop(number, None)
        for steps in (self.steps, self.wrapped):
            for key in [key for key in steps if key[0] == number] if steps else ():
                del steps[key]

    def depends(self, condition: Val) -> Causes:
        return truth_of(condition)

    def root(self, number: int) -> int:
        """The value that a variable was bound to, before calls that were given it."""
        return self.unit.root(number)

    def around(self, number: int) -> Causes:
        """What the branches depend on that decide who comes to a value."""
        return self.conditions(self.staying.around(self.code.values[number].block))

    @cached_property
    def staying(self) -> Control:
        """Which branches decide who comes somewhere, among those who stay in the program."""
        return self.unit.control_to_the_end if self.flow.is_program(self.unit) else self.unit.control

    def known(self, number: int, block: int) -> Val:
        """A value as a block finds it, behind tests of its class."""
        return self.behind_tests(self.vals[number], number, block)

    def arguments(self, call: Instruction) -> list[Val]:
        """What a call is given."""
        given = map(self.operand, call.args[1:])
        if not self.unit.class_tests.narrow:
            return list(given)
        rows = zip(given, call.args[1:], strict=True)
        return [self.behind_tests(value, number, call.block) for value, number in rows]

    def behind_tests(self, value: Val, number: int, block: int) -> Val:
        """A value, whose number is `number`, as it may be in a block behind tests of its class."""
        tests = self.unit.class_tests
        if not tests.narrow or value is NOT_YET:
            return value
        for classes, holds in tests.around(number, block):
            value = narrowed(value, self.vals[classes], holds, self.models)
        for name, holds in tests.asked_for(number, block):
            value = having(self.flow, value, name, holds)
        return value

    def attribute(self, number: int, owner: Val, name: str) -> Val:
        """An attribute of a value, for an instruction."""
        raise NotImplementedError

    def _decide(self, number: int, condition: Val) -> None:
        """Which ways only a job of one process takes has changed with a test: phis are asked again whose operands come
        on others of them now."""
        super()._decide(number, condition)
        for phi in self.alone.decide(number, condition):
            self._mark(self.order.place[phi])
