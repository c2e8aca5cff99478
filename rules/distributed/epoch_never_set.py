"""A shuffling `DistributedSampler` whose epoch nobody sets.

What it does
    Reports `DistributedSampler(…)` that shuffles (the default) in a project in which nothing calls `set_epoch`.

Why is this bad
    The order depends on seed and epoch. Without `set_epoch` every epoch shows the same batches in the same order.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.places import is_aside
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP530", "epoch-never-set", "warning", "0.1.0", tokens=("DistributedSampler",))


def check_project(project: Project) -> Iterator[Finding]:
    if project.calls("set_epoch"):
        return
    for function, call in project.calls("DistributedSampler"):
        shuffle = call.keyword("shuffle")
        shuffles = (shuffle is None or shuffle.value == "True") and not is_aside(function.path)
        if shuffles and project.dotted(function, call.target).startswith("torch."):
            yield RULE.finding(
                function.path,
                call.at,
                f"`{function.qualname}` makes a shuffling `DistributedSampler`, and nothing in the project calls"
                " `set_epoch`",
                help="call `sampler.set_epoch(epoch)` at the start of every epoch, or pass `shuffle=False` where"
                " order does not matter",
                context=function.qualname,
            )


INCORRECT = [
    """
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def loader(dataset, world_size, rank):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)  # error: MP530
    return DataLoader(dataset, sampler=sampler)
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(dataset, world_size, rank, epochs):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        run(DataLoader(dataset, sampler=sampler))
""",
    """
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def evaluate(dataset, world_size, rank):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=False)
    return DataLoader(dataset, sampler=sampler)
""",
]
