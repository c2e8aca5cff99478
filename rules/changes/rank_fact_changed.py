"""Something that a function did among ranks, and does otherwise or not at all since a change.

What it does
    Compares what the flow knows of each function before and after a change: over which group a collective of a tensor
    works, by which number of ranks a value is multiplied or divided, whether it is divided by a number that a
    collective gave all ranks, whether a rank's place in its group is a quotient or a remainder, whether a variable that
    a collective made the same on all ranks is still made so, or one holds texts in an order that all processes share
    (that of a set differs), whether what is drawn at random is the same on all ranks (a shared seed, a collective) or a
    rank's own, whether a rank takes a block of something or one of each group, and along which axes ranks have files
    of their own. Reports where one of these is another now, or gone,
    while the function stayed as it was else. Reports also a condition, a value that is returned, and one by which an
    optimizer or a learning rate goes on, that was made of what a collective gave all ranks, and is made of what each
    gave the collective now; a name of a file, or a port, a seed, a cache, in which a rank stood and stands no more,
    where all ranks write by it or hold it; and a file's name in which a rank stands now where it is written, or where
    it is read, but not on the other side; and a seed or a port that each worker of a loop had by its number, and that
    is the same for all now. Silent where the change does the same elsewhere, where some ranks alone come to the place
    since, where people are only told something, and in functions that gain a collective.

Why is this bad
    A norm that is summed over the wrong ranks, gradients that are divided twice, checkpoints of which several ranks
    write the same file: nothing fails at once, and on one host often nothing at all.

References
    https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.changes.effect_dropped import short
from validator.drift.change import Change
from validator.drift.decisions import Decisions
from validator.drift.each_own import EachOwn
from validator.drift.rank_facts import Differing, RankFacts, among
from validator.drift.told_apart import ToldApart
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP913", "rank-fact-changed", "warning", stable_since="1.0")


def check_change(change: Change) -> Iterator[Finding]:
    facts = change.analysis(RankFacts)
    for row in facts.differing:
        yield _report(row)
    known = {id(row.pair) for row in facts.differing}
    for decided in change.analysis(Decisions).own:
        if id(decided.pair) not in known:
            unit = decided.pair.new
            yield RULE.finding(
                unit.path,
                decided.at,
                f"{decided.text}",
                related=[
                    Related(unit.path, decided.line, f"the change made it so; before it was `{short(decided.by)}`")
                ],
                context=f"{unit.qualname}:decision:{decided.by}",
                severity=decided.severity,
            )
    told_apart = change.analysis(ToldApart)
    for row in (*told_apart.shared, *told_apart.torn):
        unit = row.pair.new
        yield RULE.finding(
            unit.path,
            row.at,
            row.text,
            help=f"before: `{short(row.before)}`",
            context=f"{unit.qualname}:apart:{short(row.before)}",
            severity=row.severity,
        )
    for each in change.analysis(EachOwn).rows:
        unit = each.pair.new
        yield RULE.finding(
            unit.path,
            each.at,
            f"`{short(each.now)}` is the same for each of `{short(each.through)}` since the change",
            help=f"before: `{short(each.before)}`",
            context=f"{unit.qualname}:each:{short(each.before)}",
            severity=each.severity,
        )
    for pair, name, was, now in facts.files:
        line = pair.new.code.at[0]
        yield RULE.finding(
            pair.new.path,
            (line, 1, line, 2),
            f"the change no longer tells `{name}` apart for {among(was)}: it does for {among(now)} now",
            context=f"{pair.new.qualname}:{name}",
        )


def _report(row: Differing) -> Finding:
    unit = row.pair.new
    at = row.new.place.at if row.new is not None else (row.line, 1, row.line, 2)
    now = f"{row.new.text} now" if row.new is not None else "nothing of the kind is done now"
    return RULE.finding(
        unit.path,
        at,
        f"before the change {row.old.text}; {now}{row.old.place.where}",
        context=f"{unit.qualname}:{row.old.kind}:{row.old.about}",
        severity=row.severity,
    )


_GATHERED = """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def gather(tensors):
    found = []
    for tensor in tensors:
        parts = [torch.ones_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor)
        found.append(torch.cat(parts))
    return found


