"""A member asked of an object of a library's class that no release of the library has.

What it does
    Reports `receiver.name` (read or called) where the receiver is certain to be an object that code of the project made
    of a class of the standard library, torch, transformers, trl, accelerate, peft, deepspeed, datasets or Lightning,
    and where no release of the library that the tables know gives such an object that name: neither the class, nor one
    above it, nor other code of the library that sets attributes on objects. What an object of a library makes for
    itself, as it is passed nothing, is such an object, too: `loader.sampler` of `DataLoader(data, batch_sampler=x)` is
    a `SequentialSampler`, which has no `set_epoch`. Silent: classes with `__getattr__` or with
    members under computed names; names that the project sets on any object; places behind `hasattr`, `getattr` with a
    default, or `except AttributeError`; objects that a call of a library may have put into one of its own
    (`tqdm(loader)`); tests.

Why is this bad
    It raises AttributeError, often only after an epoch or where a checkpoint is written: `sampler.setepoch(1)`,
    `optimizer.zero_grads()`.

References
    https://docs.python.org/3/reference/expressions.html#attribute-references
    https://docs.pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.library_members import LibraryObjects
from validator.errors import nearest
from validator.finding import Finding
from validator.models.members.classes import members_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP158", "library-member-missing", "error", stable_since="1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    objects = project.analysis(LibraryObjects)
    for place, classes in objects.asked_in_vain():
        name, (line, column, end_line, end_column) = place.value.data, place.at
        made = " nor ".join(f"`{each}`" for each in classes)
        subject = f"{made} has no" if len(classes) == 1 else f"neither {made} has"
        known = sorted(each for cls in classes for each in members_of(cls) or () if not each.startswith("_"))
        hint = nearest(name, known)
        maker = objects.maker(place.operand(0))
        itself = f"`{maker}` made `{place.operand(0).text}` itself, as none was passed: pass one, ask another, or "
        yield RULE.finding(
            place.unit.path,
            (line, column, end_line, end_column),
            f"{subject} `{name}` in any release",
            help=f"{itself if maker else ''}use a member that it has{hint}",
            context=f"{place.unit.scope.qualname}:{classes[0]}.{name}",
        )


INCORRECT = (
    """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(model, dataset, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler)
    for epoch in range(epochs):
        sampler.setepoch(epoch)  # error: MP158
        for batch in loader:
            optimizer.zero_grads()  # error: MP158
            model(batch).backward()
            optimizer.step()
        scheduler.step()
        print(scheduler.get_last_lrs())  # error: MP158
""",
    # an attribute of an object, and a class of the standard library
    """\
import threading
from torch.optim import SGD


class Trainer:
    def __init__(self, model):
        self.optimizer = SGD(model.parameters(), lr=0.1)
        self.done = threading.Event()

    def run(self):
        self.optimizer.load_states({})  # error: MP158
        return self.done.isset()  # error: MP158
""",
    # what a loader makes for itself
    """\
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(model, dataset, epochs):
    batches = BatchSampler(DistributedSampler(dataset), batch_size=8, drop_last=True)
    loader = DataLoader(dataset, batch_sampler=batches)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)  # error: MP158
        for batch in loader:
            model(batch)


class Trainer:
    def __init__(self, dataset):
        self.loader = DataLoader(dataset, 8, shuffle=True, sampler=None)

    def run(self, epochs):
        for epoch in range(epochs):
            sampler = self.loader.sampler
            sampler.set_epoch(epoch)  # error: MP158
            self.loader.batch_sampler.set_epoch(epoch)  # error: MP158
""",
)

CORRECT = (
    # what it has, what is asked for first, what another library sets on it, what the project sets
    """\
import threading
from torch.optim import SGD


def run(model):
    optimizer = SGD(model.parameters(), lr=0.1)
    if hasattr(optimizer, "train_mode"):
        optimizer.train_mode()
    try:
        optimizer.consolidate()
    except AttributeError:
        pass
    optimizer.owner = "trainer"
    stop = threading.Event()
    stop.set()
    return optimizer.param_groups, getattr(optimizer, "fused_state", None), optimizer.owner


