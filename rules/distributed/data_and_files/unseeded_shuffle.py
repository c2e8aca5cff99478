"""A shuffle that every rank does for itself, before taking its own part.

What it does
    Reports a shuffle (`random.shuffle`, `torch.randperm`, `random.sample`) that differs between ranks, where a part
    of what it orders is then taken by rank: every n-th element (`[rank::world_size]`, `[dp_rank::dp_size]`), a
    stretch (`[rank * n : …]`), one of equal pieces (`np.array_split(order, world_size)[rank]`). A generator whose
    seed tells the rank is an error, also as the `seed` of a DistributedSampler; one that nothing in the project seeds
    a warning. So is what the constructor of a dataset shuffles that a DistributedSampler shares out. Silent where the
    seed is the same on the ranks among which is divided, where a collective makes the order equal, and where the order
    is undone later (`argsort(order)`, `result[order] = arange(n)`): ranks move their own rows about, and back; and for
    numbers that are drawn one by one (`randn`, `randint`, `choice`): a part of independent numbers is as good as
    another.

Why is this bad
    The parts belong to different orders: some samples are seen twice, others never, differently in each run.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import WHOLE, meets
from validator.domains.spmd import NONE, UNIFORM, Causes
from validator.finding import Finding
from validator.flow.narrowing import OBJECTS
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.random_draws import drawn_apart, orders, rows_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP532",
    "unseeded-shuffle",
    "warning",
    "0.1.0",
    tokens=("shuffle", "randperm", "permutation", "sample", "DistributedSampler"),
)

_INVERTING = frozenset({"argsort", "scatter", "scatter_", "index_copy", "index_copy_"})
_SAMPLERS = ("torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler")


def check_project(project: Project) -> Iterator[Finding]:
    seen = set()
    queries = project.analysis(Queries)
    drawing = {row.name for row in queries.flow.models.rows if row.orders or row.mixes is not None}
    units = [unit for unit in queries.mentioning(*drawing) if not is_aside(unit.path)]
    for part in (part for unit in units for part in queries.values(unit, "item")):
        divided = _first(part.operand(1)).varies("rank")
        if not divided:
            continue
        for draw in _made_of(part.operand(0)):
            apart = frozenset(c for c in _apart(draw) if any(meets(c.axis, frozenset({d.axis})) for d in divided))
            if apart and (draw.unit.path, draw.at) not in seen and not _is_undone(queries, draw):
                seen.add((draw.unit.path, draw.at))
                yield _report(draw, apart)

    yield from _samplers(queries)


def _samplers(queries: Queries) -> Iterator[Finding]:
    """Samplers that take their part of an order which they draw with a seed that tells the rank, or of what each rank
    has put in an order of its own before."""
    for call in queries.calls(*_SAMPLERS):
        seed, rank, shuffle = (call.argument(name, place) for name, place in (("seed", 4), ("rank", 2), ("shuffle", 3)))
        if is_aside(call.unit.path):
            continue
        divided = rank.varies("rank") if rank is not None else NONE
        axes = frozenset(c.axis for c in divided) or WHOLE
        dataset = call.argument("dataset", 0)
        for draw in (*_made_of(dataset), *_in_constructor(queries, dataset)) if dataset is not None else ():
            apart = frozenset(c for c in _apart(draw) if meets(c.axis, axes))
            if apart:
                yield _report(draw, apart)
        if seed is None or shuffle is not None and shuffle.val.constant() is False:
            continue
        apart = frozenset(c for c in seed.varies("rank", "member") if c.sure and meets(c.axis, axes))
        if apart:
            yield _report(call, apart)


def _in_constructor(queries: Queries, dataset: Place) -> Iterator[Place]:
    """What the constructor of a dataset of the project puts in an order of its own, and keeps."""
    classes = dict.fromkeys(o[1] for o in dataset.closed.each if o[0] in OBJECTS)
    for cls in classes if len(classes) == 1 else ():
        made = cls.find("__init__")
        unit = queries.flow.unit_of(made) if made is not None else None
        for call in queries.calls_in(unit) if unit is not None else ():
            mixed = call.argument("x", 0) if orders(call) else None
            if mixed is not None and _is_kept(queries, mixed):
                yield call


def _is_kept(queries: Queries, value: Place) -> bool:
    """Whether a value is what an attribute of the function's own object holds."""
    unit = value.unit
    kept = (
        each for each in queries.values(unit, "store_attr", "attr") if unit.is_receiver(each.operand(0).root.number)
    )
    held = (each.operand(1) if each.value.op == "store_attr" else each for each in kept)
    return any(each.root.number == value.root.number for each in held)


