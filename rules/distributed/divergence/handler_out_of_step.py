"""A collective that the ranks reach, or miss, by an exception.

What it does
    Takes each place of a `try` block that may fail on one rank alone: a call that reads a file or the network, `next`,
    a `raise` under a test that ranks answer differently, a forward or backward that runs out of memory, a key or number
    that differs between ranks. Compares the collectives of the rank that comes to the handler, or to `finally`, with
    those of the ranks that did not fail, to the end of the function. Silent where the exception means the same on every
    rank (missing modules, arguments or files) and where the handler raises or ends the process. A handler of anything
    is a warning.

Why is this bad
    An exception happens on one rank at a time: it alone comes to the collective in the handler, or it alone leaves the
    collective out. The others wait until the time-out of the process group.

References
    https://pytorch.org/docs/stable/distributed.html#torch.distributed.monitored_barrier
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.effects.handlers import OutOfStep, OutOfSteps
from validator.effects.trace import Issued
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP507", "handler-out-of-step", "warning", "0.1.0", tokens=("except", "finally", "suppress"))

_IN_HANDLER = (
    "note the failure in a variable, leave the handler, and let all ranks make the collective (`all_reduce` of a flag,"
    " to learn whether anybody failed)"
)
_LEFT_OUT = (
    "do the part that can fail before the collective, and let all ranks agree (`all_reduce` of a flag) on whether to"
    " go on"
)


def check_project(project: Project) -> Iterator[Finding]:
    for found in OutOfSteps(project):
        if not is_aside(found.unit.path):  # a test that fails is stopped by whoever started it
            yield _report(found)


def _report(found: OutOfStep) -> Finding:
    unit, mine, other = found.unit, found.mine, found.other
    values = unit.code.values
    where = f"`{unit.qualname}`" if unit.qualname != "<module>" else "the module"
    fails = Related(unit.path, found.fails[0], f"`{_shortened(unit.text(found.fails))}` may fail on one rank alone")
    if found.handler.is_finally:
        assert isinstance(mine, Issued)
        at, what, clause = mine.at, "fails comes to `finally`", mine.here
    else:
        clause = values[found.handler.caught].at
        names = values[found.handler.caught].data
        what = f"catches `{names}`" if names != "*" else "catches anything"
        at = unit.at((clause[0], clause[1], clause[0], clause[1] + 6))
    # a handler around calls may be the end of the program: then nobody waits for long
    far = any(isinstance(each, Issued) and each.via for each in (mine, other))
    inside = isinstance(mine, Issued) and clause[0] <= mine.here[0] <= clause[2]
    if isinstance(mine, Issued) and not (isinstance(other, Issued) and not inside):
        at = mine.at if inside and not mine.via else at
        then = f"the others wait in `{other.name}`" if isinstance(other, Issued) else "the others never call it"
        message = f"not every rank reaches `{mine.name}`: in {where} only a rank that {what} gets there; {then}"
        related, help_, name = [fails], _IN_HANDLER, mine.name
    else:
        assert isinstance(other, Issued)
        message = f"in {where} a rank that {what} goes on without `{other.name}`, in which the others wait"
        related = [Related(other.path, other.at[0], f"`{other.name}` is reached here"), fails]
        help_, name = _LEFT_OUT, other.name
    return RULE.finding(
        unit.path,
        at,
        message,
        help=help_,
        related=related,
        context=f"{unit.qualname}:{name}",
        severity="note" if far else "error" if found.sure else "warning",
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"


INCORRECT = [
    """
import torch.distributed as dist

def step(model, batch):
    try:
        loss = model(batch)
    except RuntimeError:
        dist.barrier()  # error: MP507
        return None
    return loss
""",
    """
import torch
import torch.distributed as dist

def train(model, batches):
    for batch in batches:
        try:
            loss = model(batch)
            dist.all_reduce(loss)
        except torch.cuda.OutOfMemoryError:  # error: MP507
            torch.cuda.empty_cache()
            continue
""",
    """
import deepspeed
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Strategy:
    def prepare(self, model, optimizer):
        engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer)
        return engine, optimizer

    def backward(self, loss, model):
        model.backward(loss)

class Trainer:
    def __init__(self, strategy: Strategy, model):
        self.strategy = strategy
        self.model = model

    def fit(self, batches):
        for batch in batches:
            loss = self.model(batch)
            try:
                self.strategy.backward(loss, self.model)
            except torch.cuda.OutOfMemoryError:  # error: MP507
                continue

