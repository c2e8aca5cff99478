"""A mean over each rank's own part, summed or averaged over the ranks that share the whole.

What it does
    Reports `all_reduce` and `reduce` of a quotient whose denominator is a sum over a part of a tensor that the ranks of
    the group have cut out by their rank (the mask of a sequence under context parallelism). A denominator that was
    reduced before is silent.

Why is this bad
    The parts hold different numbers of valid tokens: each rank's mean gets the same weight, tokens of a part with few
    of them get more. Loss and gradients differ from those of one process, by an amount that depends on the mask.

References
    https://github.com/NVIDIA/Megatron-LM/pull/7513
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import UNKNOWN
from validator.domains.spmd import only
from validator.finding import Finding
from validator.flow.queries.base import Place, Queries, apart
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP548", "mean-of-local-means", "warning", "0.5.0", tokens=("reduce",))

_SUMMING = frozenset({"sum", "count_nonzero", "nansum"})


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).collectives("all_reduce", "reduce"):
        row = call.operations[0].row
        tensor = call.argument(*row.equal) if row.equal is not None else None
        group = call.argument(*row.group) if row.group is not None else None
        axes, sure = group.spanned if group is not None else (call.group, True)
        quotient = tensor.origin if tensor is not None else None
        if quotient is None or not sure or UNKNOWN in axes or is_test(call.unit.path):
            continue
        if quotient.value.op != "binary" or quotient.value.data != "Div":
            continue
        count = _summed(quotient.operand(1))
        if count is not None and only(apart(count.closed.v, axes), "rank", "member"):
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{row.name}` in `{call.unit.qualname}` adds up means over the ranks' own parts: `{count.text}` counts"
                " another number on each of them",
                help="reduce the sum and the count, and divide then",
                context=f"{call.unit.qualname}:{row.name}:{count.text}",
            )


def _summed(place: Place) -> Place | None:
    """The sum that a value is, through what only keeps it from being zero."""
    root = place.origin
    while root.value.op == "call" and root.method in ("clamp", "clamp_min", "clamp_", "float", "to"):
        if root.receiver is None:
            return None
        root = root.receiver.origin
    return root if root.value.op == "call" and root.method in _SUMMING else None


INCORRECT = [
    """
import torch.distributed as dist
from megatron.core import parallel_state as mpu

def loss_of(losses, mask):
    part = mask.chunk(mpu.get_context_parallel_world_size(), dim=1)[mpu.get_context_parallel_rank()]
    assert mask.shape[1] % mpu.get_context_parallel_world_size() == 0
    loss = (losses * part).sum() / part.sum().clamp(min=1)
    dist.all_reduce(loss, group=mpu.get_context_parallel_group())  # error: MP548
    return loss / mpu.get_context_parallel_world_size()
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu

def loss_of(losses, mask):
    part = mask.chunk(mpu.get_context_parallel_world_size(), dim=1)[mpu.get_context_parallel_rank()]
    assert mask.shape[1] % mpu.get_context_parallel_world_size() == 0
    total = torch.stack([(losses * part).sum(), part.sum()])
    dist.all_reduce(total, group=mpu.get_context_parallel_group())
    return total[0] / total[1]
""",
    """
import torch.distributed as dist
from megatron.core import parallel_state as mpu

def loss_of(losses, mask):
    part = mask.chunk(mpu.get_context_parallel_world_size(), dim=1)[mpu.get_context_parallel_rank()]
    assert mask.shape[1] % mpu.get_context_parallel_world_size() == 0
    loss = (losses * part).sum() / mask.sum()
    dist.all_reduce(loss, group=mpu.get_context_parallel_group())
    return loss
""",
]