def _first(key: Place) -> Place:
    """Of a slice where it begins, else the index."""
    return key.operand(0) if key.value.op == "slice" else key


def _made_of(place: Place) -> Iterator[Place]:
    """The values from which one is computed, but for what has been made equal on all ranks since."""
    stack, seen = [place], {place}
    while stack:
        here = stack.pop()
        yield here
        for number, part in enumerate(map(here.operand, range(len(here.value.args)))):
            beside = here.value.op == "mut" and number == 1 and _changes_nothing(part)
            if here.value.args[number] >= 0 and part not in seen and not beside and UNIFORM not in part.val.v:
                seen.add(part)
                stack.append(part)


def _apart(draw: Place) -> Causes:
    return drawn_apart(draw) if orders(draw) else NONE


def _changes_nothing(call: Place) -> bool:
    """Whether a call makes something of its own, and leaves what it was given as it is."""
    rows = rows_of(call)
    return bool(rows) and all(row is not None and row.result and row.mixes is None for _, row in rows)


def _is_undone(queries: Queries, order: Place) -> bool:
    """Whether something inverts an order: its ranks are asked for, or rows are put where it says."""
    queue, seen = [order], {order}
    for each in queue:
        more: list[Place] = []
        for user in each.users:
            if user.value.op in ("phi", "mut"):
                more.append(user)
            elif user.value.op == "store_item" and user.value.args[1] == each.number:
                return True
            elif user.value.op == "call" and each.number != user.value.args[0]:
                if user.method in _INVERTING:
                    return True
                more += _parameters(queries, user, each)
            elif user.value.op == "attr" and user.value.data in _INVERTING and user.is_called:
                return True
        queue += [each for each in more if each not in seen]
        seen.update(more)
    return False


def _parameters(queries: Queries, call: Place, given: Place) -> Iterator[Place]:
    """What functions of the project call a value that a call passes."""
    for unit in queries.targets(call):
        for inner in queries.values(unit, "param"):
            if argument_of(call.unit, call.number, unit, inner.value.data[0]) == given.number:
                yield inner


def _report(call: Place, apart: Causes) -> Finding:
    name = call.operand(0).text
    sure = any(c.sure for c in apart)
    what = "every rank seeds its own shuffle" if sure else "every rank shuffles for itself"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"{what} in `{call.unit.qualname}` (`{name}`), then takes its part of its own order",
        help="shuffle with a generator seeded alike on all ranks (`random.Random(seed + epoch)`), then divide by rank",
        context=f"{call.unit.qualname}:{name}",
        severity="error" if sure else "warning",
    )


_DATASET = """
import random

import torch
from torch.utils.data import DataLoader, DistributedSampler


class Files(torch.utils.data.Dataset):
    def __init__(self, path, seed):
        with open(path) as lines:
            self.rows = lines.read().split()
        {shuffle}

    def __getitem__(self, index):
        return self.rows[index]


def loader(path):
    data = Files(path, 7)
    return DataLoader(data, sampler=DistributedSampler(data))
"""

_SAMPLER = """
import numpy as np
import torch
import torch.distributed as dist

class Sampler:
    def __init__(self, dataset, world_size, rank):
        self.dataset, self.world_size, self.place = dataset, world_size, rank
        self.epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        if self.epoch is None:
            assert self.world_size == 1 and self.place == 0
            seed = int(torch.empty((), dtype=torch.int64).random_().item())
        else:
            seed = {seed}
        order = np.random.default_rng(seed).permutation(len(self.dataset)){mark}
        part = len(order) // self.world_size
        yield from order[part * self.place : part * (self.place + 1)]

class Dataset:
    def make_sampler(self, world_size, rank):
        return Sampler(self, world_size, rank)

def loaded(text):
    return eval(text).make_sampler(dist.get_world_size(), dist.get_rank())
"""