class Sharding(Strategy):
    def prepare(self, model, optimizer):
        return FSDP(model), optimizer

    def backward(self, loss, model):
        (loss / self.turns).backward()

def main(sharding: Sharding, model, optimizer, batches):
    model, optimizer = sharding.prepare(model, optimizer)
    Trainer(sharding, model).fit(batches)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)

class Trainer:
    def __init__(self, model):
        self.model = model

    def evaluate(self, batches):
        for batch in batches:
            try:
                self.model(batch)
            except torch.cuda.OutOfMemoryError:  # error: MP507
                continue

def main(model, batches):
    model = shard(model)
    Trainer(model).evaluate(batches)
""",
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, batches, optimizer):
    model = DDP(model)
    for batch in batches:
        loss = model(batch)
        try:
            loss.backward()
        except RuntimeError as error:  # error: MP507
            print("out of memory:", error)
        optimizer.step()

def skip(model, batches):
    model = DDP(model)
    for batch in batches:
        try:
            model(batch).mean().backward()
        except RuntimeError as error:  # error: MP507
            if "out of memory" in str(error):
                torch.cuda.empty_cache()
                continue
            raise

def accelerated(accelerator, model, batches):
    for batch in batches:
        try:
            accelerator.backward(model(batch).loss)
        except torch.OutOfMemoryError:  # error: MP507
            continue
""",
]

CORRECT = [
    # behind the loop all meet, whether it ended or was left
    """
import torch
import torch.distributed as dist

def fetch(name, group):
    data = read(name)
    if group is not None:
        dist.barrier(group)
    return data

def read(name):
    with open(name) as file:
        return file.read()

def read_all(names):
    failed = False
    try:
        for name in names:
            fetch(name, None)
    except Exception:
        failed = True
    flag = torch.tensor(failed)
    dist.all_reduce(flag)
    return bool(flag)
""",
    """
import torch
import torch.distributed as dist

def train(model, batches, failed):
    for batch in batches:
        try:
            loss = model(batch)
        except torch.cuda.OutOfMemoryError:
            failed.fill_(1)
            loss = torch.zeros(1)
        dist.all_reduce(failed)
        dist.all_reduce(loss)
""",
    """
import torch.distributed as dist

def step(model, batch, flag):
    try:
        loss = model(batch)
    except RuntimeError:
        loss = None
        dist.all_reduce(flag)
    else:
        dist.all_reduce(flag)
    return loss

def gather(out, x):
    try:
        dist.all_gather_into_tensor(out, x)
    except RuntimeError:
        dist.all_gather(list(out), x)
    try:
        from fast import reduce
    except ImportError:
        dist.all_reduce(x)
""",
    """
import torch
import torch.distributed as dist

def train(model, batch):
    try:
        loss = model(batch)
        dist.all_reduce(loss)
    except torch.cuda.OutOfMemoryError:
        print("out of memory: use smaller batches")
        raise
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model, draft):
        self.model = fully_shard(model)
        self.draft = draft

    def propose(self, batches):
        for batch in batches:
            try:
                self.draft(batch)
            except torch.cuda.OutOfMemoryError:
                continue

def train(model, draft, loss, batches):
    return Trainer(model, draft).propose(batches)
""",
    """
import sys
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, draft, batches, optimizer):
    model = DDP(model)
    for batch in batches:
        loss = model(batch)
        try:
            loss.backward()
        except torch.cuda.OutOfMemoryError:
            sys.exit("out of memory")
        optimizer.step()

def train_draft(draft, batches):
    for batch in batches:
        loss = draft(batch)
        try:
            loss.backward()
        except torch.cuda.OutOfMemoryError:
            continue

def explained(model, batches):
    model = DDP(model)
    for batch in batches:
        try:
            model(batch).mean().backward()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                print("not for lack of memory")
            raise
""",
    # a function of the program ends the process
    """
import os
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def give_up(error):
    print("out of memory:", error, flush=True)
    os._exit(1)

def train(model, batches):
    model = DDP(model)
    for batch in batches:
        try:
            model(batch).mean().backward()
        except torch.cuda.OutOfMemoryError as error:
            give_up(error)
""",
]
