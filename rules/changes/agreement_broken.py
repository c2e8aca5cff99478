"""Something that a change altered in one place, while another place still goes by what it was.

What it does
    Compares each function before and after a change. Reports a sum over ranks that is a mean now, or the other way
    round, in a function that still multiplies or divides by the number of ranks as it did; a sum over ranks that was
    divided by their number and is not any more, where the change divides nothing else by it; a divisor that counted
    what all ranks have, and counts what one has, where the quotient is added up over ranks; a collective that gave its
    result to all ranks and gives it to one now, where all of them read it; a test of a remainder (`(step + 1) % every`)
    that no longer comes true in the same rounds as another one of the file, as it did before; a wait for transfers, or
    a barrier, that was moved behind statements that use what is transferred, or files (after what some ranks do, also
    behind calls that read or write files), or such a statement moved before it; a barrier that was moved before what
    some ranks do for all; what some ranks do, moved behind the broadcast that gave it to all; what reads a number on
    the other side of its division among ranks; what reads a variable before the collective of which it read the result;
    a call that reads a file, moved before the one that writes it; a variable that a call gave to all ranks, and gives
    to one now, while all read it; and a measure that was reduced beside others which still are, and is given back as
    each rank has it. Also a group that is asked for otherwise since the change (`get_group(with_context=True)`), where
    other calls of the function still get the one of before by the same keyword; and a collective that is asynchronous
    always, or never (`async_op=True`), where another one of the function still goes by the switch. A note of what works
    on the parameters of a module on the other side of its wrapping (`DistributedDataParallel(model)`). And a number of
    a recipe that is no longer a multiple of another one, where code raises for that (`assert queue % batch == 0`) and
    all other recipes keep to it; and a value that a DeepSpeed file left to the arguments (`"auto"`) and states since
    the change, where scripts that name the file give another one.

Why is this bad
    A loss that is too large by the number of ranks, ranks that decide by different numbers, gradients that are reduced
    in another round than the one in which the optimizer steps: nothing fails, the model trains wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.changes.effect_dropped import short
from validator.drift.agreements import Agreements
from validator.drift.change import Change
from validator.drift.orders import Orders
from validator.drift.settings.fixed_settings import Fixed, FixedSettings
from validator.drift.settings.multiples import Indivisible, Multiples
from validator.drift.some_ranks import SomeRanks
from validator.facts.model import At
from validator.finding import Finding, Related, Severity
from validator.flow.program.unit import Unit
from validator.rule import Rule

RULE = Rule("MP912", "agreement-broken", "warning", stable_since="0.3.0")


def check_change(change: Change) -> Iterator[Finding]:
    for apart in change.analysis(Agreements).broken:
        unit = apart.pair.new
        yield _finding(unit, unit.module.source_text.at(apart.at), apart.text, apart.before)
    for turned in change.analysis(Orders).turned:
        yield _finding(turned.pair.new, turned.at, turned.text, turned.before, turned.severity)
    for indivisible in change.analysis(Multiples).rows:
        yield _indivisible(indivisible)
    for fixed in change.analysis(FixedSettings).rows:
        yield _fixed(fixed)
    for row in change.analysis(SomeRanks).unshared:
        line = max(row.line, 1)
        yield _finding(row.pair.new, (line, 1, line, 1), row.text, row.before, row.severity)


def _indivisible(row: Indivisible) -> Finding:
    whole, part, required = row.whole, row.part, row.required
    return RULE.finding(
        row.path,
        row.changed.value_at,
        f"`{whole.path[-1]}` {whole.value} is no multiple of `{part.path[-1]}` {part.value} since the change:"
        f" `{required.unit.qualname}` raises",
        help="change both",
        related=[Related(required.unit.path, required.line, "this requires it")],
        context=f"{whole.path[-1]}:{part.path[-1]}",
    )


def _fixed(row: Fixed) -> Finding:
    key, (path, _, value) = ".".join(row.setting.path), row.given[0]
    gives = f"and {len(row.given) - 1} more give" if len(row.given) > 1 else "gives"
    return RULE.finding(
        row.path,
        row.setting.value_at,
        f'`{key}` is {row.setting.value} since the change and was "auto" before; {path} {gives}'
        f" `--{row.argument}` {value}: the Trainer raises ValueError",
        help='write "auto", or the same value in both',
        related=[Related(path, line, f"`--{row.argument} {value}`") for path, line, value in row.given[:4]],
        context=f"{key}:{row.setting.value}",
    )


def _finding(unit: Unit, at: At, text: str, before: str, severity: Severity | None = None) -> Finding:
    shown = short(before)
    context = f"{unit.qualname}:{shown}"
    return RULE.finding(unit.path, at, text, help=f"before: `{shown}`", context=context, severity=severity)


_BOXES = """# before: rl/loss.py
import torch
import torch.distributed as dist


