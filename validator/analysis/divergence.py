"""Where ranks of one group part: the branches whose arms issue different sequences of collectives.

Two arms are compared step by step under the assumption that makes the ranks disagree. An operation counts only
when its group holds ranks that take different arms: always for the world, and for a named dimension when that
dimension is what the test is about. Membership tests (`rank in ranks`), stage guards with operations on the stage's
own sub-groups, and groups joined with inference engines are therefore silent.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.agreement import Agreement
from validator.analysis.collectives import WORLD, dimension
from validator.analysis.conditions import CONTENTS, MEMBERS, Taint
from validator.analysis.effects import Effects, Loop, Tracer
from validator.analysis.traces import BREAK, NEXT, RAISE, RETURN, End, Fork, Op, Repeat, Step, Trace
from validator.facts.control import terminates
from validator.facts.model import At
from validator.finding import Related
from validator.project import Method, Project

_BUDGET = 400  # comparisons of one pair of arms before it is given up as undecided (silent)
_FAR = 2  # calls between a branch and a collective beyond which every condition on the way must be decided
_LEADERS = re.compile(r"rank_?0|rank_?zero|leader|master|root|head_group")


class Divergence(NamedTuple):
    """Ranks of one group that part. `op` is reached by one side only; `other` is what the others do instead."""

    function: Method
    node: ast.AST  # the branch, or the loop
    taint: Taint
    op: Op
    other: Op | End
    arm: str  # "then" or "else": the side that reaches `op`; "loop" for a count that differs
    exits: bool  # whether the other side leaves by return, continue or break


class Report(NamedTuple):
    """A divergence in words, at the place where a reader will look for it."""

    path: str
    at: At
    message: str
    related: tuple[Related, ...]
    context: str
    found: Divergence


_LEAVING = {"return": "the others return", "next": "the others skip it", "break": "the others leave the loop"}


def report(found: Divergence) -> Report:
    """What a finding says of a divergence.

    An early exit is reported at its `if`; anything else at the collective that waits, which is where the job hangs.
    """
    function, op, node = found.function, found.op, found.node
    line = node.lineno  # type: ignore[attr-defined]
    test = f"`{found.taint.why}`"
    apart = f"their own {test} (not reduced over ranks)" if found.taint.group == CONTENTS else test
    through = f" through `{'` → `'.join(op.via)}`" if op.via else ""
    group = f" on `{op.group}`" if op.group else ""
    where = f"in `{function.qualname}`" if function.qualname != "<module>" else "at module level"
    if found.arm == "loop":
        others = "the others have left the loop"
    elif isinstance(found.other, Op):
        other_group = f" on `{found.other.group}`" if found.other.group else ""
        others = f"the others go on to `{found.other.name}`{other_group}"
    elif found.exits or found.other.kind in ("break", "next"):
        others = _LEAVING[found.other.kind]
    else:
        others = "the others never call it"
    some = f"{where} only some ranks, told apart by {apart}, get there{through}"
    message = f"not every rank reaches `{op.name}`{group}: {some}; {others}"
    related = [Related(function.path, line, f"the ranks part here, on {test}")]
    if op.via:
        related.append(Related(function.path, op.here[0], f"`{op.via[0]}` is called here"))
        related.append(Related(op.path, op.at[0], f"and reaches `{op.name}` here"))
    else:
        related.append(Related(op.path, op.at[0], f"`{op.name}` is called here"))
    if isinstance(found.other, Op):
        related.append(Related(found.other.path, found.other.at[0], f"the others wait in `{found.other.name}` here"))
    if found.exits:
        place, path = (line, node.col_offset + 1, line, node.col_offset + 3), function.path  # type: ignore[attr-defined]
    else:
        place, path = op.at, op.path
    context = f"{function.qualname}:{op.name}:{op.group}:{found.taint.why}"
    return Report(path, place, message, tuple(related), context, found)


def reports(project: Project, kind: str) -> Iterator[Report]:
    """The divergences of one kind (`rank`, `local`), one for each collective that is not reached."""
    seen: set[tuple[str, At]] = set()
    for found in project.analysis(Divergences).all:
        if found.taint.kind == kind:
            row = report(found)
            if (row.path, row.at) not in seen:
                seen.add((row.path, row.at))
                yield row


class Divergences:
    """All divergences of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.effects = project.analysis(Effects)

    @cached_property
    def all(self) -> tuple[Divergence, ...]:
        found: list[Divergence] = []
        for function in self.effects.effectful():
            if function.name != "<class>":
                found += self.of(function)
        return tuple(found)

    def of(self, function: Method) -> Iterator[Divergence]:
        """The divergences at the branches and loops of one function."""
        node = function.node
        if node is None:
            return
        tracer = Tracer(self.effects, function)
        tracer.block(node.body, RETURN)
        balanced: set[int] = set()
        for place, fork, loop in sorted(tracer.forks, key=lambda row: row[0].lineno):  # type: ignore[attr-defined]
            if fork.condition.taint is None or id(fork) in balanced:
                continue
            divergence = self._branch(function, place, fork, loop)
            if divergence is not None:
                yield divergence
            else:
                # the leader goes first (`if rank != 0: barrier … if rank == 0: barrier`): one half alone proves nothing
                balanced.update(_same_tests(fork))
        for place, repeat in tracer.loops:
            yield from self._loop(function, place, repeat)

    # -- branches ------------------------------------------------------------------------------------------

    def _branch(self, function: Method, node: ast.AST, fork: Fork, loop: Loop | None) -> Divergence | None:
        condition, taint = fork.condition, fork.condition.taint
        assert taint is not None
        comparison = _Comparison(taint, loop)
        shared = dict(condition.assume)
        yes = {**shared, condition.text: condition.positive}
        no = {**shared, condition.text: not condition.positive}
        found = comparison.differ(fork.yes, fork.no, yes, no)
        if found is None:
            return None
        left, right = found
        op = left if isinstance(left, Op) else right
        far = isinstance(op, Op) and bool(comparison.chosen) and len(op.via) > _FAR
        if far and _Comparison(taint, loop, every=True).differ(fork.yes, fork.no, yes, no) is None:
            return None  # far away and only under some configuration: more likely our ignorance than a defect
        together = condition.assume, {**comparison.chosen, **comparison.given}.items()
        if all(together) and self.project.analysis(Agreement).excludes(function, *together):
            return None
        if isinstance(left, Op):
            return Divergence(function, node, taint, _inside(left, fork.yes, node), right, "then", False)
        assert isinstance(right, Op)
        right = _inside(right, fork.no, node)
        exits = isinstance(node, ast.If) and not node.orelse and terminates(node.body)
        return Divergence(function, node, taint, right, left, "else", exits)

    def _loop(self, function: Method, node: ast.AST, repeat: Repeat) -> Iterator[Divergence]:
        """A loop whose number of rounds differs between ranks, with a collective in each round."""
        taint = self.effects.taints.lengths.rounds(node, function)
        if taint is None:
            return
        op = next((o for o in _certain(repeat.body) if sees(o, taint)), None)
        if op is not None:
            yield Divergence(function, node, taint, op, RETURN, "loop", False)


