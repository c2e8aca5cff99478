"""Ranks of one group that name different roots.

What it does
    Reports `broadcast`, `scatter`, `gather` and `reduce` whose root differs between ranks of the group: it is computed
    from the caller's own rank, or from data of its own. What ranks agreed on before (a root that was broadcast or
    reduced) is silent, and so is a rank rounded to the first one of its group, over that group.

Why is this bad
    Each rank waits for, or sends to, the one that it names. A broadcast in which every rank is its own source hangs or
    leaves all values as they were; a reduction to several roots adds up nowhere.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import UNKNOWN
from validator.domains.spmd import only
from validator.finding import Finding
from validator.flow.queries.base import Place, Queries, apart, because
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP518", "root-differs", "warning", "0.1.0", tokens=("broadcast", "scatter", "gather", "reduce"))


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).collectives():
        if only(call.under, "rank", "member"):
            continue  # ranks come here by different calls, or not at all: what one passes is not what others do
        row = call.operations[0].row
        root = call.argument(*row.root) or call.argument(f"group_{row.root[0]}") if row.root is not None else None
        group = call.argument(*row.group) if row.group is not None else None
        axes, known = group.spanned if group is not None else (call.group, True)
        causes = apart(root.closed.v, axes) if root is not None and UNKNOWN not in axes else None
        if root is None or not causes or root.closed.of("ordinal") and _other_way(call):
            continue
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"ranks that meet in `{row.name}` in `{call.unit.qualname}` do not name the same root: `{root.text}`"
            f" {because(causes)}",
            help="compute the root from what all ranks of the group share, or let one rank decide and broadcast it",
            context=f"{call.unit.qualname}:{row.name}:{root.text}",
            severity="error" if known and any(c.sure for c in causes) else "warning",
        )


def _other_way(call: Place) -> bool:
    """Whether the same collective is called on the other way of a branch: whoever has the data names itself (a
    root that is a rank of its own, not one of two numbers)."""
    unit, name = call.unit, call.operations[0].name
    arms = unit.control.arms.get(call.value.block, ())
    for number, site in call.result.sites.items():
        others = unit.control.arms.get(unit.code.values[number].block, ())
        if any(o.name == name for o in site.operations) and any(
            branch == other and way != there for branch, way in arms for other, there in others
        ):
            return True
    return False


INCORRECT = [
    """
import torch.distributed as dist

def share(params):
    me = dist.get_rank()
    for p in params:
        dist.broadcast(p.data, src=me)  # error: MP518
""",
    """
import torch.distributed as dist

class Optimizer:
    def __init__(self, params):
        self.params = params
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def owner(self, index):
        return (index + self.rank) % self.size

    def step(self):
        for index, p in enumerate(self.params):
            dist.broadcast(p.data, src=self.owner(index))  # error: MP518
""",
]

CORRECT = [
    """
import torch.distributed as dist

def share(params):
    for index, p in enumerate(params):
        dist.broadcast(p.data, src=index % dist.get_world_size())
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def share(tensor, size):
    mesh = init_device_mesh("cuda", (2, size), mesh_dim_names=("dp", "tp"))
    rank = dist.get_rank()
    dist.broadcast(tensor, src=rank // size * size, group=mesh["tp"].get_group())
    dist.broadcast(tensor, src=rank - rank % size, group=mesh["tp"].get_group())
    group = mesh["tp"].get_group()
    dist.broadcast(tensor, src=dist.get_process_group_ranks(group)[0], group=group)
    dist.broadcast(tensor, src=dist.get_global_rank(group, 0), group=group)
""",
    """
import torch
import torch.distributed as dist

def share(tensor, load):
    owner = torch.tensor([dist.get_rank() if load < 3 else 0])
    dist.all_reduce(owner, op=dist.ReduceOp.MAX)
    dist.broadcast(tensor, src=int(owner.item()))
""",
    # what another function is given to call has its arguments one place further
    """
import asyncio
import torch.distributed as dist

async def decide(decision, group):
    held = [decision] if dist.get_rank() == 0 else [None]
    await asyncio.to_thread(dist.broadcast_object_list, held, src=0, group=group)
    return held[0]
""",
]