def main(model, data, meter):
    for clips, labels, numbers in DataLoader(data, sampler=DistributedSampler(data)):{mark}
        preds = model(clips)
        {names} = gather([{names}])
        meter.update(preds.cpu(), labels.cpu(), numbers.cpu())
"""

_DEALT = """import torch
import torch.distributed as dist


def advantages_here(rewards, samples):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    gathered = [torch.empty_like(rewards) for _ in range(ranks)]
    dist.all_gather(gathered, rewards)
    everything = torch.cat(gathered)
    advantages = everything - everything.mean()
    print("mean", advantages.mean())
    {taken}
    return mine * samples["mask"]
"""

_COUNTED = """import torch.distributed as dist


def sum_over_ranks(value):
    dist.all_reduce(value)
    return value


class Tensors:
    def stats(self, rows):
        {keys}
        found = {{}}
        for key in {over}:{mark}
            found[key] = {does}
        return found
"""
_GATHERED_KEYS = """every = [None] * dist.get_world_size()
        dist.all_gather_object(every, list(rows.keys()))
        keys = sorted({key for some in every for key in some})"""
_SEEDED = """class Workers:
    def __init__(self, number, connections):
        self.number, self.connections = number, connections

    def reset(self, seed=None, options=None):
        if seed is None:
            seed = [None for _ in range(self.number)]
        if isinstance(seed, int):
            {seeds}
        assert len(seed) == self.number
        for connection, one in zip(self.connections, seed):
            connection.send(("reset", one, options))

    def listen(self, start, port):
        for i in range(self.number):
            self.connections[i].send(("address", "localhost"))
            start(self.connections[i], {port})
"""

INCORRECT = (
    # a loop that ends, a step that is left out, a learning rate that falls: by what each rank has itself
    """# before: train.py
import math
import sys

import torch
import torch.distributed as dist


def reduce_dict(values):
    with torch.no_grad():
        names = sorted(values)
        stacked = torch.stack([values[name] for name in names])
        dist.all_reduce(stacked)
        stacked /= dist.get_world_size()
        return dict(zip(names, stacked))


def train_one_epoch(model, batches, optimizer, meters):
    for images, targets in batches:
        losses = model(images, targets)
        total = sum(losses.values())
        reduced = reduce_dict(losses)
        loss_value = sum(reduced.values()).item()
        if not math.isfinite(loss_value):
            print(f"the loss is {loss_value}")
            sys.exit(1)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        meters.add(loss_value)
# file: train.py
import math
import sys

import torch
import torch.distributed as dist


def reduce_dict(values):
    with torch.no_grad():
        names = sorted(values)
        stacked = torch.stack([values[name] for name in names])
        dist.all_reduce(stacked)
        stacked /= dist.get_world_size()
        return dict(zip(names, stacked))


def train_one_epoch(model, batches, optimizer, meters):
    for images, targets in batches:
        losses = model(images, targets)
        total = sum(losses.values())
        reduced = reduce_dict(losses)
        loss_value = total.detach().item()
        if not math.isfinite(loss_value):  # error: MP913
            print(f"the loss is {loss_value}")
            sys.exit(1)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        meters.add(loss_value)
""",
    """# before: optimizer.py
import torch
import torch.distributed as dist


class Optimizer:
    def has_overflow(self):
        bad = torch.tensor(float(any(torch.isinf(p.grad).any() for p in self.params)))
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        return bool(bad)

    def step(self):
        if self.has_overflow():
            self.scale /= 2
            return
        for p in self.params:
            dist.all_reduce(p.grad)
        self.inner.step()
# file: optimizer.py
import torch
import torch.distributed as dist


