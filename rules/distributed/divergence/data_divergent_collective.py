"""A collective that depends on data which each rank holds for itself.

What it does
    The comparison of MP501 for branches and loops that test rank-local data: the contents of the batch, an optional
    input that some samples lack (`images is not None`), what a tensor holds that no collective has reduced
    (`.item()`, `torch.isfinite(loss)`, `mask.sum() == 0`, `loss > limit`) where it comes from the loader or the
    batch, the clock, whether there is anything in the rank's share of a list (`rows[rank::size]`), how many elements a
    selection leaves (`mask.nonzero()`, `x[x > 0]`, a filtered batch, a
    generator, a comprehension or a list that leaves some out by such a test, which a loop then goes through), a
    file that ranks make or remove while others still look for it, how many micro-batches a rank makes of its own
    tokens. What the function reduces or gathers over ranks, itself or in a function that it hands it to, differs
    between them before it does: a test of it that leaves that collective out is reported as a warning. Values that
    a collective has made equal on all ranks before the test do not count, nor does what a method with the name of a
    collective gives (`self.strategy.all_reduce(count)`) where its class is not known and it names no group, nor do
    files that merely lie on storage, which counts as shared.

Why is this bad
    It works as long as all ranks happen to see alike data, and hangs at the first batch in which they do not.

References
    https://pytorch.org/docs/stable/distributed.html#collective-functions
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.effects.divergence import Divergences
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP502", "data-divergent-collective", "warning", "0.1.0", tokens=("torch", "accelerat", "deepspeed"))

HELP = (
    "let all ranks take the same way: reduce the condition over the group first (`all_reduce` of the flag with MAX), "
    "or call the collective always, with an empty value where there is none; of a file let one rank see whether it is "
    "there, and broadcast what it saw"
)

_SHARE = """
import torch
import torch.distributed as dist

class Validator:
    def __init__(self, files):
        self.rows = [row for file in sorted(files)[dist.get_rank() :: dist.get_world_size()] for row in open(file)]

    def run(self, model):
        {before}
        total = torch.zeros(2)
        for row in self.rows:
            total += torch.tensor([model(row), 1])
        dist.all_reduce(total)
        {after}
        return total[0] / total[1]
"""

# A share that is taken by a function, and left where it is empty.
_TAKEN = """
import torch
import torch.distributed as dist

def taken(files, rank, ranks):
    {even}
    return files[rank::ranks]

def run(model, files):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    rows = {rows}
    if not rows:{mark}
        return 0.0
    total = torch.zeros(1)
    for row in rows:
        total += model(row)
    dist.all_reduce(total)
    return total
"""
_BY_HELPER = "taken(files, rank, ranks)"


def _taken(rows: str = _BY_HELPER, even: str = "", mark: str = "") -> str:
    return _TAKEN.format(rows=rows, even=even, mark=mark)


_SKIPPING = """
import sys
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def loss_of(model, inputs, labels):
    return F.cross_entropy(model(inputs), labels)

def main(data, scaler, optimizer):
    model = DDP(torch.nn.Linear(8, 8))
    for inputs, labels in DataLoader(data, sampler=DistributedSampler(data)):
        loss = {loss}
        {test}
        {backward}
        optimizer.step()
"""
_OF_LOGITS = "F.cross_entropy(model(inputs), labels)"
_OF_HELPER = "loss_of(model, inputs, labels)"


def _skipping(test: str, loss: str = _OF_LOGITS, backward: str = "loss.backward()") -> str:
    return _SKIPPING.format(test=test, loss=loss, backward=backward)


_DRAWING = """
import random

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def set_up(model, seed):
    random.seed(seed)
    return DistributedDataParallel(model)

def train(model, batches, share):
    for batch in batches:
        if random.random() < share:
            model(batch).mean().backward(){mark}

def main(model, batches, share):
    random.seed(7 + dist.get_rank())
    train(set_up(model, {seed}), batches, share)
"""

# Batches that are chosen by what they hold, in several ways, and a loop over them that reduces.
_CHOSEN = """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

class Kept:
    def __init__(self, data):
        self.loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=8, drop_last=True)

    def __iter__(self):
        for batch in self.loader:
            {test}
                continue
            yield batch

def kept(loader):
    for batch in loader:
        {test}
            continue
        yield batch

def full(loader):
    found = []
    for batch in loader:
        {test}
            continue
        found.append(batch)
    return found

