"""Handlers and `finally` blocks with which a rank that fails gets out of step with those that do not.

For each place of a `try` block that may fail on one rank alone, what that rank does from the handler on is compared
with
what the others do from there on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.effects.compare import Around, Comparison, Cursor
from validator.effects.divergence import Divergences
from validator.effects.exceptions import FAILURE, Classes, Failures, Handler, Point
from validator.effects.trace import RETURN, Call, Choice, End, Frame, Issued, Op, Trace
from validator.flow.program.unit import Unit
from validator.ir.model import RawAt
from validator.project import Project

_MEMORY = ("out of memory", "OutOfMemory")


class OutOfStep(NamedTuple):
    """A handler after which a rank issues other collectives than the ranks that never came to it.

    `mine`: what the failing rank does next, `other`: what the others do. `point`: what fails, in `fails` or below it.
    """

    unit: Unit
    handler: Handler
    mine: Issued | End
    other: Issued | End
    point: Point
    fails: RawAt
    sure: bool


class OutOfSteps:
    """All handlers of a project that get out of step."""

    def __init__(self, project: Project) -> None:
        self.traces = project.analysis(Divergences).traces
        self.flow = self.traces.flow
        self.failures = Failures(self.flow)

    def __iter__(self) -> Iterator[OutOfStep]:
        units = sorted(self.traces.effectful, key=lambda u: (u.path, u.code.at, u.qualname))
        for unit in units:
            for block in sorted({h for b in unit.code.blocks for h in b.handlers}):
                found = self._judge(unit, self.failures.handler(unit, block))
                if found is not None:
                    yield found

    # -- one handler ---------------------------------------------------------------------------------------

    def _judge(self, unit: Unit, handler: Handler) -> OutOfStep | None:
        """The surest of the places whose failure brings ranks out of step by a handler."""
        frame = Frame(unit, None, None, RETURN, -1)
        tracer = self.traces.tracer(unit)
        taken = tracer.at(handler.block)
        specific, general = self._is_specific(unit, handler), self._is_general(unit, handler)
        around = {r.header: Around(r.body, r.rest) for r in tracer.repeats}.get(unit.code.blocks[handler.block].loop)
        first: OutOfStep | None = None
        for block, each in enumerate(unit.code.blocks):
            if handler.block not in each.handlers:
                continue
            for point, cursor, site in self._in_block(unit, block, frame, handler):
                sure = self._counts(handler, point, specific, general)
                if sure is None or (first is not None and not sure):
                    continue
                comparison = Comparison(self.traces, FAILURE, around, frame)
                others = self._leaving(unit, block, handler.block, cursor, frame)
                found = comparison.differ((taken, frame), others, {}, {}) if others is not None else None
                if found is not None and not (isinstance(found[0], End) and not point.classes and not specific):
                    first = OutOfStep(unit, handler, *found, point, unit.code.values[site].at, sure)
                    if sure:
                        return first
        return first

    def _is_specific(self, unit: Unit, handler: Handler) -> bool:
        """Whether a handler says that it is for what happens to one rank: by its classes, or by asking for memory."""
        if handler.is_finally:
            return False
        if not handler.names.isdisjoint(self.failures.own):
            return True
        at = unit.code.values[handler.caught].at
        return any(
            isinstance(v.data, str) and any(word in v.data for word in _MEMORY) and at[0] <= v.at[0] <= at[2]
            for v in unit.code.values
            if v.op in ("const", "attr")
        )

    def _is_general(self, unit: Unit, handler: Handler) -> bool:
        """Whether a handler takes whatever goes wrong in a `try` block without collectives."""
        if handler.is_finally or not (handler.is_broad or "RuntimeError" in handler.names):
            return False
        sites = self.flow.result(unit).sites
        tried = (n for b in unit.code.blocks if handler.block in b.handlers for n in b.values)
        effectful = self.traces.effectful
        return not any(
            site.operations or any(t.unit in effectful for t in site.targets) for n in tried if (site := sites.get(n))
        )

    def _counts(self, handler: Handler, point: Point, specific: bool, general: bool) -> bool | None:
        """Whether a failure matters to a handler: True for sure, False for likely, None where it does not."""
        if handler.is_finally:
            return point.differs and any(c.sure for c in point.causes) if point.differs else None
        if not point.classes:
            return True if specific else False if general else None
        memory = point.classes[0] == "OutOfMemoryError"
        if memory and not specific:
            return False if general or handler.is_broad else None
        if handler.is_broad and not specific:
            return any(c.sure for c in point.causes) if point.differs else False
        return not point.differs or any(c.sure for c in point.causes)

    # -- places that may fail ------------------------------------------------------------------------------

    def _in_block(self, unit: Unit, block: int, frame: Frame, handler: Handler) -> Iterator[tuple[Point, Cursor, int]]:
        """The places in a block, and in what it calls, from which an exception comes to a handler; with what the ranks
        do that do not fail there, and the place in the block."""
        inner = []
        for each in unit.code.blocks[block].handlers:
            if each == handler.block:
                break
            inner.append(self.failures.handler(unit, each))
        for point in self.failures.points(unit):
            if point.block == block and self._comes(handler, inner, point.classes):
                yield point, (self._others(unit, point), frame), point.number
        sites = self.flow.result(unit).sites
        for number in unit.code.blocks[block].values:
            site = sites.get(number)
            if site is None or site.away:
                continue
            for target in site.targets:
                for point, cursor in self._below(unit, number, target.unit, frame, {unit}, handler.block):
                    if self._comes(handler, inner, point.classes):
                        yield point, cursor, number

    def _comes(self, handler: Handler, inner: list[Handler], classes: Classes) -> bool:
        if any(self.failures.stops(each, classes) for each in inner):
            return False
        return handler.is_finally or self.failures.stops(handler, classes)

    def _below(
        self, unit: Unit, number: int, target: Unit, frame: Frame, seen: set[Unit], handler: int = -1
    ) -> Iterator[tuple[Point, Cursor]]:
        """The places in a called unit that an exception leaves; `handler`: the block in the calling unit to which it
        comes, -1 where it leaves that too."""
        if target not in self.traces.effectful:
            after = self.traces.tracer(unit).before(number, False)
            block = unit.code.values[number].block
            for classes, causes in self.failures.escaping.get(target, {}).items():
                yield Point(number, block, classes, causes), (after, frame)
            return
        if target in seen:
            return
        seen.add(target)
        trace = self.traces.tracer(unit).before(number, True)
        call = next((c for c in _calls(trace) if c.site == number and c.target.unit is target), None)
        if call is None:
            return
        loop = unit.code.blocks[handler].loop if handler >= 0 else -1
        rest = self.traces.tracer(unit).leaving(call.rest, unit.code.values[number].block, loop)
        if rest is None:
            return
        known = self.traces.frame(frame, call)
        inside = known if rest is call.rest else Frame(known.unit, call.target, frame, rest, number)
        tracer = self.traces.tracer(target)
        for point in self.failures.points(target):
            if self.failures.escapes(target, point):
                others = tracer.leaving(self._others(target, point), point.block, -1)
                if others is not None:
                    yield point, (others, inside)
        for at, site in self.flow.result(target).sites.items():
            for each in site.targets if not site.away else ():
                for point, (trace, below) in self._below(target, at, each.unit, inside, seen):
                    here = Point(at, target.code.values[at].block, point.classes, point.causes)
                    if self.failures.escapes(target, here):
                        if below is inside:
                            left = tracer.leaving(trace, here.block, -1)
                            if left is None:
                                continue
                            trace = left
                        yield point, (trace, below)

    def _others(self, unit: Unit, point: Point) -> Trace:
        tracer = self.traces.tracer(unit)
        return tracer.way(*point.others) if point.others is not None else tracer.before(point.number, point.inside)

    def _leaving(self, unit: Unit, block: int, handler: int, cursor: Cursor, frame: Frame) -> Cursor | None:
        """What the others do, where the place that fails stands in a loop which the handler is outside of."""
        trace, inside = cursor
        if inside is not frame:
            return cursor
        left = self.traces.tracer(unit).leaving(trace, block, unit.code.blocks[handler].loop)
        return (left, frame) if left is not None else None


def _calls(trace: Trace) -> Iterator[Call]:
    """The calls at the head of a trace."""
    while isinstance(trace, Op):
        trace = trace.rest
    if isinstance(trace, Call):
        yield trace
    elif isinstance(trace, Choice):
        yield from (way for way in trace.ways if isinstance(way, Call))