class Optimizer:
    def has_overflow(self):
        bad = torch.tensor(float(any(torch.isinf(p.grad).any() for p in self.params)))
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        return bool(bad)

    def step(self):
        if any(torch.isinf(p.grad).any() for p in self.params):  # error: MP913
            self.scale /= 2
            return
        for p in self.params:
            dist.all_reduce(p.grad)
        self.inner.step()
# before: schedule.py
import torch
import torch.distributed as dist


def reduce_mean(value):
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def fit(model, loader, optimizer):
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    for epoch in range(10):
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        mean = reduce_mean(loss.detach())
        scheduler.step(mean)
        print(mean)
# file: schedule.py
import torch
import torch.distributed as dist


def reduce_mean(value):
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def fit(model, loader, optimizer):
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    for epoch in range(10):
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        mean = reduce_mean(loss.detach())
        scheduler.step(loss.detach())  # error: MP913
        print(mean)
""",
    # a file and a port that each rank had for itself; a file that one rank writes under a name of its own
    """# before: state.py
import pickle

import torch.distributed as dist


class State:
    def __init__(self, folder, rank=None):
        self.folder, self.rank = folder, rank

    def save(self, state):
        with open(f"{self.folder}/state_{self.rank}.pkl", "wb") as file:
            pickle.dump(state, file)

    def load(self):
        with open(f"{self.folder}/state_{self.rank}.pkl", "rb") as file:
            return pickle.load(file)
# file: state.py
import pickle

import torch.distributed as dist


class State:
    def __init__(self, folder, rank=None):
        self.folder, self.rank = folder, rank

    def save(self, state):
        with open(f"{self.folder}/state.pkl", "wb") as file:  # error: MP913
            pickle.dump(state, file)

    def load(self):
        with open(f"{self.folder}/state.pkl", "rb") as file:
            return pickle.load(file)
# before: server.py
import torch.distributed as dist


def start(engine, first_port):
    rank = dist.get_rank()
    port = first_port + rank
    engine.serve(port=port)
    print(rank)
# file: server.py
import torch.distributed as dist


def start(engine, first_port):
    rank = dist.get_rank()
    port = first_port  # error: MP913
    engine.serve(port=port)
    print(rank)
""",
    """# before: words.py
import json

import torch.distributed as dist


def prepare(words, folder):
    rank = dist.get_rank()
    if rank == 0:
        with open(f"{folder}/words.json", "w") as file:
            json.dump(words, file)
    dist.barrier()
    with open(f"{folder}/words.json") as file:
        return json.load(file)
# file: words.py
import json

import torch.distributed as dist


def prepare(words, folder):
    rank = dist.get_rank()
    if rank == 0:
        with open(f"{folder}/words_{rank}.json", "w") as file:  # error: MP913
            json.dump(words, file)
    dist.barrier()
    with open(f"{folder}/words.json") as file:
        return json.load(file)
""",
    """# before: sampler.py
import torch
import torch.distributed as dist


class Sampler:
    def __init__(self, rows, seed):
        self.rows, self.seed, self.rank = rows, seed, dist.get_rank()

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed)
        order = torch.randperm(len(self.rows), generator=g).tolist()
        return iter(order[self.rank :: dist.get_world_size()])
# file: sampler.py
import torch
import torch.distributed as dist


class Sampler:
    def __init__(self, rows, seed):
        self.rows, self.seed, self.rank = rows, seed, dist.get_rank()

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.rank)  # error: MP913
        order = torch.randperm(len(self.rows), generator=g).tolist()
        return iter(order[self.rank :: dist.get_world_size()])
""",
    """# before: loss.py
import torch.distributed as dist


def loss(rows, mask):
    count = mask.sum()
    total = count.clone()
    dist.all_reduce(total)
    mean = (rows * mask).sum() / total
    return mean, count
# file: loss.py
import torch.distributed as dist


def loss(rows, mask):
    count = mask.sum()
    total = count.clone()
    dist.all_reduce(total)
    mean = (rows * mask).sum() / count  # error: MP913
    return mean, count
