"""An asynchronous collective or save that nobody waits for.

What it does
    Reports `async_op=True` whose handle is thrown away, kept under a name that is never read again or collected in
    a list of the function that nothing reads, and `isend`, `irecv`, `batch_isend_irecv` and `async_save` of
    `torch.distributed.checkpoint` in the same way. An attribute counts as never read if no file of the run reads it
    from any object. Silent where the list leaves the function or the function waits for the whole device.

Why is this bad
    The tensor is read or freed while the transfer still runs: wrong numbers now and then, and an error of the
    transfer that nobody ever sees. A checkpoint that nobody waits for may be half written when the process group
    ends or the next one begins, and a full disk goes unnoticed until somebody wants to resume.

References
    https://docs.pytorch.org/docs/stable/distributed.html#asynchronous-collective-operations
    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.kept import Kept
from validator.analysis.places import is_aside, within
from validator.facts.model import Call
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP515", "async-never-waited", "error", "0.1.0", tokens=("async_op", "isend", "irecv", "async_save"))

_SAVE = "async_save"
_ALWAYS = frozenset({"isend", "irecv", "batch_isend_irecv", _SAVE})


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_aside(function.path):
            continue
        for call in function.facts.calls:
            if not _is_async(project, function, call):
                continue
            if call.use == "discard":
                yield _report(function, call, "throws the {} away")
            elif kept := _never_read(project, function, call):
                yield _report(function, call, kept)


def _never_read(project: Project, function: Method, call: Call) -> str:
    """What becomes of the handle that nobody reads; empty where somebody does."""
    name = _kept(function, call)
    if "." in name:
        unread = not _read_from_objects(project, name.rpartition(".")[2])
        return f"keeps the {{}} as `{name}` and never reads it" if unread else ""
    kept = Kept(project, function)
    if name and not kept.is_unread(name):
        return ""
    collected = kept.list_of_name(name) if name else kept.list_of(call.at)
    if not collected:
        return f"keeps the {{}} as `{name}` and never reads it" if name else ""
    unread = kept.is_unread(collected) and not kept.waits_for_all()
    return f"collects the {{}}s in `{collected}`, which nothing reads" if unread else ""


def _report(function: Method, call: Call, kept: str) -> Finding:
    saves = call.method == _SAVE
    what = "future" if saves else "handle"
    return RULE.finding(
        function.path,
        call.at,
        f"`{function.qualname}` starts `{call.method}` without waiting for it: it {kept.format(what)}",
        help="keep the future and call `result()` before the next save and before the process group ends"
        if saves
        else "keep the handle and call `wait()` before the tensor is used or freed, or drop `async_op=True`",
        context=f"{function.qualname}:{call.method}",
    )


def _is_async(project: Project, function: Method, call: Call) -> bool:
    flag = call.keyword("async_op")
    if call.method not in _ALWAYS and (flag is None or flag.value != "True"):
        return False
    return project.dotted(function, call.target).startswith(("torch.distributed.", "deepspeed.comm."))


def _kept(function: Method, call: Call) -> str:
    """The local name or the attribute (`self.pending`) that holds the handle; empty where it goes elsewhere."""
    row = next(
        (r for r in function.facts.assigns if r.kind == "call" and r.value == call.target and within(call.at, r.at)),
        None,
    )
    return row.target if row is not None and "[" not in row.target and "(" not in row.target else ""


def _read_from_objects(project: Project, name: str) -> bool:
    """Whether any file of the run reads an attribute of this name, its name as a string included."""
    strings = (f"'{name}'", f'"{name}"')
    for function in project.functions():
        if not function.module.facts.full and name.encode() in function.module.source.data:
            return True
        if any(ref.context == "load" and name in ref.path.split(".")[1:] for ref in function.facts.refs):
            return True
        for call in function.facts.calls:
            if name in call.target.split(".")[1:-1] or any(argument.value in strings for argument in call.args):
                return True
    return False


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
    """
import torch.distributed as dist

def reduce(grads, scale):
    handles, others = [], 0
    works: list = []
    for grad in grads:
        work = dist.all_reduce(grad, async_op=True)  # error: MP515
        if work is not None:
            works.append((grad, work))
    for grad in grads:
        grad.mul_(scale)

def gather(shards, outs):
    handles = []
    for shard, out in zip(shards, outs):
        handles.append(dist.all_gather_into_tensor(out, shard, async_op=True))  # error: MP515
    handles += [dist.isend(shards[0], 1)]  # error: MP515
    by_name = {}
    by_name["first"] = dist.broadcast(outs[0], 0, async_op=True)  # error: MP515
    works = [dist.all_reduce(out, async_op=True) for out in outs]  # error: MP515
    return outs
""",
    """
import torch.distributed.checkpoint as dcp

class Checkpointer:
    def save(self, state, path):
        if self.asynchronous:
            dcp.async_save(state, checkpoint_id=path)  # error: MP515
        else:
            dcp.save(state, checkpoint_id=path)
""",
    """
from torch.distributed.checkpoint import async_save

class Checkpointer:
    def save(self, state, path):
        self.pending = async_save(state, checkpoint_id=path)  # error: MP515
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
    # the list is given away, filled for the caller, waited for in one go, or asked for by another name
    """
import torch
import torch.distributed as dist

def reduce(grads, pending):
    handles = []
    for grad in grads:
        work = dist.all_reduce(grad, async_op=True)
        handles.append(work)
        pending.append(dist.all_reduce(grad, async_op=True))
    return handles

class Reducer:
    def reduce(self, grads):
        handles = self.handles
        for grad in grads:
            handles.append(dist.all_reduce(grad, async_op=True))
        self.others = works = []
        works.append(dist.all_reduce(grads[0], async_op=True))

    def flush(self, grads):
        handles = [(grad, dist.all_reduce(grad, async_op=True)) for grad in grads]

        def wait():
            for _, handle in handles:
                handle.wait()

        return wait

def reduce_all(grads):
    handles = []
    for grad in grads:
        handles.append(dist.all_reduce(grad, async_op=True))
    torch.cuda.synchronize()
""",
    """
import torch.distributed as dist

def reduce(grads):
    handles = {}
    for name, grad in grads.items():
        work = dist.all_reduce(grad, async_op=True)
        if work is not None:
            handles[name] = work
    while handles:
        handles.popitem()[1].wait()
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
    """
import torch.distributed.checkpoint as dcp

class Checkpointer:
    def save(self, state, path):
        if self.pending is not None:
            self.pending.result()
        self.pending = dcp.async_save(state, checkpoint_id=path)
""",
    """
import torch.distributed.checkpoint as dcp

def save(state, path, waiting):
    waiting.append(dcp.async_save(state, checkpoint_id=path))
    self_made = dcp.async_save(state, checkpoint_id=path)
    self_made.result()
""",
]
