"""Data that is shared out among ranks, and then once more.

What it does
    Follows what a rank takes its share of (a `DistributedSampler`, `split_dataset_by_node`, `dataset.shard`,
    `x[rank::size]`, `i % size == rank` in a loop, a data loader that `Accelerator.prepare` gets) back through
    variables, attributes, data loaders and what callers pass. Reported where it is a share already, of the same ranks.

Why is this bad
    Of eight ranks each then sees one sample in 64, and seven eighths of the data is never trained on or evaluated.
    Nothing fails; epochs are short.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
    https://huggingface.co/docs/accelerate/concept_guides/internal_mechanism
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import SOME, WHOLE
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import trail
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.rank_shares import LOADER, Share, axes_of_rank, prepared, shares
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP551", "shared-out-twice", "warning", "1.0", tokens=("rank", "DistributedSampler", "prepare"), solves=True
)
_THROUGH = frozenset({
    LOADER, "torch.utils.data.Subset", "torch.utils.data.BatchSampler", "list", "tuple", "sorted", "iter",
})  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    found = [share for share in shares(queries) if not is_aside(share.user.unit.path)]
    users = {(share.user.unit, share.user.number): share for share in found}
    for second in [*found, *prepared(queries)]:
        first = _before(second, users) if second.whole is not None else None
        if first is not None:
            yield _finding(first, second)


def _before(second: Share, users: dict[tuple[Unit, int], Share]) -> Share | None:
    """The share of the same ranks that is shared out here."""
    axes = axes_of_rank(second.rank)
    for place in _trail(second.whole) if axes != SOME and second.whole is not None else ():
        first = users.get((place.unit, place.number))
        if first is not None and first.user != second.user and axes_of_rank(first.rank) == axes:
            return first
    return None


def _trail(whole: Place) -> Iterator[Place]:
    """What a value may have been before; of a data loader its sampler as well."""
    for place in trail(whole, _THROUGH):
        yield place
        sampler = place.argument("sampler", 3) if place.value.op == "call" and place.method == "DataLoader" else None
        if sampler is not None:
            yield from trail(sampler, _THROUGH)


def _finding(first: Share, second: Share) -> Finding:
    user = second.user
    among = "all ranks" if axes_of_rank(second.rank) == WHOLE else "the same ranks"
    return RULE.finding(
        user.unit.path,
        user.at,
        f"`{user.text}`{user.where} shares out among {among} what is the share of a rank already",
        help="share it out once: by the sampler, or by the data set",
        related=[Related(first.user.unit.path, first.user.at[0], "shared out here first")],
        context=f"{user.unit.qualname}:{user.text}",
    )


INCORRECT = [
    """
import torch.distributed as dist
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader, DistributedSampler

def loader_of(name):
    data = load_dataset(name)
    data = split_dataset_by_node(data, rank=dist.get_rank(), world_size=dist.get_world_size())
    data = data.map(len)
    sampler = DistributedSampler(data)  # error: MP551
    return DataLoader(data, sampler=sampler)
""",
    """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def loader_of(data):
    return DataLoader(data, sampler=DistributedSampler(data, shuffle=False))

def evaluate(model, data):
    loader = loader_of(data)
    for i, batch in enumerate(loader):
        if i % dist.get_world_size() == dist.get_rank():  # error: MP551
            model(batch)
""",
    """
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler

def main(model, data):
    accelerator = Accelerator()
    loader = DataLoader(data, sampler=DistributedSampler(data))
    model, loader = accelerator.prepare(model, loader)  # error: MP551
    return model, loader
""",
    """
import torch.distributed as dist
from torch.utils.data import DistributedSampler

class Data:
    def __init__(self, rows):
        self.rows = rows[dist.get_rank() :: dist.get_world_size()]

    def sampler(self):
        return DistributedSampler(self.rows)  # error: MP551
""",
]

CORRECT = [
    """
import torch.distributed as dist
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader, DistributedSampler

def loader_of(data):
    data = split_dataset_by_node(data, rank=dist.get_rank(), world_size=dist.get_world_size())
    return DataLoader(data)

def sampled(data):
    return DataLoader(data, sampler=DistributedSampler(data))
""",
    """
import os
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def evaluate(model, data):
    for i, batch in enumerate(DataLoader(data)):
        if i % dist.get_world_size() == dist.get_rank():
            model(batch)

def within_node(rows, node, nodes):
    rows = rows[node::nodes]
    return DistributedSampler(rows, rank=int(os.environ["LOCAL_RANK"]), num_replicas=8)
""",
]
