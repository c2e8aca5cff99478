"""A sampler that deals data out among ranks, and that no loader is given.

What it does
    Follows a `DistributedSampler` (and its like, and samplers of the project that take their part by the rank) from
    where it is made, through variables, branches and attributes. Reports one that is only told its epoch, or asked
    whether it is there, or that nothing uses at all. Silent where it is given to any call, put into a container,
    given back to who is not known, or kept under an attribute that something reads.

Why is this bad
    Without `sampler=` the loader goes through all the data on every rank: the ranks train on the same samples, an
    epoch takes as many times longer as there are ranks, and nothing fails.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import Holders, Index
from validator.flow.queries.training.samplers import dealing_of_project
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP557", "sampler-unused", "error", "1.0", tokens=("Sampler",), solves=True)

_TELLING = frozenset({"set_epoch", "state_dict", "load_state_dict"})
# What holds the sampler itself, or a tuple with it, not what is made of it; a call gives back what a function returns.
_SAME = frozenset({"phi", "mut", "param", "attr", "free", "tuple", "unpack", "call"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    dealing = [name for name, row in queries.flow.models.calls.items() if row.shares and _is_made(row.result)]
    index = Index(queries.flow)
    for place in (*queries.calls(*dealing), *dealing_of_project(queries)):
        if place.unit.code.kind != "module" and not _is_used(
            place, Holders(queries.flow, index, place.unit, place.number)
        ):
            yield RULE.finding(
                place.unit.path,
                place.at,
                f"no loader is given the sampler `{place.text}`{place.where}: every rank goes through all the data",
                help="pass it as `sampler=` to the `DataLoader` (without `shuffle=True`)",
                context=f"{place.unit.qualname}:{place.method}",
            )


def _is_made(result: object) -> bool:
    return isinstance(result, str) and result.startswith("made:")


def _is_used(made: Place, holders: Holders) -> bool:
    """Whether anything but a call that tells it its epoch may use a sampler, whatever variable holds it."""
    if holders.escapes or holders.gathered or holders.given:
        return True
    others = [held for held in holders.held if held != (made.unit, made.number)]
    return any(name not in _TELLING for _, _, name in holders.called) or any(
        unit.code.values[number].op not in _SAME for unit, number in others
    )


_OWN = """
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler

class Shares(Sampler):
    def __init__(self, data, rank=None, size=None):
        self.data = data
        self.rank = dist.get_rank() if rank is None else rank
        self.size = dist.get_world_size() if size is None else size

    def __iter__(self):
        order = list(range(len(self.data)))
        return iter(order[self.rank : len(order) : self.size])

class Strategy:
    def loader(self, data, shuffle=True, sampler=None):
        if sampler is None and dist.is_initialized():
            sampler = Shares(data, rank=dist.get_rank(), size=dist.get_world_size()){mark}
        return DataLoader(data, {given}shuffle=shuffle if sampler is None else False)
"""

# It is given back beside the loader, and told the epoch.
_BESIDE = """
from torch.utils.data import DataLoader, DistributedSampler

def loaded(dataset, size, rank):
    sampler = DistributedSampler(dataset, num_replicas=size, rank=rank){mark}
    loader = DataLoader(dataset, batch_size=8{given})
    return dataset, loader, sampler

def main(dataset, train, size, rank):
    _, loader, sampler = loaded(dataset, size, rank)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train(loader)
"""

INCORRECT = [
    _BESIDE.format(mark="  # error: MP557", given=""),
    """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def loader(dataset, size):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset) if size > 1 else None  # error: MP557
    batches = DataLoader(dataset, batch_size=8, shuffle=True)
    for epoch in range(3):
        if sampler is not None:
            sampler.set_epoch(epoch)
        yield from batches

class Trainer:
    def __init__(self, dataset):
        self.sampler = DistributedSampler(dataset)  # error: MP557
        self.loader = DataLoader(dataset, batch_size=8)

    def fit(self):
        for epoch in range(3):
            self.sampler.set_epoch(epoch)
            yield from self.loader
""",
    _OWN.format(given="", mark="  # error: MP557"),
]

CORRECT = [
    _BESIDE.format(mark="", given=", sampler=sampler"),
    _OWN.format(given="sampler=sampler, ", mark=""),
    # it mixes on all ranks alike, and is not what deals the data out
    """
import random
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler

class Mixed(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(random.Random(0).sample(range(len(self.data)), len(self.data)))

def loader(data):
    sampler = Mixed(data)
    assert sampler is not None
    return DataLoader(data[dist.get_rank()::dist.get_world_size()], shuffle=True)
""",
    """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def loader(dataset, size):
    sampler = DistributedSampler(dataset) if size > 1 else None
    return DataLoader(dataset, batch_size=8, sampler=sampler), sampler

class Trainer:
    def __init__(self, dataset):
        self.sampler = DistributedSampler(dataset)
        self.options = {"sampler": DistributedSampler(dataset)}

    def loader(self, dataset):
        return DataLoader(dataset, sampler=self.sampler, **self.options)
""",
    """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def loader(dataset):
    sampler = DistributedSampler(dataset)

    def make(size):
        return DataLoader(dataset, size, sampler=sampler)

    return make
""",
]
