"""A factor, an argument or an operand that a change took out of a formula that is else as it was.

What it does
    Compares each changed statement with what it was. Reports where the one difference is that something went: a factor
    of a product or quotient; a keyword about groups, ranks and sizes that the function still takes, or several of them,
    of a library that is about ranks, or in whose stead another default holds; two arguments or elements that changed
    places; an operand of `and` or `or` about ranks, or about how a model is spread over them; one of several values
    handled alike that is used on; a call around or on a value; a look-up, of one value or of each of a list; the rank
    in a name that is put together; the `await` of a coroutine that an asynchronous function gives back.
    Reports an argument, too, that was named for one parameter, and that the call passes by position now, where another
    parameter stands; the `type` of an option that was a number; and a condition that chose between numbers of other
    ranks, or asked for an option that is asked in the same words elsewhere in the file.
    Reports also where a size, rank or group of one axis, or a constant, stands in place of that of another. Silent
    where a condition moved to another statement, and where the same went in several places.

Why is this bad
    A batch that is no longer divided by the data-parallel size, a reduction over the default group, a sampler that
    counts in all ranks: the program runs and trains wrongly.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rules.changes.effect_dropped import short
from validator.drift.change import Change
from validator.drift.interfaces.now_positional import NowPositional, Unnamed
from validator.drift.ranks import Exchanged, Ranks
from validator.drift.settings.script_factors import LostFactor, ScriptFactors
from validator.drift.statements.drops import Drop
from validator.drift.statements.weakened import Weakened
from validator.finding import Finding, Severity
from validator.rule import Rule

RULE = Rule("MP906", "part-dropped", "warning", stable_since="0.2.0")

_KINDS = {
    "factor": "the factor", "term": "the term", "operand": "the condition", "keyword": "the argument",
    "argument": "the argument", "element": "", "call": "the call", "guard": "the condition",
    "index": "the look-up", "await": "the `await` of",
}  # fmt: skip


def check_change(change: Change) -> Iterator[Finding]:
    told: set[tuple[str, int]] = set()
    for row in change.analysis(Ranks).exchanged:
        told.add((row.pair.new.path, row.new.lineno))
        yield _of_ranks(row)
    for moved in change.analysis(Unnamed).rows:
        if (moved.pair.new.path, moved.call.lineno) not in told:
            told.add((moved.pair.new.path, moved.call.lineno))
            yield _of_position(moved)
    for drop, severity in change.analysis(Weakened).drops:
        if (drop.pair.new.path, drop.new.lineno) not in told:
            yield _report(drop, severity)
    for lost in change.analysis(ScriptFactors).lost:
        yield _of_script(lost)


def _of_script(row: LostFactor) -> Finding:
    return RULE.finding(
        row.path,
        row.at,
        f"the change took the factor `{row.factor}` out, and left the rest",
        help=f"before: `{row.before}`",
        context=f"{row.before}:{row.factor}",
    )


def _of_ranks(row: Exchanged) -> Finding:
    unit = row.pair.new
    assert row.edit.old is not None
    return RULE.finding(
        unit.path,
        unit.module.source_text.at(row.new),
        f"`{short(ast.unparse(row.new))}` stands for `{short(ast.unparse(row.old))}`: {row.text}",
        help=f"before: `{short(row.edit.old.text)}`",
        context=f"{unit.qualname}:{ast.unparse(row.old)}",
    )


def _of_position(row: NowPositional) -> Finding:
    unit = row.pair.new
    value, called = short(ast.unparse(row.value)), short(ast.unparse(row.call.func))
    return RULE.finding(
        unit.path,
        unit.module.source_text.at(row.value),
        f"`{value}` was passed to `{called}` for `{row.before}` before the change, and stands for `{row.now}` now",
        help=f"name it again: `{row.before}={value}`",
        context=f"{unit.qualname}:{called}:{row.before}",
    )


def _report(drop: Drop, severity: Severity) -> Finding:
    unit = drop.pair.new
    assert drop.edit.old is not None
    before = short(drop.edit.old.text)
    if drop.kind == "constant":
        message = f"`{short(drop.text)}` was here before the change: a constant is the same on all ranks"
    elif drop.kind == "order":
        message = f"`{short(drop.text)}` and another one changed places, and nothing else did"
    elif drop.kind == "name":
        message = f"`{short(drop.text)}` was here before the change, which is of other ranks than what stands here now"
    else:
        message = f"the change took {_KINDS[drop.kind]} `{short(drop.text)}` out, and left the rest".replace("  ", " ")
    return RULE.finding(
        unit.path,
        unit.module.source_text.at(drop.new),
        message,
        help=f"before: `{before}`",
        context=f"{unit.qualname}:{drop.text}",
        severity=severity,
    )


_SCHEDULED = """# before: steps.py
import torch.distributed as dist
from rl import mpu


