"""A collective that only some ranks of its group reach.

What it does
    Follows what each rank does at a branch that tests who it is (`get_rank()`, `is_rank_0()`, `LOCAL_RANK`, a mesh
    coordinate, an attribute, an argument or the field of a dataclass that holds one, something that only some ranks
    have, such as a `self.writer` that is None on the others) and compares the collectives of both ways to the end of
    the function, through calls, overrides and early exits. Does the same at a loop over a container into which some
    ranks alone have put something: a key that the others never use, one more element. Reported where the sequences
    differ on a group whose ranks take different ways; a group made by `new_group()` without ranks holds them all. A
    barrier that is the first or last statement under a plain test for the rank can be lifted out of it. A model that
    `DistributedDataParallel` wraps waits in `forward` without gradients, too, if it surely has buffers (`BatchNorm`,
    `register_buffer`): a warning, as of several such passes after each other only the first one brings them. A call on
    an object of which nothing is known is followed where one family of classes of the project alone has a method of
    that name, of several words and known of no library; what rests on that is a warning at most. A warning, too, where
    a method of actors runs on one of a group alone (`self.actors[0].save.remote(path)`), and others on all of them.

Why is this bad
    The ranks that arrive wait for the ones that never come. Nothing is printed; the job hangs until the time-out of
    the process group (30 minutes and more), then dies with a message about another collective.

References
    https://pytorch.org/docs/stable/distributed.html#collective-functions
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.effects.divergence import Divergences
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP501", "rank-divergent-collective", "error", "0.1.0", tokens=("torch", "accelerat", "deepspeed"))

HELP = (
    "call the collective on every rank of the group and keep only the rank-specific work (printing, writing files) "
    "inside the branch; or use a group that holds just the ranks that get here"
)

# Functions that a decorator lets one rank alone run.
_DECORATED = """\
from enum import Enum

import torch.distributed as dist
from accelerate import Accelerator
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_only

accelerator = Accelerator()


class Execute(Enum):
    ALL = 0
    RANK_ZERO = 1


def register(execute_mode=Execute.ALL):
    def keep(function):
        function.execute_mode = execute_mode
        return function

    return keep


class Saver(Callback):
    @rank_zero_only
    def on_train_end(self, trainer, module):
        print("saving")
{barrier}

class Worker:
    @register(execute_mode=Execute.{mode})
    def save(self, path):
        self.gather(path)

    def gather(self, path):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, path){mark}
        return parts


@accelerator.on_main_process
def report(losses):
    {report}
"""

_EVALUATION = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        {buffer}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Block(), nn.Linear(8, 8))

@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    for batch in batches:
        print(model(batch)){mark}

def main(batches, local_rank):
    model = DDP(Net().to(local_rank), device_ids=[local_rank]{options})
    for batch in batches{cut}:
        model(batch).sum().backward()
    if {test}:
        evaluate(model, batches)
    dist.barrier()
"""


def _evaluated(buffer: str, mark: str = "", options: str = "", test: str = "dist.get_rank() == 0") -> str:
    cut = "" if test != "batches" else "[:1]"
    return _EVALUATION.format(buffer=buffer, mark=mark, options=options, test=test, cut=cut)


_RESUMED = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

class Trainer:
    def __init__(self, model, optimizer):
        self.rank, self.epoch = dist.get_rank(), 0
        self.model, self.optimizer = DDP(model), optimizer

    def resume(self, path):
        state = torch.load(path)
        self.model.module.load_state_dict(state["model"])
        self.epoch = state["epoch"]

    def start(self, path):
        {start}

    def fit(self, loader, epochs):
        for epoch in range(self.epoch, epochs):
            for batch in loader:
                self.optimizer.zero_grad()
                self.model(batch).sum().backward(){mark}
                self.optimizer.step()

def main(optimizer, path, loader):
    trainer = Trainer(torch.nn.Linear(2, 2), optimizer)
    trainer.start(path)
    trainer.fit(loader, 10)
"""

_METERS = """
from collections import defaultdict
import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

class Meter:
    def __init__(self):
        self.count, self.total = 0, 0.0

    def update(self, value):
        self.count += 1
        self.total += value

    def reduce(self):
        both = torch.tensor([self.count, self.total], device="cuda")
        dist.all_reduce(both){mark}
        self.count, self.total = both.tolist()

class Logger:
    def __init__(self):
        self.meters = defaultdict(Meter)

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(value)

    def reduce(self):
        for meter in self.meters.values():
            meter.reduce()

def train(loader, model, writer):
    logger, own = Logger(), Logger()
    for step, batch in enumerate(loader):
        loss = model(batch)
        logger.update(loss=loss.item(), step=step)
        if writer is not None:
            writer.add_scalar("loss", loss.item())
            {guarded}
    logger.reduce()
    print(own.meters)

def main(loader, model):
    train(loader, model, SummaryWriter("runs") if dist.get_rank() == 0 else None)
"""

_ROWS = """
from dataclasses import dataclass, field
import torch.distributed as dist

@dataclass
class Kept:
    rows: list = field(default_factory=list)

class Base:
    def __init__(self):
        self.kept = Kept()

class Recorder(Base):
    def __init__(self):
        super().__init__()
        self.rank, self.last = dist.get_rank(), {{}}

    def add(self, row, name):
        {add}

    def finish(self):
        for row in self.kept.rows:
            dist.all_reduce(row){mark}

def main(rows, name):
    recorder = Recorder()
    for row in rows:
        recorder.add(row, name)
    recorder.finish()
"""

_TABLE = """
import torch.distributed as dist

def reduce_all(table):
    for key in sorted(table):
        dist.all_reduce(table[key]){mark}

def main(loss, rate):
    table = {{"loss": loss}}
    {before}
    if dist.get_rank() == 0:
        {guarded}
    reduce_all(table)
    {after}
"""


def _reduced(guarded: str, before: str = "pass", after: str = "pass", mark: str = "") -> str:
    return _TABLE.format(guarded=guarded, before=before, after=after, mark=mark)


_SAVING = """# file: train.py
from transformers import Trainer

class Own(Trainer):
    def log_and_save(self, folder):
        self.accelerator.wait_for_everyone()
        {test}
            self._save_optimizer_and_scheduler(folder){mark}

if __name__ == "__main__":
    trainer = Own()
    trainer.train()
    trainer.log_and_save("out")
# file: run.sh
torchrun --nproc_per_node 8 train.py{options}
"""

# A program that evaluates on its first rank, with a helper that takes a model out of what wraps it.
_PICTURES = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def unwrapped(model):
    if hasattr(model, "module"):
        return model.module
    return model

class Codebook(nn.Module):
    def forward(self, codes):
        used = codes.bincount()
        handle = dist.all_reduce(used, async_op=True) if {test} else None{mark}
        if handle is not None:
            handle.wait()
        return codes

class Tokenizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.books = nn.ModuleList()
        for _ in range(4):
            self.books.append(Codebook())

    def sample(self, codes):
        for book in self.books:
            codes = book(codes)
        return codes

class Critic(nn.Module):
    def sample(self, codes):
        return codes

def main(codes):
    dist.init_process_group("nccl")
    tokenizer, critic = DDP(Tokenizer()), DDP(Critic())
    unwrapped(tokenizer).sample(codes)
    if dist.get_rank() == 0:
        unwrapped({shown}).sample(codes)
    dist.barrier()
"""

_HANDED_OVER = """
import torch.distributed as dist

def gathered(rows, group):
    for row in rows:
        dist.all_reduce(row, group=group)
        yield row

def all_of(rows):
    def of_group(rows, group=None):
        yield from gathered(rows, group)

    yield from of_group(rows)

class Updater:
    def __init__(self, workers):
        self.workers = None
        if dist.get_rank() == 0:
            self.workers = workers

    def update(self, rows):
        {before}
        for row in all_of(rows):
            {inside}
            self.workers.send(row)

def main(workers, rows):
    Updater(workers).update(rows)
"""