def train(model, batches):
    for batch in {batches}:
        loss = model(batch)
        dist.all_reduce(loss){mark}

def main(model, data):
    loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=8, drop_last=True)
    train(model, {passed})
"""
_EMPTY, _EVERY = 'if batch["reward"].sum() == 0:', "if model_is_done():"


def _chosen(batches: str, passed: str = "loader", test: str = _EMPTY, mark: str = "") -> str:
    return _CHOSEN.format(batches=batches, passed=passed, test=test, mark=mark)


# A flag that a test of an earlier round sets.
_STOPPED = """\
import torch
import torch.distributed as dist

def update(model, optimizer, rounds, batches, limit):
    stop = False
    for _ in range(rounds):
        if stop:{mark}
            break
        for batch in batches:
            logp = torch.log_softmax(model(batch), -1).gather(-1, batch["labels"].unsqueeze(-1)).squeeze(-1)
            kl = 0.5 * ((logp - batch["old"]) ** 2).mean()
            shared = kl.detach().clone()
            if dist.is_initialized():
                dist.all_reduce(shared, op=dist.ReduceOp.AVG)
            if {test}:
                stop = True
            optimizer.zero_grad()
            kl.backward()
            optimizer.step()
"""

INCORRECT = [
    # fewer files than ranks: the test itself says that a rank may have none
    _SHARE.replace("{before}", "if not self.rows:  # error: MP502\n            return 0.0").replace("{after}", ""),
    _SHARE.replace("{before}", "if len(self.rows) == 0:  # error: MP502\n            return 0.0").replace(
        "{after}", ""
    ),
    _chosen("kept(batches)", mark="  # error: MP502"),
    _chosen("enumerate(Kept(batches))", "data", mark="  # error: MP502"),
    _chosen("full(batches)", mark="  # error: MP502"),
    _chosen('[batch for batch in batches if batch["reward"].sum() > 0]', mark="  # error: MP502"),
    # drawn with a seed of its own by each rank, or with one for all
    _DRAWING.format(seed="7 + dist.get_rank()", mark="  # error: MP502"),
    # the others wait in the reduction of gradients
    _skipping("if torch.isnan(loss):  # error: MP502\n            continue"),
    _skipping("if loss.item() > 10:  # error: MP502\n            continue", _OF_HELPER),
    _skipping(
        "if not loss.isfinite():  # error: MP502\n            continue", backward="scaler.scale(loss).backward()"
    ),
    # tested before it is reduced
    """
import torch
import torch.distributed as dist

class Overflow:
    def __init__(self, params, group):
        self.params, self.group = params, group
        self.found = torch.zeros(1)

    def own(self):
        for param in self.params:
            if param.grad is not None and not torch.isfinite(param.grad).all():
                return True
        return False

    def check(self):
        overflow = self.own()
        if overflow:  # error: MP502
            return True
        flag = torch.cuda.ByteTensor([overflow])
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.group)
        return bool(flag[0].item())

    def step(self, optimizer):
        if self.found.item():  # error: MP502
            return False
        dist.all_reduce(self.found, op=dist.ReduceOp.MAX, group=self.group)
        optimizer.step()
        return True

def stop(accelerator, score, best):
    better = score > best
    if better:  # error: MP502
        return False
    flag = torch.tensor(int(better), device=accelerator.device)
    return accelerator.gather(flag).sum().item() == 0

def clip(norm, group):
    if not torch.isfinite(norm):  # error: MP502
        return None
    total = norm**2
    dist.all_reduce(total, group=group)
    return total.sqrt()
""",
    """
from accelerate.utils import gather_object

def generate(prompts, images):
    all_prompts = gather_object(prompts)
    all_images = gather_object(images) if images is not None else None  # error: MP502
    return all_prompts, all_images
""",
    """
import torch.distributed as dist

def train(batch, loss, stats):
    if batch["mask"].sum().item() == 0:  # error: MP502
        return
    dist.all_reduce(stats)
""",
    """
import torch
import torch.distributed as dist

def penalise(advantages, stats):
    chosen = advantages[advantages > 0]
    if len(chosen) == 0:  # error: MP502
        return
    dist.all_reduce(stats)

def count(batch, stats):
    rows = torch.nonzero(batch["mask"])
    if rows.numel() > 0:
        dist.all_reduce(stats)  # error: MP502

def keep(batch, stats):
    batch = [sample for sample in batch if sample["reward"] > 0]
    if not batch:  # error: MP502
        return
    dist.all_reduce(stats)