def name():
    return threading.current_thread().owner
""",
    # what a library puts around an object, and what the type of an object is
    """\
from torch.utils.data import DataLoader
from tqdm import tqdm


class Trainer:
    def __init__(self, dataset):
        self.loader = tqdm(DataLoader(dataset))

    def run(self):
        self.loader.set_postfix(loss=0.0)
        bar = tqdm(DataLoader(self.loader.iterable))
        bar.set_postfix(loss=0.0)
        return type(self).fields
""",
    # a member of an enumeration has what its body says as its value
    """\
from enum import Enum, auto
from pathlib import Path


class Format(Enum):
    AUTO = auto()
    ROOT = Path("data")

    def matches(self, name):
        return self.name == name


def check(name):
    return Format.AUTO.matches(name), Format.ROOT.value.exists()
""",
    # a class that hands on whatever its objects are asked for, and objects that may be others
    """\
import argparse
import threading
from torch.optim import SGD


def run(model, wrap, distributed):
    args = argparse.Namespace(steps=3)
    optimizer = SGD(model.parameters(), lr=0.1)
    wrapped = wrap(optimizer)
    local = threading.local()
    return args.steps, wrapped.loss_scale, local.stack
""",
    # the sampler that was passed, perhaps; what it is asked for first; what another library has put around the loader
    """\
from accelerate import Accelerator
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.distributed import DistributedSampler


class Buckets(BatchSampler):
    def set_epoch(self, epoch):
        self.epoch = epoch


def loader_of(dataset, distributed, sampler=None):
    sampler = DistributedSampler(dataset) if distributed else sampler
    return DataLoader(dataset, 8, shuffle=sampler is None, sampler=sampler)


def either(dataset, distributed):
    if distributed:
        return DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    return DataLoader(dataset, 8, shuffle=True)


def train(dataset, epochs, options):
    known = DataLoader(dataset, batch_sampler=BatchSampler(DistributedSampler(dataset), 8, True))
    buckets = DataLoader(dataset, batch_sampler=Buckets(DistributedSampler(dataset), 8, True))
    plain = DataLoader(dataset, 8, shuffle=True)
    spread = DataLoader(dataset, **options)
    for epoch in range(epochs):
        loader_of(dataset, True).sampler.set_epoch(epoch)
        either(dataset, True).sampler.set_epoch(epoch)
        known.batch_sampler.sampler.set_epoch(epoch)
        buckets.batch_sampler.set_epoch(epoch)
        spread.sampler.set_epoch(epoch)
        if isinstance(plain.sampler, DistributedSampler):
            plain.sampler.set_epoch(epoch)
        if hasattr(plain.batch_sampler, "set_epoch"):
            plain.batch_sampler.set_epoch(epoch)
        print(plain.sampler.data_source, plain.batch_sampler.sampler.num_samples)


def prepared(dataset, epochs):
    accelerator = Accelerator()
    loader = accelerator.prepare(DataLoader(dataset, 8, shuffle=True))
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        loader.batch_sampler.set_epoch(epoch)
""",
    # what is entered is what was passed
    """\
import socket
from contextlib import closing


def free_port():
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as s:
        s.bind(("", 0))
        return s.getsockname()[1]
""",
    """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Experts(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(count, width, width))

    def forward(self, x):
        return x @ self.w1.to_local()[0]


def build(count, width):
    return fully_shard(Experts(count, width))
""",
    # one of two context managers, of which the tables do not know the one; what another one hands on
    """\
import torch
from contextlib import nullcontext


def run(model, batches, traced, handle):
    profiler = torch.profiler.profile(activities=[]) if traced else nullcontext()
    with profiler as run, nullcontext(handle) as held:
        for batch in batches:
            model(batch)
            held.write(batch)
            if traced:
                run.step()
""",
)
