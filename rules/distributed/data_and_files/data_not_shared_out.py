"""A loader that gives every rank all of the data to train on.

What it does
    Reports a loop that trains a model inside DDP or FSDP, or one that `Accelerator.prepare` gave back, on the batches
    of a `DataLoader` that the program makes without a sampler, or on a sampler that is None, where nobody gives the
    loader to `prepare`. The data set must be known: a class of the project, or of a library, with elements by number,
    that asks for no rank and is given nothing that differs between ranks. Silent where a shuffled loader draws from a
    seed of the rank's own, and where workers or a generator are set up in a way of their own.
    With Lightning, which puts the samplers in by itself, reported is where it is told not to
    (`use_distributed_sampler=False`; before 2.0 `replace_sampler_ddp`), by code or by a file that holds other arguments
    of its Trainer, if no loader of the project gets a sampler and no module with loaders or data sets shares anything
    out.

Why is this bad
    Each rank goes through all the data: with one seed all ranks compute the same gradients of the same batches, and
    more GPUs give nothing. An epoch takes as long as on one GPU. Nothing fails.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
    https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.prepare
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.domains.axes import WORLD
from validator.domains.placement import certainly, spanned
from validator.facts.config_files import Settings
from validator.facts.model import At
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import calls_behind
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.rank_shares import INJECTING, LOADER, shares
from validator.flow.queries.training.gradients import Trained, handed_losses, losses
from validator.flow.queries.training.loaders import loaders_of
from validator.models.signatures import signature
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP575", "data-not-shared-out", "warning", "1.0",
    tokens=("DataLoader",), languages=("python", "yaml"), solves=True,
)  # fmt: skip

_SAMPLERS = (("sampler", 3), ("batch_sampler", 4))
_OWN = (("worker_init_fn", 9), ("generator", -1))
_WRAPPED = ("ddp", "fsdp1", "fsdp2", "prepared")
_TRAINER = "lightning.Trainer"
_BESIDE = 3  # arguments of the Trainer that a section of a file holds, by which it is known


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    seen: set[Place] = set()
    for call, loss in (*losses(queries), *handed_losses(queries)):
        if is_aside(call.unit.path):
            continue
        for batch in _batches(call):
            loaders = loaders_of(batch.iterable) if batch.iterable is not None else []
            model = _model_given(queries, loss, batch) if loaders and not _is_divided(queries, batch) else None
            for loader in loaders if model is not None else ():
                if loader not in seen and _is_whole(queries, loader):
                    seen.add(loader)
                    yield _finding(loader, batch, model)
    yield from _left_to_loaders(queries)


def _left_to_loaders(queries: Queries) -> Iterator[Finding]:
    """Where Lightning is told to leave loaders as they are, and nobody shares the data out."""
    switched = [*_switched_in_code(queries), *_switched_in_files(queries)]
    loaders = [call for call in queries.calls(LOADER) if not is_aside(call.unit.path)] if switched else []
    if not loaders or any(_has_sampler(call) for call in loaders):
        return
    modules = {call.unit.module for call in loaders} | {cls.module for cls in queries.project.classes() if _feeds(cls)}
    if any(share.user.unit.module in modules for share in shares(queries)):
        return
    for path, at, name in switched:
        yield RULE.finding(
            path,
            at,
            f"`{name}` is false: Lightning leaves the loaders as they are, none has a sampler, and nothing shares the"
            " data out: each rank trains on all of it",
            help=f"leave `{name}` out, or give the loaders a `DistributedSampler`",
            related=[Related(loaders[0].unit.path, loaders[0].at[0], "a loader without a sampler")],
            context=name,
        )


def _switched_in_code(queries: Queries) -> Iterator[tuple[str, At, str]]:
    for call in queries.calls(_TRAINER):
        for name in INJECTING if not is_aside(call.unit.path) else ():
            given = call.argument(name)
            if given is not None and given.closed.is_const(False):
                yield call.unit.path, given.at, name


def _switched_in_files(queries: Queries) -> Iterator[tuple[str, At, str]]:
    known = signature(_TRAINER)
    names = {param.name for release in known.releases for param in known.parameters(release)} if known else set()
    if not any(True for _ in queries.calls_anywhere(_TRAINER, f"{_TRAINER}.from_argparse_args")):
        return
    for source in queries.project.files.values():
        settings: Settings = source.facts.extra.get("settings", Settings())
        for each in settings.settings:
            if each.path[-1] in INJECTING and each.value is False:
                beside = {row.path[-1] for row in settings.below(*each.path[:-1])}
                if len(beside & names) >= _BESIDE:
                    yield source.path, each.at, each.path[-1]


def _has_sampler(loader: Place) -> bool:
    names = loader.value.data.names
    given = [loader.argument(*each) for each in _SAMPLERS]
    return "*" in names or "**" in names or any(each is not None and not each.closed.is_const(None) for each in given)


def _feeds(cls: ClassDef) -> bool:
    """Whether a class is a data set, a sampler or what Lightning asks for loaders."""
    names = {base.rpartition(".")[2] for base in cls.external_bases}
    return any(name.endswith(("Dataset", "Sampler", "DataModule")) for name in names)


def _finding(loader: Place, batch: Place, model: Place | None) -> Finding:
    text = model.text if model is not None else ""
    return RULE.finding(
        loader.unit.path,
        loader.at,
        f"`{loader.method}`{loader.where} has no sampler, and nobody prepares it: each rank trains `{text}` on all"
        " of the data",
        help="pass `sampler=DistributedSampler(dataset)`, or give the loader to `Accelerator.prepare`",
        related=[Related(batch.unit.path, batch.at[0], "trained on here")],
        context=f"{loader.unit.qualname}:{loader.text}",
    )


def _batches(place: Place) -> Iterator[Place]:
    """The elements of the loops around a place, in its unit and around the only call of that."""
    here: Place | None = place
    seen = set()
    while here is not None and here.unit not in seen:
        seen.add(here.unit)
        for header in here.unit.control.loops_around(here.value.block):
            iterator = here.unit.code.loops[header].iterator
            for number, value in enumerate(here.unit.code.values):
                if value.op == "next" and value.args[0] == iterator:
                    yield here.value_at(number)
        here = here.outside


def _is_divided(queries: Queries, batch: Place) -> bool:
    """Whether a rank takes its part of a batch: something in the function, or in what it calls, asks for the rank."""
    ranks = queries.flow.models.ranks
    asking = set(queries.mentioning(*ranks["names"], *ranks["methods"]))
    for call in queries.calls_in(batch.unit):
        given = (part for number in call.value.args[1:] for part in call.value_at(number).parts)
        divides = "split" in call.method or not asking.isdisjoint(queries.targets(call))
        if divides and any(part.number == batch.number for part in given):
            return True
    return any(place.operand(1).varies("rank", "member") for place in queries.values(batch.unit, "item", "compare"))


def _model_given(queries: Queries, loss: Place, batch: Place) -> Place | None:
    """The wrapped model that a batch goes into, through which a loss is trained."""
    model = None
    fed = False
    for call in queries.project.analysis(Trained).through(loss):
        given = [call.value_at(number) for number in call.value.args[1:]]
        fed = fed or call.unit is batch.unit and any(batch.number == p.number for each in given for p in each.parts)
        callee = call.operand(0).closed
        if certainly(callee.state, *_WRAPPED) and WORLD in spanned(callee.state):
            is_part = call.receiver is not None and certainly(call.receiver.closed.state, *_WRAPPED)
            model = model or (None if is_part else call.operand(0))
    return model if fed or model is not None and model.unit is not batch.unit else None


def _is_whole(queries: Queries, loader: Place) -> bool:
    """Whether a loader surely goes through all of a data set on every rank."""
    if _has_sampler(loader):
        return False
    if any(loader.argument(*each) is not None for each in _OWN):
        return False
    dataset = loader.argument("dataset", 0)
    shuffle = loader.argument("shuffle", 2)
    drawn = shuffle is not None and not shuffle.closed.is_const(False)
    return dataset is not None and not (drawn and _seeds_apart(queries)) and _is_map_of_all(queries, dataset)


def _seeds_apart(queries: Queries) -> bool:
    """Whether the program seeds a generator with what differs between ranks."""
    seeding = sorted({name for names in queries.flow.models.seeds.values() for name in names})
    given = (call.value_at(number) for call in queries.calls(*seeding) for number in call.value.args[1:])
    return any(each.varies("rank", "member", "data") for each in given)


def _is_map_of_all(queries: Queries, dataset: Place) -> bool:
    """Whether a data set surely has elements by number, the same ones on all ranks."""
    made = calls_behind(dataset, _makes_dataset)
    if not made or dataset.varies("rank", "member", "data"):
        return False
    return all(_is_alike(queries, call) for call in made)


def _makes_dataset(call: Place) -> bool:
    return all(_is_map(o) for o in call.operand(0).closed.each) and bool(call.operand(0).closed.each)


def _is_map(o: tuple[object, ...]) -> bool:
    """Whether what is called makes a data set whose elements have numbers."""
    if o[0] == "ext":
        return str(o[1]).startswith("torchvision.datasets.") or str(o[1]) == "torch.utils.data.TensorDataset"
    cls = o[1]
    if o[0] != "class" or not isinstance(cls, ClassDef):
        return False
    outer = {base.rpartition(".")[2] for base in cls.external_bases}
    return outer == {"Dataset"} and cls.find("__getitem__") is not None and cls.find("__iter__") is None


def _is_alike(queries: Queries, made: Place) -> bool:
    """Whether a data set is made alike on all ranks, and asks nobody for the rank."""
    if any(made.value_at(number).varies("rank", "member", "data") for number in made.value.args[1:]):
        return False
    classes = [o[1] for o in made.operand(0).closed.each if o[0] == "class"]
    own = {method for cls in classes for each in cls.mro for method in each.every_method()}
    ranks = queries.flow.models.ranks
    asking = queries.mentioning(*ranks["names"], *ranks["methods"], *ranks["attributes"], *ranks["environment"])
    return not any(unit.method in own for unit in asking) and all(_reads_its_number(queries, cls) for cls in classes)


def _reads_its_number(queries: Queries, cls: ClassDef) -> bool:
    """Whether a data set looks at the number of the element that it is asked for: others draw one themselves."""
    method = cls.find("__getitem__")
    unit = queries.flow.unit_of(method) if method is not None else None
    if unit is None:
        return False
    return any(place.value.data[0] == 1 and place.users for place in queries.values(unit, "param"))


_PROGRAM = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

class Lines(Dataset):
    def __init__(self, path):
        self.lines = open(path).readlines()

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, number):
        return torch.tensor([float(self.lines[number])])

class Mine(Lines):
    def __len__(self):
        return len(self.lines) // dist.get_world_size()

    def __getitem__(self, number):
        return super().__getitem__(number * dist.get_world_size() + dist.get_rank())

class Stream(IterableDataset):
    def __iter__(self):
        return iter(())

def train(model, optimizer, loader):
    for step, batch in enumerate(loader):
        loss = model(batch.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def main(distributed):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    {before}
    model = DDP(torch.nn.Linear(1, 1).to(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = {data}
    loader = {loader}
    for epoch in range(3):
        train(model, optimizer, loader)

main(True)
"""
_WHOLE = "DataLoader(data, batch_size=4, shuffle=True)"


