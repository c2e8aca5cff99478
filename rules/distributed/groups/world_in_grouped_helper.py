"""A helper that communicates over the whole job where the code around it works in sub-groups.

What it does
    Reports a function that takes no process group and issues a collective on the default group, if either a sibling
    in the same file (`reduce_scatter_fp8` beside `all_reduce_fp8`) takes a group and uses it, or a caller has left the
    ranks of some pipeline stages behind or works on one parallel dimension when it calls. Reports also a collective
    without a group where the function is given a group or mesh, or asks for one, and does nothing with it; where all
    its other collectives work in one group on values that this one's are computed from, or the other way round, or work
    in a group that the function is given and do the same to numbers made of the same data; and where the `forward` of
    its `backward` (or the other way round) works in one. Silent about a group that is not used where ranks only agree
    on the largest or smallest number, or get what one rank of the job has.

Why is this bad
    With tensor or pipeline parallelism the default group mixes ranks that hold unrelated tensors, and waits for
    stages that never call: wrong numbers, or a hang that a run without parallelism does not show.

References
    https://docs.pytorch.org/docs/stable/distributed.html#groups
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import LOCAL, NODE, UNKNOWN, WORLD, Axes
from validator.finding import Finding, Related
from validator.flow.calls.groups import axes_in
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.left_out_groups import LeftOut, left_out
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP511", "world-in-grouped-helper", "warning", "0.1.0", tokens=("torch.distributed",))

_MOVING = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single", "reduce_scatter",
    "reduce_scatter_tensor",
)  # fmt: skip
_NOT_PARALLEL = frozenset({WORLD, UNKNOWN, NODE, LOCAL})


class _Reason(NamedTuple):
    text: str
    related: Related


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    told: set[Unit] = set()
    moving: dict[Unit, list[Place]] = {}
    for call in queries.collectives(*_MOVING):
        moving.setdefault(call.unit, []).append(call)
    for unit, calls in moving.items():
        if (
            unit.cls is not None
            or unit.code.kind != "function"
            or unit.outer is None
            or unit.outer.code.kind != "module"
        ):
            continue
        if not unit.code.params or any(kind in ("*", "**") for _, kind in unit.code.params):
            continue
        if any(_given(call) for call in calls):
            continue
        reason = _sibling(moving, unit) or _caller(queries.flow, unit)
        if reason is not None:
            told.add(unit)
            yield _report(calls[0], reason)
    for found in left_out(queries, (*_MOVING, "gather", "reduce", "broadcast")):
        asked = found.call.unit not in told and not is_aside(found.call.unit.path)
        if asked and not (found.why == "unused" and _is_of_one_rank(found.call)):
            yield _report_left_out(found)


def _is_of_one_rank(call: Place) -> bool:
    """Whether a broadcast sends what one rank of the job has: the members of any group get it then."""
    root = call.argument("src", 1)
    return call.operations[0].name == "broadcast" and root is not None and root.val.constant() is not None


def _given(call: Place) -> str:
    """The parameter that a collective has for its group; `?` for another group than the whole job."""
    row = call.operations[0].row
    group = call.argument(*row.group) if row.group is not None else None
    if group is None or group.val.is_const(None):
        return ""
    return group.hint if group.root.value.op == "param" else "?"


def _sibling(moving: dict[Unit, list[Place]], unit: Unit) -> _Reason | None:
    """A function beside this one, named alike, that communicates in the group it is given."""
    words = unit.name.rsplit("_", 1)
    for other, calls in moving.items():
        alike = len(words) == 2 and other.name.endswith(f"_{words[1]}") and other.module is unit.module
        if other is unit or other.cls is not None or not alike:
            continue
        name = next((n for n in map(_given, calls) if n and n != "?"), "")
        if name:
            return _Reason(
                f"its sibling `{other.name}` takes `{name}`",
                Related(other.path, other.at(other.code.at)[0], f"`{other.name}` communicates in `{name}`"),
            )
    return None


def _caller(flow: Flow, unit: Unit) -> _Reason | None:
    for caller in flow.callers(unit):
        for number, site in sorted(flow.result(caller).sites.items()):
            if not any(target.unit is unit for target in site.targets):
                continue
            place = Place(flow, caller, number)
            if any(c.kind == "rank" and c.axis == "pp" and c.sure for c in place.under):
                return _Reason(
                    f"`{caller.qualname}` calls it on some pipeline stages only",
                    Related(caller.path, place.at[0], "called here"),
                )
            asked = next((p for p in _calls(flow, caller) if _of_dimension(p) - _NOT_PARALLEL), None)
            if asked is not None:
                return _Reason(
                    f"its caller `{caller.qualname}` works with `{asked.text}`",
                    Related(caller.path, place.at[0], "called here"),
                )
    return None


def _calls(flow: Flow, unit: Unit) -> Iterator[Place]:
    return (Place(flow, unit, number) for number, value in enumerate(unit.code.values) if value.op == "call")


def _of_dimension(call: Place) -> Axes:
    """The parallel dimension whose rank, group or size a call of a library gives."""
    row = next((r for o in call.operand(0).val.of("ext") if (r := call.flow.models.call(o[1])) is not None), None)
    if row is None or row.result not in ("rank", "group", "size"):
        return frozenset()
    return frozenset(row.axes) if row.axes else axes_in(call.val) if call.val.of("group") else frozenset()


def _report(call: Place, reason: _Reason) -> Finding:
    name, unit = call.operations[0].name, call.unit
    return RULE.finding(
        unit.path,
        call.at,
        f"`{unit.qualname}` has no parameter for a process group and calls `{name}` on the whole job, but"
        f" {reason.text}",
        help="give the function a `group` parameter, hand it to every collective and size query in it, and pass"
        " the group in use",
        related=[reason.related],
        context=f"{unit.qualname}:{name}",
    )


def _report_left_out(found: LeftOut) -> Finding:
    call, taken = found.call, found.taken
    name, where = call.operations[0].name, taken.unit.qualname
    why = {
        "unused": f"nothing communicates in its group `{found.group}`",
        "others": f"all its other collectives work in `{found.group}`",
        "twin": f"`{where}` works in `{found.group}`",
    }[found.why]
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.unit.qualname}` calls `{name}` on the whole job, but {why}",
        help=f"pass the group: `group={found.group}`" if found.why != "twin" else "pass the group of the other one",
        related=[Related(taken.unit.path, taken.at[0], "the group stands here")],
        context=f"{call.unit.qualname}:{name}:{found.group}",
    )


INCORRECT = [
    """
