"""Branches and loops on which ranks of one group issue different collectives.

Each branch is judged where it stands, on what is known there. Where that depends on what callers pass, it is judged
again for each kind of argument that varies between ranks: `is_zero(step)` and `is_zero(rank)` are two questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from validator.analysis.commands.sharded_launches import ShardedLaunches
from validator.domains.axes import REDUCED, WORLD
from validator.domains.spmd import UNIFORM, Cause, Causes, only, varying
from validator.effects.compare import Around, Comparison, sees, tells_one
from validator.effects.condition_keys import Assumed, Key, assume, holding, same
from validator.effects.element_tests import choosing
from validator.effects.evidence import asks_for_rank, comes_where_it_lacks, is_drawn_alike, reads_data
from validator.effects.exceptions import FAILURE
from validator.effects.files import raced
from validator.effects.next_rounds import tests_again
from validator.effects.one_of_group import sent_to_one
from validator.effects.one_rank_functions import runs_on_some
from validator.effects.reduced_values import reduced
from validator.effects.trace import (
    BREAK,
    NEXT,
    RETURN,
    Call,
    Choice,
    End,
    Fork,
    Frame,
    Issued,
    Op,
    Repeat,
    Trace,
    Traces,
    parts,
)  # fmt: skip
from validator.effects.uneven_containers import Grown, UnevenContainers
from validator.facts.model import At
from validator.finding import Related, Severity
from validator.flow.merging.even_shares import is_evened
from validator.flow.program.answers import Target
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.flow.values import BOTTOM, UNKNOWN, Val
from validator.ir.model import RawAt
from validator.project import Project

_SETTING_UP = frozenset({"init_process_group", "destroy_process_group"})  # the ranks are others behind these
_LEAVING = {"return": "the others return", "next": "the others skip it", "break": "the others leave the loop"}


class Divergence(NamedTuple):
    """Ranks of one group that part. `op` is reached by one side only; `other` is what the others do instead."""

    unit: Unit
    place: RawAt  # the branch, or the loop
    test: str
    causes: Causes
    op: Issued
    other: Issued | End
    arm: str  # "then" or "else": the side that reaches `op`; "loop" for a count that differs
    exits: bool  # whether the other side leaves by return, continue or break
    conditional: bool  # whether it needs a shared condition to be so
    block: int
    asks: bool  # whether the condition itself asks for the rank, or for a number of the rank's own
    turns: bool = False  # whether ranks take the rounds of a loop in turns: as many each, if they divide evenly
    grown: Place | None = None  # where some ranks alone put something into what the loop goes through
    chosen: Place | None = None  # the test by which what the loop goes through was chosen
    lacks: bool = False  # whether it stands where some ranks lack what they alone may have

    @property
    def kind(self) -> str:
        return "rank" if any(c.kind in ("rank", "member") for c in self.causes) else "local"

    @property
    def doubts(self) -> int:
        """On how many facts it rests that are likely, not certain: that ranks differ here, that the call is made, that
        a condition holds on all ranks, that not only what else may reach the branch makes ranks differ, that ranks
        lack what they alone may have, and that rounds do not divide evenly. Where ranks may not differ, it may be with
        just those objects whose methods issue the collective."""
        certain = any(c.sure and sees(self.op, frozenset({c})) for c in self.causes)
        unlike = 0 if certain else 1 + self.op.among
        return unlike + (not self.op.sure) + self.conditional + (not self.asks) + self.turns + self.lacks

    @property
    def severity(self) -> Severity:
        """An error is certain, a warning rests on one likely fact; more make a guess."""
        if self.op.open or self.doubts > 1:
            return "note"
        return "warning" if self.doubts else "error"


_OF_RANK = frozenset({Cause("rank", WORLD)})


class Report(NamedTuple):
    """A divergence in words, at the place where a reader will look for it."""

    path: str
    at: At
    severity: Severity
    message: str
    related: tuple[Related, ...]
    context: str
    found: Divergence


def report(found: Divergence) -> Report:
    """What a finding says of a divergence.

    An early exit is reported at its `if`; anything else at the collective that waits, which is where the job hangs.
    """
    unit, op = found.unit, found.op
    line = found.place[0]
    test = f"`{found.test}`"
    apart = f"their own {test} (not reduced over ranks)" if found.kind == "local" else test
    if found.grown is not None:
        apart = f"{test}, to which some alone add in `{found.grown.unit.qualname}`"
    elif found.chosen is not None:
        apart = f"how much of {test} is left by their own `{found.chosen.text}`"
    through = f" through `{'` → `'.join(_shortened(op.via))}`" if op.via else ""
    group = f" on `{op.group}`" if op.group else ""
    where = f"in `{unit.qualname}`" if unit.qualname != "<module>" else "at module level"
    if found.arm == "loop":
        others = "the others have left the loop"
    elif isinstance(found.other, Issued):
        other_group = f" on `{found.other.group}`" if found.other.group else ""
        others = f"the others go on to `{found.other.name}`{other_group}"
    elif found.exits or found.other.kind in ("break", "next"):
        others = _LEAVING.get(found.other.kind, "the others return")
    else:
        others = "the others never call it"
    if found.turns:
        others += " in turns, and some have one more round where these do not divide evenly among the ranks"
    some = f"{where} only some ranks, told apart by {apart}, get there{through}"
    message = f"not every rank reaches `{op.name}`{group}: {some}; {others}"
    related = [Related(unit.path, line, f"the ranks part here, on {test}")]
    if found.grown is not None:
        related.append(Related(found.grown.unit.path, found.grown.at[0], "only some ranks add something here"))
    if found.chosen is not None:
        related.append(Related(found.chosen.unit.path, found.chosen.at[0], "each rank chooses here what is left"))
    if op.via:
        related.append(Related(unit.path, op.here[0], f"`{op.via[0]}` is called here"))
        related.append(Related(op.path, op.at[0], f"and reaches `{op.name}` here"))
    else:
        related.append(Related(op.path, op.at[0], f"`{op.name}` is called here"))
    if isinstance(found.other, Issued):
        related.append(Related(found.other.path, found.other.at[0], f"the others wait in `{found.other.name}` here"))
    if found.exits:
        place, path = unit.at((line, found.place[1], line, found.place[1] + 2)), unit.path
    else:
        place, path = op.at, op.path
    context = f"{unit.qualname}:{op.name}:{op.group}:{found.test}"
    return Report(path, place, found.severity, message, tuple(related), context, found)


def _shortened(via: tuple[str, ...]) -> tuple[str, ...]:
    """Both ends of a long way: nobody reads a thousand names."""
    return via if len(via) <= 8 else (*via[:4], "…", *via[-4:])


class Divergences:
    """All divergences of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._entries: dict[Unit, Frame] = {}

    def reports(self, kind: str) -> Iterator[Report]:
        """The divergences of one kind (`rank`, `local`), one for each collective that is not reached. Where scripts ask
        for sharded models, what is a collective of these is taken for one."""
        seen: set[tuple[str, At]] = set()
        launches = self.project.analysis(ShardedLaunches)
        for found in self.all:
            if found.kind == kind and not is_foreign(found.unit.path):
                if found.op.open and launches.there_are:
                    sure = found.op.sure or found.op.if_sharded or found.op.if_cut and launches.of_parameters
                    found = found._replace(op=found.op._replace(open=False, sure=sure))
                row = report(found)
                if is_test(found.unit.path) and not is_test(row.path):
                    continue  # what a test does on one rank alone says nothing of the code that it calls
                if (row.path, row.at) not in seen:
                    seen.add((row.path, row.at))
                    yield row

    @cached_property
    def traces(self) -> Traces:
        return Traces(self.flow, frozenset(self.flow.effectful()))

    @cached_property
    def uneven(self) -> UnevenContainers:
        return UnevenContainers(self.traces)

    @cached_property
    def all(self) -> tuple[Divergence, ...]:
        found: list[Divergence] = []
        for unit, frame, first in self._contexts():
            found += self._of(unit, frame, first)
            found += (*self._decorated(unit, frame), *self._sent_to_one(unit, frame)) if first else ()
        return tuple(sorted(dict.fromkeys(found), key=lambda d: (d.unit.path, d.place, d.op.path, d.op.at)))

    def following(self, place: Place) -> Issued | None:
        """The first collective that may follow a value in its unit, called there or below."""
        if place.unit not in self.traces.effectful:
            return None
        frame = Frame(place.unit, None, None, RETURN, -1)
        tracer = self.traces.tracer(place.unit)
        rest = tracer.leaving(tracer.before(place.number, False), place.value.block, -1)
        return Comparison(self.traces, FAILURE, None, frame).first((rest, frame)) if rest is not None else None

    # -- contexts ------------------------------------------------------------------------------------------

    def _contexts(self) -> Iterator[tuple[Unit, Frame, bool]]:
        """Each unit that issues collectives with its parameters as anything, then with arguments that vary."""
        units = sorted(self.traces.effectful, key=lambda u: (u.path, u.code.at, u.qualname))
        queue: list[tuple[Unit, Frame]] = []
        for unit in units:
            frame = self.entry(unit)
            yield unit, frame, True
            queue.append((unit, frame))
        seen: set[tuple[Unit, tuple[tuple[int, Causes, Causes, Causes], ...]]] = set()
        while queue:
            caller, frame = queue.pop(0)
            for part in parts(self.traces.of(caller)):
                if not isinstance(part, Call):
                    continue
                target = self._passing(part.target, frame)
                if target is None:
                    continue
                key = (target.unit, tuple((i, v.v, v.n, v.p) for i, v in target.bindings if v.v or v.n or v.p))
                if key not in seen:
                    seen.add(key)
                    inner = Frame(target.unit, target, None, RETURN, -1)
                    yield target.unit, inner, False
                    queue.append((target.unit, inner))

    def entry(self, unit: Unit) -> Frame:
        """A unit by itself, with nothing known of its callers but what is likely."""
        if unit not in self._entries:
            self._entries[unit] = Frame(unit, self._assumed(unit), None, RETURN, -1)
        return self._entries[unit]

    def _assumed(self, unit: Unit) -> Target:
        """What is assumed of parameters that no known call fills: names say what is likely, never what is certain."""
        bindings = []
        parameters = self.flow.parameters
        for position in range(len(unit.code.params)):
            if position == 0 and unit.has_receiver:
                continue
            passed: Val = self.flow.solver.settled(("argument", unit, position))
            told = passed is BOTTOM or passed is UNKNOWN or parameters.is_batch(unit, position)
            value = parameters.assumed(unit, position) if told else Val()
            bindings.append((position, value))
        return Target(unit, tuple(bindings))

    def _passing(self, target: Target, frame: Frame) -> Target | None:
        """A call whose arguments vary between ranks, where the callee's branches depend on them."""
        wanted = self._deciding(target.unit)
        bindings = []
        for position, value in target.bindings:
            if position not in wanted:
                continue
            here = frame.value(value, self.flow)
            here = Val(v=varying(here.v), n=varying(here.n), p=varying(here.p), objs=here.objs)
            if here.v or here.n or here.p:
                bindings.append((position, here))
        if not bindings:
            return None
        rest = [(i, Val()) for i, _ in enumerate(target.unit.code.params) if i not in dict(bindings)]
        return Target(target.unit, tuple(sorted([*bindings, *rest], key=lambda r: r[0])))

    def _deciding(self, unit: Unit) -> frozenset[int]:
        """The parameters on which branches of a unit, or of units that it calls, depend."""
        return self._parameters.get(unit, frozenset())

    @cached_property
    def _parameters(self) -> dict[Unit, frozenset[int]]:
        known: dict[Unit, frozenset[int]] = {}
        callers: dict[Unit, set[Unit]] = {}
        calls: dict[Unit, list[Target]] = {}
        for unit in self.traces.effectful:
            positions = {
                c.position for fork, _ in self.traces.tracer(unit).forks for c in fork.causes if c.kind == "param"
            }
            positions |= {c.position for r in self.traces.tracer(unit).choices for c in r.causes if c.kind == "param"}
            positions |= {c.position for r in self.traces.tracer(unit).repeats for c in r.causes if c.kind == "param"}
            known[unit] = frozenset(positions)
            calls[unit] = [p.target for p in parts(self.traces.of(unit)) if isinstance(p, Call)]
            for target in calls[unit]:
                callers.setdefault(target.unit, set()).add(unit)
        queue = list(known)
        while queue:
            unit = queue.pop()
            more = set(known[unit])
            for target in calls[unit]:
                for position, value in target.bindings:
                    if position in known.get(target.unit, ()):
                        more |= {c.position for c in value.v | value.n | value.p if c.kind == "param"}
            if more != known[unit]:
                known[unit] = frozenset(more)
                queue += callers.get(unit, ())
        return known

    # -- branches and loops --------------------------------------------------------------------------------

    def _of(self, unit: Unit, frame: Frame, first: bool) -> Iterator[Divergence]:
        tracer = self.traces.tracer(unit)
        if self._is_of_some(unit):
            return
        around = {r.header: _around(unit, r) for r in tracer.repeats}
        balanced: set[int] = set()
        place = {id(fork): i for i, (fork, _) in enumerate(tracer.forks)}
        for fork, loop in sorted(
            tracer.forks, key=lambda row: (row[0].about.at if row[0].about else (0,), place[id(row[0])])
        ):
            causes = varying(frame.causes(fork.causes, self.flow))
            if first and fork.about is not None and not self._is_known(fork, frame):
                causes |= reduced(self.flow, unit).tested(unit.code.blocks[fork.block].end[1])
            if not causes or id(fork) in balanced or self._is_alone(unit, fork.block):
                continue
            if not first and not any(c.kind == "param" for c in fork.causes):
                continue  # judged already: it does not depend on what is passed
            if all(c.kind == "data" for c in causes) and is_drawn_alike(self._test(unit, fork)):
                continue
            found = self._branch(unit, fork, loop, around.get(loop), causes, frame)
            if found is not None:
                yield found
            # the leader goes first (`if rank != 0: barrier … if rank == 0: barrier`): one half alone proves nothing
            balanced |= {id(part) for part in self._settled(unit, fork, causes, frame)}
        for choice in tracer.choices:
            causes = varying(frame.causes(choice.causes, self.flow))
            if causes and (first or any(c.kind == "param" for c in choice.causes)):
                yield from self._choice(unit, choice, causes, frame)
        for repeat in tracer.repeats:
            causes = varying(frame.causes(repeat.causes, self.flow))
            if causes and (first or any(c.kind == "param" for c in repeat.causes)):
                yield from self._loop(unit, repeat, causes, frame)
            elif first and (grown := self._grown(unit, repeat)) is not None:
                found_in = self._loop(unit, repeat, grown.causes, frame)
                yield from (found._replace(asks=True, grown=grown.place) for found in found_in)

    def _decorated(self, unit: Unit, frame: Frame) -> Iterator[Divergence]:
        """What a function does among ranks that a decorator lets some ranks alone run."""
        some = runs_on_some(self.project.analysis(Queries), unit)
        if some is not None and (op := self._alone(unit, frame)) is not None:
            at, text = some.decorator.value.at, f"@{some.text}"
            yield Divergence(unit, at, text, _OF_RANK, op, RETURN, "then", False, not some.sure, 0, True)

    def _sent_to_one(self, unit: Unit, frame: Frame) -> Iterator[Divergence]:
        """What a method does among ranks that one of a group of actors runs alone."""
        place = sent_to_one(self.project.analysis(Queries), unit) if unit in self.traces.effectful else None
        if place is not None and (op := self._alone(unit, frame)) is not None:
            yield Divergence(place.unit, place.value.at, place.text, _OF_RANK, op, RETURN, "then", False, True, 0, True)

    def _alone(self, unit: Unit, frame: Frame) -> Issued | None:
        """What a unit issues that some ranks alone run, and in which nothing says that the others meet them."""
        if self._is_of_some(unit) or unit.named.keys() & _SETTING_UP:
            return None
        traces = (self.traces.of(unit), frame), (RETURN, frame)
        found = Comparison(self.traces, _OF_RANK, None, frame).differ(*traces, {}, {})
        if found is None or not isinstance(found[0], Issued) or self._is_met_apart(found[0]):
            return None
        return found[0]

    def _is_met_apart(self, op: Issued) -> bool:
        """Whether other calls of a collective stand under tests of the rank: the others may come to it there."""
        calls = self.project.analysis(Queries).named(op.name)
        return any(only(call.under, "rank", "member") for call in calls if call.at != op.at)

    def _test(self, unit: Unit, fork: Fork) -> Place:
        """The condition of a branch."""
        return Place(self.flow, unit, unit.code.blocks[fork.block].end[1])

    def _grown(self, unit: Unit, repeat: Repeat) -> Grown | None:
        """What some ranks alone put into what a loop goes through."""
        iterator = unit.code.loops[repeat.header].iterator
        return self.uneven.behind(Place(self.flow, unit, iterator)) if iterator >= 0 else None

    def _is_of_some(self, unit: Unit) -> bool:
        """Whether all calls of a unit stand under tests of the rank: what ranks do apart shows where they part."""
        return bool(only(varying(self.flow.solver.settled(("under", unit)).v), "rank"))

    def _is_alone(self, unit: Unit, block: int) -> bool:
        """Whether a branch stands where there is one rank only: `if world_size == 1:`, `if rank == 0:`."""
        for branch, way in unit.control.settled(block):
            end = unit.code.blocks[branch].end
            test = Place(self.flow, unit, end[1]).origin
            if test.value.op == "compare" and _leaves_one(test, way == end[2]) or tells_one(test) is (way == end[2]):
                return True
        return False

    def _is_known(self, fork: Fork, frame: Frame) -> bool:
        """Whether a condition is known to be the same on all ranks."""
        return UNIFORM in frame.causes(fork.causes, self.flow)

    def _branch(
        self, unit: Unit, fork: Fork, loop: int, around: Around | None, causes: Causes, frame: Frame
    ) -> Divergence | None:
        shared = self._assumptions(unit, fork.block, frame)
        lasting = {key: holds for key, holds in shared.items() if not _made_in_loop(unit, key)}
        comparison = Comparison(self.traces, causes, around, frame, lasting=lasting)
        yes, no = self._ways(unit, fork, causes, frame)
        found = comparison.differ((fork.yes, frame), (fork.no, frame), yes, no)
        if found is None or fork.about is None:
            return None
        left, right = found
        about = fork.about
        test = unit.text(about.test)
        conditional = bool(comparison.chosen) and not self._differ_always(fork, frame, causes, around, lasting, yes, no)
        mine, other, trace = (left, right, fork.yes) if isinstance(left, Issued) else (right, left, fork.no)
        assert isinstance(mine, Issued)
        if other is NEXT and self._is_delayed(unit, fork, loop, trace is fork.no, comparison, mine):
            return None
        op = self._inside(mine, trace, frame, about.at)
        exits = about.leaves and not about.at[0] <= op.here[0] <= about.at[2]
        arm = "then" if mine is left else "else"
        asks = self._asks(unit, unit.code.blocks[fork.block].end[1], causes)
        next_round = isinstance(other, End) and other.kind == "next"
        steps = _steps_of(unit, fork.block, self.flow)
        if any(is_evened(unit, step) for step in steps):
            return None  # as many rounds on all ranks
        turns = next_round and _takes_turns(unit, fork.block, self.flow) or bool(steps)
        lacks = comes_where_it_lacks(self.flow, unit, fork.block)
        return Divergence(
            unit, about.at, test, causes, op, other, arm, exits, conditional, fork.block, asks, turns, lacks=lacks
        )

    def _differ_always(
        self, fork: Fork, frame: Frame, causes: Causes, around: Around | None, lasting: Assumed, yes: Assumed,
        no: Assumed,
    ) -> bool:  # fmt: skip
        """Whether the two ways of a branch differ whatever the conditions that the ranks share."""
        comparison = Comparison(self.traces, causes, around, frame, every=True, lasting=lasting)
        return comparison.differ((fork.yes, frame), (fork.no, frame), yes, no) is not None

    def _is_delayed(
        self, unit: Unit, fork: Fork, loop: int, skips_if_true: bool, comparison: Comparison, op: Issued
    ) -> bool:
        """Whether who skips a collective in a round of a loop only comes to it later: what the loop tests has not
        changed then, so there is a next round, and each round that changes it leads through the collective."""
        block, header = unit.code.blocks[fork.block].end, unit.code.blocks[loop].end if loop >= 0 else ()
        if header[:1] != ("branch",) or not tests_again(unit, loop, fork.block, block[2 if skips_if_true else 3]):
            return False
        key, positive = self.traces.keys(unit).test(header[1])
        goes_on = header[2] == unit.code.loops[loop].body
        return comparison.comes_again(op, {}, assume({}, key, positive is goes_on))

    def _ways(self, unit: Unit, fork: Fork, causes: Causes, frame: Frame) -> tuple[Assumed, Assumed]:
        """What holds on either way out of a branch."""
        shared = self._assumptions(unit, fork.block, frame)
        key = frame.key(fork.key, self.traces)
        for part, holds, varies in fork.common:
            if not varying(frame.causes(varies, self.flow)):  # it holds on no rank or on all: on both ways
                shared = assume(shared, frame.key(part, self.traces), holds)
        if key[0] == "compare" and any(c.kind == "rank" for c in causes):
            shared = assume(shared, ("compare", "Lt", key[2], ("const", "int", 0)), False)  # no rank is less than 0
        return assume(shared, key, fork.positive), assume(shared, key, not fork.positive)

    def _settled(self, unit: Unit, fork: Fork, causes: Causes, frame: Frame) -> Iterator[Fork]:
        """The branches behind one that went either way with it: they ask for the same, or for another number of the
        same value that both its ways decide."""
        for part in parts(fork):
            if not isinstance(part, Fork) or part is fork or not same(part.key, fork.key):
                continue
            key = frame.key(part.key, self.traces)
            if part.key == fork.key or None not in (holding(key, way) for way in self._ways(unit, fork, causes, frame)):
                yield part

    def _asks(self, unit: Unit, number: int, causes: Causes) -> bool:
        """Whether what is written at a branch tells ranks apart, and not only what may come there from elsewhere."""
        place = Place(self.flow, unit, number)
        if all(c.kind == "data" for c in causes):
            own = any(c.axis == REDUCED for c in causes) or reads_data(place)
            return own or bool(raced(self.traces, unit, number))
        return asks_for_rank(place)

    def _choice(self, unit: Unit, choice: Choice, causes: Causes, frame: Frame) -> Iterator[Divergence]:
        """Ranks that call different functions, which do not issue the same collectives."""
        value = unit.code.values[choice.site]
        test = unit.text(unit.code.values[value.args[0]].at) if value.args else unit.text(value.at)
        for one, two in combinations(choice.ways, 2):
            found = Comparison(self.traces, causes, None, frame).differ((one, frame), (two, frame), {}, {})
            if found is not None:
                mine, other = found if isinstance(found[0], Issued) else (found[1], found[0])
                assert isinstance(mine, Issued)
                asks = self._asks(unit, value.args[0] if value.args else choice.site, causes)
                yield Divergence(unit, value.at, test, causes, mine, other, "then", False, False, value.block, asks)
                return

    def _assumptions(self, unit: Unit, block: int, frame: Frame) -> dict[Key, bool]:
        """What holds where a branch stands: the conditions of the branches that lead to it in one way only."""
        keys = self.traces.keys(unit)
        found: dict[Key, bool] = {}
        for branch, way in unit.control.settled(block):
            end = unit.code.blocks[branch].end
            key, positive = keys.test(end[1])
            found |= assume({}, frame.key(key, self.traces), positive is (way == end[2]))
        return found

    def _inside(self, op: Issued, trace: Trace, frame: Frame, at: RawAt) -> Issued:
        """The same operation within the branch, where there is one: of two alike the one that the others lack."""
        if at[0] <= op.here[0] <= at[2]:
            return op
        while isinstance(trace, Op):
            issued = self.traces.issued(trace, frame)
            if not at[0] <= issued.here[0] <= at[2]:
                break
            if (issued.name, issued.group) == (op.name, op.group):
                return issued
            trace = trace.rest
        return op

    def _loop(self, unit: Unit, repeat: Repeat, causes: Causes, frame: Frame) -> Iterator[Divergence]:
        """A loop whose number of rounds differs between ranks, with a collective in each round."""
        trace = repeat.body
        comparison = Comparison(self.traces, causes, None, frame, every=True)
        op = comparison.first((trace, frame))
        if op is not None and not op.once and sees(op, causes):
            loop = unit.code.loops[repeat.header]
            counted = Place(self.flow, unit, loop.iterator)
            value = unit.code.values[loop.iterator]
            tests = choosing(counted)
            chosen = next((test for test in tests if self._asks(test.unit, test.number, causes)), None)
            asks = chosen is not None or self._asks(unit, loop.iterator, causes)
            yield Divergence(
                unit, loop.at, unit.text(value.at), causes, op, RETURN, "loop", False, False, repeat.header, asks,
                chosen=chosen,
            )  # fmt: skip