def steps(args, rows):
    ranks = {before}
    return len(rows) // ranks
# file: steps.py
import torch.distributed as dist
from rl import mpu


def steps(args, rows):
    ranks = {after}
    return len(rows) // ranks
"""
_BY_AXES = "mpu.get_data_parallel_world_size() if args.split else dist.get_world_size()"
_CHOSEN_KEYS = """# before: model.py
class Model:
    def __init__(self, config, block):
        self.keys = {"loss", "z_loss"} if config.z_loss else {"loss"}
        self.block = block(self.keys)

    def forward(self, rows, config):
        found = self.block(rows)
        return found["z_loss"] if config.z_loss else found["loss"]
# file: model.py
class Model:
    def __init__(self, config, block):
        self.keys = {"loss"}MARK
        self.block = block(self.keys)

    def forward(self, rows, config):
        found = self.block(rows)
        return FOUND
"""
_RANGED = """# before: main.py
import argparse


def main(layers):
    parser = argparse.ArgumentParser()
    parser.add_argument("--layer-range", nargs="+", type={kind}, default=None)
    args = parser.parse_args()
    return [layers[i] for i in args.layer_range]
# file: main.py
import argparse


def main(layers):
    parser = argparse.ArgumentParser()
    parser.add_argument("--layer-range", nargs="+", default=None){mark}
    args = parser.parse_args()
    return [layers[i] for i in args.layer_range]
"""
_DROPPED = "  # error: MP906"

_WRITTEN = """# before: rl/saving.py
def save(env, engine, state, write):
    if env.dp_rank == 0 or engine.is_partitioned():
        write(state)
# file: rl/saving.py
def save(env, engine, state, write):
    if {test}:{mark}
        write(state)
"""

INCORRECT = (
    # a call that moved into another function, where it is given the number of another rank
    """# before: rl/start.py
import os

import torch
import torch.distributed as dist


def joined():
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    return rank, local_rank


def start(log):
    rank, local_rank = joined()
    torch.cuda.set_device(local_rank)
    log.info("rank %d", rank)
    return rank
# file: rl/start.py
import os

import torch
import torch.distributed as dist


def joined():
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    if not dist.is_initialized():
        torch.cuda.set_device(rank)  # error: MP906
        dist.init_process_group("nccl")
    return rank, local_rank


def start(log):
    rank, local_rank = joined()
    log.info("rank %d", rank)
    return rank
""",
    # which ranks write is asked of another group
    """# before: rl/saving.py
def save(gangs, state, write):
    if gangs.rdp.rank != 0:
        return
    if gangs.sdp.rank == 0:
        state = dict(state)
    write(state)
# file: rl/saving.py
def save(gangs, state, write):
    if gangs.dp.rank != 0:  # error: MP906
        return
    state = dict(state)
    write(state)
""",
    """# before: rl/manager.py
class Manager:
    async def scale(self, gpus):
        return gpus

    async def finalize(self, strategy):
        self.done = True
        return await self.scale(strategy.gpus)
# file: rl/manager.py
class Manager:
    async def scale(self, gpus):
        return gpus

    async def finalize(self, strategy):
        self.done = True
        return self.scale(strategy.gpus)  # error: MP906
""",
    """# before: rl/norm.py
import torch.distributed as dist