""",
    """# before: norm.py
import torch.distributed as dist
from megatron.core import parallel_state


def norm(split, whole):
    dist.all_reduce(split)
    dist.all_reduce(whole)
    whole /= parallel_state.get_tensor_model_parallel_world_size()
    return (split + whole) ** 0.5
# file: norm.py
import torch.distributed as dist
from megatron.core import parallel_state


def norm(split, whole):
    dist.all_reduce(split, group=parallel_state.get_tensor_model_parallel_group())  # error: MP913
    dist.all_reduce(whole)
    whole /= parallel_state.get_tensor_model_parallel_world_size()
    return (split + whole) ** 0.5
""",
    """# before: engine.py
import torch.distributed as dist


def batch_of(expected, distributed):
    size = expected
    if distributed:
        size /= dist.get_world_size()
    return size
# file: engine.py
import torch.distributed as dist


def batch_of(expected, distributed):
    size = expected
    return size  # error: MP913
""",
    """# before: names.py
import torch
from megatron.core import parallel_state


def name_of(folder):
    rank = parallel_state.get_tensor_model_parallel_rank()
    return f"{folder}/mp_rank_{rank:02d}.pt"


def save(model, folder):
    torch.save(model.state_dict(), name_of(folder))
# file: names.py
import torch
from megatron.core import parallel_state


def name_of(folder):  # error: MP913
    rank = parallel_state.get_data_parallel_rank()
    return f"{folder}/mp_rank_{rank:02d}.pt"


def save(model, folder):
    torch.save(model.state_dict(), name_of(folder))
""",
    """# before: resume.py
import torch.distributed as dist


def shard(config):
    index = dist.get_rank() % config.num_shard
    return f"{index} of {config.num_shard}"
# file: resume.py
import torch.distributed as dist


def shard(config):
    index = dist.get_rank() // config.num_replicate  # error: MP913
    return f"{index} of {config.num_shard}"
""",
    # one of several that were gathered together; the order of a set of texts
    "# before: test.py\n"
    + _GATHERED.replace("{names}", "preds, labels, numbers").replace("{mark}", "")
    + "# file: test.py\n"
    + _GATHERED.replace("{names}", "preds, labels").replace("{mark}", "  # error: MP913"),
    """# before: loaders.py
import torch.distributed as dist


def kind_of(file):
    return "video" if file.endswith(".mp4") else "image"


def loaders(files, make):
    kinds = sorted({kind_of(file) for file in files})
    dist.barrier()
    return [make(kind) for kind in kinds]
# file: loaders.py
import torch.distributed as dist


def kind_of(file):
    return "video" if file.endswith(".mp4") else "image"


def loaders(files, make):
    kinds = list({kind_of(file) for file in files})  # error: MP913
    dist.barrier()
    return [make(kind) for kind in kinds]
""",
    # which element is taken, without a variable for the place; the seed of an order, in a call and before it
    """# before: parts.py
import torch.distributed as dist


def mine(batches, size):
    parts = batches.chunk(size)
    return parts[dist.get_rank() % size]
# file: parts.py
import torch.distributed as dist