def total(losses, targets, device):
    count = torch.as_tensor([len(targets)], dtype=torch.float, device=device)
    dist.all_reduce(count)
    count = torch.clamp(count / dist.get_world_size(), min=1).item()
    return losses.sum() / count
# file: rl/loss.py
import torch
import torch.distributed as dist


def total(losses, targets, device):
    count = torch.as_tensor([len(targets)], dtype=torch.float, device=device)
    dist.all_reduce({given}){mark}
    count = max(count.item(), 1.0)
    return {result} / count
"""

_METERS = """import torch
import torch.distributed as dist
from accelerate import Accelerator


class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n):
        self.sum, self.count = self.sum + value * n, self.count + n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count])
        dist.all_reduce(total)
        self.sum, self.count = total.tolist()


def validate(model, batches):
    losses, scores = Meter(), Meter()
    for batch in batches:
        loss, score = model(batch)
        losses.update(loss, len(batch))
        scores.update(score, len(batch))
{reduced}    return losses.sum / losses.count, score


def rounds(model, batches):
    accelerator = Accelerator()
    lengths = torch.tensor([len(batch) for batch in batches])
{counted}    for _ in range(longest):
        model(batches)
"""

_PREPARED = """# before: rl/main.py
import torch.distributed as dist

from rl.model import Model
from rl.words import count_words


def main(options):
    if options.rank == 0:
        count_words(options.texts)
    if options.distributed:
        dist.barrier()
    model = Model(options.words)
    return model
# file: rl/main.py
import torch.distributed as dist

from rl.model import Model
from rl.words import count_words


def main(options):
    if options.rank == 0:
        count_words(options.texts)
    model = Model(options.words){mark}
    if options.distributed and options.texts:
        dist.barrier()
    return model
# file: rl/words.py
def count_words(texts):
    with open("words.txt", "w") as file:
        file.write(str(texts))
# file: rl/model.py
class Model:
    def __init__(self, words):
        self.words = {words}
"""

_SAVED = """import os

import torch


class Saver:
    def save(self, model, folder, step):
        self.step = step
        os.makedirs(folder, exist_ok=True)
        self.before(step)
        {first}
        {second}
        self.last = step
        return folder

    def save_whole(self, model, folder):
        torch.save(model.state_dict(), os.path.join(folder, "whole", "model.pt"))

    def save_part(self, model, folder):
        state = torch.load(os.path.join(folder, "{read}", "model.pt"))
        part = {{name: value for name, value in state.items() if name in self.names}}
        torch.save(part, os.path.join(folder, "part.pt"))
"""

_QUEUED = """# file: model.py
import torch


class Model:
    def __init__(self, options):
        self.queue_size = options.get("queue_size", 180)

    def enqueue(self, rows):
        b, c, h, w = rows.size()
        if not hasattr(self, "queue"):
            assert self.queue_size % b == 0, "the queue must be a multiple of the batch"
            self.queue = torch.zeros(self.queue_size, c, h, w)
        self.queue[:b] = rows
# file: options/base.yml
queue_size: 180
train:
  batch_size_per_gpu: 12
# before: options/small.yml
queue_size: 180
train:
  batch_size_per_gpu: 6
# file: options/small.yml
queue_size: 180
train:
  batch_size_per_gpu: {size}
"""

_LAUNCHED = """# before: code/local/zero3.json
{{"zero_optimization": {{"stage": 3}}, "gradient_accumulation_steps": "auto", "bf16": {{"enabled": "auto"}}}}
# file: code/local/zero3.json
{{
  "zero_optimization": {{"stage": 3}},
  "gradient_accumulation_steps": {steps},{mark}
  "bf16": {{"enabled": "auto"}}
}}
# file: scripts/run.sh
torchrun --nproc_per_node 8 src/train.py \\
    --output_dir out --deepspeed ./local/zero3.json \\
    --gradient_accumulation_steps 2
