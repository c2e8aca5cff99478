"""Compares what two groups of ranks do after a branch, step by step, under what is known of each.

A rank's state is a cursor: a place in a trace and the frame of calls around it. Operations count only where their group
holds ranks of both sides. Conditions that all ranks share are assumed to hold, then not to hold, on both sides at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import REDUCED, UNKNOWN, WORLD, axes_of, meets
from validator.domains.spmd import OF_ONE, Causes, varying
from validator.effects.condition_keys import Assumed, Key, assume, holding
from validator.effects.made_once import is_cached
from validator.effects.reduced_values import place_of
from validator.effects.trace import (
    BREAK,
    NEXT,
    RETURN,
    Call,
    Choice,
    End,
    Fork,
    Frame,
    Handed,
    Issued,
    Op,
    Repeat,
    Trace,
    Traces,
    parts,
    raises,
)  # fmt: skip
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place

_BUDGET = 4000  # comparisons of one pair of arms before it is given up as undecided (silent)
_DATA_AXES = frozenset({"dp", "cp"})  # the axes over which batches are distributed; others hold copies of them

Cursor = tuple[Trace, Frame]
Difference = tuple["Issued | End", "Issued | End"]


class Around(NamedTuple):
    """The loop around a branch: what it repeats and what follows it."""

    body: Trace
    after: Trace
    endless: bool = False  # `while True` that nothing leaves: who goes round again comes to the same place
    uncounted: bool = False  # `while`: the rounds end by what is in them alone


def sees(op: Issued, causes: Causes) -> bool:
    """Whether the group of a collective holds ranks that what varies by `causes` tells apart."""
    axes = op.axes
    if op.idle:
        return False
    if op.once and not any(cause.kind in ("rank", "member") for cause in causes):
        return False  # each rank comes there once, sooner or later
    if any(cause.kind == "failure" for cause in causes):
        return True  # one rank alone: whatever the group, the others of it wait
    if any(cause.axis == REDUCED and cause.facet == place_of(op.path, op.at) for cause in causes):
        return True
    if UNKNOWN in axes:
        hinted = axes_of(op.group) - {WORLD}
        if not hinted:
            return False
        axes = hinted
    if WORLD in axes:
        return True
    for cause in causes:
        if cause.kind == "rank" and meets(cause.axis, axes):
            return True
        if cause.kind == "data" and (
            cause.axis == WORLD and axes & _DATA_AXES or meets(cause.axis, axes) and cause.axis != WORLD
        ):
            return True
    return False


_Pair = tuple[Cursor, Cursor, Assumed, Assumed]


class Comparison:
    """One comparison of two arms; remembers under which shared conditions they differ.

    `every`: whether the arms must differ whatever the conditions that the ranks share. `lasting`: the conditions that
    hold in each round of the loop around.
    """

    def __init__(
        self, traces: Traces, causes: Causes, around: Around | None, frame: Frame, every: bool = False,
        lasting: Assumed | None = None,
    ) -> None:  # fmt: skip
        self.traces = traces
        self.flow = traces.flow
        self.causes = causes
        self.around = around
        self.frame = frame
        self.every = every
        self.lasting = lasting or {}
        self.budget = _BUDGET
        self.chosen: Assumed = {}
        self.given: set[Key] = set()
        self._silent: dict[tuple[int, int], bool] = {}
        self._given: dict[Unit, Frame] = {}

    def differ(self, a: Cursor, b: Cursor, if_a: Assumed, if_b: Assumed) -> Difference | None:
        """The first pair in which two sides differ, one an operation; None where they agree or cannot be told."""
        while True:
            self.budget -= 1
            if self.budget < 0:
                return None
            a, b = self._next(a, if_a), self._next(b, if_b)
            (one, frame_a), (two, frame_b) = a, b
            if (one is two and frame_a is frame_b and if_a == if_b) or raises(one) or raises(two):
                return None  # a rank that raises ends the job with a message; that is no silent hang
            if isinstance(one, Handed) or isinstance(two, Handed):
                return None  # what it was given may be called there, now or later
            if isinstance(one, Fork | Choice):
                return self._split(a, b, if_a, if_b)
            if isinstance(two, Fork | Choice):
                found = self._split(b, a, if_b, if_a)
                return found and (found[1], found[0])
            if isinstance(one, End) and isinstance(two, End):
                return self._ends(one, two)
            if isinstance(one, End) or isinstance(two, End):
                return self._against_end(a, b, if_a, if_b)
            if isinstance(one, Repeat) or isinstance(two, Repeat):
                if not (isinstance(one, Repeat) and isinstance(two, Repeat)):
                    return self._against_loop(a, b, if_a, if_b)
                found = self.differ((one.body, frame_a), (two.body, frame_b), if_a, if_b)
                if found is not None:
                    return found
                a, b = (one.rest, frame_a), (two.rest, frame_b)
                continue
            assert isinstance(one, Op)
            assert isinstance(two, Op)
            op_a, op_b = self.traces.issued(one, frame_a), self.traces.issued(two, frame_b)
            rest_a, rest_b = (one.rest, frame_a), (two.rest, frame_b)
            if not _alike(op_a, op_b):
                return self._unlike(op_a, op_b, (a, rest_b, if_a, if_b), (rest_a, b, if_a, if_b))
            a, b = rest_a, rest_b

    def _unlike(self, one: Issued, two: Issued, without_two: _Pair, without_one: _Pair) -> Difference | None:
        """Two operations that do not meet. What a function of a library issues may be what the other side issues for
        itself: it is one too many where the sides agree without it."""
        if one.composite is two.composite:
            return one, two
        left = self.differ(*(without_one if one.composite else without_two))
        return (one, two) if left is None else None

    # -- reading a trace -----------------------------------------------------------------------------------

    def _next(self, cursor: Cursor, assumed: Assumed) -> Cursor:
        """The next part of a trace that matters: calls are entered, decided forks and unseen operations passed over."""
        trace, frame = cursor
        while True:
            if isinstance(trace, Op):
                if sees(self.traces.issued(trace, frame), self.causes):
                    return trace, frame
                trace = trace.rest
            elif isinstance(trace, Call):
                inner = self._entered(trace, frame)
                trace, frame = inner if inner is not None else (trace.rest, frame)
            elif isinstance(trace, Handed):
                if self._may_run(trace):
                    return trace, frame
                trace = trace.rest
            elif isinstance(trace, Repeat):
                if self._matters((trace.body, frame)):
                    return trace, frame
                trace = trace.rest
            elif isinstance(trace, Fork):
                way = self._decided(trace, frame, assumed)
                if way is None:
                    return trace, frame
                trace = way
            elif trace is RETURN and frame.caller is not None:
                trace, frame = frame.after, frame.caller
            elif frame.caller is not None and isinstance(trace, End) and trace.kind == "raise":
                trace, frame = self.traces.caught(frame.caller.unit, frame.site, trace), frame.caller
            else:
                return trace, frame

    def _alone(self, unit: Unit) -> Frame:
        """A unit that something else may call, nobody knows with what."""
        if unit not in self._given:
            self._given[unit] = Frame(unit, None, None, RETURN, -1)
        return self._given[unit]

    def _entered(self, call: Call, frame: Frame) -> Cursor | None:
        unit = call.target.unit
        if frame.enters(unit) or is_cached(unit):
            return None
        inner = self.traces.frame(frame, call)
        trace = self.traces.of(unit)
        return (trace, inner) if self._matters((trace, inner)) else None

    def _matters(self, cursor: Cursor) -> bool:
        """Whether a trace may issue an operation that is seen."""
        key = (id(cursor[0]), id(cursor[1]))
        known = self._silent.get(key)
        if known is None:
            self._silent[key] = True  # recursion adds nothing
            known = True
            known = self._silent[key] = not any(self._is_seen(part, cursor[1]) for part in parts(cursor[0]))
        return not known

    def _is_seen(self, part: Trace, frame: Frame) -> bool:
        if isinstance(part, Op):
            return sees(self.traces.issued(part, frame), self.causes)
        if isinstance(part, Call) and not frame.enters(part.target.unit):
            return self._matters((self.traces.of(part.target.unit), self.traces.frame(frame, part)))
        return isinstance(part, Handed) and self._may_run(part)

    def _may_run(self, handed: Handed) -> bool:
        return any(self._matters((self.traces.of(unit), self._alone(unit))) for unit in handed.units)

    def _decided(self, fork: Fork, frame: Frame, assumed: Assumed) -> Trace | None:
        if fork.made is not None and frame.caller is not None:
            return fork.made
        key = frame.key(fork.key, self.traces)
        holds = holding(key, assumed)
        if holds is None and self._is_given(fork, key, frame):
            self.given.add(key)
            holds = False
        if holds is None and self._is_training(fork.key, frame):
            holds = False
        if holds is None:
            causes = frame.causes(fork.causes, self.flow)
            if causes and all(c.kind == "member" for c in causes):
                holds = fork.positive
        if holds is None:
            return self._where_several(fork, frame) if self.every else None
        return fork.yes if holds is fork.positive else fork.no

    def _where_several(self, fork: Fork, frame: Frame) -> Trace | None:
        """Of a test whether there is one rank alone in some group (`get_world_size(group) > 1`) the way where there are
        several: nobody waits for others where there are none."""
        alone = tells_one(Place(self.flow, frame.unit, frame.unit.code.blocks[fork.block].end[1]).origin)
        return None if alone is None else fork.no if alone else fork.yes

    def _is_training(self, key: Key, frame: Frame) -> bool:
        """`self.training` of a module, in what some ranks alone call: they evaluate."""
        if frame.caller is None or not any(cause.kind in ("rank", "member") for cause in self.causes):
            return False
        if key[:2] == ("bool", "and"):
            return any(self._is_training(part, frame) for part in key[2:])
        is_module = frame.unit.cls is not None and frame.unit.cls.find("forward") is not None
        return is_module and key == ("attr", ("param", frame.unit, 0), "training")

    @staticmethod
    def _is_given(fork: Fork, key: Key, frame: Frame) -> bool:
        """`param is None` where the caller passes some variable: it counts as not None unless more is known."""
        if frame.caller is None or fork.key[:2] != ("compare", "Is") or fork.key[3] != ("const", "NoneType", None):
            return False
        tested = fork.key[2]
        return tested[0] == "param" and tested[1] is frame.unit and key[2][0] not in ("const", "passed")

    # -- differences ---------------------------------------------------------------------------------------

    def _split(self, a: Cursor, b: Cursor, if_a: Assumed, if_b: Assumed) -> Difference | None:
        """Both values of a condition that the ranks share; of one that they do not share, either way may differ."""
        fork, frame = a
        if isinstance(fork, Choice):
            return self._choose(fork, frame, b, if_a, if_b)
        assert isinstance(fork, Fork)
        key = frame.key(fork.key, self.traces)
        causes = varying(frame.causes(fork.causes, self.flow))
        if causes and {c.kind for c in causes} & {c.kind for c in self.causes}:
            # judged where it stands; here any agreement between the sides will do, but for a way that ends the job
            for way, rest, value in ((fork.yes, fork.no, not fork.positive), (fork.no, fork.yes, fork.positive)):
                if raises(self._next((way, frame), assume(if_a, key, not value))[0]):
                    return self.differ((rest, frame), b, assume(if_a, key, value), if_b)
            first = self.differ((fork.yes, frame), b, assume(if_a, key, fork.positive), if_b)
            return first and self.differ((fork.no, frame), b, assume(if_a, key, not fork.positive), if_b)
        found: Difference | None = None
        for value, way in ((not fork.positive, fork.no), (fork.positive, fork.yes)):
            found = self.differ((way, frame), b, assume(if_a, key, value), assume(if_b, key, value))
            if found is not None and not self.every:
                self.chosen[key] = value
            if (found is None) is self.every:
                break
        return found

    def _choose(self, choice: Choice, frame: Frame, b: Cursor, if_a: Assumed, if_b: Assumed) -> Difference | None:
        """Which of several methods runs depends on the object; both sides have objects of one class."""
        found: Difference | None = None
        names = tuple((t.target.unit.path, t.target.unit.qualname) for t in choice.ways if isinstance(t, Call))
        taken = next((i for i in range(len(choice.ways)) if if_a.get(("way", names, i))), None)
        ways = [(taken, choice.ways[taken])] if taken is not None else list(enumerate(choice.ways))
        for index, way in ways:
            key = ("way", names, index)
            found = self.differ((way, frame), b, {**if_a, key: True}, {**if_b, key: True})
            if (found is None) is self.every:
                break
        return found

    def _against_end(self, a: Cursor, b: Cursor, if_a: Assumed, if_b: Assumed) -> Difference | None:
        (end, rest), first = ((a[0], b), True) if isinstance(a[0], End) else ((b[0], a), False)
        assert isinstance(end, End)
        op = self.first(rest, if_b if first else if_a)
        if op is None or (end is NEXT and self.comes_again(op, if_a if first else if_b)):
            return None
        return (end, op) if first else (op, end)

    def comes_again(self, op: Issued, assumed: Assumed, kept: Assumed | None = None) -> bool:
        """Whether a rank that goes round a loop again meets the others in what they wait in: the loop is endless, or on
        no way leaves it, nor issues anything else, before. `kept`: what holds in the next round as in this one."""
        if self.around is None or not (self.around.endless or self.around.uncounted):
            return False
        body = self.around.body, self.frame
        if self.around.endless:
            again = self.first(body, self.lasting)
            return again is not None and _alike(again, op)
        ways = list(self._firsts(body, assumed, {**self.lasting, **(kept or {})}))
        met = [way for way in ways if isinstance(way, Issued)]
        ends = [way for way in ways if not isinstance(way, Issued)]
        return bool(met) and all(_alike(way, op) for way in met) and all(way is NEXT or raises(way) for way in ends)

    def _firsts(self, cursor: Cursor, assumed: Assumed, lasting: Assumed) -> Iterator[Issued | Trace]:
        """What a rank first comes to on each way of another round: an operation, or what ends the round. Of what is
        `assumed` in this one, what asks for the rank holds then, too, and all that is `lasting`."""
        self.budget -= 1
        trace, frame = self._next(cursor, lasting)
        if isinstance(trace, Op):
            yield self.traces.issued(trace, frame)
        elif isinstance(trace, Choice):
            for way in trace.ways:
                yield from self._firsts((way, frame), assumed, lasting)
        elif isinstance(trace, Fork) and self.budget > 0:
            causes = frame.causes(trace.causes, self.flow)
            told = bool(causes) and all(cause.kind in ("rank", "member") for cause in causes)
            holds = holding(frame.key(trace.key, self.traces), assumed) if told else None
            ways = {True: trace.yes, False: trace.no}
            for way in ways.values() if holds is None else [ways[holds is trace.positive]]:
                yield from self._firsts((way, frame), assumed, lasting)
        else:
            yield trace

    def _against_loop(self, a: Cursor, b: Cursor, if_a: Assumed, if_b: Assumed) -> Difference | None:
        """A loop against something else: without the loop they must agree, else the loop is what one side lacks."""
        loop, frame = a if isinstance(a[0], Repeat) else b
        other = b if isinstance(a[0], Repeat) else a
        assert isinstance(loop, Repeat)
        op = self.first((loop.body, frame), if_a if loop is a[0] else if_b)
        if op is None:
            rest = (loop.rest, frame)
            return self.differ(rest, b, if_a, if_b) if loop is a[0] else self.differ(a, rest, if_a, if_b)
        meeting = self.traces.issued(other[0], other[1]) if isinstance(other[0], Op) else RETURN
        return (op, meeting) if loop is a[0] else (meeting, op)

    def first(self, cursor: Cursor, assumed: Assumed | None = None) -> Issued | None:
        """The first operation that a trace reaches; one that no optional arm decides about, where there is one."""
        known = assumed or {}
        while True:
            self.budget -= 1
            if self.budget < 0:
                return None
            cursor = trace, frame = self._next(cursor, known)
            if isinstance(trace, End | Handed):
                return None
            if isinstance(trace, Op):
                return self.traces.issued(trace, frame)
            if isinstance(trace, Repeat):
                found = self.first((trace.body, frame), known)
                if found is not None:
                    return found
                cursor = trace.rest, frame
            elif isinstance(trace, Choice):
                every = [self.first((way, frame), known) for way in trace.ways]
                if self.every and not all(every):
                    return None
                return next((op for op in every if op is not None), None)
            else:
                assert isinstance(trace, Fork)
                key = frame.key(trace.key, self.traces)
                found = self.first((trace.no, frame), assume(known, key, not trace.positive))
                if self.every:
                    return found and self.first((trace.yes, frame), assume(known, key, trace.positive))
                if found is None:
                    found = self.first((trace.yes, frame), assume(known, key, trace.positive))
                    if found is not None:
                        self.chosen[key] = trace.positive
                return found

    def _ends(self, a: End, b: End) -> Difference | None:
        """Leaving a loop on some ranks while the others go round again."""
        if a is b or self.around is None:
            return None
        again = self.first((self.around.body, self.frame), self.lasting)
        if again is not None and again.once:
            return None  # they were there in the round before
        if again is not None and NEXT in (a, b):
            return (again, b) if a is NEXT else (a, again)
        if RETURN in (a, b):
            later = self.first((self.around.after, self.frame), self.lasting)
            if later is not None:
                return (later, b) if b is RETURN else (a, later)
        return None


def tells_one(test: Place) -> bool | None:
    """Whether a comparison of a number of ranks holds where there is one alone, or where there are several (False);
    None where it tells neither."""
    if test.value.op != "compare":
        return None
    size = test.operand(0)
    named = size.flow.models.likely
    counts = bool(size.val.of("size")) or size.hint in named["sizes"] | named["worlds"]
    return OF_ONE.get((test.value.data, test.operand(1).val.constant())) if counts else None


def _alike(a: Issued, b: Issued) -> bool:
    """Whether two operations meet: the same collective on the same group."""
    if a.name != b.name:
        return False
    if a.group_key == b.group_key:
        return True
    return a.axes == b.axes and UNKNOWN not in a.axes or a.group == b.group


__all__ = ["BREAK", "Around", "Comparison", "Difference", "sees", "tells_one"]
