"""A share of something by a rank of one group and the size of another.

What it does
    Reports `DistributedSampler(num_replicas=…, rank=…)`, `split_dataset_by_node`, `x[rank::size]`, `i % size == rank`
    and `x.chunk(size)[rank]` where the rank counts the processes of a node, or the ranks of one kind of group, and
    the size, or the job as its default, counts those of another. A note where one of them counts the processes of a
    node, or the nodes: a program that is meant for one node is right. Silent where either may be several things.

Why is this bad
    With more ranks than parts some parts are taken twice, or the index is out of range; with fewer some are taken by
    nobody. On one node, where the local rank is the rank, nothing shows.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import LOCAL, NODE, SOME, WHOLE, Axes
from validator.finding import Finding
from validator.flow.queries.base import Queries
from validator.flow.queries.rank_shares import axes_of_rank, axes_of_size, shares
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP549", "rank-of-other-group", "error", "1.0", tokens=("rank", "RANK"), solves=True)
_NAMES = {frozenset({LOCAL}): "the processes of one node", frozenset({NODE}): "the nodes", WHOLE: "all ranks"}


def check_project(project: Project) -> Iterator[Finding]:
    for share in shares(project.analysis(Queries)):
        if share.rank is None:
            continue
        counted = axes_of_rank(share.rank)
        if counted == SOME:
            continue
        among = axes_of_size(share.size) if share.size is not None else WHOLE
        if among in (SOME, counted):
            continue
        size = f"`{share.size.text}` counts" if share.size is not None else "the size that is not given is that of"
        yield RULE.finding(
            share.user.unit.path,
            share.user.at,
            f"`{share.rank.text}` counts {_named(counted)}, {size} {_named(among)}: parts are taken"
            f" twice, or by nobody{share.user.where}",
            help="take rank and size of the same group",
            context=f"{share.user.unit.qualname}:{share.rank.text}:{share.size.text if share.size is not None else ''}",
            # on one node, for which a program may be meant, its ranks are all ranks
            severity="note" if {LOCAL, NODE} & (counted | among) else RULE.severity,
        )


def _named(axes: Axes) -> str:
    return _NAMES.get(axes) or f"the {' and '.join(sorted(axes))} ranks"


INCORRECT = [
    """
import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

def local_rank():
    return int(os.environ["LOCAL_RANK"])

def sampler_of(dataset):
    rank = local_rank()
    return DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=rank)  # error: MP549
""",
    """
import torch.distributed as dist
from megatron.core import parallel_state

def own_files(files):
    rank = parallel_state.get_tensor_model_parallel_rank()
    return files[rank::dist.get_world_size()]  # error: MP549

def own_rows(rows):
    size = parallel_state.get_data_parallel_world_size()
    return [row for i, row in enumerate(rows) if i % size == dist.get_rank()]  # error: MP549

def own_heads(x):
    parts = x.chunk(parallel_state.get_context_parallel_world_size(), dim=1)
    return parts[parallel_state.get_tensor_model_parallel_rank()]  # error: MP549
""",
    """
import torch.distributed as dist
from torch.utils.data import DistributedSampler
from megatron.core import parallel_state

def sampler_of(dataset):
    return DistributedSampler(dataset, rank=parallel_state.get_data_parallel_rank())  # error: MP549
""",
]

CORRECT = [
    """
import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

def sampler_of(dataset):
    return DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank())

def on_one_node(dataset):
    local, size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    return DistributedSampler(dataset, num_replicas=size, rank=local)
""",
    """
import torch.distributed as dist
from megatron.core import parallel_state

def own_rows(rows, group=None):
    size = dist.get_world_size(group) if group is not None else parallel_state.get_data_parallel_world_size()
    rank = dist.get_rank(group) if group is not None else parallel_state.get_data_parallel_rank()
    return [row for i, row in enumerate(rows) if i % size == rank] + rows[rank::size]

def turns(step):
    return step % dist.get_world_size() == 0
""",
    """
import torch.distributed as dist
from torch.utils.data import DistributedSampler

def sampler_of(dataset):
    return DistributedSampler(dataset, rank=dist.get_rank())
""",
]