"""

_AVERAGED = """# before: kl.py
import torch
import torch.distributed as dist


def told(kl, stats):
    kl = kl.mean()
    dist.all_reduce(kl, dist.ReduceOp.AVG)
    stats["kl"] = torch.sqrt(kl).item()
    stats["step"] = stats["step"] + 1
    return stats
# file: kl.py
import torch
import torch.distributed as dist


def told(kl, stats):
    kl = kl.mean()
    {first}
    {second}
    {third}
    return stats
"""

_BUCKET = """\
import torch.distributed as dist


class Bucket:
    def __init__(self, data, shard, overlap, sharded):
        self.data, self.shard, self.overlap, self.sharded = data, shard, overlap, sharded
        self.work = None

    def start(self):
        if self.sharded:
            self.work = dist.reduce_scatter_tensor(self.shard, self.data, async_op={first}){mark}
        else:
            self.work = dist.all_reduce(self.data, async_op={second})

    def finish(self):
        {finish}
            self.work.wait()
"""
_ASKED = _BUCKET.format(first="self.overlap", second="self.overlap", finish="if self.overlap:", mark="")
_OVERLAPPED = f"# before: bucket.py\n{_ASKED}# file: bucket.py\n{_BUCKET}"

INCORRECT = (
    # a constructor reads what one rank writes
    _PREPARED.format(words="open(words).read().split()", mark="  # error: MP912"),
    # a number of all ranks that each divides its own sum by
    _BOXES.format(given="count", mark="  # error: MP912", result="losses.sum()"),
    # a number that the file divides among ranks, and the size of what one of them has
    """# before: rl/loss.py
import torch.distributed as dist


