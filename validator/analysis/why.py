"""What the analysis knows of one line: its collectives, the conditions around it, and the verdict on each branch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.conditions import Condition
from validator.analysis.divergence import Divergences, report
from validator.analysis.effects import Effects, Tracer
from validator.analysis.traces import RETURN, End, Fork, Op, Repeat, Step, Trace
from validator.project import Method, Project

_SHOWN = 8  # collectives listed of one way


def why(project: Project, path: str, line: int) -> list[str]:
    """Lines of plain text about a line of a file. Raises LookupError where the project has no such place."""
    module = next((m for m in project.modules.values() if m.path == path), None)
    if module is None:
        raise LookupError(f"{path} is not among the files that were read")
    if line > module.facts.lines:
        raise LookupError(f"{path} has {module.facts.lines} lines")
    inside = [f for f in module.functions.values() if f.facts.at[0] <= line <= f.facts.at[2] and f.name != "<class>"]
    function = min(inside, key=lambda f: f.facts.at[2] - f.facts.at[0])
    return [
        f"{path}:{line} in {function.qualname}",
        *_calls(project, function, line),
        *_conditions(project, function, line),
        *_verdicts(project, function, line),
    ]


def _calls(project: Project, function: Method, line: int) -> Iterator[str]:
    effects = project.analysis(Effects)
    for call in function.facts.calls:
        if call.at[0] <= line <= call.at[2]:
            targets = project.types.targets(function, call)
            meant = (
                ", ".join(f"{t.module.name}.{t.qualname}" for t in targets)
                or project.dotted(function, call.target)
                or "not resolved"
            )
            yield f"  call {call.target}: {meant}"
            for op in effects.possible(function, call)[:_SHOWN]:
                yield f"    may issue {_op(op)}"


def _conditions(project: Project, function: Method, line: int) -> Iterator[str]:
    effects = project.analysis(Effects)
    node = function.node
    for branch in ast.walk(node) if node is not None else ():
        if isinstance(branch, ast.If | ast.While | ast.IfExp) and branch.lineno <= line <= (
            branch.end_lineno or branch.lineno
        ):
            yield f"  condition at line {branch.lineno}: {_taint(effects.taints.condition(branch.test, function))}"


def _taint(condition: Condition) -> str:
    text = condition.text if condition.positive else f"not ({condition.text})"
    if condition.taint is None:
        return f"`{text}` — the same on all ranks"
    if condition.member:
        return f"`{text}` — tests whether the rank is among some ranks; matters to the default group alone"
    dim = f" along {condition.taint.dim}" if condition.taint.dim else ""
    source = "which rank this is" if condition.taint.kind == "rank" else "data of each rank"
    assumed = "".join(f"; matters where `{t}` is {v}" for t, v in condition.assume)
    return f"`{text}` — differs between ranks{dim}: tests {source} (`{condition.taint.why}`){assumed}"


def _verdicts(project: Project, function: Method, line: int) -> Iterator[str]:
    """For every branch around or at the line: the collectives of both ways, and what was made of them."""
    effects = project.analysis(Effects)
    node = function.node
    if node is None:
        return
    found = {id(d.node): d for d in project.analysis(Divergences).of(function)}
    reported = {(d.node.lineno): d for d in found.values()}  # type: ignore[attr-defined]
    tracer = Tracer(effects, function)
    tracer.block(node.body, RETURN)
    for place, fork, _ in tracer.forks:
        first, last = place.lineno, place.end_lineno  # type: ignore[attr-defined]
        if first <= line <= last:
            yield f"  branch at line {first}:"
            yield f"    if it holds: {_way(fork.yes)}"
            yield f"    if not:      {_way(fork.no)}"
            divergence = reported.get(first)
            if divergence is not None:
                yield f"    reported: {report(divergence).message}"
            elif fork.condition.taint is None:
                yield "    silent: all ranks take the same way"
            else:
                yield "    silent: no group with ranks on both ways sees a difference"


def _op(op: Op) -> str:
    group = f" on {op.group}" if op.group else " on the default group"
    through = f" through {' → '.join(op.via)}" if op.via else ""
    return f"{op.name}{group} ({op.path}:{op.at[0]}){through}"


def _way(trace: Trace) -> str:
    """The collectives of a way to the end of the function, optional parts in brackets."""
    parts: list[str] = []
    while not isinstance(trace, End) and len(parts) < _SHOWN:
        if isinstance(trace, Step):
            parts.append(f"{trace.op.name}({trace.op.group}):{trace.op.at[0]}")
            trace = trace.rest
        elif isinstance(trace, Repeat):
            parts.append(f"loop of {_way(trace.body)}")
            trace = trace.rest
        else:
            assert isinstance(trace, Fork)
            parts.append(f"[{trace.condition.text}? …]")
            trace = trace.no
    return (
        ", ".join(parts)
        + ("" if parts else "no collective")
        + (f", then {trace.kind}" if isinstance(trace, End) else ", …")
    )
