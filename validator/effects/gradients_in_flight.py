"""Gradients that are bounded, or used up by a step, while the transfers that reduce them still go on.

Hooks start the transfers during the backward pass; the handles lie in a container that is waited for afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.effects.pending_transfers import Fate, Pending
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, ways_back
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.optimizers import optimizer_of
from validator.flow.queries.training.placements import leads, point
from validator.project import Project


class Flying(NamedTuple):
    """What uses gradients, the call that starts to reduce some of them, and one that waits too early or too late."""

    use: Place
    start: Place
    wait: Place


class GradientsInFlight:
    """Asked for with `project.analysis(GradientsInFlight)`."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self.gradients = self.queries.flow.models.gradients
        fates = project.analysis(Pending).fates if self.hooked else []
        self.fates = [fate for fate in fates if self._is_of_gradients(fate)]

    @cached_property
    def hooked(self) -> frozenset[Unit]:
        """What runs in hooks of the backward pass."""
        calls = self.queries.named(*self.gradients["hooks"])
        given = [call.value_at(number).closed for call in calls for number in call.value.args[1:]]
        return frozenset(self.queries.reached(o[1] for value in given for o in value.each if o[0] in ("bound", "unit")))

    def _is_of_gradients(self, fate: Fate) -> bool:
        """Whether hooks start a transfer of gradients, of which nobody but functions of the program has the handles."""
        start, waiting = fate.started, {unit for unit, _ in fate.waits}
        kept = fate.holders.gathered and not fate.holders.escapes and not fate.synchronized
        if start.unit not in self.hooked or not kept or any(unit not in waiting for unit, _ in fate.holders.given):
            return False
        call = Place(self.queries.flow, start.unit, start.number)
        return any(part.value.op == "attr" and part.value.data == "grad" for part in call.sources)

    def bounded(self) -> Iterator[Flying]:
        """Gradients that are bounded between the backward pass and the wait for what it started."""
        for fate in self.fates:
            is_wait = self._waiting(fate)
            for clip in self.queries.named(*self.gradients["bounding"]):
                late = None if is_aside(clip.unit.path) else self._waited_behind(clip, is_wait)
                if late is not None and self._comes_from_backward(clip, is_wait):
                    yield Flying(clip, Place(clip.flow, fate.started.unit, fate.started.number), late)

    def stepped(self) -> Iterator[Flying]:
        """Steps after transfers that are started once more behind the wait for those of the hooks."""
        for fate in self.fates:
            is_wait, starting = self._waiting(fate), self.queries.reaching({fate.started.unit})
            for unit in sorted(starting - self.hooked, key=lambda each: each.place):
                for call in self.queries.calls_in(unit):
                    if starting.isdisjoint(self.queries.targets(call)) or is_wait(call) or is_aside(unit.path):
                        continue
                    early = self._waited_before(call, is_wait)
                    step = next(self._steps_behind(call, is_wait, frozenset()), None) if early is not None else None
                    if early is not None and step is not None:
                        yield Flying(step, call, early)

    def _waiting(self, fate: Fate) -> Callable[[Place], bool]:
        """Whether a value is a call that waits for the handles, or runs what does, be it by leaving a `with`, or the
        test of a loop in whose rounds one waits: there is believed to be something to wait for."""
        own = set(fate.waits)
        units = self.queries.reaching({unit for unit, _ in own})
        for unit, number in fate.waits:
            loop = unit.code.blocks[unit.code.values[number].block].loop
            own |= {(unit, unit.code.blocks[loop].end[1])} if loop >= 0 else set()

        def is_wait(place: Place) -> bool:
            called = place.value.op in ("call", "leave") and not units.isdisjoint(self._ran(place))
            return called or (place.unit, place.number) in own

        return is_wait

    def _ran(self, place: Place) -> list[Unit]:
        """What a call runs, or the end of a `with`: of a generator the part behind its `yield`."""
        made = place.operand(0).val.of("generator") if place.value.op == "leave" else ()
        return [*self.queries.targets(place), *(o[1] for o in made)]

    def _waiting_in(self, unit: Unit, is_wait: Callable[[Place], bool]) -> Iterator[Place]:
        return filter(is_wait, [*self.queries.calls_in(unit), *self.queries.values(unit, "leave")])

    def _waited_behind(self, use: Place, is_wait: Callable[[Place], bool]) -> Place | None:
        """A wait that comes behind a use on every way to it, before the next backward pass."""
        for call in self._waiting_in(use.unit, is_wait):
            if call != use:
                between = list(ways_back(call, lambda each: each == use or self._computes(each)))
                if use in between and None not in between and not any(map(self._computes, filter(None, between))):
                    return call
        return None

    def _waited_before(self, start: Place, is_wait: Callable[[Place], bool]) -> Place | None:
        """A wait that comes before a start on every way to it, where none comes behind it."""
        before = list(ways_back(start, is_wait))
        waits = [each for each in before if each is not None and is_wait(each)]
        later = self._waiting_in(start.unit, is_wait)
        behind = any(leads(start.unit, point(start), point(call)) for call in later)
        return waits[0] if waits and None not in before and not behind else None

    def _comes_from_backward(self, use: Place, is_wait: Callable[[Place], bool]) -> bool:
        """Whether a backward pass comes before a use, with no wait on any way between."""
        queue, seen, found = [use], {use.unit}, False
        for start in queue:
            for each in ways_back(start, lambda each: self._computes(each) or is_wait(each)):
                if each is None:
                    calls = [call for call in self.queries.calls_of(start.unit) if call.unit not in seen]
                    seen.update(call.unit for call in calls)
                    queue += calls
                elif self._computes(each):
                    found = True
                elif is_wait(each):
                    return False
        return found

    def _steps_behind(self, call: Place, is_wait: Callable[[Place], bool], above: frozenset[Unit]) -> Iterator[Place]:
        """The steps of optimizers to which a way leads behind a call, in its function and in those that call it, with
        neither a wait nor a backward pass between."""
        for step in self.queries.calls_in(call.unit):
            if step.method == "step" and optimizer_of(step) is not None:
                stops = ways_back(step, lambda each: each == call or is_wait(each) or self._computes(each))
                if call in stops:
                    yield step
        for caller in self.queries.calls_of(call.unit):
            if caller.unit not in above and caller.unit not in self.hooked:
                yield from self._steps_behind(caller, is_wait, above | {call.unit})

    @cached_property
    def _computing(self) -> frozenset[Unit]:
        """The functions that come to a backward pass."""
        return self.queries.reaching({call.unit for call in self.queries.named("backward")})

    def _computes(self, place: Place) -> bool:
        if place.value.op != "call":
            return False
        return place.method == "backward" or not self._computing.isdisjoint(self.queries.targets(place))
