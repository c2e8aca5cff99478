"""What the analysis knows of one line: its collectives, the conditions around it, and the verdict on each branch."""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import UNKNOWN as UNKNOWN_AXIS
from validator.domains.axes import WORLD
from validator.domains.spmd import UNIFORM, Causes, varying
from validator.effects.divergence import Divergence, Divergences, report
from validator.effects.trace import (
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
from validator.flow.merging.conditions import truth_of
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.values import UNKNOWN, Obj
from validator.project import Project

_SHOWN = 8  # collectives listed of one way


def why(project: Project, path: str, line: int) -> list[str]:
    """Lines of plain text about a line of a file. Raises LookupError where the project has no such place."""
    module = next((m for m in project.modules.values() if m.path == path), None)
    if module is None:
        raise LookupError(f"{path} is not among the files that were read")
    if line > module.facts.lines:
        raise LookupError(f"{path} has {module.facts.lines} lines")
    flow = project.analysis(Flow)
    units = [u for u in flow.units_of(module).values() if u.code.kind in ("function", "module")]
    inside = [u for u in units if u.code.kind == "module" or u.code.at[0] <= line <= u.code.at[2]]
    if not inside:
        return [f"{path}:{line} could not be read as a function"]
    unit = max(inside, key=lambda u: (u.code.kind == "function", u.code.at[0]))
    name, unit = unit.qualname, flow.standing(unit)
    divergences = project.analysis(Divergences)
    return [
        f"{path}:{line} in {name}",
        *_calls(divergences.traces, unit, line),
        *_conditions(divergences, unit, line),
        *_verdicts(divergences, unit, line),
    ]


def _calls(traces: Traces, unit: Unit, line: int) -> Iterator[str]:
    result = traces.flow.result(unit)
    frame = Frame(unit, None, None, RETURN, -1)
    sites = {part.site: part for part in parts(traces.of(unit)) if isinstance(part, Op | Call)}
    for number, value in enumerate(unit.code.values):
        if value.op not in ("call", "part") or not value.at[0] <= line <= value.at[2]:
            continue
        callee = unit.code.values[value.args[0]]
        meant = sorted({_name(o) for o in result.vals[value.args[0]].each} - {""})
        yield f"  call {unit.text(callee.at)}: {', '.join(meant) or 'not resolved'}"
        issued = list(_issued(traces, sites.get(number), frame))
        for op in issued[:_SHOWN]:
            yield f"    may issue {_op(op)}"


def _name(o: Obj) -> str:
    """What a called object is, in words."""
    if o[0] in ("unit", "bound"):
        return f"{o[1].module.name}.{o[1].qualname}"
    if o[0] in ("ext", "made"):
        return str(o[1])
    if o[0] in ("class", "inst", "self"):
        return f"{o[1].module.name}.{o[1].qualname}"
    return ""


def _issued(traces: Traces, part: Trace | None, frame: Frame) -> Iterator[Issued]:
    """The collectives of one call, in the order in which a reader meets them."""
    if isinstance(part, Op):
        yield traces.issued(part, frame)
    elif isinstance(part, Call) and not frame.enters(part.target.unit):
        inner = traces.frame(frame, part)
        for each in parts(traces.of(part.target.unit)):
            if isinstance(each, Op | Call):
                yield from _issued(traces, each, inner)


def _conditions(divergences: Divergences, unit: Unit, line: int) -> Iterator[str]:
    flow = divergences.flow
    result = flow.result(unit)
    for block, about in sorted(unit.code.tests.items(), key=lambda row: row[1].test):
        if about.at[0] <= line <= about.at[2]:
            test = unit.code.blocks[block].end[1]
            causes = varying(divergences.entry(unit).causes(truth_of(result.vals[test]), flow))
            told = _taint(unit.text(about.test), causes, _is_known(Place(flow, unit, test)))
            yield f"  condition at line {about.test[0]}: {told}"


def _is_known(test: Place) -> bool:
    """Whether a condition that nothing is known to make differ is the same: not what calls give that nobody knows."""
    if UNIFORM in test.closed.v:
        return True
    return not any(part.value.op == "call" and part.closed.objs <= UNKNOWN.objs for part in test.parts)


def _taint(text: str, causes: Causes, is_known: bool) -> str:
    if not causes:
        return f"`{text}` — {'the same on all ranks' if is_known else 'nothing is known by which ranks differ'}"
    if all(c.kind == "member" for c in causes):
        return f"`{text}` — tests whether the rank is among some ranks; matters to the default group alone"
    axes = sorted({c.axis for c in causes} - {WORLD, "", UNKNOWN_AXIS})
    along = f" along {', '.join(axes)}" if axes else ""
    source = "which rank this is" if any(c.kind == "rank" for c in causes) else "data of each rank"
    likely = "" if any(c.sure for c in causes) else " (likely, not certain)"
    return f"`{text}` — differs between ranks{along}: tests {source}{likely}"


def _verdicts(divergences: Divergences, unit: Unit, line: int) -> Iterator[str]:
    """For every branch around or at the line: the collectives of both ways, and what was made of them."""
    traces = divergences.traces
    found: dict[int, Divergence] = {d.block: d for d in divergences.all if d.unit is unit}
    entry = divergences.entry(unit)
    for fork, _ in traces.tracer(unit).forks:
        about = fork.about
        if about is None or not about.at[0] <= line <= about.at[2]:
            continue
        yield f"  branch at line {about.at[0]}, `{unit.text(about.test)}`:"
        yield f"    if it holds: {_way(traces, fork.yes, entry)}"
        yield f"    if not:      {_way(traces, fork.no, entry)}"
        if fork.block in found:
            yield f"    reported: {report(found[fork.block]).message}"
        elif not varying(entry.causes(fork.causes, divergences.flow)):
            known = _is_known(Place(divergences.flow, unit, unit.code.blocks[fork.block].end[1]))
            yield f"    silent: {'all ranks take the same way' if known else 'nothing is known by which ranks differ'}"
        else:
            yield "    silent: no group with ranks on both ways sees a difference"


def _op(op: Issued) -> str:
    group = f" on {op.group}" if op.group else " on the default group"
    through = f" through {' → '.join(op.via)}" if op.via else ""
    return f"{op.name}{group} ({op.path}:{op.at[0]}){through}"


def _way(traces: Traces, trace: Trace, frame: Frame) -> str:
    """The collectives of a way to the end of the function, optional parts in brackets."""
    told: list[str] = []
    while not isinstance(trace, End) and len(told) < _SHOWN:
        if isinstance(trace, Op):
            op = traces.issued(trace, frame)
            told.append(f"{op.name}({op.group}):{op.at[0]}")
            trace = trace.rest
        elif isinstance(trace, Call):
            told.append(f"{trace.target.unit.name}(…)")
            trace = trace.rest
        elif isinstance(trace, Repeat):
            told.append(f"loop of {_way(traces, trace.body, frame)}")
            trace = trace.rest
        elif isinstance(trace, Choice):
            trace = trace.ways[0]
        else:
            assert isinstance(trace, Fork)
            test = frame.unit.text(trace.about.test) if trace.about is not None else "?"
            told.append(f"[{test}? …]")
            trace = trace.no
    ended = f", then {trace.kind}" if isinstance(trace, End) else ", …"
    return (", ".join(told) or "no collective") + ended