def _inside(op: Op, trace: Trace, node: ast.AST) -> Op:
    """The same operation within the branch, where there is one: of two alike the one that the others lack."""
    first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    if first <= op.here[0] <= last:
        return op
    while isinstance(trace, Step) and first <= trace.op.here[0] <= last:
        if (trace.op.name, trace.op.group) == (op.name, op.group):
            return trace.op
        trace = trace.rest
    return op


def _same_tests(fork: Fork) -> Iterator[int]:
    """The later forks on the same condition, as identities."""
    stack: list[Trace] = [fork.yes, fork.no]
    seen: set[int] = set()
    while stack:
        trace = stack.pop()
        if isinstance(trace, End) or id(trace) in seen:
            continue
        seen.add(id(trace))
        if isinstance(trace, Fork):
            if trace.condition.text == fork.condition.text:
                yield id(trace)
            stack += [trace.yes, trace.no]
        else:
            stack += [trace.rest, trace.body] if isinstance(trace, Repeat) else [trace.rest]


def _certain(trace: Trace) -> Iterator[Op]:
    while isinstance(trace, Step | Repeat):
        if isinstance(trace, Step):
            yield trace.op
        trace = trace.rest


def sees(op: Op, taint: Taint) -> bool:
    """Whether the group of a collective holds ranks that the test tells apart."""
    if op.group == WORLD or op.whole:
        return True
    if taint.group == MEMBERS:
        return False  # a group of its own, made of the ranks that pass the test
    if _LEADERS.search(op.group):
        return False  # a group of leaders: its members pass the test alike
    if taint.group and op.group == taint.group:
        return True
    own = dimension(op.group)
    if taint.kind == "local":
        return own in ("", taint.dim) if taint.dim else own in ("dp", "tp", "cp")
    return bool(own) and own == taint.dim if taint.dim else bool(own)