def _around(unit: Unit, repeat: Repeat) -> Around:
    uncounted = unit.code.loops[repeat.header].iterator < 0
    return Around(repeat.body, repeat.rest, _is_endless(unit, repeat), uncounted)


def _is_endless(unit: Unit, repeat: Repeat) -> bool:
    """Whether a loop is left by nothing but an exception."""
    loop = unit.code.loops[repeat.header]
    return loop.after not in unit.code.in_order() and not any(each in (BREAK, RETURN) for each in parts(repeat.body))


def _leaves_one(test: Place, holds: bool) -> bool:
    """Whether one rank of the job is left where a comparison of ranks holds, or does not."""
    if test.value.data != ("Eq" if holds else "NotEq") or not isinstance(test.operand(1).val.constant(), int):
        return False
    rank = test.operand(0).val
    job = all(c.axis == WORLD for c in only(rank.v, "rank"))  # what a helper gives that may be asked of a group, too
    ranks = rank.of("ordinal")
    return bool(ranks) and job and all(o in ranks or o[:2] == ("const", "int") for o in rank.each)


def _takes_turns(unit: Unit, block: int, flow: Flow) -> bool:
    """Whether a branch leaves each rank the rounds of a loop whose numbers have a remainder of its own: `if i % world
    == rank`."""
    test = Place(flow, unit, unit.code.blocks[block].end[1]).origin
    if test.value.op != "compare" or test.value.data not in ("Eq", "NotEq"):
        return False
    sides = [test.operand(i).root for i in (0, 1)]
    for side, other in (sides, sides[::-1]):
        divided = side.value.op == "binary" and side.value.data == "Mod" and bool(only(other.likely.v, "rank"))
        if divided and any(part.value.op == "next" for part in side.operand(0).parts):
            return True
    return False


def _steps_of(unit: Unit, block: int, flow: Flow) -> list[int]:
    """By what each round of a loop makes a number larger, or smaller, as long as it is within a bound: from places of
    their own ranks may make as many rounds."""
    test = Place(flow, unit, unit.code.blocks[block].end[1]).root
    found: list[int] = []
    for side in (test.operand(0).root, test.operand(1).root) if test.value.op == "compare" else ():
        grown = [side.value_at(n).root for n in side.value.args if n >= 0] if side.value.op == "phi" else []
        sums = (each for each in grown if each.value.op == "binary" and each.value.data in ("Add", "Sub"))
        found += [step for each in sums for step in each.value.args if unit.root(step) != side.number]
    return found if block in unit.code.loops else []


def _made_in_loop(unit: Unit, key: Key) -> bool:
    """Whether a condition is about something that a loop of the unit makes anew in each round."""
    if key[0] == "value":
        return key[2] != unit.code.key or unit.code.blocks[unit.code.values[key[3]].block].loop >= 0
    return key[0] in ("attr", "passed") or any(
        _made_in_loop(unit, part) for part in key if isinstance(part, tuple) and part
    )


__all__ = ["BREAK", "NEXT", "Cause", "Divergence", "Divergences", "Report", "only", "report"]