def norm(total, mesh, Axis):
    if mesh.uses(Axis.TENSOR):
        dist.all_reduce(total, group=mesh.group(Axis.TENSOR))
    return total
# file: rl/norm.py
import torch.distributed as dist


def norm(total, mesh, Axis):
    if mesh.uses(Axis.TENSOR):
        dist.all_reduce(total, group=mesh.group(Axis.ZERO))  # error: MP906
    return total
""",
    """# before: rl/reduce.py
import torch
import torch.distributed as dist


def reduced(losses):
    values = [losses[key] for key in sorted(losses.keys())]
    total = torch.stack(values)
    dist.all_reduce(total)
    return total
# file: rl/reduce.py
import torch
import torch.distributed as dist


def reduced(losses):
    values = [losses[key] for key in losses.keys()]  # error: MP906
    total = torch.stack(values)
    dist.all_reduce(total)
    return total
""",
    """# before: rl/groups.py
import torch.distributed as dist


def build(sp_degree, dp_degree, size):
    for dp_rank in range(dp_degree):
        offset = dp_rank * sp_degree
        for i in range(size):
            dist.new_group(list(range(i + offset, sp_degree + offset, size)))
# file: rl/groups.py
import torch.distributed as dist


def build(sp_degree, dp_degree, size):
    for dp_rank in range(dp_degree):
        offset = dp_rank * sp_degree
        for i in range(size):
            dist.new_group(list(range(i, sp_degree, size)))  # error: MP906
""",
    """# before: rl/sync.py
import torch.distributed as dist


def sync(weights, groups):
    dist.broadcast(weights, src=groups.get_model_parallel_rank(), group=groups.data)
    return weights
# file: rl/sync.py
import torch.distributed as dist


def sync(weights, groups):
    dist.broadcast(weights, src=0, group=groups.data)  # error: MP906
    return weights
""",
    """# before: rl/sizes.py
def padded(length, tp_size, cp_size):
    multiple = tp_size * cp_size * 2
    return (length + multiple - 1) // multiple * multiple
# file: rl/sizes.py
def padded(length, tp_size, cp_size):
    multiple = tp_size * cp_size  # error: MP906
    return (length + multiple - 1) // multiple * multiple
""",
    """# before: rl/loss.py
import torch.distributed as dist


def mean(loss, group):
    dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=group)
    return loss
# file: rl/loss.py
import torch.distributed as dist


def mean(loss, group):
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)  # error: MP906
    return loss
""",
    """# before: rl/data.py
def sampler(kind, data, self):
    return kind(data, num_replicas=self.dp_size, rank=self.dp_rank)
# file: rl/data.py
def sampler(kind, data, self):
    return kind(data, num_replicas=self.world_size, rank=self.dp_rank)  # error: MP906
""",
    """# before: rl/gathering.py
import torch.distributed as dist


def gather(accelerator, prompts, world):
    padded = accelerator.pad_across_processes(prompts, dim=1)
    found = accelerator.gather(padded)
    return found[:world]
# file: rl/gathering.py
import torch.distributed as dist


def gather(accelerator, prompts, world):
    found = accelerator.gather(prompts)  # error: MP906
    return found[:world]
""",
    """# before: rl/sending.py
import torch
import torch.distributed as dist


def send(parts, group):
    flat = torch.cat([part.view(-1) for part in parts]).cuda()
    dist.broadcast(flat, 0, group=group)
    return flat
# file: rl/sending.py
import torch
import torch.distributed as dist


def send(parts, group):
    flat = torch.cat([part.view(-1) for part in parts])  # error: MP906
    dist.broadcast(flat, 0, group=group)
    return flat
""",
    """# before: rl/sample.py
import torch
import torch.distributed as dist


def sample(model, batch, step):
    rank = dist.get_rank()
    device = rank % torch.cuda.device_count()
    images = model(batch.to(device))
    for place, image in enumerate(images):
        image.save(f"{place * dist.get_world_size() + rank + step}.png")
# file: rl/sample.py
import torch
import torch.distributed as dist