INCORRECT = [
    _DATASET.format(shuffle="random.shuffle(self.rows)  # error: MP532"),
    """
import torch

class Sampler:
    def __iter__(self):
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch + self.rank)
        order = torch.randperm(self.size, generator=generator).tolist()  # error: MP532
        return iter(order[self.rank :: self.world_size])
""",
    """
import random
import torch.distributed as dist

def split(samples, rank, world_size):
    random.shuffle(samples)  # error: MP532
    return samples[rank::world_size]
""",
    """
import numpy as np
import torch

class Tokens:
    def __init__(self, tokens, dp_rank, dp_size):
        self.tokens = tokens
        self.dp_rank = dp_rank
        self.dp_size = dp_size

    def __iter__(self):
        order = np.random.permutation(len(self.tokens))  # error: MP532
        for i in order[self.dp_rank :: self.dp_size]:
            yield self.tokens[i]

    def stretch(self, count):
        order = torch.randperm(len(self.tokens))  # error: MP532
        return order[self.dp_rank * count : (self.dp_rank + 1) * count]

    def piece(self, world_size, rank):
        order = np.random.permutation(len(self.tokens))  # error: MP532
        return np.array_split(order, world_size)[rank]
""",
    """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, random_split

def parts(dataset, args):
    train, test = random_split(dataset, [args.train, args.test])  # error: MP532
    return DataLoader(train, sampler=DistributedSampler(train)), test

def loader(dataset, args):
    rank = dist.get_rank()
    seed = args.global_seed * dist.get_world_size() + rank
    sampler = DistributedSampler(dataset, shuffle=True, seed=seed)  # error: MP532
    return DataLoader(dataset, sampler=sampler)
""",
    # one class alone has the method that makes the sampler: nobody knows what the text gives
    _SAMPLER.format(seed="self.epoch + self.place", mark="  # error: MP532"),
]


CORRECT = [
    # each rank sends its own rows about in an order of its own, and puts them back
    """
import torch
import torch.distributed as dist

def exchanged(rows):
    result = torch.empty_like(rows)
    dist.all_to_all_single(result, rows)
    return result

def inverse(order):
    result = torch.empty_like(order)
    result[order] = torch.arange(0, order.size(0), device=order.device)
    return result

def forward(rows, expert):
    order = torch.randperm(rows.size(0), device=rows.device)
    rows = exchanged(rows[order])
    mine = expert(rows.chunk(dist.get_world_size())[dist.get_rank()])
    return exchanged(rows + mine)[inverse(order)]
""",
    _DATASET.format(shuffle="random.Random(seed).shuffle(self.rows)"),
    _DATASET.format(shuffle="random.seed(seed)\n        random.shuffle(self.rows)"),
    """
import random
import torch

class Sampler:
    def __iter__(self):
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.size, generator=generator).tolist()
        own = order[self.rank :: self.world_size]
        random.Random(self.seed + self.rank).shuffle(own)
        return iter(own)

    def of_group(self):
        rng = random.Random(self.seed + self.rank // self.tp_size)
        order = list(range(self.size))
        rng.shuffle(order)
        return order[self.tp_rank :: self.tp_size]
""",
    """
import random
import torch.distributed as dist

def split(samples, rank, world_size, seed):
    random.Random(seed).shuffle(samples)
    return samples[rank::world_size]
""",
    """
import random
import torch.distributed as dist

def split(samples, rank, world_size):
    mine = samples[rank::world_size]
    return mine

def mix(samples):
    random.shuffle(samples)
    return samples
""",
    """
import random
import numpy as np

def prepare(number):
    np.random.seed(number)

def split(samples, dp_rank, dp_size, columns):
    order = np.random.permutation(len(samples))
    return [samples[i] for i in order[dp_rank::dp_size]]

def own(samples, dp_rank, dp_size):
    mine = samples[dp_rank::dp_size]
    random.shuffle(mine)
    return mine[: len(mine) // 2]
""",
    # one rank's order goes to all
    """
import torch
import torch.distributed as dist

def shuffled(strategy, rows):
    order = torch.randperm(len(rows))
    dist.broadcast(order, src=0)
    parts = torch.split(order, len(rows) // dist.get_world_size())
    return rows[parts[dist.get_rank()]]
""",
    # numbers that are drawn one by one: a part of one's own is as random as a part of common ones
    """
import random
import torch

def noise(shape, sp_rank, sp_size):
    whole = torch.randn(shape)
    return whole.chunk(sp_size)[sp_rank]

def stretch(count, rank, part):
    picked = torch.randint(count, (count,))
    return picked[rank * part : (rank + 1) * part]

def crop(image, width, rank):
    start = random.randint(0, image.shape[1] - width)
    return image[:, start : start + width][rank]
""",
    """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def loader(dataset, args):
    rank = dist.get_rank()
    torch.manual_seed(args.global_seed + rank)
    sampler = DistributedSampler(dataset, rank=rank, shuffle=True, seed=args.global_seed)
    return DataLoader(dataset, sampler=sampler)
""",
    _SAMPLER.format(seed="self.epoch", mark=""),
]