INCORRECT = [
    """
import torch
import torch.distributed as dist

def walk(rows, size):
    place = dist.get_rank() * size
    while place < len(rows):
        dist.all_reduce(rows[place : place + size].sum())  # error: MP501
        place += size * dist.get_world_size()
""",
    """
import os
import torch.distributed as dist

class Task:
    def __init__(self):
        self.gathers = False

    def prepare(self):
        self.gathers = True

    def save(self, tensor):
        if self.gathers:
            dist.all_reduce(tensor)

def main(args, tensor):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        if os.path.exists(args.out):
            return -1
    dist.barrier()  # error: MP501
    task = Task()
    if args.shard:
        task.prepare()
    task.save(tensor)

if __name__ == "__main__":
    main(read(), tensor())
""",
    """
import deepspeed
import ray
import torch.distributed as dist

@ray.remote(num_gpus=1)
class PolicyActor:
    def __init__(self, rank, engine):
        self.rank, self.engine = rank, engine

    def send(self, channel):
        for param in self.engine.module.parameters():
            if self.rank == 0:
                with deepspeed.zero.GatheredParameters([param]):  # error: MP501
                    channel.send(param.data)
        dist.barrier()
""",
    # what a script shards is saved by all ranks
    _SAVING.format(test="if self.args.should_save:", mark="  # error: MP501", options=" --deepspeed zero2.json"),
    # who goes round again comes to the same place, never to the other one; or may leave the loop before
    """
import torch.distributed as dist

def spin(is_done):
    while True:
        if dist.get_rank() != 0:  # error: MP501
            continue
        dist.barrier()
        if is_done():
            break

def chat(is_done):
    while True:
        if is_done():
            break
        if dist.get_rank() == 0:
            if not input("query: ").strip():
                continue
        dist.barrier()  # error: MP501

def each(texts):
    for text in texts:
        if dist.get_rank() == 0:
            if not text:
                continue
        dist.barrier()  # error: MP501
""",
    # an attribute that one rank alone stores again tells how many rounds there are
    _RESUMED.format(start="if self.rank == 0:\n            self.resume(path)", mark="  # error: MP501"),
    # some ranks alone have put something into what all go through
    _METERS.format(guarded="logger.update(mean=loss.item())", mark="  # error: MP501"),
    _ROWS.format(
        add="if self.rank != 0:\n            return\n        self.kept.rows.append(row)", mark="  # error: MP501"
    ),
    _ROWS.format(
        add="if name in self.last and self.rank == 0:\n            self.kept.rows += [row]", mark="  # error: MP501"
    ),
    _reduced('table["rate"] = rate', mark="  # error: MP501"),
    _reduced("table.update(loss=loss, rate=rate)", mark="  # error: MP501"),
    _reduced('table.setdefault("rate", rate)', mark="  # error: MP501"),
    _reduced('table |= {"rate": rate}', mark="  # error: MP501"),
    # through what `setdefault` has put into a dictionary
    """
import torch
import torch.distributed as dist

class Meter:
    def __init__(self):
        self.total = torch.zeros(1)

    def add(self, value):
        self.total += value

    def reduce(self):
        dist.all_reduce(self.total)  # error: MP501

class Meters:
    def __init__(self):
        self.known = {}

    def add(self, name, value):
        self.known.setdefault(name, Meter()).add(value)

    def flush(self):
        for name in sorted(self.known):
            self.known[name].reduce()

def log(losses):
    meters = Meters()
    for loss in losses:
        meters.add("loss", loss)
    if dist.get_rank() == 0:
        meters.flush()
""",
    # ranks take batches in turns: some have one more
    """
import torch.distributed as dist

def train(model, loader, optimizer):
    rank, world = dist.get_rank(), dist.get_world_size()
    for i, batch in enumerate(loader):
        if i % world != rank:  # error: MP501
            continue
        model(batch).mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
""",
    # -1 is no rank, but 0 is one
    """
import torch.distributed as dist

def reduced(rank, tensor):
    if rank not in (-1, 0):
        dist.all_reduce(tensor)  # error: MP501
    return tensor
""",
    _evaluated("self.norm = nn.BatchNorm1d(8)", "  # error: MP501"),
    _evaluated('self.register_buffer("mean", torch.zeros(8))', "  # error: MP501"),
    """
import torch.distributed as dist

def save(model, path):
    if dist.get_rank() == 0:
        write(model, path)
        dist.barrier()  # error: MP501
""",
    # some ranks are in none of the lists: whether the group is there tells ranks apart
    """
import torch.distributed as dist

GROUP = None

def make_groups(lists):
    global GROUP
    for ranks in lists:
        ends = [ranks[0], ranks[-1]]
        group = dist.new_group(ends)
        if dist.get_rank() in ends:
            GROUP = group

def finish():
    if GROUP is None:  # error: MP501
        return
    dist.barrier()
""",
    """
import torch.distributed as dist

class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()

    def _gather(self, metrics):
        out = [None] * dist.get_world_size()
        dist.all_gather_object(out, metrics)
        return out

    def log(self, metrics):
        if self.rank != 0:  # error: MP501
            return
        print(self._gather(metrics))
""",
    """
import torch.distributed as dist

class Strategy:
    def setup(self, group):
        self.ring_attn_group = group
        self.ring_attn_rank = dist.get_rank(group=group)

    def generate(self):
        dist.barrier()  # error: MP501

    def step(self):
        if self.ring_attn_rank == 0:
            self.generate()
""",
    """
import deepspeed
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        self.engine, self.optimizer, _, _ = deepspeed.initialize(model=model)

    def save(self, path):
        if dist.get_rank() == 0:
            self.engine.save_checkpoint(path)  # error: MP501

def evaluate(model, batch):
    fully_shard(model)
    if dist.get_rank() == 0:
        print(model(batch))  # error: MP501

def step(model, optimizer):
    fully_shard(model)
    if dist.get_rank() == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # error: MP501
    optimizer.step()
""",
    """
import functools
import torch.distributed as dist

def together(function):
    @functools.wraps(function)
    def inner(*args):
        result = function(*args)
        dist.barrier()  # error: MP501
        return result
    return inner

@together
def write(model):
    print(model)

class Metrics:
    def __init__(self, value):
        self.value = value

    @property
    def total(self):
        dist.all_reduce(self.value)  # error: MP501
        return self.value

    def __enter__(self):
        return self

    def __exit__(self, *error):
        dist.all_gather_object([], self.value)  # error: MP501

    def log(self, model):
        if dist.get_rank() == 0:
            write(model)

    def show(self):
        if dist.get_rank() == 0:
            print(self.total)

def report(value):
    if dist.get_rank() == 0:
        with Metrics(value):
            print(value)
""",
    """
import torch.distributed as dist
import wandb
from torch.utils.tensorboard import SummaryWriter

class Trainer:
    def __init__(self, args):
        self.writer = None
        self.rank = dist.get_rank()
        if args.log_dir and self.rank == 0:
            self.writer = SummaryWriter(args.log_dir)
        if self.rank == 0:
            self.start(args)

    def start(self, args):
        wandb.init(project=args.project)

    def mean(self, value):
        dist.all_reduce(value)  # error: MP501
        return value

    def log(self, value, step):
        if self.writer is not None:
            self.writer.add_scalar("loss", self.mean(value), step)

    def upload(self, value):
        if wandb.run is None:  # error: MP501
            return
        dist.all_reduce(value)
        wandb.log({"loss": value})

class Progress:
    def __init__(self):
        self.bar = print if dist.get_rank() == 0 else None

    def tell(self, count):
        if self.bar:
            dist.all_reduce(count)  # error: MP501
            self.bar(count)
""",
    """
import ray
import torch.distributed as dist

@ray.remote(num_gpus=1)
class Worker:
    def __init__(self, config, rank):
        self.config = config
        self.rank = rank

    def save(self, model, path):
        if self.rank == 0:
            write(model, path)
            dist.barrier()  # error: MP501

def start(config, count):
    workers = [Worker.remote(config, rank) for rank in range(count)]
    more = []
    for rank in range(count):
        more.append(Worker.options(num_cpus=1).remote(config, rank))
    return workers + more
""",
    """
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

_WRITER = None

def set_writer(path):
    global _WRITER
    if dist.get_rank() == 0:
        _WRITER = SummaryWriter(path)

def get_writer():
    return _WRITER

def report(value):
    writer = get_writer()
    if writer:
        dist.all_reduce(value)  # error: MP501

class Late:
    def setup(self, path):
        if dist.get_rank() != 0:
            return
        self.sink = open(path)

    def tell(self, count):
        if hasattr(self, "sink"):
            dist.all_reduce(count)  # error: MP501
""",
    """
import torch.distributed as dist

class Plugin:
    def __init__(self, version):
        self.version = version

    @property
    def is_second(self):
        return dist.is_initialized() and self.version == 2

def options_of(plugin):
    options = None
    if plugin.version == 2:
        options = dict(full=True)
    return options

def put(model, options=None):
    if options is not None:
        dist.all_reduce(model, **options)

def load(plugin: Plugin, model, rank):
    options = options_of(plugin)
    if rank != 0 and plugin.is_second:  # error: MP501
        return
    put(model, options)
""",
    """
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

class Checkpointer:
    def __init__(self, state):
        self.state = state
        self.group = dist.new_group(backend="gloo")
        self.default_group = None

    def save(self, folder):
        if dist.get_rank() == 0:
            dcp.save(self.state, checkpoint_id=folder, process_group=self.group)  # error: MP501
        self.settle(self.default_group)

    def settle(self, group):
        if dist.get_rank() == 0:
            dist.barrier(group=self.default_group)  # error: MP501
""",
    """
import torch.distributed as dist

class Trainer:
    def __init__(self, config):
        self.config = config
        self.main = dist.get_rank() == 0

    def _mean(self, total):
        dist.all_reduce(total)  # error: MP501
        return total

    def _metrics(self, total):
        return self._mean(total)

    def _report(self, total):
        return self._metrics(total)

    def evaluate(self, total):
        return self._report(total)

    def save(self):
        if self.config.every == 0:
            return
        if self.config.sharded:
            dist.barrier(group=self.config.savers)
            return
        dist.barrier()

    def run(self, total):
        for _ in range(self.config.steps):
            if self.main:
                print(self.evaluate(total))
            self.save()
""",
    """
# file: state.py
from dataclasses import dataclass
from typing import NamedTuple

import torch.distributed as dist

@dataclass
class ParallelState:
    pp_group: dist.ProcessGroup
    pp_rank: int
    pp_size: int
    dp_rank: int

    @property
    def is_last_stage(self):
        return self.pp_rank == self.pp_size - 1

class Place(NamedTuple):
    first: bool
    rank: int = 0

def init_parallel(mesh, pp):
    return ParallelState(
        mesh.get_group("pp"), mesh.get_local_rank("pp"), pp, dp_rank=mesh.get_local_rank("dp")
    )

def place():
    return Place(dist.get_rank() == 0, rank=dist.get_rank()) if dist.is_initialized() else Place(True)

# file: train.py
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from state import ParallelState, init_parallel, place

def average(loss, ps):
    if not ps.is_last_stage:  # error: MP501
        return loss
    dist.broadcast(loss, src=0, group=ps.pp_group)
    return loss

def send(loss, ps: ParallelState):
    if ps.pp_rank != ps.pp_size - 1:  # error: MP501
        return
    dist.broadcast(loss, src=0, group=ps.pp_group)

def save(model, path):
    state = get_model_state_dict(model)
    dcp.save(state, checkpoint_id=path)  # error: MP501

def main(mesh, model, loss):
    ps = init_parallel(mesh, 2)
    average(loss, ps)
    if ps.dp_rank == 0:
        save(model, "last")
    if place().first:
        dist.barrier()  # error: MP501
""",
    """
import torch.distributed as dist

class Trainer:
    def __init__(self, config):
        self.config = config
        self.main = dist.get_rank() == 0

    def _mean(self, total):
        if self.config.reduces:
            dist.all_reduce(total)  # error: MP501
        return total

    def _metrics(self, total):
        return self._mean(total)

    def _report(self, total):
        return self._metrics(total)

    def evaluate(self, total):
        return self._report(total)

    def run(self, total):
        if self.main:
            print(self.evaluate(total))
        if self.config.saves:
            dist.barrier()
""",
    # the round that is left out is one that the others make
    """
import torch.distributed as dist

def rounds(batches):
    for batch in batches:
        if dist.get_rank() == 0 and not batch:  # error: MP501
            continue
        dist.broadcast_object_list(batch, src=0)
""",
    # the test of its class says how a model may be wrapped
    """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

def unwrap(model):
    if isinstance(model, (FSDP, DDP)):
        return model.module
    return model

def save(model, path):
    inner = unwrap(model)
    if dist.get_rank() == 0:
        inner.save_pretrained(path, state_dict=inner.state_dict())  # error: MP501
    dist.barrier()
""",
    # a program that ends in `sys.exit`
    """
import sys
import torch.distributed as dist

def main(tensor, passed):
    if dist.get_rank() == 0:
        dist.all_reduce(tensor)  # error: MP501
    sys.exit(0 if passed else 1)
""",
    # states of a sharded optimizer, metrics, MPI and Horovod: collectives by what their libraries say
    """
import horovod.torch as hvd
import torch.distributed as dist
from fairscale.optim import OSS
from mpi4py import MPI
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

def save(args, model, optimizer):
    if dist.get_rank() != 0:  # error: MP501
        return
    optimizer.consolidate_state_dict()
    args.write(model, optimizer.state_dict())

def clip(model):
    optimizer = OSS(model.parameters())
    if dist.get_rank() == 0:
        optimizer.clip_grad_norm(1.0)  # error: MP501

def accuracy(batches):
    metric = MulticlassAccuracy(10)
    both = MetricCollection([metric])
    for batch in batches:
        metric.update(*batch)
    if dist.get_rank() == 0:
        print(metric.compute())  # error: MP501
    return both

def report(batches):
    both = accuracy(batches)
    if dist.get_rank() == 0:
        print(both.compute())  # error: MP501

def read(path):
    if MPI.COMM_WORLD.Get_rank() == 0:
        return MPI.COMM_WORLD.bcast(path)  # error: MP501

def start(model):
    if hvd.local_rank() == 0:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # error: MP501
""",
    # what a namespace holds; the loop around the call, which ranks leave by themselves, does not say who calls
    """
import argparse
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def save(args, model, optimizer, step):
    if args.keeps and args.sharded:
        state = FSDP.optim_state_dict(model, optimizer)  # error: MP501
        print(step, state)

def train(args, step):
    if dist.get_rank() == 0 and step > args.most:
        return False, step
    return True, step + 1

def main(model, optimizer):
    args = argparse.ArgumentParser().parse_args()
    args.keeps = args.logs and dist.get_rank() == 0
    model, step, done = FSDP(model), 0, False
    while not done:
        success, step = train(args, step)
        done = step >= args.most
        save(args, model, optimizer, step)
""",
    # the first rank of a group alone runs what works among it
    """
import torch.distributed as dist
from megatron.core import parallel_state
from torch.nn.parallel import DistributedDataParallel

def evaluate(model, batch):
    model = DistributedDataParallel(model, process_group=parallel_state.get_data_parallel_group())
    if dist.get_rank() == 0:
        return model(batch)  # error: MP501
""",
    """
import importlib
import torch.distributed as dist

class Backend:
    MODULE = None

    def load(self):
        self.module = importlib.import_module(self.MODULE)

class DeepSpeedBackend(Backend):
    MODULE = "deepspeed"

    def distribute(self, model):
        return self.module.initialize(model=model)

def save(path):
    backend = DeepSpeedBackend()
    backend.load()
    engine, *_ = backend.distribute(None)
    if dist.get_rank() == 0:
        engine.save_checkpoint(path)  # error: MP501
""",
    """
import torch
import torch.distributed as dist

def save():
    mark = torch.zeros(1)
    mark.add_(dist.get_rank())
    if mark.item() == 0:
        dist.barrier()  # error: MP501
""",
    """
import torch.distributed as dist

def save(path):
    rank = dist.get_rank()
    if rank not in [-1, 0]:
        dist.barrier()  # error: MP501
    print(path)
    if rank == 1:
        dist.barrier()  # error: MP501
""",
    # nobody knows what the factory of a library makes: one class alone has a method of that name, which is likely
    """
import torch.distributed as dist
from registry import build

class Accumulator:
    def update_over_ranks(self, value, sync=True):
        if sync:
            dist.all_reduce(value)  # error: MP501

class Trainer:
    def __init__(self, config):
        self.seen = build(config.accumulator)

    def evaluate(self, values):
        for value in values:
            self.seen.update_over_ranks(value, sync=True)

    def train(self, values):
        if dist.get_rank() == 0:
            self.evaluate(values)
""",
    # an attribute that one class alone has
    """
import os
from dataclasses import dataclass
import torch.distributed as dist

@dataclass
class Processes:
    count: int
    leads: bool

def processes():
    return Processes(int(os.environ["WORLD_SIZE"]), leads=int(os.environ["RANK"]) == 0)

def evaluate(config, value):
    if config.runtime.processes.leads:
        dist.all_reduce(value)  # error: MP501
""",
    # what is rounded is a multiple of something else
    """
import math
import torch.distributed as dist

def rounded(model, wanted, batch_size):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    total = math.ceil(wanted / batch_size) * batch_size
    place = rank * batch_size
    while place < total:
        dist.all_reduce(model(batch_size))  # error: MP501
        place += batch_size * ranks
""",
    # the arguments of a Trainer know which rank this is
    """
from dataclasses import dataclass
from typing import Optional

import transformers
from deepspeed import zero


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    cache_dir: Optional[str] = None


def whole(param):
    if hasattr(param, "ds_id"):
        with zero.GatheredParameters([param]):  # error: MP501
            return param.data.detach().cpu().clone()
    return param.detach().cpu().clone()


def train(model, trainer):
    parser = transformers.HfArgumentParser(TrainingArguments)
    (training_args,) = parser.parse_args_into_dataclasses()
    trainer.train()
    if training_args.local_rank == 0 or training_args.local_rank == -1:
        state = {name: whole(param) for name, param in model.named_parameters() if "lora_" in name}
        model.save_pretrained(training_args.output_dir, state_dict=state)
""",
    _PICTURES.format(test="dist.is_initialized()", mark="  # error: MP501", shown="tokenizer"),
    # whose rank it is, the name of a function tells that an unknown library has
    """
import deepspeed
import torch.distributed as dist
from toolkit import mpu

class Trainer:
    def __init__(self, args, model, config):
        self.rank = mpu.get_data_parallel_rank() if args.model_parallel else dist.get_rank()
        self.engine, *_ = deepspeed.initialize(model=model, config=config)

    def save(self, folder):
        if self.rank == 0:
            self.engine.save_checkpoint(folder)  # error: MP501
        dist.barrier()

def main(args, model):
    Trainer(args, model, {}).save("out")
""",
    # the constant that a call passes chooses what differs; the head of a group, and a collective in that group
    """
import os
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh

def folder(path, step, whole=True):
    base = os.path.join(path, str(step))
    if whole:
        return base
    return os.path.join(base, str(dist.get_rank()))

def load(path, state, step):
    if os.path.isdir(folder(path, step, whole=False)):
        dcp.load(state, checkpoint_id=path)  # error: MP501
    return state

class Engine:
    def __init__(self, dp, tp):
        self.mesh = init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp"))
        self.group = self.mesh["tp"].get_group()

    def tell(self, found):
        if dist.get_rank() == dist.get_process_group_ranks(self.group)[0]:
            dist.broadcast_object_list(found, group_src=0, group=self.group)  # error: MP501
        return found
""",
    # a generator that hands over to another one, behind an attribute that one rank alone sets
    _HANDED_OVER.format(before="if self.workers is None:  # error: MP501\n            return", inside="pass"),
    # a decorator lets one rank alone run the function
    _DECORATED.format(
        barrier="        dist.barrier()  # error: MP501\n",
        mode="RANK_ZERO",
        mark="  # error: MP501",
        report="return accelerator.gather(losses).mean()  # error: MP501",
    ),
    # a helper that asks first whether its group has several ranks, and what only one rank has
    """import torch.distributed as dist


def mean(x, group=None):
    size = dist.get_world_size(group)
    if size > 1:
        dist.all_reduce(x, group=group)  # error: MP501
        return x / size
    return x


def train(model, loader, writer=None):
    for batch in loader:
        loss = model(batch)
        if writer is not None:
            writer.add_scalar("loss", mean(loss.detach()))
        loss.backward()


def main(model, loader, make):
    writer = make() if dist.get_rank() == 0 else None
    train(model, loader, writer)
""",
    # a method of a group of actors that one of them runs alone
    """\
import ray
import torch.distributed as dist


class Worker:
    def fit(self, batch):
        return batch

    def save(self, path):
        dist.barrier()  # error: MP501
        return path

    def lengths(self):
        return [1]


Actor = ray.remote(num_gpus=1)(Worker)


class Group:
    def __init__(self, size):
        self.actors = [Actor.remote() for _ in range(size)]

    def fit(self, batches):
        return ray.get([actor.fit.remote(batch) for actor, batch in zip(self.actors, batches)])

    def save(self, path):
        return ray.get(self.actors[0].save.remote(path))
""",
]


