"""Data that is shared out among ranks, and then once more.

What it does
    Follows what a rank takes its share of (a `DistributedSampler`, `split_dataset_by_node`, `dataset.shard`,
    `x[rank::size]`, `i % size == rank` in a loop, a data loader that `Accelerator.prepare` gets, one of a module of
    Lightning, whose Trainer makes a `DistributedSampler` for it, or the data set of a Trainer of transformers) back
    through variables, attributes, data loaders, data sets of the project and what callers pass. Reported where it is a
    share already, of the same ranks; and where the length of such a share (`len(sampler)`, `len(loader)`) is divided by
    the number of these ranks. Silent where the sampler of the loader may be None.

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
from validator.flow.queries.origins import passed_from, trail
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.rank_shares import (
    LOADER,
    Share,
    axes_of_rank,
    axes_of_size,
    dealt_by_lightning,
    dealt_by_trainer,
    prepared,
    shares,
)
from validator.flow.queries.ranks.share_lengths import ShareLengths
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP551", "shared-out-twice", "warning", "1.0", tokens=("rank", "DistributedSampler", "prepare"), solves=True
)
_THROUGH = frozenset({
    LOADER, "torch.utils.data.Subset", "torch.utils.data.BatchSampler", "list", "tuple", "sorted", "iter",
})  # fmt: skip
_BESIDE = {"DataLoader": ("sampler", 3), "Subset": ("indices", 1)}


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    found = [share for share in shares(queries) if not is_aside(share.user.unit.path)]
    users = {(share.user.unit, share.user.number): share for share in found}
    for second in [*found, *prepared(queries), *dealt_by_lightning(queries), *dealt_by_trainer(queries)]:
        first = _before(second, users) if second.whole is not None else None
        if first is not None:
            yield _finding(first, second)
    yield from _divided(queries, ShareLengths(queries, found, list(prepared(queries))))


def _divided(queries: Queries, lengths: ShareLengths) -> Iterator[Finding]:
    """Lengths of shares that are divided by the number of the ranks that have them."""
    for unit in queries.beside(*queries.flow.models.likely["sizes"], "get_world_size", "num_processes"):
        for place in queries.values(unit, "binary") if not is_aside(unit.path) else ():
            among = axes_of_size(place.operand(1)) if place.value.data in ("Div", "FloorDiv") else SOME
            found = lengths.behind(place.operand(0)) if among != SOME else []
            if found and all(axes_of_rank(share.rank) == among for share in found):
                yield _of_length(place, found[0])


def _before(second: Share, users: dict[tuple[Unit, int], Share]) -> Share | None:
    """The share of the same ranks that is shared out here."""
    axes = axes_of_rank(second.rank)
    for place in _trail(second.whole) if axes != SOME and second.whole is not None else ():
        first = users.get((place.unit, place.number))
        if first is not None and first.user != second.user and axes_of_rank(first.rank) == axes:
            return first
    return None


def _trail(whole: Place) -> Iterator[Place]:
    """What a value may have been before; of a data loader its sampler as well, of a part of the data its indices, of a
    data set of the project the rows of which it has as many elements."""
    for place in trail(whole, _THROUGH):
        yield place
        rows = _rows_of(place) if place.value.op == "call" else None
        if rows is not None:
            yield from trail(rows, _THROUGH)
        beside = _BESIDE.get(place.method) if place.value.op == "call" else None
        chosen = place.argument(*beside) if beside is not None else None
        if chosen is not None:
            yield from trail(chosen, _THROUGH)


def _rows_of(made: Place) -> Place | None:
    """What a call passes to the constructor of a data set that is as long as that: `len(self.rows)`."""
    classes = {o[1] for o in made.operand(0).closed.each if o[0] == "class"}
    cls = classes.pop() if len(classes) == 1 else None
    methods = [cls.find(name) for name in ("__len__", "__init__")] if cls is not None else []
    length, init = (made.flow.unit_of(each) if each is not None else None for each in methods or (None, None))
    if length is None or init is None or len(length.code.returned) != 1:
        return None
    counted = Place(made.flow, length, length.code.returned[0]).root
    asked = counted.operand(1).root if counted.value.op == "call" and counted.method == "len" else counted
    if asked.value.op != "attr" or not length.is_receiver(asked.operand(0).root.number):
        return None
    for number, value in enumerate(init.code.values):
        if value.op == "store_attr" and value.data == asked.value.data and init.is_receiver(value.args[0]):
            kept = Place(made.flow, init, number).operand(1).root
            given = passed_from(made, kept) if kept.value.op == "param" else kept
            return given if given.unit is made.unit else None
    return None


def _finding(first: Share, second: Share) -> Finding:
    among = "all ranks" if axes_of_rank(second.rank) == WHOLE else "the same ranks"
    does = f"shares out among {among} what is the share of a rank already"
    return _report(second.user, does, "share it out once: by the sampler, or by the data set", first)


def _of_length(quotient: Place, share: Share) -> Finding:
    does = "divides among the ranks what is the length of one rank's share already"
    return _report(quotient, does, "use the length as it is, or divide that of the whole data set", share)


def _report(place: Place, does: str, help: str, first: Share) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.text}`{place.where} {does}",
        help=help,
        related=[Related(first.user.unit.path, first.user.at[0], "shared out here first")],
        context=f"{place.unit.qualname}:{place.text}",
    )


_OF_TRAINER = """
import json
import os
from torch.utils.data import Dataset
from transformers import Trainer