def build(args, loader):
    return loader(args.batch_size // args.world_size)


def loss(args, one, other):
    matrix = one.T @ other
    matrix.div_(args.batch_size)
    dist.all_reduce(matrix)
    return matrix.diagonal().sum()
# file: rl/loss.py
import torch.distributed as dist


def build(args, loader):
    return loader(args.batch_size // args.world_size)


def loss(args, one, other):
    matrix = one.T @ other
    matrix.div_(one.size(0))  # error: MP912
    dist.all_reduce(matrix)
    return matrix.diagonal().sum()
""",
    # what is frozen before it is wrapped, and was frozen behind it
    """# before: rl/build.py
import copy

from torch.nn.parallel import DistributedDataParallel


def build(model, log):
    target = copy.deepcopy(model)
    model = DistributedDataParallel(model)
    target = DistributedDataParallel(target)
    for param in target.parameters():
        param.requires_grad = False
    log.info("built")
    return model, target
# file: rl/build.py
import copy

from torch.nn.parallel import DistributedDataParallel


def build(model, log):
    target = copy.deepcopy(model)
    for param in target.parameters():  # error: MP912
        param.requires_grad = False
    model = DistributedDataParallel(model)
    target = DistributedDataParallel(target)
    log.info("built")
    return model, target
""",
    # what one rank alone loads, and all read; one of several measures, all of which were reduced
    """# before: rl/resume.py
import torch
import torch.distributed as dist


def resume(model, path, epochs, run):
    start = 0
    if path:
        start, missing = restored(model, path)
        if dist.get_rank() == 0:
            print(missing)
    for epoch in range(start, epochs):
        run(model, epoch)


def restored(model, path):
    state = torch.load(path)
    return state["epoch"], model.load_state_dict(state["model"], strict=False)


def mean_over_ranks(value):
    dist.all_reduce(value, op=dist.ReduceOp.AVG)
    return value


def validate(model, batches, accuracy, Meter):
    losses, scores = Meter(), Meter()
    for batch, targets in batches:
        loss, score = model(batch), accuracy(model, batch, targets)
        loss = mean_over_ranks(loss)
        score = mean_over_ranks(score)
        losses.update(loss.item())
        scores.update(score.item())
    return losses.average, scores.average
# file: rl/resume.py
import torch
import torch.distributed as dist


def resume(model, path, epochs, run):
    start = 0
    if path:
        if dist.get_rank() == 0:
            start, missing = restored(model, path)  # error: MP912
            print(missing)
    for epoch in range(start, epochs):
        run(model, epoch)


def restored(model, path):
    state = torch.load(path)
    return state["epoch"], model.load_state_dict(state["model"], strict=False)


def mean_over_ranks(value):
    dist.all_reduce(value, op=dist.ReduceOp.AVG)
    return value


def validate(model, batches, accuracy, Meter):
    losses, scores = Meter(), Meter()
    for batch, targets in batches:
        loss, score = model(batch), accuracy(model, batch, targets)
        losses.update(loss.item())  # error: MP912
        scores.update(score.item())
    total = mean_over_ranks(torch.tensor(losses.average))
    return total, scores.average
""",
    # a number that is divided among ranks, and what reads it; what one rank loads for all, and the broadcast of it
    """# before: rl/start.py
import torch.distributed as dist


def start(args, build, world_size):
    args.lr = args.lr * args.batch_size / 256
    model = build(args.arch)
    args.batch_size = args.batch_size // world_size
    return model


def resumed(model, ema, path, load, rank):
    if path is not None and rank == 0:
        state = load(path)
        for each in (model, ema):
            each.load_state_dict(state)
    for each in (model, ema):
        for param in each.parameters():
            dist.broadcast(param, src=0)
    return model
# file: rl/start.py
import torch.distributed as dist


def start(args, build, world_size):
    model = build(args.arch)
    args.batch_size = args.batch_size // world_size
    args.lr = args.lr * args.batch_size / 256  # error: MP912
    return model


def resumed(model, ema, path, load, rank):
    for each in (model, ema):
        for param in each.parameters():
            dist.broadcast(param, src=0)
    if path is not None and rank == 0:
        state = load(path)
        for each in (model, ema):
            each.load_state_dict(state)  # error: MP912
    return model
""",
    """# before: rl/loss.py
import torch.distributed as dist


def loss(total, tokens, world_size):
    dist.all_reduce(tokens, op=dist.ReduceOp.SUM)
    return total * world_size / tokens
# file: rl/loss.py
import torch.distributed as dist


def loss(total, tokens, world_size):
    dist.all_reduce(tokens, op=dist.ReduceOp.AVG)  # error: MP912
    return total * world_size / tokens
""",
    """# before: rl/evaluate.py
import torch.distributed as dist


def evaluate(loss, best, trainer):
    dist.all_reduce(loss)
    if loss < best:
        trainer.save()
# file: rl/evaluate.py
import torch.distributed as dist


def evaluate(loss, best, trainer):
    dist.reduce(loss, dst=0)  # error: MP912
    if loss < best:
        trainer.save()
""",
    """# before: rl/train.py
class Trainer:
    def step(self, index, loss):
        self.model.sync = (index + 1) % self.every == 0
        loss.backward()
        if (index + 1) % self.every == 0:
            self.optimizer.step()
# file: rl/train.py
class Trainer:
    def step(self, index, loss):
        self.model.sync = index % self.every == 0  # error: MP912
        loss.backward()
        if (index + 1) % self.every == 0:
            self.optimizer.step()
""",
    """# before: rl/sync.py
import torch
import torch.distributed as dist


def share(buckets, owners):
    handles = []
    for bucket, owner in zip(buckets, owners):
        handles.append(dist.broadcast(tensor=bucket.buffer, src=owner, async_op=True))
    _ = list(filter(lambda x: x.wait(), handles))
    for bucket in buckets:
        bucket.buffer = bucket.buffer.float()


def publish(state, path):
    if dist.get_rank() == 0:
        torch.save(state, path)
    dist.barrier()
    return torch.load(path)
# file: rl/sync.py
import torch
import torch.distributed as dist


def share(buckets, owners):
    handles = []
    for bucket, owner in zip(buckets, owners):
        handles.append(dist.broadcast(tensor=bucket.buffer, src=owner, async_op=True))
    for bucket in buckets:
        bucket.buffer = bucket.buffer.float()
    _ = list(filter(lambda x: x.wait(), handles))  # error: MP912


def publish(state, path):
    if dist.get_rank() == 0:
        torch.save(state, path)
    dist.barrier()
    return torch.load(path)
""",
    """# before: rl/collect.py
import torch.distributed as dist


class Collector:
    def count(self, steps, world_size):
        if world_size > 1:
            steps = self._summed(steps)
        self.total += steps
        return steps

    def _summed(self, value):
        dist.all_reduce(value)
        return value

    def prepare(self):
        if dist.get_rank() == 0:
            self.download()
        if dist.is_initialized():
            dist.barrier()


def forward(hidden, inputs, parts):
    if parts > 1:
        dist.all_reduce(hidden)
    return hidden + inputs
# file: rl/collect.py
import torch.distributed as dist


class Collector:
    def count(self, steps, world_size):
        self.total += steps  # error: MP912
        if world_size > 1:
            steps = self._summed(steps)
        return steps

    def _summed(self, value):
        dist.all_reduce(value)
        return value

    def prepare(self):
        if dist.is_initialized():
            dist.barrier()  # error: MP912
        if dist.get_rank() == 0:
            self.download()


def forward(hidden, inputs, parts):
    hidden = hidden + inputs  # error: MP912
    if parts > 1:
        dist.all_reduce(hidden)
    return hidden
""",
    # one of several meters whose objects reduce themselves; a length of the longest batch of all ranks
    "# before: rl/meters.py\n"
    + _METERS.format(
        reduced="    losses.all_reduce()\n    scores.all_reduce()\n    score = scores.sum / scores.count\n",
        counted="    all_lengths = accelerator.gather(lengths)\n    longest = int(all_lengths.max())\n",
    )
    + "# file: rl/meters.py\n"
    + _METERS.format(
        reduced=(
            "    for meter in (losses,):\n"
            "        meter.all_reduce()\n"
            "    score = scores.sum / scores.count  # error: MP912\n"
        ),
        counted="    longest = int(lengths.max())  # error: MP912\n",
    ),
    # what one call writes, the other reads
    "# before: saver.py\n"
    + _SAVED.format(first="self.save_whole(model, folder)", second="self.save_part(model, folder)", read="whole")
    + "# file: saver.py\n"
    + _SAVED.format(
        first="self.save_part(model, folder)  # error: MP912", second="self.save_whole(model, folder)", read="whole"
    ),
    # what must be divided is not
    _QUEUED.format(size="16  # error: MP912"),
    # a file states what scripts give otherwise; they are started from another folder
    _LAUNCHED.format(steps="1", mark="  # error: MP912"),
    # a function is given what the collective has not yet made
    _AVERAGED.format(
        first='stats["kl"] = torch.sqrt(kl).item()  # error: MP912',
        second="dist.all_reduce(kl, dist.ReduceOp.AVG)",
        third='stats["step"] = stats["step"] + 1',
    ),
    # a group that is another one in one of two calls
    """# before: rl/counts.py
def counted(batch, mpu, tokens, samples):
    batch.tokens = tokens(batch, dp_group=mpu.get_data_parallel_group())
    batch.samples = samples(batch, dp_group=mpu.get_data_parallel_group())
    return batch
# file: rl/counts.py
def counted(batch, mpu, tokens, samples):
    batch.tokens = tokens(batch, dp_group=mpu.get_data_parallel_group(with_context_parallel=True))  # error: MP912
    batch.samples = samples(batch, dp_group=mpu.get_data_parallel_group())
    return batch
""",
    # one of two collectives returns before it is done, whatever the switch says
    _OVERLAPPED.format(first="True", second="self.overlap", finish="if self.overlap:", mark="  # error: MP912"),
)

CORRECT = (
    _PREPARED.format(words="len(words)", mark=""),
    # all meters in a loop; a number of each rank that the function only tells
    """# before: rl/meters.py
import torch


def validate(losses, scores):
    losses.all_reduce()
    scores.all_reduce()
    return losses.sum, scores.sum


def told(batches, accelerator):
    lengths = torch.tensor([len(batch) for batch in batches])
    all_lengths = accelerator.gather(lengths)
    longest = int(all_lengths.max())
    print(longest, all_lengths)
# file: rl/meters.py
import torch


def validate(losses, scores):
    for meter in (losses, scores):
        meter.all_reduce()
    return losses.sum, scores.sum


def told(batches, accelerator):
    lengths = torch.tensor([len(batch) for batch in batches])
    all_lengths = accelerator.gather(lengths)
    longest = int(lengths.max())
    print(longest, all_lengths)
""",
    # the mean of all ranks; the number of ranks in another place
    _BOXES.format(given="count, op=dist.ReduceOp.AVG", mark="", result="losses.sum()"),
    _BOXES.format(given="count", mark="", result="losses.sum() * dist.get_world_size()"),
    # nothing says that the setting counts what all ranks have; the mean over ranks is taken now
    """# before: rl/loss.py
import torch.distributed as dist


def loss(args, one, other):
    matrix = one.T @ other
    matrix.div_(args.batch_size)
    dist.all_reduce(matrix)
    return matrix.diagonal().sum()
# file: rl/loss.py
import torch.distributed as dist


def loss(args, one, other):
    matrix = one.T @ other
    matrix.div_(one.size(0))
    dist.all_reduce(matrix)
    return matrix.diagonal().sum()
# before: rl/mean.py
import torch.distributed as dist


def build(args, loader):
    return loader(args.batch_size // args.world_size)


def loss(args, one, other):
    matrix = one.T @ other / args.batch_size
    dist.all_reduce(matrix)
    return matrix.diagonal().sum()
# file: rl/mean.py
import torch.distributed as dist


def build(args, loader):
    return loader(args.batch_size // args.world_size)


def loss(args, one, other):
    matrix = one.T @ other / one.size(0)
    dist.all_reduce(matrix, op=dist.ReduceOp.AVG)
    return matrix.diagonal().sum()
""",
    # another module is wrapped between
    """# before: rl/build.py
from torch.nn.parallel import DistributedDataParallel


def build(model, target, log):
    model = DistributedDataParallel(model)
    for param in target.parameters():
        param.requires_grad = False
    log.info("built")
    return model, target
# file: rl/build.py
from torch.nn.parallel import DistributedDataParallel


def build(model, target, log):
    for param in target.parameters():
        param.requires_grad = False
    model = DistributedDataParallel(model)
    log.info("built")
    return model, target
""",
    # what one rank loads is sent to all, or asked for; all measures are reduced in another place
    """# before: rl/resume.py
import torch
import torch.distributed as dist


def resume(model, path, epochs, run):
    start = 0
    if path:
        start, missing = restored(model, path)
        if dist.get_rank() == 0:
            print(missing)
    for epoch in range(start, epochs):
        run(model, epoch)


def restored(model, path):
    state = torch.load(path)
    return state["epoch"], model.load_state_dict(state["model"], strict=False)


def logged(rows, Writer):
    writer = Writer("out")
    for row in rows:
        writer.add(row)


def mean_over_ranks(value):
    dist.all_reduce(value, op=dist.ReduceOp.AVG)
    return value


def validate(model, batches, accuracy, Meter):
    losses, scores = Meter(), Meter()
    for batch, targets in batches:
        loss, score = model(batch), accuracy(model, batch, targets)
        loss = mean_over_ranks(loss)
        score = mean_over_ranks(score)
        losses.update(loss.item())
        scores.update(score.item())
    return losses.average, scores.average
# file: rl/resume.py
import torch
import torch.distributed as dist


def resume(model, path, epochs, run):
    start = 0
    if path:
        if dist.get_rank() == 0:
            start, missing = restored(model, path)
            print(missing)
        shared = [start]
        dist.broadcast_object_list(shared)
        start = shared[0]
    for epoch in range(start, epochs):
        run(model, epoch)


def restored(model, path):
    state = torch.load(path)
    return state["epoch"], model.load_state_dict(state["model"], strict=False)


def logged(rows, Writer):
    writer = None
    if dist.get_rank() == 0:
        writer = Writer("out")
    for row in rows:
        if writer is not None:
            writer.add(row)


def mean_over_ranks(value):
    dist.all_reduce(value, op=dist.ReduceOp.AVG)
    return value


def validate(model, batches, accuracy, Meter):
    losses, scores = Meter(), Meter()
    for batch, targets in batches:
        loss, score = model(batch), accuracy(model, batch, targets)
        losses.update(loss.item())
        scores.update(score.item())
    total = mean_over_ranks(torch.tensor(losses.average))
    return total, mean_over_ranks(torch.tensor(scores.average))
""",
    # what moved reads another number; what one rank does has nothing to do with what is sent
    """# before: rl/start.py
import torch.distributed as dist


def start(args, build, world_size):
    args.lr = args.lr * args.global_batch / 256
    model = build(args.arch)
    args.batch_size = args.batch_size // world_size
    return model


def described(model, log, rank):
    if rank == 0:
        log.write("ready")
    for param in model.parameters():
        dist.broadcast(param, src=0)
    return model
# file: rl/start.py
import torch.distributed as dist


def start(args, build, world_size):
    model = build(args.arch)
    args.batch_size = args.batch_size // world_size
    args.lr = args.lr * args.global_batch / 256
    return model


def described(model, log, rank):
    for param in model.parameters():
        dist.broadcast(param, src=0)
    if rank == 0:
        log.write("ready")
    return model
""",
    # what is read before a collective has nothing to do with it; the barrier stands between others as before
    """# before: rl/collect.py
import torch.distributed as dist


def count(steps, rows):
    dist.all_reduce(steps)
    size = len(rows) * 2
    if dist.get_rank() == 0:
        print(size)
    dist.barrier()
    return steps / size
# file: rl/collect.py
import torch.distributed as dist


def count(steps, rows):
    size = len(rows) * 2
    dist.all_reduce(steps)
    dist.barrier()
    if dist.get_rank() == 0:
        print(size)
    dist.barrier()
    return steps / size
""",
    # what comes between has nothing to do with what is transferred
    """# before: rl/sync.py
import torch.distributed as dist


def share(tensor, timer):
    handle = dist.all_reduce(tensor, async_op=True)
    handle.wait()
    timer.stop()
    return tensor.sum()
# file: rl/sync.py
import torch.distributed as dist


def share(tensor, timer):
    handle = dist.all_reduce(tensor, async_op=True)
    timer.stop()
    handle.wait()
    return tensor.sum()
""",
    """# before: rl/loss.py
import torch.distributed as dist


def loss(total, tokens, world_size):
    dist.all_reduce(tokens, op=dist.ReduceOp.SUM)
    return total * world_size / tokens
# file: rl/loss.py
import torch.distributed as dist


def loss(total, tokens, world_size):
    dist.all_reduce(tokens, op=dist.ReduceOp.AVG)
    return total / tokens
""",
    """# before: rl/evaluate.py
import torch.distributed as dist


def evaluate(loss, best, trainer):
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        print(loss)
# file: rl/evaluate.py
import torch.distributed as dist


def evaluate(loss, best, trainer):
    dist.reduce(loss, dst=0)
    if dist.get_rank() == 0:
        print(loss)
""",
    """# before: rl/train.py
class Trainer:
    def step(self, index, loss):
        self.model.sync = (index + 1) % self.every == 0
        loss.backward()
        if (index + 1) % self.every == 0:
            self.optimizer.step()
# file: rl/train.py
class Trainer:
    def step(self, index, loss):
        self.model.sync = index % self.every == 0
        loss.backward()
        if index % self.every == 0:
            self.optimizer.step()
""",
    # they have nothing to do with each other
    "# before: saver.py\n"
    + _SAVED.format(first="self.save_whole(model, folder)", second="self.save_part(model, folder)", read="base")
    + "# file: saver.py\n"
    + _SAVED.format(first="self.save_part(model, folder)", second="self.save_whole(model, folder)", read="base"),
    _QUEUED.format(size="15"),
    _LAUNCHED.format(steps=2, mark=""),
    _LAUNCHED.format(steps='"auto"', mark=""),
    # another statement came before it
    _AVERAGED.format(
        first='stats["step"] = stats["step"] + 1',
        second="dist.all_reduce(kl, dist.ReduceOp.AVG)",
        third='stats["kl"] = torch.sqrt(kl).item()',
    ),
    # in both
    """# before: rl/counts.py
def counted(batch, mpu, tokens, samples):
    batch.tokens = tokens(batch, dp_group=mpu.get_data_parallel_group())
    batch.samples = samples(batch, dp_group=mpu.get_data_parallel_group())
    return batch
# file: rl/counts.py
def counted(batch, mpu, tokens, samples):
    batch.tokens = tokens(batch, dp_group=mpu.get_data_parallel_group(with_context_parallel=True))
    batch.samples = samples(batch, dp_group=mpu.get_data_parallel_group(with_context_parallel=True))
    return batch
""",
    _OVERLAPPED.format(first="True", second="True", finish="if self.work is not None:", mark=""),
)
