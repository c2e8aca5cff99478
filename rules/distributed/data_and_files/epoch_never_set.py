"""A shuffling `DistributedSampler` whose epoch nobody sets.

What it does
    Reports `DistributedSampler(…)` that shuffles (the default) in a project in which nothing calls `set_epoch`. Where
    a parameter says whether it shuffles (`shuffle=shuffle`), some call must say so, or leave its default of True.
    Silent where the data, or the sampler, is called after evaluation (`val_dataset`): its order does not matter.

Why is this bad
    The order depends on seed and epoch. Without `set_epoch` every epoch shows the same batches in the same order.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import const_obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP530", "epoch-never-set", "warning", "0.1.0", tokens=("DistributedSampler",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    if next(queries.named("set_epoch"), None) is not None:
        return
    for place in queries.calls(
        "torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"
    ):
        if not is_aside(place.unit.path) and _shuffles(place) and not _evaluates(place):
            yield RULE.finding(
                place.unit.path,
                place.at,
                f"`{place.unit.qualname}` makes a shuffling `DistributedSampler`, and nothing in the project calls"
                " `set_epoch`",
                help="call `sampler.set_epoch(epoch)` at the start of every epoch, or pass `shuffle=False` where"
                " order does not matter",
                context=place.unit.qualname,
            )


def _evaluates(place: Place) -> bool:
    """Whether the names of the data, of the sampler, or of the function say that a model is only measured with it."""
    given = place.argument("dataset", 0)
    named = {place.number} if given is None else {place.number, given.number, given.root.number}
    names = [name for name, numbers in place.unit.code.definitions.items() if not named.isdisjoint(numbers)]
    names += ["" if given is None else given.hint, place.unit.qualname.rpartition(".")[2]]
    words = {word for name in names for word in name.lower().split("_")}
    return not words.isdisjoint(place.flow.models.likely["evaluating"])


def _shuffles(place: Place) -> bool:
    """Whether a sampler shuffles: by default, or because some caller says so; without callers a parameter's default."""
    if "**" in place.value.data.names:
        return False
    argument = place.argument("shuffle", 3)
    if argument is None:
        return True
    value = argument.root.value
    passed = argument.closed.objs
    if value.op == "param" and const_obj(True) not in passed and const_obj(False) not in passed:
        passed = place.flow.parameters.default(place.unit, value.data[1]).objs
    return const_obj(True) in passed


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

def loaders(valid_dataset, dataset):
    test_sampler = DistributedSampler(dataset)
    return DistributedSampler(valid_dataset), test_sampler

def evaluate(dataset, args):
    return loader(dataset, shuffle=False), DistributedSampler(dataset, shuffle=args.shuffle)
""",
]