CORRECT = [
    """
import torch
import torch.distributed as dist

def train(rows, size, group):
    stride = size * dist.get_world_size()
    begin = dist.get_rank() * size
    for start in range(begin, len(rows) - stride + 1 + begin, stride):
        dist.all_reduce(rows[start : start + size].sum())

def cut(rows, size):
    rank, world = dist.get_rank(), dist.get_world_size()
    total = len(rows) - len(rows) % (size * world)
    for start in range(rank * size, total, world * size):
        dist.all_reduce(rows[start : start + size].sum())

def checked(rows, size):
    rank, world = dist.get_rank(), dist.get_world_size()
    assert len(rows) % world == 0
    for i in range(rank, len(rows), world):
        dist.all_reduce(rows[i].sum())
""",
    _SAVING.format(test="if self.args.save_strategy:", mark="", options=" --deepspeed zero2.json"),
    # one rank asks again until it has an answer: it goes round to the same collective, on no way out of the loop
    """
import torch.distributed as dist

def chat(answer):
    while True:
        text, stop = "", False
        if dist.get_rank() == 0:
            text = input("query: ").strip()
            if not text:
                continue
            stop = text == "stop"
            dist.broadcast_object_list([text, stop])
        else:
            both = [text, stop]
            dist.broadcast_object_list(both)
            text, stop = both
        if stop:
            return
        answer(text)
""",
    _RESUMED.format(start="if os.path.exists(path):\n            self.resume(path)", mark=""),
    # what some ranks put into another container, under a key that all have, each in its own way, or afterwards
    _METERS.format(guarded="own.update(mean=loss.item())", mark=""),
    _METERS.format(guarded="logger.update(loss=loss.item())", mark=""),
    _ROWS.format(add="self.kept.rows.append(row if self.rank == 0 else None)", mark=""),
    _ROWS.format(add="self.last[name] = self.kept.rows.append(row)", mark=""),
    _ROWS.format(
        add="if self.rank != 0:\n            self.kept.rows.append(row)\n            return\n"
        "        self.kept.rows.append(-row)",
        mark="",
    ),
    _ROWS.format(
        add="for turn in range(dist.get_world_size()):\n            if turn == self.rank:\n"
        "                self.kept.rows.append(row)",
        mark="",
    ),
    _reduced('table["loss"] = loss * 2'),
    _reduced("table.update(rate=rate)", before="table.update(rate=loss)"),
    _reduced('table["rate"] = rate\n    else:\n        table["rate"] = loss'),
    _reduced('table["rate"] = rate', after="return table")
    .replace("    reduce_all(table)\n", "")
    .replace("    if dist", "    reduce_all(table)\n    if dist"),
    _reduced('print(table | {"rate": rate})'),
    _reduced('table["rate"] = rate\n    if dist.get_rank() != 0:\n        table["rate"] = loss'),
    _ROWS.format(
        add="if self.rank == 0:\n            self.kept.rows.append(row)\n        if self.rank != 0:\n"
        "            self.kept.rows.append(-row)",
        mark="",
    ),
    _ROWS.format(
        add="if self.rank == 0:\n            self.kept.rows.append(row)\n        self.kept.rows[:] = []", mark=""
    ),
    _reduced('table["rate"] = rate\n    table.pop("rate", None)'),
    _RESUMED.format(
        start="if self.rank == 0:\n            self.resume(path)\n        epoch = [self.epoch]\n"
        "        dist.broadcast_object_list(epoch, src=0)\n        self.epoch = epoch[0]",
        mark="",
    ),
    # nothing is in a list that nobody fills
    """
import torch.distributed as dist

def run(rows):
    done = []
    for row in rows[dist.get_rank() :: 2][:4]:
        if row in done:
            continue
        dist.barrier()
""",
    # one rank writes what it gives back, the others give it back at once: it is there on all or on none
    """
import json
import torch.distributed as dist

def described(config):
    if dist.get_rank() != 0:
        return config
    with open("config.json", "w") as file:
        json.dump({"fp16": config.get("fp16", True)}, file)
    return config

def setup(path, deep):
    config = json.load(open(path)) if path else None
    if deep:
        config = described(config)
    return config

def train(path, epochs, deep):
    config = setup(path, deep)
    for epoch in range(epochs):
        if config["debug"]:
            break
        dist.barrier()

def again(path, deep):
    if setup(path, deep) is None:
        return
    dist.barrier()
""",
    # each rank keeps the group of the round that has its coordinates
    """
import torch
import torch.distributed as dist

_GROUP = None

def make(pipe, model):
    global _GROUP
    world = dist.get_world_size()
    groups = torch.arange(world).reshape(world // (pipe * model), pipe, model)
    found = [int(each[0]) for each in torch.where(groups == dist.get_rank())]
    for i in range(world // (pipe * model)):
        for k in range(model):
            group = dist.new_group(groups[i, :, k].tolist())
            if i == found[0] and k == found[2]:
                _GROUP = group

def train(model):
    if _GROUP:
        dist.all_reduce(torch.zeros(1), group=_GROUP)
        dist.barrier()
""",
    # -1 is no rank: it says that nothing was launched, to all alike
    """
import torch.distributed as dist

def reduced(rank, tensor):
    if rank in (-1, None):
        return tensor
    if -1 != rank:
        dist.all_reduce(tensor)
    return tensor
""",
    _evaluated("self.norm = nn.LayerNorm(8)"),
    _evaluated("self.norm = nn.BatchNorm1d(8, track_running_stats=False)"),
    _evaluated("self.norm = nn.BatchNorm1d(8)", options=", broadcast_buffers=False"),
    _evaluated("self.norm = nn.BatchNorm1d(8)", options=", **dict(batches[1])"),
    _evaluated("self.norm = nn.BatchNorm1d(8)", test="batches"),
    # a name that only a star import may give
    """
import torch.distributed as dist
from somewhere import *


def mean(x):
    dist.all_reduce(x, group=get_group())
    return x
""",
    # each rank makes as many rounds as the others, from its own place on; and what holds for every rank
    """
import torch.distributed as dist


def ring(chunks, samples):
    rank, size = dist.get_rank(), dist.get_world_size()
    for turn in range(rank, rank + size):
        dist.barrier()
        print(chunks[turn % size])
    share = len(samples) // size
    for index in range(rank * share, (rank + 1) * share):
        dist.all_reduce(samples[index])
    if 0 <= rank < size:
        dist.barrier()
    if rank >= 0 and rank < size:
        dist.barrier()
""",
    # made once, by whoever asks first
    """
import functools

import torch.distributed as dist

def world():
    if not hasattr(world, "group"):
        world.group = dist.new_group()
    return world.group

@functools.lru_cache
def hosts():
    return dist.new_group(backend="gloo")

class Trainer:
    def __init__(self, model):
        self.model = model
        self._average = None

    @property
    def average(self):
        if self._average is None:
            self._build()
        return self._average

    def _build(self):
        self._average = [dist.broadcast(p, 0) for p in self.model.parameters()]

    def step(self):
        update(self.average)

    def save(self, path):
        if dist.get_rank() == 0:
            write(path, self.average, dist.get_world_size(world()), hosts())
""",
    # a server of the first rank calls what it is given; the first rank asks until somebody answers; both hold
    """
import torch.distributed as dist
from pytriton.triton import Triton

class Server:
    def infer(self, **inputs):
        dist.broadcast(inputs["tokens"], 0)

    def follow(self, tokens):
        while True:
            dist.broadcast(tokens, 0)

    def run(self, tokens):
        if dist.get_rank() == 0:
            with Triton() as triton:
                triton.bind(model_name="critic", infer_func=self.infer)
                triton.serve()
        else:
            self.follow(tokens)

def chat(run):
    words = [None]
    while True:
        if dist.get_rank() == 0:
            words = [input()]
            if not words[0]:
                continue
        dist.broadcast_object_list(words, src=0)
        run(words)

def reward():
    def score(rows):
        return [len(row) for row in rows]

    return score if dist.get_rank() == 0 else True

def train(reward_fn):
    if reward_fn:
        dist.barrier()

def main():
    train(reward())
""",
    # branches that complete each other; a flag through a function that always raises where it fails; a turn for each
    """
import torch
import torch.distributed as dist

class Store:
    pass

class Failed(Exception):
    pass

def store_of(path):
    store = None
    if dist.get_rank() == 0:
        store = Store()
    paths = [path]
    dist.broadcast_object_list(paths, src=0)
    if dist.get_rank() != 0:
        store = Store()
    return store

def resume(path):
    store = store_of(path)
    if store is not None:
        dist.barrier()

class Gang:
    def broadcast(self, tensor, source):
        try:
            dist.broadcast(tensor, source)
        except RuntimeError as error:
            self._fail(error)

    @staticmethod
    def _fail(error):
        raise Failed("broadcast") from error

def stop(gang: Gang, score):
    wanted = False
    if dist.get_rank() == 0:
        wanted = score > 1
    flag = torch.tensor(wanted)
    gang.broadcast(flag, 0)
    if bool(flag):
        dist.barrier()

def load(path, size):
    state = None
    for turn in range(size):
        if dist.get_rank() == turn:
            state = torch.load(path)
        dist.barrier()
    if state["step"] == 0:
        dist.barrier()
""",
    # a score is there on all ranks, or on none; a group that each rank is in
    """
import torch.distributed as dist

GROUP = None

def score_of(metrics, wanted):
    if not wanted:
        return None
    if dist.get_rank() != 0:
        return 0.0
    return sum(metrics)

def validate(metrics, wanted):
    score = score_of(metrics, wanted)
    if score is not None:
        dist.barrier()

def make_groups(size):
    global GROUP
    for first in range(0, dist.get_world_size(), size):
        ranks = range(first, first + size)
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            GROUP = group

def make_nested_groups(lists):
    global GROUP
    for several in lists:
        for ranks in several:
            group = dist.new_group(ranks)
            for rank in ranks:
                if dist.get_rank() == rank:
                    GROUP = group

def start(size, lists):
    if GROUP is None:
        make_groups(size)
        make_nested_groups(lists)
""",
    # which rank it is stands in the options; the other options are those of the job
    """
import argparse
import torch.distributed as dist

def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    args.rank = dist.get_rank()
    if dist.get_rank() == 0:
        args = shown(args)
    return args

def shown(args):
    print(args)
    return args

def train(args):
    if args.steps > 0:
        dist.barrier()

def main():
    train(options())
""",
    """
# file: state.py
from dataclasses import dataclass

import torch.distributed as dist

@dataclass
class ParallelState:
    pp_group: dist.ProcessGroup
    dp_group: dist.ProcessGroup
    pp_rank: int
    pp_size: int
    dp_rank: int

    @property
    def is_last_stage(self):
        return self.pp_rank == self.pp_size - 1

    @property
    def is_piped(self):
        return self.pp_size > 1

@dataclass
class Peer:
    rank: int

def init_parallel(mesh, pp):
    return ParallelState(
        pp_group=mesh.get_group("pp"), dp_group=mesh.get_group("dp"), pp_rank=mesh.get_local_rank("pp"), pp_size=pp,
        dp_rank=mesh.get_local_rank("dp"),
    )

def peers(count):
    return [Peer(rank=index) for index in range(count)], Peer(rank=dist.get_rank())

# file: train.py
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from state import Peer, init_parallel

def average(loss, ps):
    if ps.is_last_stage:
        dist.all_reduce(loss, group=ps.dp_group)
    if ps.is_piped:
        dist.broadcast(loss, src=0, group=ps.pp_group)

def ask(peer: Peer, value):
    if peer.rank == 0:
        dist.broadcast(value, src=0)

def main(mesh, model, loss):
    ps = init_parallel(mesh, 2)
    average(loss, ps)
    if ps.dp_rank == 0:
        write(get_model_state_dict(model))
    if ps.dp_rank is not None:
        dist.barrier(ps.dp_group)
""",
    """
import torch.distributed as dist

def save(model, path):
    if dist.get_rank() == 0:
        write(model, path)
    dist.barrier()
""",
    """
import torch.distributed as dist

def exchange(tensors, empty):
    if dist.get_rank() == 0:
        for tensor in tensors:
            dist.broadcast(tensor, src=0)
    else:
        for tensor in empty:
            dist.broadcast(tensor, src=0)
""",
    """
import torch.distributed as dist

def download(path):
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
    fetch(path)
    if rank == 0:
        dist.barrier()
""",
    """
import torch.distributed as dist

def update(tensor, ranks, group, model_update_group):
    if dist.get_rank() in ranks:
        dist.all_reduce(tensor, group=group)
    if dist.get_rank() == 0:
        dist.broadcast(tensor, 0, group=model_update_group)
""",
    """
import torch.distributed as dist

class Checkpoint:
    def __init__(self, use_zero):
        self.use_zero = use_zero
        self.rank = dist.get_rank()

    def shards(self, states, use_zero):
        for state in states:
            if use_zero and len(state) > 1:
                dist.all_reduce(state)
            yield state

    def save(self, states):
        if not self.use_zero and self.rank != 0:
            dist.barrier()
            return
        for state in self.shards(states, use_zero=self.use_zero):
            write(state)
        dist.barrier()
""",
    """
import deepspeed
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Trainer:
    def __init__(self, model, engine):
        _, self.optimizer, _, _ = deepspeed.initialize(model=model)
        self.engine = engine

    def save(self, path):
        if dist.get_rank() == 0:
            self.engine.save_checkpoint(path)

def evaluate(model, batch):
    whole = model
    model = FSDP(model)
    model(batch)
    model = whole
    if dist.get_rank() == 0:
        print(model(batch))
""",
    """
import torch
import torch.distributed as dist

def step(model, loss):
    if dist.get_rank() == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return [dist.all_reduce(loss) for _ in range(dist.get_world_size())]
""",
    """
import torch.distributed as dist

def merge(layer, lora_rank, world_size):
    if lora_rank > 0:
        dist.barrier()
    if dist.is_initialized() and world_size > 1:
        dist.barrier()
""",
    """
import torch.distributed as dist
import wandb
from torch.utils.tensorboard import SummaryWriter

class Trainer:
    def __init__(self, args):
        self.writer = None
        self.sink = None
        self.sub_group = None
        self.limits = None
        self.rank = dist.get_rank()
        wandb.init(group=args.run)
        if args.log_dir:
            self.writer = SummaryWriter(args.log_dir)
        if self.rank == 0:
            self.sink = open(args.log)
        else:
            self.sink = print
        if self.rank in args.leaders:
            self.sub_group = args.group
        if self.rank == 0:
            self.limits = args.read()
        self.limits = self.share(self.limits)

    def share(self, value):
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]

    def log(self, value):
        if self.writer is not None and wandb.run is not None and self.sink is not None:
            dist.all_reduce(value)
        if self.sub_group is not None:
            dist.all_reduce(value, group=self.sub_group)
        if self.limits is not None:
            dist.all_reduce(value)
""",
    """
import torch.distributed as dist

def load(path, rank, model):
    if rank == 0:
        dist.all_reduce(model)

def convert(paths, model):
    for rank in range(len(paths)):
        load(paths[rank], rank, model)
""",
    """
import torch.distributed as dist

class Checkpointer:
    def __init__(self, ranks):
        self.group = dist.new_group(ranks)
        self.late_group = None
        self.other_group = dist.new_group(backend="gloo")

    def split(self, ranks):
        self.late_group = dist.new_group(ranks)

    def wait(self):
        if dist.get_rank() < 4:
            dist.barrier(group=self.group)
            dist.barrier(group=self.late_group)
            dist.barrier(group=self.other_group)

def regroup(checkpointer, ranks):
    checkpointer.other_group = dist.new_group(ranks)
""",
    # a function keeps the group to which the rank belongs: every rank has one
    """
import torch.distributed as dist

RING = None

def keep(group):
    global RING
    RING = group

def setup(size):
    for first in range(dist.get_world_size() // size):
        ranks = list(range(first * size, (first + 1) * size))
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            keep(group)

def gather(rows, mine):
    if RING is not None:
        dist.all_gather_object(rows, mine)
""",
    # the test for the wrapper decides who takes the state dict
    """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

def unwrap(model):
    if isinstance(model, (FSDP, DDP)):
        return model.module
    return model

def save(model, path):
    state = None
    if isinstance(model, FSDP):
        state = model.state_dict()
    if dist.get_rank() == 0:
        if state is None:
            state = unwrap(model).state_dict()
        unwrap(model).save_pretrained(path, state_dict=state)
    dist.barrier()
""",
    # as many are put behind a rank's own rows as it has fewer than the others
    """
import torch
import torch.distributed as dist

def build(paths):
    mine = paths[dist.get_rank() : len(paths) : dist.get_world_size()]
    most = torch.tensor([len(mine)])
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    mine += [None] * (most.item() - len(mine))
    if not mine:
        return
    for path in mine:
        print(path)
        dist.barrier()
""",
    # each rank asks for the group of its own ranks for the first time when the others do
    """
import torch.distributed as dist

_groups = {}

def group_of(name, ranks):
    if (name, tuple(ranks)) not in _groups:
        _groups[name, tuple(ranks)] = dist.new_subgroups(len(ranks))[0]
    return _groups[name, tuple(ranks)]

def main():
    first = dist.get_rank() // 2 * 2
    return group_of("pair", [first, first + 1])
""",
    # the leader goes first, told by `>`
    """
import os
import torch.distributed as dist

def prepare(data):
    rank = int(os.environ.get("RANK", -1))
    if rank > 0:
        dist.barrier()
    data.prepare()
    if rank == 0:
        dist.barrier()
""",
    # nobody knows along which axis this counts, but its name: the group is of another one
    """
import torch.distributed as dist

class Manager:
    def __init__(self, grid, stages):
        self.rank = dist.get_rank()
        self.dp_rank, self.pp_rank = (grid == self.rank).nonzero().flatten().tolist()
        self.dp_group = dist.new_subgroups_by_enumeration(grid.tolist())[0]
        self.is_last_stage = self.pp_rank == stages - 1

    def average(self, loss):
        if self.is_last_stage:
            dist.all_reduce(loss, group=self.dp_group)
""",
    # the first rank answers from a page, which calls what it is given
    """
import torch.distributed as dist
from pages import Button, Page

def answer(question):
    dist.barrier()
    dist.broadcast_object_list([question])
    return question

def page():
    with Page() as made:
        Button("Ask").click(fn=answer)
    return made

def serve():
    while True:
        dist.barrier()
        dist.broadcast_object_list([None])

def main():
    if dist.get_rank() == 0:
        page().launch()
    else:
        serve()
""",
    # of several objects one may hold what differs, and nobody knows whether it is this one
    """
import torch.distributed as dist

class Option:
    def __init__(self, value):
        self.value = value

def main(given):
    options = [Option(dist.get_rank()), Option(given.enabled)]
    return options

def save(option: Option):
    if option.value:
        dist.barrier()
""",
    # each rank is in one of the lists that are reckoned
    """
from typing import cast
import torch.distributed as dist

ACROSS = None

def make_groups(size):
    global ACROSS
    count = dist.get_world_size() // size
    if ACROSS is None:
        for first in range(size):
            group = dist.new_group(backend="nccl", ranks=[first + i * size for i in range(count)])
            if first == dist.get_rank() % size:
                ACROSS = cast(dist.ProcessGroup, group)
""",
    # a wrapper that works among the ranks which get there
    """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Tower:
    def __init__(self, module, group, host, per_host):
        self.active = dist.get_rank() // per_host == host
        if self.active:
            self.module = DistributedDataParallel(module, process_group=group)

    def forward(self, x):
        return self.module(x) if self.active else x
""",
    # a group that its members alone make
    """
import torch.distributed as dist

def make_group(ranks):
    if dist.get_rank() not in ranks:
        return None
    return dist.new_group(ranks, use_local_synchronization=True)
""",
    # loops in a loop that never ends
    """
import torch.distributed as dist

def positions(size):
    first = True
    while True:
        index = 0
        while index < size:
            if first:
                index += 1
                continue
            while index < 3:
                index += 2
        first = False
        yield index

def main(tensor):
    for index in positions(8):
        if index:
            dist.all_reduce(tensor)
""",
    # one half behind questions that a job of several ranks answers alike, and a `yield` in between
    """
import torch
import torch.distributed as dist
from contextlib import contextmanager

def get_local_rank():
    return dist.get_rank() if dist.is_initialized() else 0

@contextmanager
def wait_for_the_master(local_rank=None):
    if local_rank is None:
        local_rank = get_local_rank()
    if local_rank > 0:
        dist.barrier()
    yield
    if local_rank == 0:
        if not dist.is_available():
            return
        if not dist.is_initialized():
            return
        else:
            dist.barrier()
""",
    # the first rank leads, and the others follow it into the same function
    """
import torch
import torch.distributed as dist

def take(model, optimizer, rank, distributed, loss):
    signal = torch.zeros(1)
    def closure():
        if distributed:
            if rank == 0:
                signal.fill_(1)
                dist.broadcast(signal, src=0)
            for param in model.parameters():
                dist.broadcast(param.data, src=0)
        return loss
    if distributed:
        if rank == 0:
            loss = optimizer.step(closure)
            signal.fill_(0)
            dist.broadcast(signal, src=0)
        else:
            while True:
                dist.broadcast(signal, src=0)
                if signal.item() == 0:
                    break
                if signal.item() == 1:
                    loss = closure()
    else:
        loss = optimizer.step(closure)

def run(model, optimizer, loss):
    take(model, optimizer, dist.get_rank(), True, loss)
""",
    # how many there are, by two libraries
    """
import torch
import torch.distributed as dist

def is_xla():
    import xm
    return xm.on

def world():
    if is_xla():
        import xm
        return xm.world_size()
    if not dist.is_initialized():
        return 1
    return dist.get_world_size()

def share(value):
    if world() < 2:
        return value
    tensor = torch.tensor(value).long()
    dist.broadcast(tensor, src=0)
    return tensor.item()

def loop(model, stop):
    while True:
        flag = False
        if dist.get_rank() == 0:
            flag = stop()
        flag = bool(share(flag))
        if flag is True:
            break
        dist.barrier()
""",
    # who goes round for ever says nothing of what the others test later
    """\
import sys
import time

import torch.distributed as dist

mode = sys.argv[1]
dist.init_process_group("gloo")
if mode == "sleep" and dist.get_rank() == 1:
    while True:
        time.sleep(0.5)
if mode == "order":
    dist.new_group([0, 1])
dist.barrier()
""",
    # the number that a call passes settles the test
    """
import os
from contextlib import contextmanager

import torch.distributed as dist

RANK = int(os.environ["RANK"])

@contextmanager
def first(rank):
    if rank not in [-1, 0]:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()

def loader(path, rank=-1):
    with first(rank):
        return open(path)

def train(path):
    if RANK in {-1, 0}:
        return loader(path, rank=-1)
""",
    """
import io
import torch
import torch.distributed as dist

def broadcast_object(obj, src, group):
    if dist.get_rank(group) == src:
        buffer = io.BytesIO()
        torch.save(obj, buffer)
        buffer = torch.ByteTensor(buffer.getbuffer())
        length = torch.LongTensor([len(buffer)])
        dist.broadcast(length, src=src, group=group)
        dist.broadcast(buffer, src=src, group=group)
    else:
        length = torch.LongTensor([0])
        dist.broadcast(length, src=src, group=group)
        buffer = torch.ByteTensor(int(length.item()))
        dist.broadcast(buffer, src=src, group=group)
        obj = torch.load(io.BytesIO(buffer.cpu().numpy()))
    return obj

def main(path, group):
    found = None
    if dist.get_rank() == 0:
        found = path.exists()
    found = broadcast_object(found, 0, group)
    if found:
        dist.barrier()
""",
    """
import torch.distributed as dist

def run(config):
    config["device"] = f"cuda:{dist.get_rank()}"
    if config["schedule"] == "linear":
        dist.barrier()
""",
    """
import os
import torch.distributed as dist
from contextlib import contextmanager

LOCAL_RANK = int(os.getenv("LOCAL_RANK", -1))

@contextmanager
def leader_first(local_rank):
    if local_rank not in [-1, 0]:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()

def main(path):
    with leader_first(LOCAL_RANK):
        print(path)
""",
    # an object that calls itself through its parts
    """
import torch.distributed as dist

class Node:
    def __init__(self, below):
        self.below, self.rows = below, {}

    def reduce(self):
        for row in self.rows.values():
            dist.all_reduce(row)
        self.below.reduce()

    def add(self, name, row):
        if dist.get_rank() == 0:
            self.below.add(name, row)

def reduced(tree, row):
    tree = Node(Node(tree))
    tree.add("row", row)
    tree.reduce()
""",
    # two classes have a method of that name, which may be a third one's; a name that libraries have, too
    """
import torch.distributed as dist
from registry import build

class Accumulator:
    def update_over_ranks(self, value):
        dist.all_reduce(value)

    def update(self, value):
        dist.all_reduce(value)

class Local:
    def update_over_ranks(self, value):
        self.value = value

def train(config, value):
    if dist.get_rank() == 0:
        build(config).update_over_ranks(value)
        build(config).update(value)
""",
    # the kind of the device is the job's; whether there are ranks at all is, too, also kept in a variable
    """
import os
import torch
from torch.nn.parallel import DistributedDataParallel

def wrapped(args, model, device):
    distributed = device.type != "cpu" and args.rank != -1
    if distributed:
        model = DistributedDataParallel(model, device_ids=[device.index])
    return model

def main(args, model):
    args.local_rank, args.rank = int(os.getenv("LOCAL_RANK", -1)), int(os.getenv("RANK", -1))
    return wrapped(args, model, torch.device("cuda", args.local_rank))
""",
    # as many rounds from each place: the total was rounded up, filled up, or refused
    """
import math
import torch
import torch.distributed as dist

def rounded(model, wanted, batch_size):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    total = math.ceil(wanted / (batch_size * ranks)) * batch_size * ranks
    place = rank * batch_size
    while place < total:
        samples = model(batch_size)
        parts = [torch.empty_like(samples) for _ in range(ranks)]
        dist.all_gather(parts, samples)
        place += batch_size * ranks

def filled(model, rows):
    step = dist.get_world_size()
    rows = rows + rows[: -len(rows) % step]
    for place in range(dist.get_rank(), len(rows), step):
        dist.all_reduce(model(rows[place]))

def refused(model, total, batch_size):
    step = batch_size * dist.get_world_size()
    assert total % step == 0, "each rank draws as many"
    place = dist.get_rank() * batch_size
    while place < total:
        dist.all_reduce(model(batch_size))
        place += step
""",
    _PICTURES.format(test="dist.is_initialized()", mark="", shown="critic"),
    _PICTURES.format(test="self.training and dist.is_initialized()", mark="", shown="tokenizer"),
    # a method of a sharded model that is handed on runs no layer of it
    """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Policy(torch.nn.Module):
    def keeps_full_precision(self, name):
        return name.endswith("norm.weight")

class Sender:
    def __init__(self, model):
        self.model = FSDP(model)

    def collect(self, names, is_kept):
        return [name for name in names if is_kept(name)]

    def send(self, names, counts):
        if dist.get_rank() == 0:
            print(self.collect(names, self.model.keeps_full_precision))
        dist.all_reduce(counts)
""",
    # a model that callers pass in more states than are told apart is walked through, which runs no layer of it
    """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

class Wrapper(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

def shard(model, is_wrapped=False):
    module = model.model if is_wrapped else model
    kept = {}
    if dist.get_rank() == 0:
        for name, sub in module.named_modules():
            kept[name] = [each.detach().clone() for each in sub.buffers()]
    fully_shard(module)
    dist.barrier()
    if is_wrapped:
        model.model = module
    return model

def main():
    with torch.device("meta"):
        empty = nn.Linear(8, 8)
    first, second = torch.compile(nn.Linear(8, 8)), torch.compile(nn.Linear(8, 8).half())
    models = [empty, empty.half(), empty.eval(), empty.half().eval(), first, second]
    models += [nn.Linear(8, 8).half(), nn.Linear(8, 8).eval(), nn.Linear(8, 8).half().eval(), first.eval()]
    for each in models:
        shard(each)
        shard(Wrapper(each), True)
""",
    # both ways hand the same on to a barrier, one before what the caller does and one after it
    """
import os
from contextlib import contextmanager
import torch
import torch.distributed as dist


def barrier(group=None, monitored=False):
    if dist.is_available() and dist.is_initialized():
        if monitored:
            dist.monitored_barrier(group=group)
        else:
            dist.barrier(group=group)

@contextmanager
def local_leader_first(*args, **kwargs):
    if int(os.environ["LOCAL_RANK"]) == 0:
        yield
        barrier(*args, **kwargs)
    else:
        barrier(*args, **kwargs)
        yield
""",
    # the attribute differs between ranks only where all of them take the way that issues nothing
    """
import torch
import torch.distributed as dist

class Recorder:
    def __init__(self, skipped=1, first_only=False):
        self.skipped = skipped
        self.disabled = first_only and dist.get_rank() != 0
        self.first_only = first_only
        self.step = 0

    def begin(self):
        self.step += 1

    def is_off(self):
        if self.disabled:
            return True
        if self.skipped > 0 and self.step <= self.skipped:
            return True
        return False

    def end(self, summary, folder):
        if self.is_off() or not folder:
            return
        if self.first_only:
            print(summary)
        else:
            summaries = [None] * dist.get_world_size()
            dist.all_gather_object(summaries, summary)
            print(summaries)
""",
    # what a call gives back that passes constants: the path without the rank
    """
import os
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

def folder(path, step, whole=False):
    base = os.path.join(path, str(step))
    if whole:
        return base
    return os.path.join(base, str(dist.get_rank()))

def load(path, state, step):
    if os.path.isdir(folder(path, step, whole=True)):
        dcp.load(state, checkpoint_id=path)
    return state
""",
    # the heads of the groups of one kind are those that meet in a group across them
    """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Engine:
    def __init__(self, dp, tp):
        self.mesh = init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp"))
        self.rank = dist.get_rank()
        self.head = dist.get_process_group_ranks(self.mesh["tp"].get_group())[0]
        self.data_group = self.mesh["dp"].get_group()

    def is_head(self):
        return self.rank == self.head

class Rollout:
    def __init__(self, engine: Engine):
        self.engine = engine

    def shared(self, found):
        if found is not None:
            everywhere = [None] * dist.get_world_size(self.engine.data_group)
            dist.all_gather_object(everywhere, found, group=self.engine.data_group)
            found = everywhere
        return found

    def batch(self, prompts):
        found = None
        if self.engine.is_head():
            found = [len(prompt) for prompt in prompts]
        return self.shared(found)
""",
    # what was gathered before is whole: what would gather it again for others does nothing
    """
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

def whole(param):
    tensor = param.data
    if isinstance(tensor, DTensor):
        return tensor.full_tensor()
    return tensor

class Adapter:
    def converted(self, name, tensor):
        if isinstance(tensor, DTensor):
            tensor = tensor.full_tensor()
        return [(name, tensor)]

def update(model, adapter: Adapter, send):
    for name, param in model.named_parameters():
        tensor = whole(param)
        if dist.get_rank() != 0:
            continue
        for each in adapter.converted(name, tensor):
            send(each)
""",
    # the same of a sharded model, through two calls
    """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

def whole(param):
    tensor = param.data
    if isinstance(tensor, DTensor):
        return tensor.full_tensor()
    if tensor.device.type == "cpu":
        tensor = tensor.to("cuda")
    return tensor

class Adapter:
    def converted(self, name, tensor):
        if "experts" in name:
            return self.split(name, tensor)
        return [(name, tensor)]

    def split(self, name, tensor):
        if isinstance(tensor, DTensor):
            tensor = tensor.full_tensor()
        return [(name, part) for part in tensor]

class Engine:
    def __init__(self, model):
        self.model = fully_shard(model)
        self.adapter = Adapter()

    def update(self, send):
        for name, param in self.model.named_parameters():
            tensor = whole(param)
            if dist.get_rank() != 0:
                continue
            for each in self.adapter.converted(name, tensor):
                send(each)
""",
    _HANDED_OVER.format(before="pass", inside="if self.workers is None:\n                continue"),
    # decorators of functions in which no ranks meet
    _DECORATED.format(barrier="", mode="ALL", mark="", report="print(losses)")
    + """\


class Shown:
    @register(execute_mode=Execute.RANK_ZERO)
    def show(self, path):
        print(path)


def main(losses):
    report(accelerator.gather(losses).mean())
""",
    # each rank comes round as often as the others: where it has no part of its own it gets None
    """\
import torch.distributed as dist


class Shares:
    def __init__(self, batches, size):
        self.batches, self.size, self.rank = batches, size, dist.get_rank()

    def __iter__(self):
        first = self.size * self.rank
        for batch in self.batches:
            if batch.shape[0] <= first:
                yield None
            else:
                yield batch[first : first + self.size]


def train(model, batches, interval):
    steps, last = 0, None
    loader = Shares(batches, 8)
    for epoch in range(3):
        for iteration, part in enumerate(loader):
            steps = steps + 1
            last = part if part is not None else last
            loss = model(last)
            if steps % interval == 0:
                dist.all_reduce(loss)
""",
    # all of the group run what has a collective, one what has none
    """\
import ray
import torch.distributed as dist


class Worker:
    def fit(self, batch):
        return batch

    def save(self, path):
        dist.barrier()
        return path

    def lengths(self):
        return [1]


Actor = ray.remote(num_gpus=1)(Worker)


class Group:
    def __init__(self, size):
        self.actors = [Actor.remote() for _ in range(size)]

    def fit(self, batches):
        return ray.get([actor.fit.remote(batch) for actor, batch in zip(self.actors, batches)])

    def save(self, path):
        return ray.get([actor.save.remote(path) for actor in self.actors])

    def lengths(self):
        return ray.get(self.actors[0].lengths.remote())
""",
    # the first one beside the others
    """\
import ray
import torch.distributed as dist


class Worker:
    def fit(self, batch):
        return batch

    def save(self, path):
        dist.barrier()
        return path

    def lengths(self):
        return [1]


Actor = ray.remote(num_gpus=1)(Worker)


class Group:
    def __init__(self, size):
        self.actors = [Actor.remote() for _ in range(size)]

    def fit(self, batches):
        return ray.get([actor.fit.remote(batch) for actor, batch in zip(self.actors, batches)])

    def save(self, path):
        first = self.actors[0].save.remote(path)
        return ray.get([first, *(actor.save.remote(path) for actor in self.actors[1:])])
""",
]


def check_project(project: Project) -> Iterator[Finding]:
    for row in project.analysis(Divergences).reports("rank"):
        yield RULE.finding(
            row.path, row.at, row.message, help=HELP, related=row.related, context=row.context, severity=row.severity
        )