def mine(batches, size):
    parts = batches.chunk(size)
    return parts[dist.get_rank() // size]  # error: MP913
""",
    """# before: split.py
import random

import torch
import torch.distributed as dist
from torch.utils.data import random_split


def split(rows, seed):
    train, valid = random_split(rows, [9, 1], generator=torch.Generator().manual_seed(seed))
    return train, valid


def shuffled(parts, seed, epoch):
    random.seed(seed + epoch)
    for part in parts:
        random.shuffle(part)
    return parts
# file: split.py
import random

import torch
import torch.distributed as dist
from torch.utils.data import random_split


def split(rows, seed):
    train, valid = random_split(  # error: MP913
        rows, [9, 1], generator=torch.Generator().manual_seed(seed + dist.get_rank())
    )
    return train, valid


def shuffled(parts, seed, epoch):
    random.seed(seed + epoch + dist.get_rank())  # error: MP913
    for part in parts:
        random.shuffle(part)
    return parts
""",
    # another number of ranks by which a rank is divided; a factor in brackets
    """# before: nodes.py
import torch.distributed as dist


def node_of(size):
    nodes = dist.get_world_size() // size
    node = dist.get_rank() // size
    return node, nodes


def scaled(loss, tokens):
    final = loss * (dist.get_world_size() / tokens)
    return final
# file: nodes.py
import torch.distributed as dist


def node_of(size):
    nodes = dist.get_world_size() // size
    node = dist.get_rank() // nodes  # error: MP913
    return node, nodes


def scaled(loss, tokens):
    final = loss / tokens  # error: MP913
    return final
""",
    # a call that changes what each rank has, by a variable that tells the rank
    """# before: train.py
import torch.distributed as dist


class Average:
    def __init__(self, model):
        self.model = model
        self.shadow = [p.clone() for p in model.parameters()]

    def update(self):
        for mine, new in zip(self.shadow, self.model.parameters()):
            mine.mul_(0.9).add_(new, alpha=0.1)


def train(model, batches, every):
    average = Average(model)
    for number, batch in enumerate(batches):
        model(batch).backward()
        due = number % every == 0
        if due:
            average.update()
    return average
# file: train.py
import torch.distributed as dist


class Average:
    def __init__(self, model):
        self.model = model
        self.shadow = [p.clone() for p in model.parameters()]

    def update(self):
        for mine, new in zip(self.shadow, self.model.parameters()):
            mine.mul_(0.9).add_(new, alpha=0.1)


def train(model, batches, every):
    average = Average(model)
    for number, batch in enumerate(batches):
        model(batch).backward()
        due = number % every == 0 and dist.get_rank() == 0
        if due:
            average.update()  # error: MP913
    return average
""",
    # an order that all ranks shared, a number that one rank told the others
    """# before: shards.py
import random

import numpy as np
import torch
import torch.distributed as dist


def setup(seed):
    np.random.seed(seed + dist.get_rank())


def in_order(shards, seed):
    generator = np.random.default_rng(seed)
    generator.shuffle(shards)
    return shards


def seed_of(device):
    seed = torch.randint(0, 10_000, (), device=device)
    dist.all_reduce(seed)
    return seed.item()


def depth(layers, device):
    chosen = seed_of(device)
    return layers[: random.Random(chosen).randrange(len(layers))]
# file: shards.py
import random

import numpy as np
import torch
import torch.distributed as dist


def setup(seed):
    np.random.seed(seed + dist.get_rank())


def in_order(shards, seed):
    np.random.shuffle(shards)  # error: MP913
    return shards


def seed_of(device):
    seed = torch.randint(0, 10_000, (), device=device)
    dist.all_reduce(seed)
    return seed.item()


def depth(layers, device):
    chosen = random.randrange(10_000)  # error: MP913
    return layers[: random.Random(chosen).randrange(len(layers))]
""",
    """# before: folders.py
from datetime import datetime
import torch.distributed as dist


def folder(work, resumed):
    if resumed:
        stamps = [datetime.now().strftime("%Y%m%d")]
        dist.broadcast_object_list(stamps, src=0)
        stamp = stamps[0]
        return work / stamp / "resumed"
    stamps = [datetime.now().strftime("%Y%m%d")]
    dist.broadcast_object_list(stamps, src=0)
    stamp = stamps[0]
    return work / stamp
# file: folders.py
from datetime import datetime
import torch.distributed as dist


def folder(work, resumed):
    if resumed:
        stamps = [datetime.now().strftime("%Y%m%d")]
        dist.broadcast_object_list(stamps, src=0)
        stamp = stamps[0]
        return work / stamp / "resumed"
    stamp = datetime.now().strftime("%Y%m%d")  # error: MP913
    return work / stamp
""",
    """# before: ring.py
import torch.distributed as dist


def owner(step, send):
    send((dist.get_rank() - step) % dist.get_world_size())
# file: ring.py
import torch.distributed as dist


def owner(step, send):
    send((dist.get_rank() + step) % dist.get_world_size())  # error: MP913
""",
    """# before: paths.py
import torch.distributed as dist


def agreed(path, names):
    rows = [path]
    dist.broadcast_object_list(rows, src=0)
    if rows[0] != path:
        print("ranks were given other paths")
    return rows[0], sorted(names)
# file: paths.py
import torch.distributed as dist


def agreed(path, names):
    rows = [path]
    dist.broadcast_object_list(rows, src=0)
    if rows[0] != path:
        print("ranks were given other paths")
    return path, sorted(names)  # error: MP913
""",
    # what was gathered rank after rank is dealt out to ranks in turn
    "# before: train.py\n"
    + _DEALT.format(taken="mine = advantages.reshape(ranks, -1, 4)[rank]")
    + "# file: train.py\n"
    + _DEALT.format(taken="mine = advantages.reshape(-1, ranks, 4)[:, rank]  # error: MP913"),
    # all workers draw the same, or listen at the same port
    "# before: workers.py\n"
    + _SEEDED.format(seeds="seed = [seed + i * 10086 for i in range(self.number)]", port="port + i")
    + "# file: workers.py\n"
    + _SEEDED.format(seeds="seed = [seed for _ in range(self.number)]  # error: MP913", port="port + i"),
    "# before: workers.py\n"
    + _SEEDED.format(seeds="seed = [seed + i * 10086 for i in range(self.number)]", port="port + i")
    + "# file: workers.py\n"
    + _SEEDED.format(seeds="seed = [seed + i * 10086 for i in range(self.number)]", port="port").replace(
        "port)\n", "port)  # error: MP913\n"
    ),
    # how often ranks meet was the same on all of them
    "# before: stats.py\n"
    + _COUNTED.format(keys=_GATHERED_KEYS, over="keys", does="sum_over_ranks(rows[key])", mark="")
    + "# file: stats.py\n"
    + _COUNTED.format(
        keys="keys = sorted(rows.keys())", over="keys", does="sum_over_ranks(rows[key])", mark="  # error: MP913"
    ),
)

CORRECT = (
    # what is gone through holds what all ranks agreed on
    """# before: tokens.py
import torch.distributed as dist


def tokens_of_all(batch):
    count = batch["mask"].sum()
    dist.all_reduce(count)
    return count


def train(model, loader):
    for batch in loader:
        count = tokens_of_all(batch)
        if count == 0:
            continue
        model(batch).backward()
        dist.barrier()
# file: tokens.py
import torch.distributed as dist


def tokens_of_all(batch):
    count = batch["mask"].sum()
    dist.all_reduce(count)
    return count


def counted(loader):
    for batch in loader:
        yield batch, tokens_of_all(batch)


def train(model, loader):
    for batch, count in counted(loader):
        if count == 0:
            continue
        model(batch).backward()
        dist.barrier()
""",
    # the decision is agreed on in another way, or in a function of its own; it is about what is known to be alike
    """# before: train.py
import math

import torch
import torch.distributed as dist


def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch)
        flag = torch.isnan(loss).float()
        dist.all_reduce(flag)
        if flag.item() > 0:
            break
        loss.backward()
        optimizer.step()


