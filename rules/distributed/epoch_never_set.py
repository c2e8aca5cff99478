"""A shuffling `DistributedSampler` whose epoch nobody sets.

What it does
    Reports `DistributedSampler(…)` that shuffles (the default) in a project in which nothing calls `set_epoch`. Where
    a parameter says whether it shuffles (`shuffle=shuffle`), some call must say so, or leave its default of True.

Why is this bad
    The order depends on seed and epoch. Without `set_epoch` every epoch shows the same batches in the same order.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.binding import bind
from validator.analysis.places import is_aside
from validator.facts.model import Argument
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP530", "epoch-never-set", "warning", "0.1.0", tokens=("DistributedSampler",))


def check_project(project: Project) -> Iterator[Finding]:
    if project.calls("set_epoch"):
        return
    for function, call in project.calls("DistributedSampler"):
        if is_aside(function.path) or not _shuffles(project, function, call.keyword("shuffle")):
            continue
        if project.dotted(function, call.target).startswith("torch."):
            yield RULE.finding(
                function.path,
                call.at,
                f"`{function.qualname}` makes a shuffling `DistributedSampler`, and nothing in the project calls"
                " `set_epoch`",
                help="call `sampler.set_epoch(epoch)` at the start of every epoch, or pass `shuffle=False` where"
                " order does not matter",
                context=function.qualname,
            )


def _shuffles(project: Project, function: Method, argument: Argument | None) -> bool:
    if argument is None or argument.value == "True":
        return True
    param = next((p for p in function.facts.params if p.name == argument.value), None)
    if param is None or any(row.target == param.name for row in function.facts.assigns):
        return False
    name = function.cls.name if function.cls is not None and function.name == "__init__" else function.name
    calls = [call for _, call in project.calls(name)]  # by name: a strategy's methods are called on untyped objects
    given = [bind(function, call).get(param.name) for call in calls]
    unpacked = any(a.keyword in ("*", "**") for call in calls for a in call.args)
    if param.default == "True" and (not calls or None in given) and not unpacked:
        return True
    return any(each is not None and each.value == "True" for each in given)


INCORRECT = [
    """
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def loader(dataset, world_size, rank):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)  # error: MP530
    return DataLoader(dataset, sampler=sampler)
""",
    """
from torch.utils.data import DataLoader, DistributedSampler

class Strategy:
    def setup_dataloader(self, dataset, shuffle=True):
        sampler = DistributedSampler(dataset, shuffle=shuffle)  # error: MP530
        return DataLoader(dataset, sampler=sampler)

def ordered(dataset, shuffle=False):
    return DistributedSampler(dataset, shuffle=shuffle)  # error: MP530

def loaders(strategy: Strategy, train, valid):
    return strategy.setup_dataloader(train), strategy.setup_dataloader(valid, shuffle=False), ordered(train, True)
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
    """
from torch.utils.data import DataLoader, DistributedSampler

def loader(dataset, shuffle=True, options=None):
    sampler = DistributedSampler(dataset, shuffle=shuffle)
    return DataLoader(dataset, sampler=sampler)

def evaluate(dataset, args):
    return loader(dataset, shuffle=False), DistributedSampler(dataset, shuffle=args.shuffle)
""",
]