def _program(loader: str = _WHOLE, data: str = 'Lines("lines.txt")', before: str = "pass") -> str:
    return _PROGRAM.format(loader=loader, data=data, before=before)


_ACCELERATED = """
from accelerate import Accelerator
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST

class Trainer:
    def __init__(self, model, optimizer):
        self.accelerator = Accelerator()
        self.loader = DataLoader(MNIST("data"), batch_size=4){mark}
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        {more}

    def step(self, images, labels):
        loss = self.model(images, labels)
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fit(self):
        for images, labels in self.loader:
            self.step(images, labels)
"""

_MODULE = """# file: data.py
import torch
import pytorch_lightning as pl
from torch.utils.data import DataLoader

class Module(pl.LightningDataModule):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=4, shuffle=True{sampler})
# file: train.py
import pytorch_lightning as pl
import torch.distributed as dist
from omegaconf import OmegaConf

from data import Module

def main(model, rows):
    options = OmegaConf.load("train.yaml").trainer
    trainer = pl.Trainer(devices=8, strategy="ddp"{code})
    trainer = pl.Trainer(**options)
    trainer.fit(model, Module(rows))
    print(dist.get_rank())
# file: train.yaml
trainer:
  devices: 8
  precision: 16
  max_steps: 1000
  {file}
"""

