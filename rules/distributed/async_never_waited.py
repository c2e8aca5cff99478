"""An asynchronous collective that nobody waits for.

What it does
    Reports `async_op=True` whose handle is thrown away or kept under a name that is never read again, and `isend`,
    `irecv` and `batch_isend_irecv` whose handles are thrown away.

Why is this bad
    The tensor is read or freed while the transfer still runs: wrong numbers now and then, and an error of the
    transfer that nobody ever sees.

References
    https://docs.pytorch.org/docs/stable/distributed.html#asynchronous-collective-operations
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.bodies import Bodies
from validator.analysis.places import is_aside, within
from validator.facts.model import Call
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP515", "async-never-waited", "error", "0.1.0", tokens=("async_op", "isend", "irecv"))

_ALWAYS = frozenset({"isend", "irecv", "batch_isend_irecv"})


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_aside(function.path):
            continue
        for call in function.facts.calls:
            if not _is_async(project, function, call):
                continue
            name = _kept(function, call)
            if call.use == "discard" or (name and not _read(project, function, name)):
                kept = f"keeps the handle as `{name}` and never reads it" if name else "throws the handle away"
                yield RULE.finding(
                    function.path,
                    call.at,
                    f"`{function.qualname}` starts `{call.method}` without waiting for it: it {kept}",
                    help="keep the handle and call `wait()` before the tensor is used or freed, or drop"
                    " `async_op=True`",
                    context=f"{function.qualname}:{call.method}",
                )


def _is_async(project: Project, function: Method, call: Call) -> bool:
    flag = call.keyword("async_op")
    if call.method not in _ALWAYS and (flag is None or flag.value != "True"):
        return False
    return project.dotted(function, call.target).startswith(("torch.distributed.", "deepspeed.comm."))


def _kept(function: Method, call: Call) -> str:
    """The local name that holds the handle; empty where it goes elsewhere."""
    row = next(
        (r for r in function.facts.assigns if r.kind == "call" and r.value == call.target and within(call.at, r.at)),
        None,
    )
    return row.target if row is not None and row.target.isidentifier() else ""


def _read(project: Project, function: Method, name: str) -> bool:
    node = project.analysis(Bodies).node(function)
    if node is None:
        return True
    outer = {n for each in ast.walk(node) if isinstance(each, ast.Global | ast.Nonlocal) for n in each.names}
    return name in outer or any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(node)
    )


INCORRECT = [
    """
import torch.distributed as dist

def reduce(grads):
    for grad in grads:
        dist.all_reduce(grad, async_op=True)  # error: MP515
""",
    """
import torch.distributed as dist

def reduce(loss):
    work = dist.all_reduce(loss, async_op=True)  # error: MP515
    return loss.item()
""",
]

CORRECT = [
    """
import torch.distributed as dist

def reduce(grads):
    handles = [dist.all_reduce(grad, async_op=True) for grad in grads]
    for handle in handles:
        handle.wait()
""",
    """
import torch.distributed as dist

def reduce(loss, log):
    work = dist.all_reduce(loss, async_op=True)
    log.update()
    work.wait()
    return loss.item()
""",
    """
import torch.distributed as dist

def reduce(loss):
    dist.all_reduce(loss)
    return dist.all_reduce(loss, async_op=True)
""",
]
