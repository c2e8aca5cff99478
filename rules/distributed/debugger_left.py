"""A debugger or a question to the terminal left in code that runs on many ranks.

What it does
    Reports `breakpoint()`, `pdb.set_trace()` (also ipdb, pudb, remote and Ray debuggers, `code.interact`,
    `IPython.embed`) in package code, and `input()` in a function that communicates. An error where only some ranks
    stop and a collective follows, otherwise a warning. `torch.distributed.breakpoint` holds the other ranks at a
    barrier and is a note. Silent under a condition that says it serves debugging, and in examples and tests.

Why is this bad
    A stopped rank does not come to the next collective. The others wait for it, in FSDP inside the next forward,
    which gathers a part of every parameter from all ranks, until the time-out of the process group ends the job.
    Without a terminal the debugger raises `BdbQuit` at once.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.breakpoint
    https://docs.ray.io/en/latest/ray-observability/ray-distributed-debugger.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from validator.analysis.collectives import Collective
from validator.analysis.effects import Effects
from validator.analysis.places import is_aside, is_for_debugging
from validator.analysis.rank_guards import RankGuards
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

if TYPE_CHECKING:
    from validator.analysis.conditions import Taint

RULE = Rule(
    "MP520",
    "debugger-left",
    "warning",
    "0.1.0",
    tokens=("breakpoint", "set_trace", "input(", "interact", "embed("),
    fix="safe",
)

_DEBUGGERS = frozenset({
    "breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace", "pdb.post_mortem", "ray.util.pdb.set_trace",
    "ray.util.rpdb.set_trace", "remote_pdb.set_trace", "remote_pdb.RemotePdb", "web_pdb.set_trace", "rpdb.set_trace",
    "debugpy.breakpoint", "debugpy.wait_for_client", "code.interact", "IPython.embed", "torch.distributed.breakpoint",
})  # fmt: skip
_ASKING = "input"
HELP = (
    "remove it; to look into a sharded model, stop before or after its forward, on every rank or on rank 0 with"
    " `dist.barrier()` for all behind it (`torch.distributed.breakpoint()` does both; raise the group's time-out above"
    " the pause), log with the rank instead, or load an unsharded model under a switch such as DEBUG_DISABLE_FSDP"
)


def check_project(project: Project) -> Iterator[Finding]:
    effects = project.analysis(Effects)
    for function in project.functions():
        if is_aside(function.path) or function.name == "<class>":
            continue
        for call in function.facts.calls:
            name = _debugger(project, function, call)
            if not name or is_for_debugging(function, call.guards):
                continue
            after = _next_collective(effects, function, call)
            if name == _ASKING and after is None:
                continue
            yield _report(project, function, call, name, after)


def _debugger(project: Project, function: Method, call: Call) -> str:
    """The full name of the debugger that a call starts, or empty."""
    if call.method not in _LAST:
        return ""
    name = project.dotted(function, call.target)
    return name if name in _DEBUGGERS or name == _ASKING else ""


_LAST = frozenset(name.rpartition(".")[2] for name in _DEBUGGERS) | {_ASKING}


def _next_collective(effects: Effects, function: Method, call: Call) -> tuple[Call, str] | None:
    """The first collective after a place, called here or in a function called here."""
    direct: dict[Any, tuple[Call, Collective]] = effects.direct.get(function, {})
    rows = [(c, row.name) for c, row in direct.values()]
    rows += [(c, c.method) for c, _ in effects.reaching.get(function, {}).values()]
    later = sorted((c.at, c, name) for c, name in rows if c.at[:2] > call.at[2:])
    return (later[0][1], later[0][2]) if later else None


def _report(project: Project, function: Method, call: Call, name: str, after: tuple[Call, str] | None) -> Finding:
    taint: Taint | None = project.analysis(RankGuards).of(function, call.guards)
    where = f"in `{function.qualname}`" if function.qualname != "<module>" else "at module level"
    if name == "torch.distributed.breakpoint":
        message, severity = f"`{call.target}()` is left {where}; it stops the job until somebody answers", "note"
    elif taint is not None and after is not None:
        message = (
            f"`{call.target}()` {where} stops only some ranks, told apart by `{taint.why}`;"
            f" the others wait in `{after[1]}`"
        )
        severity = "error"
    else:
        message, severity = f"`{call.target}()` is left {where}; it stops every rank that gets here", "warning"
    related = [Related(function.path, after[0].at[0], f"`{after[1]}` follows here")] if after is not None else []
    return RULE.finding(
        function.path, call.at, message, help=HELP, related=related, context=f"{function.qualname}:{call.target}",
        severity=severity,  # type: ignore[arg-type]
    )  # fmt: skip


def fix(node: Any, finding: Finding) -> Any:
    """Remove the call where it is a statement of its own; a question whose answer is used stays."""
    import libcst as cst

    if "input()" in finding.message or not isinstance(node, cst.Expr | cst.Call):
        return None
    return cst.RemoveFromParent()


INCORRECT = [
    """
import torch
import torch.distributed as dist

def gather(outputs, output, group):
    if torch.isnan(output).any() and dist.get_rank() == 0:
        import pdb

        pdb.set_trace()  # error: MP520
    dist.barrier()
""",
    """
import torch.distributed as dist

def step(model, batch):
    breakpoint()  # error: MP520
    return model(batch)
""",
]

CORRECT = [
    """
import os
import torch.distributed as dist

def step(model, batch):
    if os.environ.get("DEBUG_STEP"):
        breakpoint()
    return model(batch)
""",
    """
def choose(prompt):
    return input(prompt)
""",
    """
import torch.distributed as dist

class Accelerator:
    def breakpoint(self):
        return self.flag

    def step(self):
        if self.breakpoint():
            dist.barrier()
""",
]