def watched(model, loader):
    for batch in loader:
        loss = model(batch)
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        shown /= dist.get_world_size()
        if not math.isfinite(shown):
            raise FloatingPointError(shown)
        loss.backward()
# file: train.py
import math

import torch
import torch.distributed as dist


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch)
        flags = [None] * dist.get_world_size()
        dist.all_gather_object(flags, bool(torch.isnan(loss)))
        if any(flags):
            break
        loss.backward()
        optimizer.step()


def watched(model, loader):
    for batch in loader:
        loss = model(batch)
        shown = mean_over_ranks(loss)
        if not math.isfinite(shown):
            raise FloatingPointError(shown)
        loss.backward()
""",
    # who calls it reduces now; people are told what this rank has
    """# before: accuracy.py
import torch
import torch.distributed as dist


def accuracy(model, loader):
    correct, total = torch.zeros(1), torch.zeros(1)
    for x, y in loader:
        correct += (model(x).argmax(-1) == y).sum()
        total += len(y)
    dist.all_reduce(correct)
    dist.all_reduce(total)
    return (correct / total).item()


def validate(model, loader):
    return accuracy(model, loader)
# file: accuracy.py
import torch
import torch.distributed as dist


def accuracy(model, loader):
    correct, total = torch.zeros(1), torch.zeros(1)
    for x, y in loader:
        correct += (model(x).argmax(-1) == y).sum()
        total += len(y)
    return correct, total


