"""A sum over one group of ranks that is divided by the number of ranks of another.

What it does
    Reports what an `all_reduce` or `reduce` has summed over one group and what is divided by the size of a group that
    spans other axes: the size of the data-parallel group behind a sum of means over data- and context-parallel
    ranks, or the number of all ranks behind a sum over a part of them. What a group spans is told by the call that
    makes it, else by its name. Silent where several collectives of the value span together what it is divided by, for
    maxima and averages, where one of the two is not known, and where what is summed over more ranks may be parts of a
    sum: no mean, no quotient.

Why is this bad
    The mean is too large, or too small, by the size of the axis that one of the two leaves out. As long as that axis
    has one rank nobody notices.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import LOCAL, NODE, UNKNOWN, WORLD, Axes
from validator.finding import Finding, Related
from validator.flow.calls.groups import axes_in
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.values.sums import KEEPING, spanned, summed
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP588", "average-over-other-group", "warning", "0.5.0", tokens=("all_reduce", "reduce"))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in sorted(queries.flow.effectful(), key=lambda unit: unit.place):
        if is_aside(unit.path):
            continue
        for number, value in enumerate(unit.code.values):
            place = Place(queries.flow, unit, number)
            if value.op == "binary" and value.data in ("Div", "FloorDiv"):
                yield from _judged(place, place.operand(0), place.operand(1))
            elif value.op == "call" and len(value.args) == 2 and place.method in ("div_", "div"):
                yield from _judged(place, place.receiver, place.operand(1))


def _judged(place: Place, total: Place | None, size: Place) -> Iterator[Finding]:
    counted = size.closed.of("size")
    sums = list(summed(total)) if total is not None and len(counted) == 1 == len(size.closed.objs) else []
    by = axes_in(counted[0][1]) if sums else frozenset()
    if not sums or not by or by & {UNKNOWN, NODE, LOCAL}:
        return
    spans = [spanned(call) for call in sums]
    over: Axes = frozenset().union(*(axes for axes, _ in spans))
    if not over or over & {UNKNOWN, NODE, LOCAL} or over == by or WORLD in over and len(sums) > 1:
        return
    if (WORLD in over or by < over) and not _is_mean(sums[-1]):
        return  # each rank of the axes that are left out may hold a part of the sum
    call = sums[0]
    yield RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.unit.qualname}` divides what `{call.method}` has summed over {_named(over)} by `{size.text}`, the"
        f" number of ranks over {_named(by)}",
        help="divide by the size of the group of the sum: `dist.get_world_size(group)`",
        related=[Related(call.unit.path, call.at[0], "summed here")],
        context=f"{place.unit.qualname}:{size.text}",
    )


def _is_mean(call: Place) -> bool:
    """Whether each rank gives a mean of its own, of which a sum must be divided by the number of all that gave one."""
    row = call.operations[0].row
    tensor = call.argument(*row.equal) if row.equal is not None else None
    place = tensor.origin if tensor is not None else None
    while place is not None and place.value.op == "call" and place.receiver is not None:
        if place.method in ("mean", "nanmean"):
            return True
        place = place.receiver.origin if place.method in KEEPING else None
    return place is not None and place.value.op == "binary" and place.value.data == "Div"


def _named(axes: Axes) -> str:
    return "all ranks" if WORLD in axes else " and ".join(f"`{axis}`" for axis in sorted(axes))


INCORRECT = [
    """
import torch
import torch.distributed as dist
from megatron.core import mpu

def validate(losses, dp_cp_group):
    val = torch.cat(losses).mean()
    dist.all_reduce(val, group=dp_cp_group)
    val /= mpu.get_data_parallel_world_size()  # error: MP588
    return val

def mean(total, tokens):
    loss = total / tokens
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    dist.all_reduce(loss, op=dist.ReduceOp.SUM, group=group)
    return loss.item() / dist.get_world_size(mpu.get_data_parallel_group())  # error: MP588

def by_name(losses, groups):
    dp_cp_group = getattr(groups, "wide", None) or groups.dp_cp
    val = torch.cat(losses).mean()
    dist.all_reduce(val, group=dp_cp_group)
    return val / mpu.get_data_parallel_world_size()  # error: MP588

def over_part(loss):
    dist.all_reduce(loss, group=mpu.get_data_parallel_group())
    loss.div_(dist.get_world_size())  # error: MP588
    return loss
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Trainer:
    def __init__(self):
        self.mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
        self.dp_group = self.mesh.get_group("dp")

    def mean(self, losses):
        loss = losses.mean().detach()
        dist.all_reduce(loss)
        return loss / dist.get_world_size(self.dp_group)  # error: MP588
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist
from megatron.core import mpu

def validate(losses, dp_cp_group):
    val = torch.cat(losses).mean()
    dist.all_reduce(val, group=dp_cp_group)
    val /= dist.get_world_size(group=dp_cp_group)
    return val

def in_two_steps(loss):
    dist.all_reduce(loss, group=mpu.get_context_parallel_group())
    dist.all_reduce(loss, group=mpu.get_data_parallel_group())
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    return loss / dist.get_world_size(group)

def of_parts(loss):
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    dist.all_reduce(loss, group=group)
    return loss / mpu.get_data_parallel_world_size()

def largest(loss):
    dist.all_reduce(loss, op=dist.ReduceOp.MAX, group=mpu.get_data_parallel_group())
    return loss / mpu.get_context_parallel_world_size()
""",
    """
import torch.distributed as dist
from megatron.core import mpu

def mean(loss, group):
    dist.all_reduce(loss)
    loss /= dist.get_world_size()
    dist.all_reduce(loss, group=group)
    return loss / group.size()

def share(loss, other):
    dist.all_reduce(loss, group=mpu.get_data_parallel_group())
    return loss / other, loss / mpu.get_data_parallel_world_size()
""",
]
