"""Traces: what one rank does from a point to the end of a function, and how a callee's becomes a part of its caller's.

A trace is a shared, immutable graph: `Step(op, rest)`, `Fork(condition, yes, no)`, `Repeat(body, rest)`, or one of the
ends. Arms of a branch share the trace of what follows, so comparing them costs only what differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from validator.analysis.binding import bind
from validator.analysis.collectives import WORLD
from validator.analysis.conditions import Condition
from validator.facts.model import Argument, At, Call
from validator.project import Method

_ROOM = 300  # parts of a callee's trace that are copied into a caller; beyond, the callee counts as silent
_ENDS = 4  # functions named at either end of a long way to a collective


class Op(NamedTuple):
    """One collective that a rank takes part in. `group` is WORLD or the group's text where the trace stands.

    `path`, `at`: where the collective itself is called; `via`: the functions between here and there, `…` for the
    middle of many. `whole`: the group is another name for all ranks of the job.
    """

    name: str
    group: str
    path: str
    at: At
    via: tuple[str, ...]
    here: At  # the call in the function whose trace this is
    whole: bool = False


class Step(NamedTuple):
    op: Op
    rest: Trace


class Fork(NamedTuple):
    condition: Condition
    yes: Trace
    no: Trace

    def likely(self) -> Trace | None:
        """The arm that is taken unless more is known, where there is one: that of a variable that is not None."""
        if not self.condition.given:
            return None
        return self.no if self.condition.positive else self.yes


class Repeat(NamedTuple):
    body: Trace
    rest: Trace


class End(NamedTuple):
    """`return` (also the end of the function), `next` (of an iteration), `break`, `raise`."""

    kind: str


Trace = Step | Fork | Repeat | End
RETURN, NEXT, BREAK, RAISE = End("return"), End("next"), End("break"), End("raise")


class Inlining:
    """Copies the trace of a callee into its caller: returns go on with `after`, groups are read through arguments."""

    def __init__(self, target: Method, call: Call, after: Trace, is_whole: Callable[[str], bool] | None = None) -> None:
        """`is_whole`: whether a group of the caller, given by its path, is all ranks of the job."""
        self.target = target
        self.is_whole = is_whole
        self.call = call
        self.after = after
        self.copies: dict[int, Trace] = {}
        self.room = _ROOM
        self._loops: Inlining | None = None
        self.params = {p.name: p.default for p in target.facts.params}
        self.arguments = bind(target, call)
        self.unpacks = any(a.keyword in ("*", "**") for a in call.args)

    def copy(self, trace: Trace) -> Trace:
        if isinstance(trace, End):
            return self.after if trace is RETURN else trace
        known = self.copies.get(id(trace))
        if known is None:
            self.room -= 1
            known = self.after if self.room < 0 else self._copied(trace)
            self.copies[id(trace)] = known
        return known

    def _copied(self, trace: Step | Fork | Repeat) -> Trace:
        if isinstance(trace, Step):
            return Step(self._seen(trace.op), self.copy(trace.rest))
        if isinstance(trace, Repeat):
            return Repeat(self._of_loops().copy(trace.body), self.copy(trace.rest))
        decided = self._decided(trace.condition)
        if decided is not None:
            return self.copy(trace.yes if decided else trace.no)
        old = trace.condition
        given = self.arguments.get(old.text.removesuffix(" is None")) if old.text.endswith(" is None") else None
        passed = old.given or (given is not None and _is_variable(given))
        condition = old._replace(text=self._text(old.text), given=passed)
        return Fork(condition, self.copy(trace.yes), self.copy(trace.no))

    def _of_loops(self) -> Inlining:
        """What copies the bodies of loops, which go on with nothing: one for all, or loops in loops multiply."""
        if self.after is RETURN:
            return self
        if self._loops is None:
            self._loops = Inlining(self.target, self.call, RETURN, self.is_whole)
        return self._loops

    def _decided(self, condition: Condition) -> bool | None:
        """The value of `param` or `param is None` where the call, or the default, tells it."""
        name = condition.text.removesuffix(" is None")
        if name not in self.params:
            return None
        argument = self.arguments.get(name)
        text = argument.value if argument is not None else self.params[name]
        if name != condition.text:
            if argument is None and self.unpacks:
                return None
            if argument is not None and _is_variable(argument):
                return None  # the caller may know
            return (text == "None") is condition.positive
        if text in ("True", "False", "None") and not (argument is None and self.unpacks):
            return (text == "True") is condition.positive
        return None

    def _text(self, text: str) -> str:
        """A condition of the callee as the caller would write it: the same object, the same condition."""
        name = text.removesuffix(" is None")
        argument = self.arguments.get(name)
        if argument is not None and argument.kind == "path":
            return argument.value + text[len(name) :]
        return (
            text
            if text.startswith("self.") and self.call.receiver in ("self", "super()")
            else f"{self.target.qualname}: {text}"
        )

    def _seen(self, op: Op) -> Op:
        group, whole = op.group, op.whole
        if group != WORLD and group in self.params:
            argument = self.arguments.get(group)
            group = (argument.value if argument is not None else self.params[group]) or group
            group = WORLD if group == "None" else group
            whole = argument is not None and self.is_whole is not None and self.is_whole(group)
        return op._replace(group=group, whole=whole, via=_through(self.target.name, op.via), here=self.call.at)


def _is_variable(argument: Argument) -> bool:
    return argument.kind == "path" and argument.value.isidentifier() and argument.value != "None"


def _through(name: str, via: tuple[str, ...]) -> tuple[str, ...]:
    """The way through one more function. Of a long one both ends are kept: nobody reads a thousand names."""
    return (name, *via) if len(via) <= 2 * _ENDS else (name, *via[: _ENDS - 1], "…", *via[-_ENDS:])