def sample(model, batch, step):
    rank = dist.get_rank()
    device = rank % torch.cuda.device_count()
    images = model(batch.to(device))
    for place, image in enumerate(images):
        image.save(f"{place * dist.get_world_size() + device + step}.png")  # error: MP906
""",
    """# before: rl/seed.py
import torch.distributed as dist


def agree(seed):
    seeds = [None] * dist.get_world_size()
    dist.all_gather_object(seeds, seed)
    return int(seeds[0])
# file: rl/seed.py
import torch.distributed as dist


def agree(seed):
    seeds = [None] * dist.get_world_size()
    dist.all_gather_object(seeds, seed)
    return int(seeds[dist.get_rank()])  # error: MP906
""",
    # the number of the process on its node, kept in a namespace, where its rank in the job stood
    """# before: run.py
import argparse
import os

import torch
import torch.distributed as dist


def setup(args):
    args.gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(args.gpu)
    dist.init_process_group("nccl")


def labels(args, count):
    rank = dist.get_rank()
    return range(rank * count, (rank + 1) * count)


def main():
    args = argparse.ArgumentParser().parse_args()
    setup(args)
    return labels(args, 8)
# file: run.py
import argparse
import os

import torch
import torch.distributed as dist


def setup(args):
    args.gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(args.gpu)
    dist.init_process_group("nccl")


def labels(args, count):
    rank = args.gpu  # error: MP906
    return range(rank * count, (rank + 1) * count)


def main():
    args = argparse.ArgumentParser().parse_args()
    setup(args)
    return labels(args, 8)
""",
    """# before: checkpoint.py
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict


def state_of(model, optimizer):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_optimizer_state_dict(model, optimizer, options=options)


def joined(seconds):
    return dist.new_group(backend="gloo", timeout=seconds)


def part(rows, partition=True):
    return rows[dist.get_rank() :: dist.get_world_size()] if partition else rows


def evaluation(rows):
    return part(rows, partition=False)


def combine(exchange, group, tokens, sent, received):
    return exchange(group, tokens, received, sent)
# file: checkpoint.py
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict


def state_of(model, optimizer):
    options = StateDictOptions(cpu_offload=True)  # error: MP906
    return get_optimizer_state_dict(model, optimizer, options=options)


def joined(seconds):
    return dist.new_group(timeout=seconds)  # error: MP906


def part(rows, partition=True):
    return rows[dist.get_rank() :: dist.get_world_size()] if partition else rows


def evaluation(rows):
    return part(rows)  # error: MP906


def combine(exchange, group, tokens, sent, received):
    return exchange(group, tokens, sent, received)  # error: MP906
""",
    # one of several tensors of which each rank takes its part
    """# before: rl/split.py
def forward(model, tokens, positions, labels, ring_group, part_of):
    (tokens, positions, labels), padding = part_of([tokens, positions, labels], ring_group)
    return model(tokens, positions, labels), padding
# file: rl/split.py
def forward(model, tokens, positions, labels, ring_group, part_of):
    (tokens, labels), padding = part_of([tokens, labels], ring_group)  # error: MP906
    return model(tokens, positions, labels), padding
""",
    # each rank has two pieces of a sequence: the same number of pieces is still told elsewhere
    """# before: rl/ring.py
def aligned(length, cp_size):
    chunk = (length + 2 * cp_size - 1) // (2 * cp_size)
    return chunk * 2 * cp_size


def multiple(tp_size, cp_size):
    return tp_size * cp_size * 2 if cp_size > 1 else tp_size
# file: rl/ring.py
def aligned(length, cp_size):
    chunk = (length + cp_size - 1) // (2 * cp_size)  # error: MP906
    return chunk * 2 * cp_size


def multiple(tp_size, cp_size):
    return tp_size * cp_size if cp_size > 1 else tp_size  # error: MP906
""",
    # the number of devices, by which the mean of gradients was undone
    """# before: collate.py
import torch


def collate(rows, weights):
    inputs = torch.stack(rows)
    total = sum(weights)
    weights = torch.tensor(weights)
    weights = weights * torch.cuda.device_count() / total
    return inputs, weights
# file: collate.py
import torch