Assumed = dict[str, bool]
Difference = tuple[Op | End, Op | End]


class _Comparison:
    """Compares two traces under assumptions; remembers how much work it has done.

    `every`: whether the traces must differ whatever the conditions that the ranks share.
    """

    def __init__(self, taint: Taint, loop: Loop | None, every: bool = False) -> None:
        self.taint = taint
        self.loop = loop
        self.every = every
        self.budget = _BUDGET
        self.given: Assumed = {}  # variables that counted as not None on the way
        self.chosen: Assumed = {}  # the shared conditions that had to take one value for the traces to differ

    def differ(self, a: Trace, b: Trace, if_a: Assumed, if_b: Assumed) -> Difference | None:
        """The first pair in which the traces differ, one of them an Op; None where they agree or it cannot be told.

        `if_a`, `if_b`: what is known of conditions for the ranks on either side.
        """
        while True:
            self.budget -= 1
            if self.budget < 0:
                return None
            a, b = self._next(a, if_a), self._next(b, if_b)
            if (a is b and if_a == if_b) or a is RAISE or b is RAISE:
                return None  # a rank that raises ends the job with a message; that is no silent hang
            if isinstance(a, Fork):
                return self._split(a, b, if_a, if_b)
            if isinstance(b, Fork):
                found = self._split(b, a, if_b, if_a)
                return found and (found[1], found[0])
            if isinstance(a, End) and isinstance(b, End):
                return self._ends(a, b)
            if isinstance(a, End) or isinstance(b, End):
                return self._against_end(a, b, if_b if isinstance(a, End) else if_a)
            if isinstance(a, Repeat) or isinstance(b, Repeat):
                if not (isinstance(a, Repeat) and isinstance(b, Repeat)):
                    return self._against_loop(a, b, if_a, if_b)
                found = self.differ(a.body, b.body, if_a, if_b)
                if found is not None:
                    return found
                a, b = a.rest, b.rest
                continue
            if (a.op.name, a.op.group) != (b.op.name, b.op.group):
                return a.op, b.op
            a, b = a.rest, b.rest

    def _next(self, trace: Trace, assumed: Assumed) -> Trace:
        """The next part of a trace that matters: unseen operations, empty loops and decided forks are passed over."""
        while True:
            if (
                isinstance(trace, Step)
                and not sees(trace.op, self.taint)
                or isinstance(trace, Repeat)
                and not self._matters(trace.body)
            ):
                trace = trace.rest
            elif isinstance(trace, Fork) and trace.condition.text in assumed:
                trace = trace.yes if assumed[trace.condition.text] == trace.condition.positive else trace.no
            elif isinstance(trace, Fork) and trace.condition.member:
                trace = trace.yes if trace.condition.positive else trace.no
            elif isinstance(trace, Fork) and (likely := trace.likely()) is not None:
                self.given[trace.condition.text] = False
                trace = likely
            else:
                return trace

    def _matters(self, trace: Trace) -> bool:
        return self._first(trace) is not None

    def _split(self, fork: Fork, other: Trace, mine: Assumed, others: Assumed) -> Difference | None:
        """Both values of a condition that the ranks share; of one that they do not share, either way may differ."""
        text, positive = fork.condition.text, fork.condition.positive
        if fork.condition.taint is not None and fork.condition.taint.kind == self.taint.kind:
            # judged where it stands; here any agreement between the sides will do
            first = self.differ(fork.yes, other, {**mine, text: positive}, others)
            return first and self.differ(fork.no, other, {**mine, text: not positive}, others)
        found: Difference | None = None
        for value, arm in ((not positive, fork.no), (positive, fork.yes)):
            found = self.differ(arm, other, {**mine, text: value}, {**others, text: value})
            if found is not None and not self.every:
                self.chosen[text] = value
            if (found is None) is self.every:
                break
        return found

    def _against_end(self, a: Trace, b: Trace, assumed: Assumed) -> Difference | None:
        end, rest = (a, b) if isinstance(a, End) else (b, a)
        assert isinstance(end, End)
        if end is NEXT or end is RETURN or end is BREAK:
            op = self._first(rest, assumed)
            if op is None:
                return None
            return (end, op) if isinstance(a, End) else (op, end)
        return None

    def _against_loop(self, a: Trace, b: Trace, if_a: Assumed, if_b: Assumed) -> Difference | None:
        """A loop against something else: without the loop they must agree, else the loop is what one side lacks."""
        loop, other = (a, b) if isinstance(a, Repeat) else (b, a)
        assert isinstance(loop, Repeat)
        op = self._first(loop.body, if_a if loop is a else if_b)
        if op is None:
            return self.differ(loop.rest, b, if_a, if_b) if loop is a else self.differ(a, loop.rest, if_a, if_b)
        meeting = other.op if isinstance(other, Step) else RETURN
        return (op, meeting) if isinstance(a, Repeat) else (meeting, op)

    def _first(self, trace: Trace, assumed: Assumed | None = None) -> Op | None:
        """The first operation that a trace reaches; one that no optional arm decides about, where there is one.

        Arms are passed over that a rank does not take under what is `assumed` of conditions.
        """
        known = assumed or {}
        while not isinstance(trace, End):
            if isinstance(trace, Step):
                if sees(trace.op, self.taint):
                    return trace.op
                trace = trace.rest
            elif isinstance(trace, Repeat):
                found = self._first(trace.body, known)
                if found is not None:
                    return found
                trace = trace.rest
            elif trace.condition.text in known:
                trace = trace.yes if known[trace.condition.text] == trace.condition.positive else trace.no
            elif (likely := trace.likely()) is not None:
                self.given[trace.condition.text] = False
                trace = likely
            else:
                found = self._first(trace.no, known)
                if self.every:
                    return found and self._first(trace.yes, known)
                if found is None:
                    found = self._first(trace.yes, known)
                    if found is not None:
                        self.chosen[trace.condition.text] = trace.condition.positive
                return found
        return None

    def _ends(self, a: End, b: End) -> Difference | None:
        """Leaving a loop on some ranks while the others go round again."""
        if a is b or self.loop is None:
            return None
        again = next((op for op in self.loop.repeats if sees(op, self.taint)), None)
        if again is not None and NEXT in (a, b):
            return (again, b) if a is NEXT else (a, again)
        if RETURN in (a, b):
            later = self._first(self.loop.after)
            if later is not None:
                return (later, b) if b is RETURN else (a, later)
        return None
