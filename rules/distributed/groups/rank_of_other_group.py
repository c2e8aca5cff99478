"""A share of something by a rank of one group and the size of another.

What it does
    Reports `DistributedSampler(num_replicas=…, rank=…)`, `split_dataset_by_node`, `x[rank::size]`,
    `range(rank, n, size)`, `i % size == rank` and `x.chunk(size)[rank]` where the rank counts the processes of a node,
    or the ranks of one kind of group, and the size, or the job as the default of either, counts those of another. A
    warning where ranks of the job share by the number of a node's devices or processes (`torch.cuda.device_count()`,
    `LOCAL_WORLD_SIZE`), which rests on the job having more nodes, or fewer processes than devices; a note where else
    one of them counts the processes of a node, or the nodes. Silent where either may be several things, and in both of
    these cases where the program starts just as many processes as a node has devices (`mp.spawn(…,
    nprocs=torch.cuda.device_count())`): it is for one node.

Why is this bad
    With more ranks than parts some parts are taken twice, or the index is out of range; with fewer some are taken by
    nobody. On one node, where the local rank is the rank, nothing shows.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import LOCAL, NODE, SOME, WHOLE, Axes
from validator.finding import Finding, Severity
from validator.flow.queries.base import Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.rank_shares import Share, axes_of_rank, axes_of_size, shares
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP549", "rank-of-other-group", "error", "1.0", tokens=("rank", "RANK"), solves=True)
_NAMES = {frozenset({LOCAL}): "the processes of one node", frozenset({NODE}): "the nodes", WHOLE: "all ranks"}


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for share in (way for each in shares(queries) for way in _ways(each)):
        counted = axes_of_rank(share.rank)
        among = axes_of_size(share.size) if share.size is not None else WHOLE
        if SOME in (counted, among) or counted == among:
            continue
        severity = _severity(counted, among)
        if severity != RULE.severity and (is_test(share.user.unit.path) or _is_for_one_node(queries)):
            continue
        rank = f"`{share.rank.text}` counts" if share.rank is not None else "the rank that is not given is that of"
        size = f"`{share.size.text}` counts" if share.size is not None else "the size that is not given is that of"
        yield RULE.finding(
            share.user.unit.path,
            share.user.at,
            f"{rank} {_named(counted)}, {size} {_named(among)}: parts are taken twice, or by nobody{share.user.where}",
            help="take rank and size of the same group",
            context=":".join((share.user.unit.qualname, *(each.text if each else "" for each in share[:2]))),
            severity=severity,
        )


def _ways(share: Share) -> Iterator[Share]:
    """A share, or, where one condition chooses both its rank and its size, that of each way."""
    rank, size = (each.root if each is not None else None for each in share[:2])
    chosen = rank is not None and size is not None and rank.value.op == size.value.op == "phi"
    if rank is None or size is None or not chosen or rank.value.block != size.value.block:
        yield share
        return
    for one, other in zip(rank.value.args, size.value.args, strict=True):
        yield share._replace(rank=rank.value_at(one), size=size.value_at(other))


def _severity(counted: Axes, among: Axes) -> Severity:
    """On one node, for which a program may be meant, the node's processes are all ranks; its devices may be more."""
    if not {LOCAL, NODE} & (counted | among):
        return RULE.severity
    return "warning" if counted == WHOLE and among == {LOCAL} else "note"


def _is_for_one_node(queries: Queries) -> bool:
    """Whether a job of the project has as many processes as a node has devices: it says so where it starts them."""
    started = [call.argument("nprocs", 2) for call in queries.calls("torch.multiprocessing.spawn")]
    started += [call.argument("world_size", 3) for call in queries.calls("torch.distributed.init_process_group")]
    return any(size is not None and axes_of_size(size) == {LOCAL} for size in started)


def _named(axes: Axes) -> str:
    return _NAMES.get(axes) or f"the {' and '.join(sorted(axes))} ranks"


_OF_MESH = """
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DistributedSampler

def sampler_of(rows, sp):
    mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "sp"))
    if sp > 1:
        rank = mesh.get_local_rank("{dimension}")
        size = mesh.size(0)
    else:
        rank = mesh.get_rank()
        size = mesh.size()
    return DistributedSampler(rows, num_replicas=size, rank=rank){mark}
"""

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
    # the devices of a node, among all ranks
    """
import os
import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

def processes():
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))

class Data:
    def __init__(self, files):
        self.files, self.parts = files, torch.cuda.device_count()

    def sampler(self):
        return DistributedSampler(self.files, num_replicas=self.parts)  # error: MP549

    def own(self):
        rows = [self.files[i] for i in range(dist.get_rank(), len(self.files), self.parts)]  # error: MP549
        return rows + self.files[int(os.environ["RANK"])::processes()]  # error: MP549
""",
    # by the dimensions of a mesh; one condition chooses both
    _OF_MESH.format(dimension="sp", mark="  # error: MP549"),
]

CORRECT = [
    # the text of a variable, which another rule speaks of, counts as its number does
    """
import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

def sampler(data):
    return DistributedSampler(data, num_replicas=dist.get_world_size(), rank=os.environ["RANK"])
""",
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
    # started with as many processes as the node has devices
    """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DistributedSampler

def work(rank, size, dataset):
    dist.init_process_group("nccl", rank=rank, world_size=size)
    sampler = DistributedSampler(dataset, num_replicas=torch.cuda.device_count(), rank=dist.get_rank())
    return sampler, dataset[rank::size], range(dist.get_rank(), len(dataset), torch.cuda.device_count())

def main(dataset):
    size = torch.cuda.device_count()
    mp.spawn(work, args=(size, dataset), nprocs=size)
""",
    _OF_MESH.format(dimension="dp", mark=""),
]