def collate(rows, weights):
    inputs = torch.stack(rows)
    total = sum(weights)
    weights = torch.tensor(weights)
    weights = weights / total  # error: MP906
    return inputs, weights
""",
    # by position, where another parameter stands
    """# before: rl/rollout.py
class Trainer:
    def decode(self, prompts, samples, prompt_sizes=None, append_eos=False):
        return [s[: n or None] for s, n in zip(samples, prompt_sizes or [0] * len(samples))], append_eos, prompts

    def rollout(self, batch):
        samples = self.generate(batch)
        texts, _, _ = self.decode(batch.input_ids, samples, append_eos=True)
        return texts

    def generate(self, batch):
        return batch.input_ids
# file: rl/rollout.py
class Trainer:
    def decode(self, prompts, samples, prompt_sizes=None, append_eos=False):
        return [s[: n or None] for s, n in zip(samples, prompt_sizes or [0] * len(samples))], append_eos, prompts

    def rollout(self, batch):
        samples = self.generate(batch)
        texts, _, _ = self.decode(batch.input_ids, samples, True)  # error: MP906
        return texts

    def generate(self, batch):
        return batch.input_ids
""",
    # one of two numbers of ranks; an option that is still asked beside; what an option is
    _SCHEDULED.format(before=_BY_AXES, after=f"dist.get_world_size(){_DROPPED}"),
    _CHOSEN_KEYS.replace("MARK", _DROPPED).replace("FOUND", 'found["z_loss"] if config.z_loss else found["loss"]'),
    _RANGED.format(kind="int", mark=_DROPPED),
    # what the ranks give each other, of two values that go together
    """# before: rl/advantage.py
def centred(accelerator, batch):
    prompts = accelerator.gather_for_metrics(batch["prompt"])
    scores = accelerator.gather_for_metrics(batch["score"])
    return scores - scores[prompts == prompts[0]].mean()
# file: rl/advantage.py
def centred(accelerator, batch):
    prompts = batch["prompt"]  # error: MP906
    scores = batch["score"]  # error: MP906
    return scores - scores[prompts == prompts[0]].mean()
""",
    # all ranks wrote in one case
    _WRITTEN.format(test="env.dp_rank == 0", mark="  # error: MP906"),
    # how long a list is that all ranks fill
    """# before: rl/rollout.py
from accelerate.utils import broadcast_object_list


def answers(prompts, several, generate, is_main):
    found = [None] * len(prompts) * several
    if is_main:
        found = generate(prompts, several)
    return broadcast_object_list(found, from_process=0)
# file: rl/rollout.py
from accelerate.utils import broadcast_object_list


def answers(prompts, several, generate, is_main):
    found = [None] * len(prompts)  # error: MP906
    if is_main:
        found = generate(prompts, several)
    return broadcast_object_list(found, from_process=0)
""",
    # a number of nodes in a script
    """# before: train.sh
NODES=${NODES:-4}
BATCH=$((512 / NODES / 8))
torchrun --nnodes=$NODES --nproc_per_node=8 train.py --batch $BATCH
# file: train.sh
NODES=${NODES:-4}
BATCH=$((512 / 8))  # error: MP906
torchrun --nnodes=$NODES --nproc_per_node=8 train.py --batch $BATCH
""",
    # who takes part, told by two arguments
    """\
# before: data.py
from torch.utils.data import DataLoader, DistributedSampler


def make_loader(rows, size, rank=0, world_size=1):
    return DataLoader(rows, size, sampler=DistributedSampler(rows, num_replicas=world_size, rank=rank))


def init_data(rows, size, world_size, rank):
    print(rank, world_size)
    return make_loader(rows, size, world_size=world_size, rank=rank)
# file: data.py
from torch.utils.data import DataLoader, DistributedSampler


def make_loader(rows, size, rank=0, world_size=1):
    return DataLoader(rows, size, sampler=DistributedSampler(rows, num_replicas=world_size, rank=rank))


def init_data(rows, size, world_size, rank):
    print(rank, world_size)
    return make_loader(rows, size)  # error: MP906
""",
    # a file of each rank
    """\
# before: saving.py
import os

