"""A debugger or a question to the terminal left in code that runs on many ranks.

What it does
    Reports `breakpoint()`, `pdb.set_trace()` (also ipdb, pudb, remote and Ray debuggers, `code.interact`,
    `IPython.embed`) in package code, and `input()` in a function that communicates. An error where only some ranks
    stop and a collective follows, a warning where a collective follows, or in a step of training, otherwise a note.
    `torch.distributed.breakpoint` holds the other ranks at a barrier and is a note. Silent under a condition that says
    it serves debugging, where the answer is sent to the other ranks (`broadcast_object_list([input()])`), and in
    demonstrations and tests.

Why is this bad
    A stopped rank does not come to the next collective. The others wait for it, in FSDP inside the next forward,
    which gathers a part of every parameter from all ranks, until the time-out of the process group ends the job.
    Without a terminal the debugger raises `BdbQuit` at once.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.breakpoint
    https://docs.ray.io/en/latest/ray-observability/ray-distributed-debugger.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from validator.domains.spmd import only
from validator.effects.divergence import Divergences
from validator.effects.trace import Issued
from validator.finding import Finding, Related, Severity
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP520",
    "debugger-left",
    "warning",
    "0.1.0",
    tokens=("breakpoint", "set_trace", "input(", "interact", "embed("),
    fix="safe",
)

_DEBUGGERS = (
    "breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace", "pdb.post_mortem", "ray.util.pdb.set_trace",
    "ray.util.rpdb.set_trace", "remote_pdb.set_trace", "remote_pdb.RemotePdb", "web_pdb.set_trace", "rpdb.set_trace",
    "debugpy.breakpoint", "debugpy.wait_for_client", "code.interact", "IPython.embed", "torch.distributed.breakpoint",
)  # fmt: skip
# a condition that says it serves debugging
_DEBUGGING = re.compile(r"debug|breakpoint|interactive|isatty|__main__|\bi?pdb\b", re.IGNORECASE)
HELP = (
    "remove it; to look into a sharded model, stop before or after its forward, on every rank or on rank 0 with"
    " `dist.barrier()` for all behind it (`torch.distributed.breakpoint()` does both; raise the group's time-out above"
    " the pause), log with the rank instead, or load an unsharded model under a switch such as DEBUG_DISABLE_FSDP"
)


def check_project(project: Project) -> Iterator[Finding]:
    queries, divergences = project.analysis(Queries), project.analysis(Divergences)
    for place in queries.calls(*_DEBUGGERS, "input"):
        if is_aside(place.unit.path) or place.unit.code.kind == "class":
            continue
        if any(_DEBUGGING.search(word) for test in place.tests for word in test.words):
            continue
        after = divergences.following(place)
        if place.method != "input" or after is not None and not _is_sent(queries, place):
            yield _report(place, after)


def _is_sent(queries: Queries, answer: Place) -> bool:
    """Whether a rank sends an answer to the others, here or in a function that gets it: they wait for it by design."""
    queue, seen = [answer], {answer}
    for each in queue:
        more: list[Place] = []
        for user in each.users:
            if any(operation.row.root is not None for operation in user.operations):
                return True
            targets = queries.targets(user) if user.value.op == "call" else []
            inner = (param for unit in targets for param in queries.values(unit, "param"))
            given = [p for p in inner if argument_of(user.unit, user.number, p.unit, p.value.data[0]) == each.number]
            more += given if targets else [user]
        queue += [each for each in more if each not in seen]
        seen.update(more)
    return False


def _report(place: Place, after: Issued | None) -> Finding:
    unit = place.unit
    name = place.operand(0).text
    where = f"in `{unit.qualname}`" if unit.qualname != "<module>" else "at module level"
    severity: Severity = "warning"
    if any(o == ("ext", "torch.distributed.breakpoint") for o in place.operand(0).val.each):
        message, severity = f"`{name}()` is left {where}; it stops the job until somebody answers", "note"
    elif after is not None and only(place.under, "rank", "member"):
        message = f"`{name}()` {where} stops only some ranks; the others wait in `{after.name}`"
    else:
        message = f"`{name}()` is left {where}; it stops every rank that gets here"
        if after is None and unit.name not in place.flow.models.likely["steps"]:
            severity = "note"  # nothing shows that others wait meanwhile
    related = [Related(after.path, after.at[0], f"`{after.name}` follows here")] if after is not None else []
    return RULE.finding(
        unit.path, place.at, message, help=HELP, related=related, context=f"{unit.qualname}:{name}", severity=severity
    )


def fix(node: Any, finding: Finding) -> Any:
    """Remove the call where it is a statement of its own; a question whose answer is used stays."""
    import libcst as cst

    if "input()" in finding.message or not isinstance(node, cst.Expr | cst.Call):
        return None
    return cst.RemoveFromParent()


INCORRECT = [
    # the answer goes nowhere, or to nobody else
    """
import torch.distributed as dist

def pause(loss):
    if dist.get_rank() == 0:
        input("continue? ")  # error: MP520
    dist.broadcast(loss, src=0)

def scaled(loss):
    factor = float(input("factor? "))  # error: MP520
    dist.all_reduce(loss)
    return loss * factor
""",
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
    # a chat: the answer of one rank is what the others wait for
    """
import torch.distributed as dist

def ask(rank):
    if rank == 0:
        query = [input("User: ").strip()]
    else:
        query = [None]
    dist.broadcast_object_list(query, 0)
    return query[0]

def shared(text):
    box = [text]
    dist.broadcast_object_list(box, src=0)
    return box[0]

def choose():
    text = input("Which? ") if dist.get_rank() == 0 else None
    return shared(text)
""",
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
