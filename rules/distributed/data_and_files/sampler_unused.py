"""A sampler that deals data out among ranks, and that no loader is given.

What it does
    Follows a `DistributedSampler` (and its like) from where it is made, through variables, branches and attributes.
    Reports one that is only told its epoch, or that nothing uses at all. Silent where it is given to any call, put
    into a container, given back, or kept under an attribute that something reads.

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
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP557", "sampler-unused", "error", "1.0", tokens=("Sampler",), solves=True)

_TELLING = frozenset({"set_epoch", "state_dict", "load_state_dict"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    dealing = [name for name, row in queries.flow.models.calls.items() if row.shares and _is_made(row.result)]
    for place in queries.calls(*dealing):
        if not _is_used(queries, place, set()):
            yield RULE.finding(
                place.unit.path,
                place.at,
                f"no loader is given the sampler `{place.text}`{place.where}: every rank goes through all the data",
                help="pass it as `sampler=` to the `DataLoader` (without `shuffle=True`)",
                context=f"{place.unit.qualname}:{place.method}",
            )


def _is_made(result: object) -> bool:
    return isinstance(result, str) and result.startswith("made:")


def _is_used(queries: Queries, place: Place, seen: set[tuple[object, int]]) -> bool:
    """Whether anything but a call that tells it its epoch uses a value, whatever variable holds it."""
    if (place.unit, place.number) in seen:
        return False
    seen.add((place.unit, place.number))
    code = place.unit.code
    if code.kind == "module" or place.number in code.returned or _is_enclosed(queries, place):
        return True  # others may use what a file, or a function around them, holds
    return any(_uses(queries, user, place, seen) for user in place.taken_by)


def _is_enclosed(queries: Queries, place: Place) -> bool:
    """Whether an inner function reads a variable that holds a value."""
    names = {name for name, values in place.unit.code.definitions.items() if place.number in values}
    inner = queries.flow.mentions.inner(place.unit)
    return any(value.op == "free" and value.data[1] in names for unit in inner for value in unit.code.values)


def _uses(queries: Queries, user: Place, place: Place, seen: set[tuple[object, int]]) -> bool:
    op = user.value.op
    if op in ("phi", "mut"):
        return _is_used(queries, user, seen)
    if op == "attr":
        return user.value.data not in _TELLING
    if op == "store_attr" and user.value.args[1] == place.number:
        return any(_is_used(queries, read, seen) for read in queries.attributes(user.value.data))
    return not (op == "call" and user.method == "isinstance") and op not in ("compare", "unary")


INCORRECT = [
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
]

CORRECT = [
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
