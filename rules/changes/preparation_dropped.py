"""A step that a change took away and without which a value is not fit for its use.

What it does
    Compares each function before and after a change. Reports a variable that was a copy and is now what it was made of,
    where the function writes into it in place; a tensor that was padded, or else made anew out of itself, before a
    collective was handed it, and goes there as it is; a number that was rounded to a whole multiple of a number of
    ranks, and is so no longer; a row that was filled up to a number of equal parts; parts taken in equal steps of a
    length that was cut to a whole multiple of them; a variable that went through a collective (`x = all_reduce(x)`, of
    whatever library) and is used as each rank has it, where nothing else changed that may do it now; and a variable
    that went through a call with others (`model, loader = accelerator.prepare(model, loader)`), which still do.

Why is this bad
    The original is overwritten, ranks bring tensors of different sizes to a collective, or the last rank gets a shorter
    piece: wrong numbers or a hang, on several processes only.
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.changes.effect_dropped import short
from validator.drift.change import Change
from validator.drift.statements.preparations import Preparations
from validator.finding import Finding
from validator.rule import Rule

RULE = Rule("MP911", "preparation-dropped", "warning", stable_since="0.3.0")


def check_change(change: Change) -> Iterator[Finding]:
    for row in change.analysis(Preparations).lost:
        unit = row.pair.new
        yield RULE.finding(
            unit.path,
            unit.module.source_text.at(row.at),
            row.text,
            help=f"before: `{short(row.before)}`",
            context=f"{unit.qualname}:{short(row.before)}",
        )


_BUFFER = """# before: buffer.py
import random


class Buffer:
    def __init__(self, items):
        self.items = items

    def parts(self, count):
        size = (len(self.items) + count - 1) // count
        if len(self.items) < size * count:
            self.items.extend(random.choices(self.items, k=size * count - len(self.items)))
        items = list(self.items)
        random.shuffle(items)
        return [items[i * size : (i + 1) * size] for i in range(count)]
# file: buffer.py
import random


class Buffer:
    def __init__(self, items):
        self.items = items

    def parts(self, count):
        {size}
        items = list(self.items)
        random.shuffle(items)
        return [items[{cut}] for i in range(count)]{mark}
"""

# A maximum that no longer goes through a collective.
_SHIFTED = """# before: loss.py
import torch
from bmtrain.distributed import all_reduce


def loss(logits, comm):
    largest = torch.max(logits, dim=-1)[0]
    largest = all_reduce(largest, op="max", comm=comm)
    logits = logits - largest.unsqueeze(-1)
    total = all_reduce(logits.exp().sum(-1), comm=comm)
    return total.log()
# file: loss.py
import torch
from bmtrain.distributed import all_reduce


def loss(logits, comm):
    largest = torch.max(logits, dim=-1)[0]
    logits = logits - {shift}
    total = all_reduce(logits.exp().sum(-1), comm=comm)
    return total.log()
"""

INCORRECT = (
    """# before: rl/average.py
import torch.distributed as dist


class Average:
    def aggregate(self):
        total = self.total.to(self.device, copy=True)
        dist.all_reduce(total)
        return total
# file: rl/average.py
import torch.distributed as dist


class Average:
    def aggregate(self):
        total = self.total.to(self.device)  # error: MP911
        dist.all_reduce(total)
        return total
""",
    """# before: rl/metrics.py
import torch.distributed as dist


class Recall:
    def compute(self):
        hits, misses = self.hits.clone(), self.misses.clone()
        dist.all_reduce(hits)
        dist.all_reduce(misses)
        return hits / (hits + misses)
# file: rl/metrics.py
import torch.distributed as dist


class Recall:
    def compute(self):
        hits, misses = self.hits.detach(), self.misses.detach()  # error: MP911
        dist.all_reduce(hits)
        dist.all_reduce(misses)
        return hits / (hits + misses)
""",
    """# before: rl/video.py
import math


class Video:
    def length(self, frames, height):
        return math.ceil(frames * height / self.sp_size) * self.sp_size
# file: rl/video.py
import math


class Video:
    def length(self, frames, height):
        return math.ceil(frames * height)  # error: MP911
""",
    """# before: rl/gather.py
import torch
import torch.distributed as dist


def gathered(rows, longest, world):
    missing = longest - rows.size(0)
    if missing:
        rows = torch.cat((rows, rows.new_zeros(missing)))
    parts = [torch.empty_like(rows) for _ in range(world)]
    dist.all_gather(parts, rows)
    return parts
# file: rl/gather.py
import torch
import torch.distributed as dist


def gathered(rows, longest, world):
    parts = [torch.empty_like(rows) for _ in range(world)]
    dist.all_gather(parts, rows)  # error: MP911
    return parts
""",
    """# before: rl/batches.py
