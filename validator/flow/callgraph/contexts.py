"""What values of a unit are in one calling context: root and group of a collective as *one* caller passes them.

`Place.closed` joins what all callers pass. What belongs together (this root for that group) is seen only where each
chain of calls is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import Axes
from validator.domains.spmd import Causes, only
from validator.flow.program.answers import Passed
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, spanned
from validator.flow.queries.escapes import argument_of
from validator.flow.substitution import instantiated
from validator.flow.values import Val


class Given(NamedTuple):
    """A value as a context gives it, in terms of the unit of its call; `place` None where no argument is written."""

    flow: Flow
    unit: Unit
    val: Val
    place: Place | None

    @property
    def closed(self) -> Val:
        return self.flow.close(self.val, self.unit)

    @property
    def is_open(self) -> bool:
        """Whether a parameter of the unit stands for it."""
        return any(o[0] == "param" for o in self.val.each)

    @property
    def text(self) -> str:
        if self.place is not None:
            return self.place.text
        constant = self.closed.constant()
        return repr(constant) if constant is not None else "the default"

    @property
    def hint(self) -> str:
        return self.place.hint if self.place is not None else ""

    @property
    def spanned(self) -> tuple[Axes, bool]:
        """Of a group: its axes, and whether they are known for certain or only by its name."""
        return spanned(self.closed, self.hint)


class Context(NamedTuple):
    """One way to a place: the outermost `call`, what it gives, and by what ranks differ about whether they come."""

    call: Place
    given: tuple[Given, ...]
    under: Causes


def given(place: Place) -> Given:
    return Given(place.flow, place.unit, place.val, place)


def contexts(place: Place, values: tuple[Given, ...], under: Causes) -> Iterator[Context]:
    """The ways to a place by the calls that give it values, from where they are written; `under`: within its unit."""
    flow = place.flow
    stack = [Context(place, values, under)]
    seen: set[tuple[Unit, int, tuple[Val, ...], Causes]] = set()
    while stack:
        context = stack.pop()
        key = (context.call.unit, context.call.number, tuple(each.val for each in context.given), context.under)
        if key in seen:
            continue
        seen.add(key)
        unit = context.call.unit
        calls = list(flow.calls_of(unit)) if any(each.is_open for each in context.given) else []
        if calls:
            stack += [_outward(context, unit, caller, passed) for caller, passed in calls]
        else:
            around: Causes = flow.solver.settled(("under", unit)).v
            yield context._replace(under=only(context.under | around, "rank", "member", "data"))


def _outward(context: Context, unit: Unit, caller: Unit, passed: Passed) -> Context:
    flow = context.call.flow

    def argument(position: int) -> Val:
        value = passed.argument(position)
        return value if value is not None else flow.parameters.default(unit, unit.code.params[position][0])

    def bound(each: Given) -> Given:
        val = instantiated(each.val, argument)
        place = each.place.root if each.place is not None else None
        if place is None or place.value.op != "param":
            return Given(flow, caller, val, None if each.is_open else each.place)
        number = argument_of(caller, passed.site, unit, place.value.data[0])
        written = Place(flow, caller, number) if number is not None else None
        return Given(flow, caller, val, written if written is not None and written.val == val else None)

    call = Place(flow, caller, passed.site)
    return Context(call, tuple(map(bound, context.given)), context.under | call.around())