from rl import mpu


def name_of(folder, step):
    common = os.path.join(folder, f"step_{step}")
    return os.path.join(common + "_%03d" % mpu.get_data_parallel_rank(), "optim.pt")
# file: saving.py
import os

from rl import mpu


def name_of(folder, step):
    common = os.path.join(folder, f"step_{step}")
    return os.path.join(common, "optim.pt")  # error: MP906
""",
    # the ranks of the job
    """\
# before: groups.py
import torch.distributed as dist


def make_groups(rows, rank_mapping):
    groups = []
    for row in rows:
        groups.append(dist.new_group(ranks=[rank_mapping[each] for each in row]))
    return groups
# file: groups.py
import torch.distributed as dist


def make_groups(rows, rank_mapping):
    groups = []
    for row in rows:
        groups.append(dist.new_group(ranks=row))  # error: MP906
    return groups
""",
    # how the model is spread
    """\
# before: norm.py
def configure(optimizer, wrapped, config):
    optimizer.reduce_norm(enabled=wrapped and config.sharding_strategy != "NO_SHARD")
    optimizer.start()
    return optimizer
# file: norm.py
def configure(optimizer, wrapped, config):
    optimizer.reduce_norm(enabled=wrapped)  # error: MP906
    optimizer.start()
    return optimizer
""",
)

CORRECT = (
    # a call that moved into another function, where the same number has another name
    """# before: rl/start.py
import os

import torch
import torch.distributed as dist


def joined():
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    return rank, local_rank


def start(log):
    rank, own_rank = joined()
    torch.cuda.set_device(own_rank)
    log.info("rank %d", rank)
    return rank
# file: rl/start.py
import os

import torch
import torch.distributed as dist


def joined():
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    if not dist.is_initialized():
        torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl")
    return rank, local_rank


def start(log):
    rank, own_rank = joined()
    log.info("rank %d", rank)
    return rank
""",
    # the group is called otherwise now
    """# before: rl/saving.py
class Gangs:
    def __init__(self, root, dp):
        self.root = root
        self.dp = dp


def save(gangs, state, write):
    if gangs.dp.rank != 0:
        return
    write(state)
# file: rl/saving.py
class Gangs:
    def __init__(self, root, data):
        self.root = root
        self.data = data


def save(gangs, state, write):
    if gangs.data.rank != 0:
        return
    write(state)
""",
    """# before: rl/sizes.py
def workers(deployment, servers, tp):
    total = deployment.nodes * servers * tp
    return total
# file: rl/sizes.py
def workers(deployment, servers, tp):
    total = deployment.nodes * deployment.gpus
    return total
""",
    """# before: rl/sizes.py
def samples(steps, micro_batch, dp_size):
    return steps * micro_batch * dp_size
# file: rl/sizes.py
def samples(steps, micro_batch, dp_size):
    return steps * micro_batch * dp_size + 1
""",
    """# before: rl/loss.py
def reduce(loss, group=None):
    return loss, group


def mean(loss, group):
    return reduce(loss, group=group)
# file: rl/loss.py
def reduce(loss):
    return loss


def mean(loss, group):
    return reduce(loss)
""",
    """# before: rl/place.py
import torch
import torch.distributed as dist


def place(model):
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    return model.to(f"cuda:{rank}")
# file: rl/place.py
import torch
import torch.distributed as dist


def place(model):
    rank = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(rank)
    return model.to(f"cuda:{rank}")
""",
    """# before: rl/printing.py
import torch.distributed as dist


def show(text, force=False, ranks=None):
    if not force or ranks is None:
        return
    if dist.get_rank() not in ranks:
        return
    print(text)
# file: rl/printing.py
import torch.distributed as dist


def show(text, force=False, ranks=None):
    if not force:
        return
    if ranks is not None and dist.get_rank() not in ranks:
        return
    print(text)
""",
    """# before: rl/flops.py
def dense(tokens, vocabulary, hidden, layers):
    head = vocabulary * hidden * 2
    return tokens * (head + layers * hidden**2)


