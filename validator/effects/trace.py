"""Traces: what one rank does from a point to the end of a unit, as a graph that shares what follows a branch.

A trace is in the terms of its unit. Reading one through a call needs a `Frame`: which call of which unit it stands in,
so nothing is copied, however deep the calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import Axes
from validator.domains.placement import DTENSOR, may
from validator.domains.spmd import Causes
from validator.effects import exceptions
from validator.effects.common_parts import common_parts
from validator.effects.condition_keys import Key, Keys, keys_of, substituted
from validator.effects.evidence import likely_told
from validator.effects.exceptions import Classes
from validator.effects.made_once import made_already
from validator.facts.model import At
from validator.flow.callgraph.collective_reach import given_away
from validator.flow.calls.groups import axes_in
from validator.flow.merging.conditions import truth_at
from validator.flow.program.answers import Operation, Result, Target
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place
from validator.flow.substitution import instantiated, instantiated_causes
from validator.flow.values import BOTTOM, Val
from validator.ir.model import RawAt, Test


class Op(NamedTuple):
    """A collective at a site of a unit."""

    operation: Operation
    site: int
    rest: Trace


class Call(NamedTuple):
    """A call of a unit that issues collectives."""

    target: Target
    site: int
    rest: Trace


class Fork(NamedTuple):
    block: int
    key: Key
    positive: bool  # whether the `yes` way is taken where the key holds
    causes: Causes
    yes: Trace
    no: Trace
    about: Test | None
    common: tuple[tuple[Key, bool, Causes], ...] = ()  # of `a and b`: what holds on one way, and by what that varies
    made: Trace | None = None  # the way on which something is there already that the other way makes, once


class Choice(NamedTuple):
    """Several units may run at a call. `causes`: by what it varies between ranks which of them does."""

    ways: tuple[Trace, ...]
    site: int
    causes: Causes


class Handed(NamedTuple):
    """Units that issue collectives are given to a call of which nobody knows whether it calls them."""

    units: tuple[Unit, ...]
    site: int
    rest: Trace


class Repeat(NamedTuple):
    header: int
    causes: Causes  # what the number of rounds depends on
    body: Trace
    rest: Trace


class End(NamedTuple):
    """`return` (also the end of the unit), `next` (of an iteration), `break`, `raise` (of a class and its bases)."""

    kind: str
    raised: Classes = ()


Trace = Op | Call | Handed | Fork | Choice | Repeat | End
RETURN, NEXT, BREAK, RAISE = End("return"), End("next"), End("break"), End("raise")


def raises(trace: Trace) -> bool:
    return isinstance(trace, End) and trace.kind == "raise"


class Frame:
    """One call on the way to a trace. The outermost frame has no caller."""

    def __init__(self, unit: Unit, target: Target | None, caller: Frame | None, after: Trace, site: int) -> None:
        self.unit = unit
        self.target = target
        self.caller = caller
        self.after = after  # in the caller
        self.site = site  # of the caller
        self.inner: dict[tuple[int, int], Frame] = {}
        self.among: bool | None = None  # whether a call on the way may run other functions; None: not asked yet

    def enters(self, unit: Unit) -> bool:
        """Whether the unit is already on the way: recursion."""
        frame: Frame | None = self
        while frame is not None:
            if frame.unit is unit:
                return True
            frame = frame.caller
        return False

    def argument(self, position: int, flow: Flow) -> Val:
        assert self.target is not None
        given = self.target.argument(position)
        return given if given is not None else flow.parameters.default(self.unit, self.unit.code.params[position][0])

    def causes(self, causes: Causes, flow: Flow) -> Causes:
        """The causes of a condition in the terms of the outermost unit."""
        frame: Frame | None = self
        while frame is not None and frame.target is not None and causes:
            here = frame
            causes = instantiated_causes(causes, lambda position, here=here: here.argument(position, flow))  # type: ignore[misc]
            frame = frame.caller
        return causes

    def value(self, value: Val, flow: Flow) -> Val:
        frame: Frame | None = self
        while frame is not None and frame.target is not None and value.symbolic:
            here = frame
            value = instantiated(value, lambda position, here=here: here.argument(position, flow))  # type: ignore[misc]
            frame = frame.caller
        return value

    def key(self, key: Key, traces: Traces) -> Key:
        frame: Frame | None = self
        while frame is not None and frame.target is not None and frame.caller is not None:
            here = frame
            key = substituted(key, frame.unit, lambda position, here=here: traces.passed(here, position))  # type: ignore[misc]
            frame = frame.caller
        return key

    def outermost(self) -> Frame:
        frame = self
        while frame.caller is not None:
            frame = frame.caller
        return frame

    def here(self, site: int) -> RawAt:
        """The place, in the outermost unit, from which a site is reached."""
        frame, number = self, site
        while frame.caller is not None:
            frame, number = frame.caller, frame.site
        return frame.unit.code.values[number].at

    def via(self) -> tuple[str, ...]:
        """The names of the units between the outermost one and this."""
        names: list[str] = []
        frame = self
        while frame.caller is not None:
            names.append(frame.unit.name)
            frame = frame.caller
        return tuple(reversed(names))


_OF_DTENSORS = frozenset({"full_tensor", "redistribute"})


class Issued(NamedTuple):
    """A collective as it is reached from the outermost unit."""

    name: str
    axes: Axes
    group: str  # the text of the group, empty for the world
    group_key: Key
    path: str
    at: At
    via: tuple[str, ...]
    here: RawAt
    sure: bool
    open: bool = False  # it is one only where something is sharded, and nobody knows whether that is
    once: bool = False  # only the first of such calls is one
    among: bool = False  # a call on the way to it may run other functions of the project, which issue no collective
    idle: bool = False  # it works on a tensor that was gathered before, and is none
    if_cut: bool = False  # it is one for certain where each rank has a part of the parameters
    if_sharded: bool = False  # it is one for certain where models are sharded
    composite: bool = False  # a function of a library that issues whatever collectives: no table tells how many


class Traces:
    """The traces of the units of one flow."""

    def __init__(self, flow: Flow, effectful: frozenset[Unit]) -> None:
        self.flow = flow
        self.effectful = effectful
        self._traces: dict[Unit, Trace] = {}
        self._made: dict[Unit, _Tracer] = {}

    def keys(self, unit: Unit) -> Keys:
        return keys_of(self.flow, unit)

    def of(self, unit: Unit) -> Trace:
        return self.tracer(unit).trace

    def tracer(self, unit: Unit) -> _Tracer:
        if unit not in self._made:
            self._made[unit] = _Tracer(self, unit)
        return self._made[unit]

    def truth(self, unit: Unit, number: int) -> Causes:
        """What a test of a value depends on, with what is likely."""
        from validator.effects.files import raced

        test, sites = Place(self.flow, unit, number), self.flow.result(unit).sites
        return truth_at(unit, number, test.val, sites) | raced(self, unit, number) | likely_told(test)

    def caught(self, unit: Unit, site: int, end: End) -> Trace:
        """How it goes on in a unit where a call there raises: in a handler, or with the exception."""
        return self.tracer(unit).raised(unit.code.values[site].block, end.raised)

    def frame(self, caller: Frame, call: Call) -> Frame:
        """The frame of a call; one for each call on one way."""
        key = (id(call), call.site)
        if key not in caller.inner:
            caller.inner[key] = Frame(call.target.unit, call.target, caller, call.rest, call.site)
        return caller.inner[key]

    def passed(self, frame: Frame, position: int) -> Key:
        """The key, in the caller, of what a parameter gets."""
        assert frame.caller is not None
        assert frame.target is not None
        caller, unit = frame.caller.unit, frame.unit
        value = caller.code.values[frame.site]
        if value.op in ("iter", "enter", "leave", "yield from"):  # a generator was made by the call before
            value = caller.code.values[caller.root(value.args[0])]
        keys = self.keys(caller)
        if value.op in ("attr", "enter", "leave", "iter") and position == 0:
            return keys.of(value.args[0])
        name = unit.code.params[position][0]
        if value.op == "call":
            shift = implicit(caller, value, unit)
            if position == 0 and shift:
                callee = caller.code.values[value.args[0]]
                if callee.op == "attr":
                    return self._receiver(caller, callee.args[0])
            for place, keyword in enumerate(value.data.names):
                if keyword == name or (keyword is None and place + shift == position):
                    return keys.of(value.args[place + 1])
            default = unit.code.defaults.get(name)
            if default is not None and unit.outer is not None:
                given = unit.outer.code.values[default]
                if given.op == "const" and "**" not in value.data.names:
                    return ("const", type(given.data).__name__, given.data)
            handed = map(keys.of, value.args[1:])  # each call with the same arguments hands on the same
            return ("passed", unit, position, value.data.names, *handed)
        return ("passed", frame.caller.unit, frame.site, position)

    def _receiver(self, caller: Unit, number: int) -> Key:
        """The object on which a method is called; `super()` is the object itself."""
        value = caller.code.values[number]
        if value.op == "call" and caller.code.values[value.args[0]].data == "super" and caller.has_receiver:
            return ("param", caller, 0)
        return self.keys(caller).of(number)

    def issued(self, op: Op, frame: Frame) -> Issued:
        unit, row = frame.unit, op.operation.row
        value = unit.code.values[op.site]
        group = frame.value(op.operation.group, self.flow)
        outer = frame.outermost()
        if group.symbolic:
            group = self.flow.close(group, outer.unit) if outer.target is None else group
        key = frame.key(self._group_key(unit, op), self)
        axes = axes_in(group) if group is not BOTTOM else axes_in(Val())
        return Issued(
            op.operation.name, axes, self._group_text(op, frame), key, unit.path, unit.at(value.at), frame.via(),
            frame.here(op.site), op.operation.sure and not self._is_guessed(frame),
            not op.operation.sure and (row.spread is not None or op.operation.name in _OF_DTENSORS),
            row.once, self._is_among(frame), self._is_idle(op, frame), row.spread is not None,
            row.spread is not None and not row.likely, row.group is None and not row.waits,
        )  # fmt: skip

    def _is_idle(self, op: Op, frame: Frame) -> bool:
        """Whether what gathers a DTensor works on what callers have passed, who had gathered it before."""
        if op.operation.name not in _OF_DTENSORS or frame.caller is None:
            return False
        values = frame.unit.code.values
        callee = values[values[op.site].args[0]] if values[op.site].op == "call" else values[op.site]
        asked = values[frame.unit.root(callee.args[0])] if callee.op == "attr" else callee
        if asked.op != "param":
            return False
        given = frame.argument(asked.data[0], self.flow)
        state = frame.caller.value(given, self.flow).held
        return may(state, "whole") and not may(state, *DTENSOR)

    def _is_guessed(self, frame: Frame) -> bool:
        """Whether a call on the way to a frame is of an unknown object."""
        if frame.caller is None:
            return False
        site = self.flow.result(frame.caller.unit).sites.get(frame.site)
        return (site is not None and bool(site.guessed)) or self._is_guessed(frame.caller)

    def _is_among(self, frame: Frame) -> bool:
        """Whether a call on the way to a frame may run functions that issue no collective."""
        if frame.caller is None:
            return False
        if frame.among is None:
            site = self.flow.result(frame.caller.unit).sites.get(frame.site)
            here = site is not None and any(target.unit not in self.effectful for target in site.targets)
            frame.among = here or self._is_among(frame.caller)
        return frame.among

    def _argument_place(self, unit: Unit, op: Op) -> int:
        """The operand that is the group of a collective, or -1."""
        row, value = op.operation.row, unit.code.values[op.site]
        if row.group is None or value.op != "call":
            return -1
        name, position = row.group
        for place, keyword in enumerate(value.data.names):
            if keyword == name or (keyword is None and place == position):
                return int(value.args[place + 1])
        return -1

    def _group_key(self, unit: Unit, op: Op) -> Key:
        place = self._argument_place(unit, op)
        return self.keys(unit).of(place) if place >= 0 else ("const", "NoneType", None)

    def _group_text(self, op: Op, frame: Frame) -> str:
        """The source of the group where it is named: in the unit, or where a parameter gets it."""
        unit, place = frame.unit, self._argument_place(frame.unit, op)
        while place >= 0:
            place = unit.root(place)
            value = unit.code.values[place]
            if value.op != "param" or frame.caller is None:
                named = (
                    Place(self.flow, unit, place).hint if value.op in ("param", "phi") else unit.variables.get(place)
                )
                text = named or unit.text(value.at)
                return "" if value.op == "const" else text
            place, unit, frame = self._passed_value(frame, value.data[0]), frame.caller.unit, frame.caller
        return ""

    def _passed_value(self, frame: Frame, position: int) -> int:
        assert frame.caller is not None
        value = frame.caller.unit.code.values[frame.site]
        if value.op != "call":
            return -1
        unit = frame.unit
        shift = implicit(frame.caller.unit, value, unit)
        for place, keyword in enumerate(value.data.names):
            if keyword == unit.code.params[position][0] or (keyword is None and place + shift == position):
                return int(value.args[place + 1])
        return -1


class _Tracer:
    """Builds the trace of one unit from its blocks."""

    def __init__(self, traces: Traces, unit: Unit) -> None:
        self.traces = traces
        self.unit = unit
        self.code = unit.code
        self.result: Result = traces.flow.result(unit)
        self.keys = traces.keys(unit)
        self.forks: list[tuple[Fork, int]] = []  # with the header of the loop around, or -1
        self.repeats: list[Repeat] = []
        self.choices: list[Choice] = []
        self._memo: dict[int, Trace] = {}
        self._afters = {loop.after: header for header, loop in self.code.loops.items()}
        self.trace = self._blocks()

    def _blocks(self) -> Trace:
        """Blocks in an order in which what follows a block comes before it, loops inside out."""
        order = self.code.in_order()
        position = {block: i for i, block in enumerate(order)}
        for block in sorted(order, key=lambda b: -position[b]):
            self._from(block)
        return self._memo.get(0, RETURN)

    def _from(self, block: int) -> Trace:
        known = self._memo.get(block)
        if known is not None:
            return known
        loop = self.code.loops.get(block)
        self._memo[block] = NEXT  # a way back to this block, while it is built
        trace = self._loop(block) if loop is not None else self._values(block, self._end(block))
        self._memo[block] = trace
        return trace

    def _loop(self, block: int) -> Trace:
        loop = self.code.loops[block]
        end = self.code.blocks[block].end
        rest = self._from(loop.done)
        causes: Causes = frozenset()
        if end[0] == "branch" and loop.iterator >= 0:
            causes = self.result.vals[end[1]].v
            body = self._values(block, self._to(block, loop.body))
        else:
            body = self._values(block, self._end(block))
        if body is NEXT or (isinstance(body, End)):
            return rest
        if not _has_operations(body) and not _leaves(body):
            return rest
        repeat = Repeat(block, causes, body, rest)
        self.repeats.append(repeat)
        return repeat

    def _to(self, block: int, target: int) -> Trace:
        """The way over one edge: back to a header is the next round, out of the loop is its end."""
        loop = self.code.blocks[block].loop
        while loop >= 0 and loop in self.code.loops:
            around = self.code.loops[loop]
            if target == loop:
                return NEXT
            if target == around.after and self.code.blocks[target].loop != loop:
                return BREAK
            break
        return self._from(target)

    def _end(self, block: int) -> Trace:
        end = self.code.blocks[block].end
        if end[0] == "return":
            return RETURN
        if end[2:] == ("process",) and self.unit.control.comes_always(block):
            return RETURN  # `sys.exit(…)` at the end of a program: every way comes to it
        if end[0] == "raise":
            return self.raised(block, exceptions.raised(self.traces.flow, self.unit, end[1]))
        if end[0] == "open":
            return RAISE
        if end[0] == "jump":
            return self._to(block, end[1])
        yes, no = self._to(block, end[2]), self._to(block, end[3])
        if yes is no:
            return yes
        test = self.result.vals[end[1]]
        if test.is_only_alone(True) or test.is_only_alone(False):
            return no if test.is_only_alone(True) else yes  # nobody waits for others in a job of one process
        key, positive = self.keys.test(end[1])
        causes = self.traces.truth(self.unit, end[1])
        about = self.code.tests.get(block)
        way = made_already(self.traces.flow, self.unit, block)
        made = None if way is None else yes if way == end[2] else no
        fork = Fork(
            block, key, positive, causes, yes, no, about, tuple(common_parts(self.traces, self.unit, end[1])), made
        )
        self.forks.append((fork, self.code.blocks[block].loop))
        return fork

    def raised(self, block: int, classes: Classes) -> Trace:
        """How it goes on where a block raises: in the first handler, or `finally`, that an exception comes to."""
        blocks = self.code.blocks
        for handler in blocks[block].handlers:
            taken = exceptions.takes(exceptions.handler(self.traces.flow, self.unit, handler), classes)
            if taken and blocks[handler].loop == blocks[block].loop:
                return self._from(handler)
            if taken or taken is None:
                break  # it leaves a loop, or nobody knows whether this handler takes it
        return End("raise", classes) if classes else RAISE

    def before(self, number: int, with_it: bool) -> Trace:
        """What is left to do at a value: `with_it` what happens at it, too."""
        block = self.code.values[number].block
        trace = self._memo.get(block, RETURN)
        if isinstance(trace, Repeat) and trace.header == block:
            trace = trace.body
        order = self.code.blocks[block].values
        past = set(order[: order.index(number) + (0 if with_it else 1)])
        while True:
            if isinstance(trace, Op | Call | Handed) and trace.site in past:
                trace = trace.rest
            elif isinstance(trace, Choice) and isinstance(way := trace.ways[0], Call) and way.site in past:
                trace = way.rest
            else:
                return trace

    def at(self, block: int) -> Trace:
        """What is left to do at the beginning of a block."""
        return self._memo.get(block, RETURN)

    def way(self, block: int, target: int) -> Trace:
        """What follows over an edge of the graph."""
        return self._to(block, target)

    def leaving(self, trace: Trace, block: int, loop: int) -> Trace | None:
        """A trace that begins in a block, in the terms of a loop further out (-1: of the unit): the end of a round is
        more rounds and what follows them. None where a loop on the way issues nothing, and so has no trace."""
        around = self.code.blocks[block].loop
        while around != loop:
            repeat = next((r for r in self.repeats if r.header == around), None)
            if around < 0:
                return None
            after: Trace = repeat if repeat is not None else self.at(self.code.loops[around].done)
            trace = _ending(trace, after, repeat.rest if repeat is not None else after, {})
            around = self._outside(around)
        return trace

    def _outside(self, header: int) -> int:
        """The loop around a loop, or -1."""
        return self.code.blocks[self.code.loops[header].after].loop

    def _values(self, block: int, after: Trace) -> Trace:
        trace = after
        for number in reversed(self.code.blocks[block].values):
            site = self.result.sites.get(number)
            handed = tuple(unit for unit in given_away(self.unit, self.result, number) if unit in self.traces.effectful)
            trace = Handed(handed, number, trace) if handed else trace
            if site is None or site.away:
                continue
            ways = [t for t in site.targets or site.guessed if t.unit in self.traces.effectful]
            silent = [trace] if site.chosen and (site.others or len(ways) < len(site.targets)) else []
            if len(ways) == 1 and not silent:
                trace = Call(ways[0], number, trace)
            elif ways:
                ways = sorted(ways, key=lambda t: (t.unit.path, t.unit.qualname))
                calls = [Call(each, number, trace) for each in ways]
                trace = Choice((*calls, *silent), number, site.chosen)
                if site.chosen:
                    self.choices.append(trace)
            for operation in site.operations:
                trace = Op(operation, number, trace)
        return trace


def _ending(trace: Trace, following: Trace, after: Trace, known: dict[int, Trace]) -> Trace:
    """A trace of a round of a loop with what comes after the round, or after the loop, at its ends."""
    if trace is NEXT or trace is BREAK:
        return following if trace is NEXT else after
    if isinstance(trace, End):
        return trace
    if id(trace) not in known:
        known[id(trace)] = trace
        if isinstance(trace, Fork):
            yes, no = (_ending(t, following, after, known) for t in (trace.yes, trace.no))
            known[id(trace)] = trace._replace(yes=yes, no=no)
        elif isinstance(trace, Choice):
            known[id(trace)] = trace._replace(ways=tuple(_ending(t, following, after, known) for t in trace.ways))
        else:
            known[id(trace)] = trace._replace(rest=_ending(trace.rest, following, after, known))
    return known[id(trace)]


def _has_operations(trace: Trace) -> bool:
    return any(isinstance(each, Op | Call) for each in parts(trace))


def _leaves(trace: Trace) -> bool:
    return any(each is RETURN for each in parts(trace))


def parts(trace: Trace) -> Iterator[Trace]:
    """Every part of a trace of one unit, each once."""
    stack, seen = [trace], set()
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, Op | Call | Handed):
            stack.append(each.rest)
        elif isinstance(each, Fork):
            stack += [each.no, each.yes]
        elif isinstance(each, Choice):
            stack += each.ways
        elif isinstance(each, Repeat):
            stack += [each.rest, each.body]
