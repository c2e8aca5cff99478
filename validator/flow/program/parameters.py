"""What the parameters of units hold: what callers pass, and what defaults, annotations and names say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import data, unsure
from validator.flow.annotations import declared
from validator.flow.callgraph.sections import of_program
from validator.flow.foreign import likely_rank
from validator.flow.narrowing import kept_by
from validator.flow.program.answers import Calls, Passed
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test
from validator.flow.values import BOTTOM, NOT_YET, UNKNOWN, Val, const, join, join2, join_origins
from validator.ir import Code

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow
    from validator.flow.solver import Read


class Parameters:
    """What is known of the parameters of the units of a program."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._declared: dict[tuple[Unit, str], Val] = {}
        self._calls: dict[Unit, dict[Unit, tuple[tuple[Passed, ...] | None, tuple[Passed, ...] | None]]] = {}

    def calls(self, unit: Unit, news: frozenset[Read] | None) -> Calls:
        """What the calls of a unit pass: a unit of which there is no news is not asked again."""
        known = self._calls.get(unit)
        if known is None or news is None:
            callers = self.flow.callers(unit)
            if not is_test(unit.path):  # what tests pass, stand-ins and all, is not what the program has
                callers = tuple(each for each in callers if not is_test(each.path)) or callers
            known = self._calls[unit] = dict.fromkeys(callers, (None, None))
            asked = callers
        else:
            asked = tuple({key[1]: None for key, _ in news if key[0] == "unit"})  # type: ignore[index]
        for caller in asked:
            known[caller] = self.flow.passed(caller, unit), self.flow.guessed_to(caller, unit)
        return Calls(
            {caller: (passed or (), guessed or ()) for caller, (passed, guessed) in known.items() if passed or guessed},
            any(passed is None or guessed is None for passed, guessed in known.values()),
        )

    def let_go(self) -> None:
        """Drop what is only of use while equations are evaluated again."""
        self._calls.clear()

    def argument(self, unit: Unit, position: int) -> Val:
        """What callers pass for a parameter, in closed form; BOTTOM where a call may be meant, none is known."""
        if position == 0 and (started := of_program(unit)) is not BOTTOM:
            return started
        name = unit.code.params[position][0]
        found = [UNKNOWN.with_causes(v=data())] if self.is_batch(unit, position) else []
        if not self.flow.calls_by_name.is_spoken_of(unit):
            return join(found) if found else UNKNOWN
        calls: Calls = self.flow.part(("calls", unit), None)
        if calls.waiting:
            found.append(NOT_YET)
        for caller, (rows, guessed) in calls.rows.items():
            for passed in guessed:
                value = passed.argument(position)
                value = self.default(unit, name) if value is None else self.flow.close(value, caller)
                found.append(_guess(value) if value is not NOT_YET else value)
            for passed in rows:
                value = passed.argument(position)
                if value is None:
                    value = self.default(unit, name)
                else:
                    value = self._behind_tests(caller, passed.site, unit, position, self.flow.close(value, caller))
                if passed.away:
                    value = self._per_process(caller, passed.site, value, unit, position)
                found.append(value)
        return join_origins(found) if found else self._of_starter(unit, name)

    def _of_starter(self, unit: Unit, name: str) -> Val:
        """What is passed by who is not seen, where a class is made for other processes: `@ray.remote`. A number with
        the name of a rank is likely one."""
        is_made = unit.cls is not None and unit.name == "__init__"
        return likely_rank(name) if is_made and name in self.flow.models.ranks["names"] else BOTTOM

    def is_batch(self, unit: Unit, position: int) -> bool:
        """Whether a library passes a method a batch of this rank's data."""
        if unit.cls is None or unit.name not in self.flow.models.given_batches:
            return False
        bases = unit.cls.external_bases
        return any(self.flow.models.library(base).batches.get(unit.name) == position for base in bases)

    def _behind_tests(self, caller: Unit, site: int, unit: Unit, position: int, value: Val) -> Val:
        """What a call passes, without the objects that tests of their class around it have told apart."""
        from validator.flow.queries.escapes import argument_of

        given = argument_of(caller, site, unit, position) if caller.class_tests.by_subject else None
        tests = caller.class_tests.around(given, caller.code.values[site].block) if given is not None else ()
        for classes, holds in tests:
            tested = self.flow.close(join(self.flow.vals(caller, (classes,))), caller)
            if NOT_YET in (value, tested):
                return NOT_YET
            value = kept_by(value, tested, holds)
        return value

    def _per_process(self, caller: Unit, number: int, value: Val, unit: Unit, position: int) -> Val:
        """An argument for code in other processes: the variable of a loop is another value in each."""
        from validator.domains.axes import WHOLE
        from validator.domains.spmd import rank

        shape = caller.code.values[number]
        skipped = 1 if unit.has_receiver else 0
        index = position - skipped
        name = unit.code.params[position][0]
        for place, keyword in enumerate(shape.data.names):
            given = keyword == name or (keyword is None and place == index)
            if given and _is_loop_variable(caller.code, shape.args[place + 1]):
                return Val(value.objs, rank(WHOLE, sure=False), value.n, value.p, value.state)
        return value

    def default(self, unit: Unit, name: str) -> Val:
        """The default of a parameter, or BOTTOM."""
        number = unit.code.defaults.get(name)
        if number is None or unit.outer is None:
            return BOTTOM
        value = unit.outer.code.values[number]
        if value.op == "const":
            return const(value.data)
        return self.flow.close(join(self.flow.vals(unit.outer, (number,))), unit.outer)

    def declared(self, unit: Unit, name: str) -> Val:
        """What the annotation of a parameter says; BOTTOM where it has none."""
        known = self._declared.get((unit, name))
        if known is None:
            params = unit.method.facts.params if unit.method is not None else ()
            text = next((p.annotation for p in params if p.name == name), "")
            known = declared(self.flow.project, unit.method, text) if unit.method is not None and text else BOTTOM
            self._declared[unit, name] = known
        return known

    def assumed(self, unit: Unit, position: int) -> Val:
        """What is likely of a parameter that no known call fills: what its name says, never for certain."""
        from validator.domains.axes import WHOLE, axes_of
        from validator.domains.spmd import rank

        name, models = unit.code.params[position][0], self.flow.models
        value = Val()
        if self.is_batch(unit, position):
            value = Val(v=data())
        elif name in models.ranks["names"]:
            value = Val(v=rank(axes_of(name) - WHOLE or WHOLE, sure=False))
        elif name in models.likely["batches"] or name in models.likely["losses"] or name.endswith("loader"):
            value = Val(v=data(sure=False))
        return value.with_causes(p=data(sure=False)) if name in models.likely["optional"] else value


def _guess(value: Val) -> Val:
    """What a call passes that probably runs a unit: it is likely that the parameter holds it, or another thing."""
    either = join2(value, UNKNOWN)
    return Val(either.objs, unsure(value.v), unsure(value.n), unsure(value.p), either.state)


def _is_loop_variable(code: Code, number: int) -> bool:
    """Whether a value is the variable of a loop, or a part of it."""
    value = code.values[number]
    while value.op in ("unpack", "mut", "item"):
        value = code.values[value.args[0]]
    return value.op == "next"