INCORRECT = [
    _program(_WHOLE + "  # error: MP575"),
    _program("DataLoader(dataset=data, sampler=None, num_workers=2)  # error: MP575"),
    _ACCELERATED.format(mark="  # error: MP575", more="pass"),
    _MODULE.format(sampler="", code="", file="replace_sampler_ddp: false  # error: MP575"),
    _MODULE.format(sampler="", code=", use_distributed_sampler=False", file="").replace(
        "_sampler=False)", "_sampler=False)  # error: MP575"
    ),
]

CORRECT = [
    _program("DataLoader(data, sampler=DistributedSampler(data) if distributed else None)"),
    _program("DataLoader(data, batch_sampler=torch.utils.data.BatchSampler(DistributedSampler(data), 4, True))"),
    _program(data="Stream()"),
    _program(data='Mine("lines.txt")'),
    _program(data='Lines(f"lines-{dist.get_rank()}.txt")'),
    _program(before="torch.manual_seed(dist.get_rank())"),
    _program('DataLoader(data, **{"sampler": DistributedSampler(data)})'),
    _program(data="torch.load('data.pt')"),
    _ACCELERATED.format(mark="", more="self.loader = self.accelerator.prepare(self.loader)"),
    _MODULE.format(sampler="", code="", file="replace_sampler_ddp: true"),
    _MODULE.format(
        sampler=", sampler=torch.utils.data.DistributedSampler(self.rows)",
        code=", use_distributed_sampler=False",
        file="",
    ),
]