def validate(model, loader):
    correct, total = accuracy(model, loader)
    dist.all_reduce(correct)
    dist.all_reduce(total)
    return (correct / total).item()
# before: told.py
import torch.distributed as dist


def reduce_mean(value):
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def train(model, loader, logger):
    for batch in loader:
        loss = model(batch)
        mean = reduce_mean(loss.detach())
        logger.info("loss %f", mean)
        if mean > 100:
            print("the loss is large")
        loss.backward()
# file: told.py
import torch.distributed as dist


def reduce_mean(value):
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def train(model, loader, logger):
    for batch in loader:
        loss = model(batch)
        mean = reduce_mean(loss.detach())
        logger.info("loss %f", mean)
        if loss > 100:
            print("the loss is large")
        loss.backward()
""",
    # one rank alone writes now, the rank moved into the folder, and a number of the process tells files apart
    """# before: saving.py
import os

import torch
import torch.distributed as dist


def save(state, folder):
    rank = dist.get_rank()
    torch.save(state, f"{folder}/state_{rank}.pt")


def save_shard(shard, folder):
    rank = dist.get_rank()
    torch.save(shard, f"{folder}/shard_{rank}.pt")


def save_safely(state, folder):
    rank = dist.get_rank()
    temporary = f"{folder}/tmp_{rank}.pt"
    torch.save(state, temporary)
    os.replace(temporary, f"{folder}/safe_{rank}.pt")
# file: saving.py
import os

import torch
import torch.distributed as dist


def save(state, folder):
    rank = dist.get_rank()
    if rank == 0:
        torch.save(state, f"{folder}/state.pt")


def save_shard(shard, folder):
    rank = dist.get_rank()
    folder = os.path.join(folder, str(rank))
    os.makedirs(folder, exist_ok=True)
    torch.save(shard, f"{folder}/shard.pt")


def save_safely(state, folder):
    rank = dist.get_rank()
    temporary = f"{folder}/tmp_{os.getpid()}.pt"
    torch.save(state, temporary)
    os.replace(temporary, f"{folder}/safe_{rank}.pt")
""",
    # the rank of a matrix; what all ranks write and read under names of their own
    """# before: adapter.py
import torch


def save(adapter, folder, rank, alpha):
    torch.save(adapter.state_dict(), f"{folder}/lora_r{rank}_a{alpha}.pt")
# file: adapter.py
import torch


def save(adapter, folder, rank, alpha):
    torch.save(adapter.state_dict(), f"{folder}/lora_a{alpha}.pt")
# before: words.py
import json

import torch.distributed as dist


def prepare(words, folder):
    rank = dist.get_rank()
    path = f"{folder}/words.json"
    with open(path, "w") as file:
        json.dump(words, file)
    dist.barrier()
    with open(path) as file:
        return json.load(file), rank
# file: words.py
import json

import torch.distributed as dist


def prepare(words, folder):
    rank = dist.get_rank()
    path = f"{folder}/words_{rank}.json"
    with open(path, "w") as file:
        json.dump(words, file)
    dist.barrier()
    with open(path) as file:
        return json.load(file), rank