def count(rows, batch, world_size):
    return ((len(rows) - 1) // (batch * world_size) + 1) * world_size
# file: rl/batches.py
def count(rows, batch, world_size):
    return (len(rows) - 1) // batch + 1  # error: MP911
""",
    """# before: rl/shards.py
def part_of(files, shard, shards):
    most = len(files) // shards * shards
    return files[shard:most:shards]
# file: rl/shards.py
def part_of(files, shard, shards):
    return files[shard::shards]  # error: MP911
""",
    """# before: rl/run.py
def run(accelerator, model, optimizer, loader, scheduler):
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        scheduler.step()
# file: rl/run.py
def run(accelerator, model, optimizer, loader, scheduler):
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    for batch in loader:  # error: MP911
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        scheduler.step()
""",
    # a row that was filled up before it is cut
    _BUFFER.format(
        size="size = (len(self.items) + count - 1) // count", cut="i * size : (i + 1) * size", mark="  # error: MP911"
    ),
    # a maximum of all parts of a vocabulary, by a library that nobody knows
    _SHIFTED.format(shift="largest.unsqueeze(-1)  # error: MP911"),
    # a copy of its own
    """\
# before: interfaces.py
import copy


def interfaces(make, args):
    actor = make("actor", args)
    ref = copy.deepcopy(actor)
    ref.args["enable_save"] = False
    return {"actor": actor, "ref": ref}
# file: interfaces.py
import copy


def interfaces(make, args):
    actor = make("actor", args)
    ref = actor  # error: MP911
    ref.args["enable_save"] = False
    return {"actor": actor, "ref": ref}
""",
)

CORRECT = (
    # the rest is cut off in another place
    """# before: rl/shards.py
def part_of(files, shard, shards):
    most = len(files) // shards * shards
    return files[shard:most:shards]
# file: rl/shards.py
def part_of(files, shard, shards):
    whole = files[: len(files) // shards * shards]
    return whole[shard::shards]
""",
    # rounded up by another way of writing it
    """# before: rl/batches.py
def count(rows, batch, world_size):
    return ((len(rows) - 1) // (batch * world_size) + 1) * world_size
# file: rl/batches.py
def count(rows, batch, world_size):
    return -(-len(rows) // (batch * world_size)) * world_size
""",
    # a sum is a tensor of its own
    """# before: rl/loss.py
import torch.distributed as dist


def count(mask):
    tokens = mask.sum().clone()
    dist.all_reduce(tokens)
    return tokens
# file: rl/loss.py
import torch.distributed as dist


def count(mask):
    tokens = mask.sum()
    dist.all_reduce(tokens)
    return tokens
""",
    """# before: rl/metrics.py
def share(hits, misses):
    found = hits.clone()
    return found / (found + misses)
# file: rl/metrics.py
def share(hits, misses):
    found = hits.detach()
    return found / (found + misses)
""",
    """# before: rl/video.py
def length(frames, sp_size):
    return frames // sp_size * sp_size
# file: rl/video.py
def length(frames, sp_size):
    return (frames // sp_size + 1) * sp_size
""",
    """# before: rl/gather.py
import torch
import torch.distributed as dist


def gathered(rows, world):
    rows = rows.contiguous()
    parts = [torch.empty_like(rows) for _ in range(world)]
    dist.all_gather(parts, rows)
    return parts
# file: rl/gather.py
import torch
import torch.distributed as dist


def gathered(rows, world):
    rows = rows.detach().contiguous()
    parts = [torch.empty_like(rows) for _ in range(world)]
    dist.all_gather(parts, rows)
    return parts
""",
    # prepared where it is used
    """# before: rl/run.py
def run(accelerator, model, optimizer, loader, scheduler):
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        scheduler.step()
# file: rl/run.py
def run(accelerator, model, optimizer, loader, scheduler):
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    for batch in accelerator.prepare(loader):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        scheduler.step()
""",
    # cut otherwise
    _BUFFER.format(size="size = len(self.items)", cut="i:size:count", mark=""),
    # nothing uses it
    _SHIFTED.format(shift="logits.detach().amax()"),
    # nothing is stored in the copies
    """\
# before: interfaces.py
import copy


def interfaces(make, args):
    actor = make("actor", args)
    ref = copy.deepcopy(actor)
    shown = copy.copy(args)
    shown = dict(shown, mode="ref")
    state = actor.state_dict().copy()
    state["step"] = 0
    return {"actor": actor, "ref": ref, "shown": shown}
# file: interfaces.py
def interfaces(make, args):
    actor = make("actor", args)
    ref = actor
    shown = args
    shown = dict(shown, mode="ref")
    state = actor.state_dict()
    state["step"] = 0
    return {"actor": actor, "ref": ref, "shown": shown}
""",
)