""",
    """
import os
import torch.distributed as dist

def prepare(folder):
    if not os.path.exists(folder):
        if dist.get_rank() == 0:
            os.makedirs(folder)
        dist.barrier()  # error: MP502
""",
    """
import torch.distributed as dist
from pathlib import Path

def convert(model, out: Path):
    if dist.get_rank() == 0:
        out.mkdir(parents=True, exist_ok=True)
    found = out.exists()
    if not found:  # error: MP502
        return
    dist.all_reduce(model)
""",
    """
import torch
import torch.distributed as dist

def fit(model, criterion, loader, total):
    for inputs, targets in loader:
        if (targets != -100).sum() == 0:  # error: MP502
            continue
        dist.all_reduce(total)

def train(model, criterion, loader, total):
    for inputs, targets in loader:
        loss = criterion(model(inputs), targets)
        if not torch.isfinite(loss):  # error: MP502
            continue
        dist.all_reduce(total)

def watch(model, loader, total, limit):
    for step, pair in enumerate(loader):
        loss = model(**pair).loss
        if loss > limit:
            dist.all_reduce(total)  # error: MP502
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Worker:
    def __init__(self, model):
        self.model = None
        self.setup(model)

    def setup(self, model):
        self.model = fully_shard(model)

    def update(self, micros, loss_of, clip):
        self.model.train()
        for micro in micros:
            if micro["response_mask"].sum() == 0:  # error: MP502
                continue
            loss_of(micro).backward()