class Ranked(Trainer):
    {own}

class Rows(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, number):
        return self.data[number]

def load(path):
    data = json.load(open(path))
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return data[rank::size]

def main(args, model):
    rows = Rows(load(args.train))
    Ranked(model=model, args=args, train_dataset=rows).train(){mark}
"""
_LIGHTNING = """
import lightning.pytorch as pl
from torch.utils.data import DataLoader, Subset

class Data(pl.LightningDataModule):
    def __init__(self, rows):
        self.rows = rows

    def setup(self, stage=None):
        mine = range(self.trainer.global_rank, len(self.rows), self.trainer.world_size)
        self.part = Subset(self.rows, mine)

    def train_dataloader(self):
        return DataLoader(self.part, batch_size=4, shuffle=True){mark}

def main(model, rows):
    pl.Trainer(devices=8{options}).fit(model, Data(rows))
"""

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
    _LIGHTNING.format(options="", mark="  # error: MP551"),
    _OF_TRAINER.format(own="pass", mark="  # error: MP551"),
    # the length of a share, divided once more: under an attribute of the options, too
    """
import argparse
import numpy as np
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler, SubsetRandomSampler

class Momentum:
    def __init__(self, args):
        rounds = args.rounds_per_epoch / dist.get_world_size()  # error: MP551
        self.rounds = int(rounds * args.epochs)

def loader_of(data, cached):
    if cached:
        sampler = SubsetRandomSampler(np.arange(dist.get_rank(), len(data), dist.get_world_size()))
    else:
        sampler = DistributedSampler(data, shuffle=False)
    return DataLoader(data, batch_size=4, sampler=sampler)

def lengths(data):
    sampler = DistributedSampler(data, shuffle=False)
    part = data[dist.get_rank() :: dist.get_world_size()]
    rounds = len(sampler) // dist.get_world_size()  # error: MP551
    return rounds, len(part) / dist.get_world_size()  # error: MP551

def prepared(model, data):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(model, DataLoader(data))
    return model, len(loader) // accelerator.num_processes  # error: MP551

def main(args, data):
    args.rounds_per_epoch = len(loader_of(data, args.cached))
    return Momentum(args), lengths(data), prepared(None, data)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cached", action="store_true")
    main(parser.parse_args(), list(range(100)))
""",
]

CORRECT = [
    _LIGHTNING.format(options=", use_distributed_sampler=False", mark=""),
    _OF_TRAINER.format(own="def get_train_dataloader(self):\n        return make(self.train_dataset)", mark=""),
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
    # lengths of what is whole, or may be, of a share of other ranks; an option that may be given
    """
import argparse
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler

def lengths(data, several, group):
    size = dist.get_world_size()
    dealt = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
    perhaps = DataLoader(data, sampler=DistributedSampler(data) if several else None)
    yield len(data) // size, len(DataLoader(data)) // size, len(perhaps) // size
    yield len(dealt) * size, len(dealt) // 4, len(dealt.dataset) // size, len(dealt) * size // size
    yield len(dealt) // dist.get_world_size(group)
    accelerator = Accelerator()
    plain = DataLoader(data)
    steps = len(plain) // accelerator.num_processes
    plain = accelerator.prepare(plain)
    yield steps, len(plain)

def main(args, data):
    if args.rounds is None:
        args.rounds = len(DataLoader(data, sampler=DistributedSampler(data, shuffle=False)))
    return args.rounds // dist.get_world_size(), list(lengths(data, args.several, dist.new_group([0, 1])))

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--several", action="store_true")
    main(parser.parse_args(), list(range(100)))
""",
]