""",
    # the number that all ranks have is held at least at one, and rounded, now
    """# before: loss.py
import torch.distributed as dist


def loss(rows, mask):
    total = mask.sum()
    dist.all_reduce(total)
    mean = (rows * mask).sum() / total
    return mean
# file: loss.py
import torch.distributed as dist


def loss(rows, mask):
    total = mask.sum()
    dist.all_reduce(total)
    mean = (rows * mask).sum() / max(1, total.item())
    return mean
""",
    # nothing that is drawn after the seed is an order
    """# before: noise.py
import random

import torch.distributed as dist


def noise(seed, count):
    random.seed(seed)
    return [random.random() for _ in range(count)]
# file: noise.py
import random

import torch.distributed as dist


def noise(seed, count):
    random.seed(seed + dist.get_rank())
    return [random.random() for _ in range(count)]
""",
    # what divides bears another name; a product is bracketed in another way
    """# before: nodes.py
import torch.distributed as dist


def node_of(size):
    node = dist.get_rank() // size
    return node


def scaled(loss, tokens):
    final = loss * (dist.get_world_size() / tokens)
    return final
# file: nodes.py
import torch.distributed as dist


def node_of(per_node):
    node = dist.get_rank() // per_node
    return node


def scaled(loss, tokens):
    final = loss * dist.get_world_size() / tokens
    return final
""",
    # drawn by each rank before and now; the same on all ranks as before
    """# before: noise.py
import random

import torch
import torch.distributed as dist


def crop(images, size):
    left = random.randint(0, size)
    return images[:, left:]


def order(rows, seed, epoch):
    random.Random(seed).shuffle(rows)
    return rows
# file: noise.py
import random

import torch
import torch.distributed as dist


def crop(images, size):
    left = torch.randint(0, size, ()).item()
    return images[:, left:]


def order(rows, seed, epoch):
    random.Random(seed + epoch).shuffle(rows)
    return rows
""",
    """# before: norm.py
import torch.distributed as dist


def mean(loss, size):
    dist.all_reduce(loss)
    return loss / dist.get_world_size()
# file: norm.py
import torch.distributed as dist


def _summed(value):
    dist.all_reduce(value)
    return value


def mean(loss, size):
    return _summed(loss) / dist.get_world_size()
""",
    """# before: mean.py
import torch.distributed as dist


def mean(loss):
    dist.all_reduce(loss)
    loss /= dist.get_world_size()
    return loss
# file: mean.py
import torch.distributed as dist


def mean(loss):
    dist.all_reduce(loss)
    count = dist.get_world_size()
    loss /= count
    return loss
""",
    """# before: paths.py
import torch.distributed as dist


def agreed(path):
    rows = [path]
    dist.broadcast_object_list(rows, src=0)
    return rows[0]
# file: paths.py
import torch.distributed as dist


def agreed(path):
    rows = [path]
    dist.broadcast_object_list(rows, src=0)
    (found,) = rows
    return found
""",
    # the same block, taken otherwise; other numbers, one for each
    "# before: train.py\n"
    + _DEALT.format(taken="mine = advantages.reshape(ranks, -1, 4)[rank]")
    + "# file: train.py\n"
    + _DEALT.format(taken="mine = advantages.chunk(ranks)[rank]"),
    "# before: workers.py\n"
    + _SEEDED.format(seeds="seed = [seed + i * 10086 for i in range(self.number)]", port="port + i")
    + "# file: workers.py\n"
    + _SEEDED.format(seeds="seed = [seed + worker for worker in range(self.number)]", port="port + 2 * i"),
    # nothing that ranks do together in a round
    "# before: stats.py\n"
    + _COUNTED.format(keys=_GATHERED_KEYS, over="keys", does="rows.get(key)", mark="")
    + "# file: stats.py\n"
    + _COUNTED.format(keys="keys = sorted(rows.keys())", over="keys", does="rows.get(key)", mark=""),
)