import torch.distributed as dist

def all_reduce_fp8(tensor):
    dist.all_reduce(tensor)  # error: MP511

def reduce_scatter_fp8(output, parts, group):
    dist.reduce_scatter(output, parts, group=group)
""",
    """
# file: pkg/__init__.py
# file: pkg/stats.py
import torch.distributed as dist

def whiten(values, mask):
    total = (values * mask).sum()
    dist.all_reduce(total)  # error: MP511
    return values - total
# file: pkg/loss.py
from megatron.core import mpu
from pkg.stats import whiten

def advantages(values, mask):
    rank = mpu.get_data_parallel_rank()
    return whiten(values, mask), rank
""",
    # a group that is given, or asked for, and not used
    """
import torch
import torch.distributed as dist

def exchanged(parts, group: dist.ProcessGroup):
    received = [torch.empty_like(part) for part in parts]
    dist.all_to_all(received, parts)  # error: MP511
    return torch.cat(received)

def count(model, device_mesh):
    total = torch.tensor(sum(p.numel() for p in model.parameters())).cuda()
    pp_mesh = device_mesh["pp"]
    dist.all_reduce(total)  # error: MP511
    return total.item()

def statistics(x, group=None):
    total = torch.tensor([x.sum(), x.numel()], device=x.device)
    dist.all_reduce(total, group=group)
    mean = total[0] / total[1]
    deviation = ((x - mean) ** 2).sum()
    dist.all_reduce(deviation)  # error: MP511
    return mean, deviation / total[1]

def counts(masks, dp_group, size):
    tokens, samples = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
    for mask in masks:
        tokens += mask.sum()
        samples += (mask.sum(dim=-1) > 0).sum()
    if dist.is_initialized():
        dist.all_reduce(tokens, op=dist.ReduceOp.SUM)  # error: MP511
        dist.all_reduce(samples, op=dist.ReduceOp.SUM, group=dp_group)
    return {"tokens": tokens / size, "samples": samples / size}
""",
    """
import torch
import torch.distributed as dist
from megatron.core import mpu

class Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits):
        largest = logits.max(dim=-1)[0]
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=mpu.get_tensor_model_parallel_group())
        exp = (logits - largest.unsqueeze(-1)).exp()
        total = exp.sum(dim=-1)
        dist.all_reduce(total)  # error: MP511
        weighted = (exp / total.unsqueeze(-1) * logits).sum(dim=-1)
        dist.all_reduce(weighted, group=mpu.get_tensor_model_parallel_group())
        return largest + total.log() - weighted

class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)  # error: MP511
        return grad, None
""",
]

CORRECT = [
    """
import torch.distributed as dist

def all_reduce_fp8(tensor, group=None):
    dist.all_reduce(tensor, group=group)

def reduce_scatter_fp8(output, parts, group):
    dist.reduce_scatter(output, parts, group=group)
""",
    """
import torch.distributed as dist

def mean_over_job(tensor):
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()

def train(tensor):
    return mean_over_job(tensor)
""",
    """
import torch
import torch.distributed as dist
from megatron.core import mpu

def statistics(x, group=None):
    total = x.sum()
    if group is None:
        dist.all_reduce(total)
        return total
    dist.all_reduce(total, group=group)
    return total

def in_two_steps(x, group):
    total = x.sum()
    dist.all_reduce(total, group=group)
    dist.all_reduce(total)
    return total

def longest(masks, group):
    tokens, length = masks.sum(), masks.sum(dim=-1).max()
    dist.all_reduce(tokens, group=group)
    dist.all_reduce(length, op=dist.ReduceOp.MAX)
    return tokens, length

def of_other_data(masks, times, group):
    tokens = masks.sum()
    seconds = torch.tensor(times.sum(), device=masks.device)
    dist.all_reduce(tokens, group=group)
    dist.all_reduce(seconds)
    return tokens / seconds

def loss_of(logits, target):
    largest = logits.max(dim=-1)[0]
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=mpu.get_tensor_model_parallel_group())
    total = (logits - largest.unsqueeze(-1)).exp().sum(dim=-1)
    dist.all_reduce(total, group=mpu.get_tensor_model_parallel_group())
    loss = (total.log() - target).mean()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    return loss

class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None
""",
    # the largest of all is large enough for each group
    """
import torch
import torch.distributed as dist

def rounds(data, dp_mesh):
    count = torch.tensor([len(data)], device="cuda")
    dist.all_reduce(count, op=dist.ReduceOp.MAX)
    return int(count.item())
""",
    # what the first rank has, all get
    """
import torch.distributed as dist

def load(model, state, device_mesh):
    if dist.get_rank() == 0:
        model.load_state_dict(state)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
""",
]