def sparse(tokens, vocabulary, hidden, layers, experts):
    head = vocabulary * hidden * 2
    return tokens * (head + layers * experts * hidden**2)


def linear(tokens, vocabulary, hidden):
    head = vocabulary * hidden * 2
    return tokens * head
# file: rl/flops.py
def dense(tokens, vocabulary, hidden, layers):
    head = vocabulary * hidden
    return tokens * (head + layers * hidden**2)


def sparse(tokens, vocabulary, hidden, layers, experts):
    head = vocabulary * hidden
    return tokens * (head + layers * experts * hidden**2)


def linear(tokens, vocabulary, hidden, every=1):
    attention = hidden**2 // every
    embedding = vocabulary * hidden
    total = embedding + attention
    rows = [total, total * 2]
    return tokens * sum(rows)
""",
    """# before: rl/positions.py
from megatron.core import parallel_state


def positions(model, emb, part_of):
    if parallel_state.get_context_parallel_world_size() > 1 and not model.is_packed:
        emb = part_of(emb, parallel_state.get_context_parallel_group())
    return emb
# file: rl/positions.py
from megatron.core import parallel_state


def positions(model, emb, part_of, cp_group=None):
    cp_group = cp_group or parallel_state.get_context_parallel_group()
    if cp_group.size() > 1 and not model.is_packed:
        emb = part_of(emb, cp_group)
    return emb
""",
    """# before: rl/decoder.py
class Decoder:
    def __init__(self, ones, weights):
        self.scaling_factor = ones
        self.weights = weights

    def decode(self, features):
        return self.weights @ (features * self.scaling_factor)
# file: rl/decoder.py
class Decoder:
    def __init__(self, ones, weights):
        self.weights = weights

    def decode(self, features):
        return self.weights @ features
""",
    """# before: groups.py
import torch.distributed as dist


def joined(seconds):
    return dist.new_group(backend="gloo", timeout=seconds)


def part(rows, partition=True):
    return rows[dist.get_rank() :: dist.get_world_size()] if partition else rows


def training(rows):
    return part(rows, partition=True)
# file: groups.py
import torch.distributed as dist


def joined(seconds):
    return dist.new_group(backend="gloo")


def part(rows, partition=True):
    return rows[dist.get_rank() :: dist.get_world_size()] if partition else rows


def training(rows):
    return part(rows)
""",
    # by position, at its own place
    """# before: rl/save.py
def save(model, path, latest=True):
    return model, path, latest


def finish(model, path, latest):
    print(path)
    return save(model, path, latest=latest)
# file: rl/save.py
def save(model, path, latest=True):
    return model, path, latest


def finish(model, path, latest):
    print(path)
    return save(model, path, latest)
""",
    # of the same ranks; asked nowhere any more; a text as it was
    _SCHEDULED.format(before="dist.get_world_size() if args.split else args.ranks_of_all", after="args.ranks_of_all"),
    _CHOSEN_KEYS.replace("MARK", "").replace("FOUND", 'found["loss"]'),
    _RANGED.format(kind="str", mark=""),
    _WRITTEN.format(test="env.dp_rank == 0 or engine.is_partitioned()", mark=""),
    # another number than one of processes or nodes
    """# before: train.sh
STEPS=${STEPS:-4}
BATCH=$((512 / $STEPS / 8))
torchrun --nnodes=4 --nproc_per_node=8 train.py --batch $BATCH
# file: train.sh
STEPS=${STEPS:-4}
BATCH=$((512 / 8))
torchrun --nnodes=4 --nproc_per_node=8 train.py --batch $BATCH
""",
    # the function asks for itself
    """\
# before: data.py
def make_loader(rows, size, rank=0, world_size=1):
    return rows[rank::world_size], size


def init_data(rows, size, world_size, rank):
    print(rank, world_size)
    return make_loader(rows, size, world_size=world_size, rank=rank)
# file: data.py
import torch.distributed as dist


def make_loader(rows, size):
    return rows[dist.get_rank() :: dist.get_world_size()], size


def init_data(rows, size, world_size, rank):
    print(rank, world_size)
    return make_loader(rows, size)
""",
)