class Counted(Worker):
    def micro_batches(self, batch, limit):
        tokens = int(batch["attention_mask"].sum())
        count = min(len(batch), -(-tokens // limit))
        return [batch[i::count] for i in range(count)]

    def halves(self, batch, limit):
        count = int(batch["attention_mask"].sum()) // limit
        return batch.chunk(count)

    def learn(self, batch, limit):
        micros = self.micro_batches(batch, limit)
        for index, micro in enumerate(micros):
            self.model(micro).sum()  # error: MP502
        for half in self.halves(batch, limit):
            self.model(half).sum()  # error: MP502
        for _ in range(int(batch["attention_mask"].sum()) // limit):
            self.model(batch)  # error: MP502
""",
    """
import torch
import torch.distributed as dist

class Trainer:
    def pack(self, prompts, rewards):
        return {"mask": torch.tensor(prompts), "rewards": rewards}

    def loss(self, row):
        tokens = row["mask"].sum()
        if tokens > 0:
            dist.all_reduce(tokens)  # error: MP502
        return tokens

    def step(self, prompts):
        return self.loss(self.pack(prompts, score(prompts)))

    def fit(self, loader):
        for batch in loader:
            self.step(batch["prompts"])
            self.count(batch)

    def count(self, batch):
        tokens = batch["mask"].sum()
        if tokens > 0:
            dist.all_reduce(tokens)  # error: MP502
""",
    """
import torch.distributed as dist

class Trainer:
    def __init__(self, strategy):
        self.strategy = strategy

    def over_ring(self, batch, stats):
        tokens = self.strategy.all_reduce(batch["mask"].sum().item(), group=self.ring_group)
        if tokens == 0:  # error: MP502
            return
        dist.all_reduce(stats)

    def own(self, batch, stats):
        if self.strategy.tokens(batch["mask"].sum().item()) == 0:  # error: MP502
            return
        dist.all_reduce(stats)
""",
    # told once, where ranks stop at different times: who comes round again has made as many rounds
    """
import time
import torch.distributed as dist

def fit(model, batches, seconds, interval):
    start, step = time.perf_counter(), 0
    while step < 100:
        if time.perf_counter() - start > seconds:  # error: MP502
            break
        model(next(batches))
        step += 1
        if step % interval == 0:
            dist.barrier()
""",
    # what a function that is called reduces of what it is given
    """
import torch
import torch.distributed as dist

def total(value, group=None):
    value = value.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(value, group=group)  # error: MP502
    return value

def statistics(values, mask, group, least):
    count = total(mask.sum(), group).clamp(min=least)
    return total((values * mask).sum(), group) / count

def whiten(values, mask, group=None, least=1.0):
    if mask.sum() == 0:  # error: MP502
        return values
    return values - statistics(values, mask, group, least)

class Meter:
    def gather(self, count, limit):
        return total(count) < limit

    def update(self, count, limit):
        if count > 0:
            return self.gather(count, limit)
        return False
""",
    # what is reduced is a copy, what is asked is the rank's own
    """
import torch
import torch.distributed as dist

def has_overflow(x):
    total = float(x.float().sum())
    if total == float("inf") or total != total:
        return True
    return False

def fit(model, batches, group):
    for batch in batches:
        loss = model(batch)
        mean = loss.detach().clone().view(1)
        dist.all_reduce(mean.data, group=group)
        if has_overflow(loss):  # error: MP502
            break
        dist.all_reduce(model.flat_gradients, group=group)
""",
    _taken("files[rank::ranks]", mark="  # error: MP502"),
    # a flag that an earlier round sets by what is reduced elsewhere
    _STOPPED.format(test="kl.item() > limit", mark="  # error: MP502"),
    # what a tensor has along a dimension is no exchange between ranks
    """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def train(model, loader, limit):
    for batch in loader:
        logits = model(batch["ids"])
        logp = torch.log_softmax(logits, -1).gather(-1, batch["labels"].unsqueeze(-1))
        if logp.mean().item() > limit:  # error: MP502
            break
        dist.all_reduce(logits)

def main(model, data, limit):
    train(model, DataLoader(data, sampler=DistributedSampler(data, shuffle=False)), limit)
""",
]

CORRECT = [
    _SHARE.replace("{before}", "").replace("{after}", "if not self.rows:\n            return 0.0"),
    _chosen("kept(batches)", test=_EVERY),
    _chosen("batches"),
    # a generator that makes up for what it leaves out
    """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def endless(loader):
    while True:
        for batch in loader:
            if batch["reward"].sum() == 0:
                continue
            yield batch

def train(model, data, steps):
    loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=8)
    for step, batch in zip(range(steps), endless(loader)):
        dist.all_reduce(model(batch))
""",
    _DRAWING.format(seed="7", mark=""),
    _skipping("if torch.isnan(loss):\n            sys.exit(1)"),
    _skipping('if torch.isnan(loss):\n            raise FloatingPointError("nan")'),
    _skipping(
        "flag = torch.isnan(loss).float()\n        dist.all_reduce(flag)\n        if flag.item() > 0:\n"
        "            continue"
    ),
    # asked for is what the function that is called reduces nothing of: a limit, the layout, whether it is there
    """
import torch
import torch.distributed as dist

def total(value, scale, group=None):
    value = value.detach().clone()
    dist.all_reduce(value, group=group)
    return value * scale

def whiten(values, mask, least, group=None):
    if least > 0 and values.dim() == 2 and mask is not None:
        return total(values.sum(), least, group)
    return values

def reported(step, every, loss):
    if step % every == 0:
        return total(loss, step)
    return loss
""",
    # inside of a context manager that is handed over
    _skipping(
        "with scaler:\n            inputs = optimizer.scaled(loss)",
        backward="with scaler:\n            loss.backward()",
    ),
    # the wrapped model has no gradient of this loss
    _skipping(
        "student = torch.nn.Linear(8, 8)\n        loss = F.mse_loss(student(inputs), loss.detach())\n"
        "        if torch.isnan(loss):\n            continue"
    ),
    # what is reduced is tested behind that; whether it is there or has elements, and what else is reduced, is alike
    """
import torch
import torch.distributed as dist

class Overflow:
    def __init__(self, group):
        self.group = group
        self.found = torch.zeros(1)

    def check(self, overflow):
        flag = torch.cuda.ByteTensor([overflow])
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.group)
        if overflow:
            print("overflow")
        return bool(flag[0].item())

    def step(self, optimizer):
        dist.all_reduce(self.found, op=dist.ReduceOp.MAX, group=self.group)
        if self.found.item():
            return False
        optimizer.step()
        return True

def flat(grads, group):
    if not grads:
        return
    joined = torch.cat([grad.view(-1) for grad in grads])
    dist.all_reduce(joined, group=group)

def optional(value, step, every, group):
    if value is None or value.numel() == 0 or step % every:
        return
    dist.all_reduce(value, group=group)
    dist.all_reduce(torch.tensor([step, every]), group=group)

def alone(done, world_size):
    for _ in range(8):
        if world_size == 1:
            if done.item():
                break
        else:
            dist.all_reduce(done)
            if done.item() == world_size:
                break

def from_root(path):
    if path == "":
        return None
    box = [path]
    dist.broadcast_object_list(box, src=0)
    return box[0]
""",
    """
import torch
import torch.distributed as dist

def penalise(advantages, layers, stats):
    chosen = advantages[advantages > 0]
    count = torch.tensor(len(chosen))
    dist.all_reduce(count)
    if count == 0:
        return
    named = [layer for layer in layers if layer.enabled]
    if named and chosen.dim() > 1:
        dist.all_reduce(stats)
""",
    """
import os
import torch.distributed as dist

def prepare(folder, cache, model):
    if dist.get_rank() == 0 and not os.path.exists(folder):
        os.makedirs(folder)
    dist.barrier()
    if os.path.isdir(folder):
        dist.all_reduce(model)
    if os.path.isfile(cache):
        return
    os.makedirs(cache)
    dist.all_reduce(model)
""",
    """
import os
import torch.distributed as dist

def resume(engine, checkpoint, model):
    if os.path.exists(checkpoint):
        dist.all_reduce(model)
    engine.train()
    if dist.get_rank() == 0:
        engine.save(checkpoint)
    dist.barrier()
""",
    """
import os
import torch.distributed as dist

def reference(model, cache):
    if not os.path.exists(cache):
        dist.all_reduce(model)
        if dist.get_rank() == 0:
            model.save(cache)
    dist.barrier()
""",
    """
import torch.distributed as dist

def train(batch, stats):
    empty = batch["mask"].sum()
    dist.all_reduce(empty)
    if empty.item() == 0:
        return
    dist.all_reduce(stats)
""",
    """
import torch.distributed as dist

def log(step, interval, stats):
    if step % interval == 0:
        dist.all_reduce(stats)
""",
    """
import torch
import torch.distributed as dist

def mean(tensor):
    dist.all_reduce(tensor=tensor, op=dist.ReduceOp.AVG)
    return tensor

def fit(model, criterion, loader, total, limit):
    for step, (inputs, targets) in enumerate(loader):
        loss = criterion(model(inputs), targets)
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        if not torch.isfinite(grad_norm) or step > limit or inputs.shape[0] == 0:
            continue
        loss = mean(loss)
        if loss.item() > limit:
            dist.all_reduce(total)

def stop(model, loader, total):
    for pair in loader:
        loss = model(**pair).loss
        flag = torch.isnan(loss).float()
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag.item() > 0:
            continue
        dist.all_reduce(total)
""",
    """
import torch
import torch.distributed as dist

def report(loader, model, with_kl, total):
    for batch in loader:
        kl, parts = None, []
        if with_kl:
            kl = torch.sum(model(batch) * batch["loss_mask"])
            parts.append(kl)
        if kl is not None and len(parts) > 0:
            dist.all_reduce(total)
""",
    """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Worker:
    def __init__(self, model):
        self.model = fully_shard(model)
        self.head = torch.nn.Linear(8, 1)

    def update(self, micros, loss_of):
        for micro in micros:
            loss = loss_of(micro)
            if micro["response_mask"].sum() == 0:
                loss = loss * 0.0
            loss.backward()

    def micro_batches(self, batch, limit):
        tokens = batch["attention_mask"].sum()
        dist.all_reduce(tokens, op=dist.ReduceOp.MAX)
        count = min(len(batch), -(-int(tokens) // limit))
        return [batch[i::count] for i in range(count)]

    def by_samples(self, batch):
        sizes = batch["attention_mask"].sum(-1).tolist()
        return batch["input_ids"].split(sizes)

    def learn(self, batch, limit):
        for micro in self.micro_batches(batch, limit):
            self.model(micro).sum()
        for row in self.by_samples(batch):
            self.model(row).sum()
        for step in range(len(batch)):
            self.model(batch[step])

class Reward:
    def __init__(self):
        self.model = torch.nn.Linear(8, 1)

    def update(self, micros, loss_of):
        for micro in micros:
            if micro["response_mask"].sum() == 0:
                continue
            loss_of(micro).backward()
""",
    """
import torch
import torch.distributed as dist

class Trainer:
    def pack(self, prompts):
        return {"mask": torch.tensor(prompts)}

    def share(self, prompts):
        box = [prompts]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def loss(self, row, stats):
        tokens = row["mask"].sum()
        if tokens > 0:
            dist.all_reduce(stats)

    def count(self, batch, stats):
        tokens = batch["mask"].sum()
        dist.all_reduce(tokens)
        if tokens > 0:
            dist.all_reduce(stats)
            dist.all_reduce(tokens)

    def fit(self, loader, stats):
        for batch in loader:
            self.loss(self.share(batch["prompts"]), stats)
            self.count(batch, stats)
""",
    """
import torch.distributed as dist

class Trainer:
    def __init__(self, strategy):
        self.strategy = strategy

    def fit(self, loader, stats):
        for batch in loader:
            busiest = self.strategy.all_reduce(batch["mask"].sum().item(), op="max")
            if busiest == 0 or self.strategy.all_reduce(batch["mask"].sum(), group=None).cpu().item() == 0:
                continue
            if self.strategy.broadcast(batch["mask"].sum()).item() == 0:
                continue
            dist.all_reduce(stats)
""",
    # what one process alone gives differs on no rank
    """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def is_parallel():
    return dist.is_available() and dist.is_initialized()

def mean(value):
    if not is_parallel():
        return value
    parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, value)
    return sum(parts) / len(parts)

def fit(model, data):
    for batch in DataLoader(data, sampler=DistributedSampler(data)):
        if mean(model(batch.cuda()).sum()).item() > 10:
            dist.barrier()
            break
""",
    # an option of the call, and no tensor that it reduces
    """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def fit(model, batches, args):
    model = FSDP(model)
    for batch in batches:
        model(batch).sum().backward()
        if args.max_norm > 0:
            model.clip_grad_norm_(args.max_norm)
""",
    # the ranks of a mesh share how a tensor is spread over them
    """
from torch.distributed.tensor import Replicate

def replicated(inputs):
    weight, bias = inputs
    if weight.placements != [Replicate()]:
        weight = weight.redistribute(placements=[Replicate()], async_op=True)
    return weight, bias
""",
    # reduced through a view
    """
import torch
import torch.distributed as dist

def has_overflow(x):
    total = float(x.float().sum())
    if total == float("inf") or total != total:
        return True
    return False

def fit(model, batches, group):
    for batch in batches:
        loss = model(batch)
        mean, norm = loss.detach().clone().view(1), loss.norm()
        dist.all_reduce(mean.data, group=group)
        dist.all_reduce(norm.view(-1), group=group)
        if has_overflow(mean) or norm.item() > 10:
            break
        dist.all_reduce(model.flat_gradients, group=group)
""",
    # as many for each: the rest is left out, asked for or filled up
    _taken(even="files = files[: len(files) // ranks * ranks]"),
    _taken(even="assert len(files) % ranks == 0"),
    _taken(even="files = files + files[: -len(files) % ranks]"),
    _taken("files[: len(files) // ranks * ranks][rank::ranks]"),
    _taken("[files[i] for i in range(rank, len(files) - len(files) % ranks, ranks)]"),
    _taken("files[rank * (len(files) // ranks) : (rank + 1) * (len(files) // ranks)]"),
    # who has time left comes to the collective in a later round: until then nothing changes what the loop tests
    """
import time
import torch
import torch.distributed as dist

def as_many_as_all(channel, most):
    rows, last, common = [channel.get()], 0, 1
    until = time.time() + 0.1
    while last < common:
        if len(rows) < most:
            if channel.has_some():
                rows.append(channel.get())
            if time.time() >= until:
                last, common = common, reduced(len(rows))
                until = time.time() + 0.1
        else:
            last, common = common, reduced(len(rows))
    return rows[:common]

def reduced(number):
    tensor = torch.tensor([number])
    dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
    return tensor.item()
""",
    # what this process has put under its own number, as the others have
    """
import os
import torch.distributed as dist

class Groups:
    MADE = {}

    def __init__(self, ranks):
        self.ranks, self.group = ranks, dist.new_group(ranks)
        pid = os.getpid()
        if pid not in Groups.MADE:
            Groups.MADE[pid] = []
        Groups.MADE[pid].append(self)

    @staticmethod
    def make_again():
        pid = os.getpid()
        if pid in Groups.MADE:
            for each in Groups.MADE[pid]:
                each.group = dist.new_group(ranks=each.ranks)
""",
    # a flag that is set by what has been reduced
    _STOPPED.format(test="shared > limit", mark=""),
]


def check_project(project: Project) -> Iterator[Finding]:
    for row in project.analysis(Divergences).reports("local"):
        yield RULE.finding(
            row.path, row.at, row.message, help=HELP, related=row.related, context=row.context, severity=row.severity
        )
