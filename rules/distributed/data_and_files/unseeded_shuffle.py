"""A shuffle, or a split, that every rank draws for itself, before taking its own part.

What it does
    Reports what orders or picks (`random.shuffle`, `torch.randperm`, `random.sample`, `random_split`,
    `train_test_split`) and differs between ranks, where a part of it is then taken by rank: every n-th element
    (`[rank::world_size]`, `[dp_rank::dp_size]`), a stretch (`[rank * n : …]`), one of equal pieces
    (`np.array_split(order, world_size)[rank]`), the share of a DistributedSampler, of a loader that Accelerate
    prepares, or of data that the Trainer of transformers or Lightning deals out. Data is followed back through
    variables, attributes, functions and what the constructor of a dataset keeps.

    An error rests on a seed that surely tells the rank, also as the `seed` of a DistributedSampler. A warning rests on
    a seed that each process draws for itself (`randrange(2**32)`, the clock), or on nothing in the project that seeds
    the library (`random`, `numpy`, `torch`) alike. Where the library is seeded on the ways to the draw, in its function
    or in those that call it, only those seeds count. Silent where one of them is the same on the ranks among which is
    divided, where a function named after seeds of a library that is not at hand may seed, where a collective makes the
    order equal, where one rank alone draws, and where the order is undone later (`argsort(order)`, `result[order] =
    arange(n)`): ranks move their own rows about, and back; and for numbers that are drawn one by one (`randn`,
    `randint`, `choice`): a part of independent numbers is as good as another.

Why is this bad
    The parts belong to different orders: some samples are seen twice, others never, differently in each run. Of a split
    some ranks train on what others validate on: the loss of the validation is too good, and nothing fails.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.random_split
    https://scikit-learn.org/stable/modules/generated/sklearn.model_selection.train_test_split.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.domains.axes import WHOLE, Axes, meets
from validator.domains.spmd import NONE, UNIFORM, Causes, only
from validator.finding import Finding, Related
from validator.flow.narrowing import OBJECTS
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of, parameters_given
from validator.flow.queries.origins import calls_behind, sources
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.random_draws import (
    ORDERING,
    changes_nothing,
    drawn_apart,
    generator_of,
    orders,
    rows_of,
)
from validator.flow.queries.ranks.rank_shares import dealt_by_lightning, dealt_by_trainer, prepared, shares
from validator.flow.queries.training.loaders import makes_loader
from validator.flow.queries.training.samplers import DEALING
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP532",
    "unseeded-shuffle",
    "warning",
    "0.1.0",
    tokens=("shuffle", "randperm", "permutation", "sample", "DistributedSampler", "prepare"),
)

_ELSEWHERE = frozenset({"attr", "param", "free", "name", "call"})
_GIVEN = frozenset({"call"})
_NUMBERS = frozenset({"size", "ordinal", "several", "const"})
_INVERTING = frozenset({"argsort", "scatter", "scatter_", "index_copy", "index_copy_"})


def check_project(project: Project) -> Iterator[Finding]:
    seen = set()
    queries = project.analysis(Queries)
    for draw, apart, user in (*_slices(queries), *_samplers(queries), *_prepared(queries), *_dealt(queries)):
        if (draw.unit, draw.number) not in seen:
            seen.add((draw.unit, draw.number))
            yield _report(queries, draw, apart, user)


_Found = tuple[Place, Causes, Place]  # what draws, how that differs between ranks, what takes the rank's part


def _slices(queries: Queries) -> Iterator[_Found]:
    """Orders of which a part is taken by the rank."""
    drawing = {row.name for row in queries.flow.models.rows if row.orders or row.mixes is not None}
    units = queries.mentioning(*drawing)
    parts = [part for unit in units for part in queries.values(unit, "item")]
    parts += [share.user for share in shares(queries) if share.user.value.op == "item"] if units else []
    far = _surely_apart(queries, drawing | ORDERING) if parts else frozenset()
    for part in (part for part in dict.fromkeys(parts) if not is_aside(part.unit.path)):
        alike = part.operand(0).val.v == {UNIFORM}  # a collective gave it, in one order
        divided = _first(part.operand(1)).varies("rank") if not alike else NONE
        near = dict.fromkeys(_drawn_before(part.operand(0), _GIVEN)) if divided else {}
        for draw in (*near, *(_far_away(part, far - near.keys()) if divided else ())):
            apart = _among(_apart(draw), frozenset(c.axis for c in divided))
            if apart and not _is_undone(queries, draw):
                yield draw, apart, part


def _surely_apart(queries: Queries, drawing: set[str]) -> frozenset[Place]:
    """The draws of orders that surely differ between ranks."""
    calls = (call for unit in queries.beside(*drawing) for call in queries.calls_in(unit))
    return frozenset(call for call in calls if any(c.sure for c in _apart(call)))


def _far_away(part: Place, draws: frozenset[Place]) -> Iterator[Place]:
    """Those of some draws that order the whole of which a part is taken, in other functions too. What says which part
    is taken is no order of it."""
    chosen = set(_made_of(part.operand(1))) if draws else ()
    before = _drawn_before(part.operand(0)) if draws else ()
    return (draw for draw in before if draw in draws and draw not in chosen)


def _samplers(queries: Queries) -> Iterator[_Found]:
    """Samplers that take their part of an order which they draw with a seed that tells the rank, or of what each rank
    has drawn for itself, or put in an order of its own, before."""
    for call in queries.calls(*DEALING):
        seed, rank, shuffle = (call.argument(name, place) for name, place in (("seed", 4), ("rank", 2), ("shuffle", 3)))
        divided = rank.varies("rank") if rank is not None else NONE
        axes = frozenset(c.axis for c in divided) or WHOLE
        dataset = call.argument("dataset", 0)
        yield from _shared_out(queries, dataset, axes, call) if dataset is not None else ()
        if seed is None or shuffle is not None and shuffle.val.constant() is False or is_aside(call.unit.path):
            continue
        apart = _among(frozenset(c for c in seed.varies("rank", "member") if c.sure), axes)
        if apart:
            yield call, apart, call


def _prepared(queries: Queries) -> Iterator[_Found]:
    """Loaders that Accelerate shares out, of data that each rank has drawn for itself."""
    for share in prepared(queries):
        for loader in calls_behind(share.whole, makes_loader) or () if share.whole is not None else ():
            dataset = loader.argument("dataset", 0)
            yield from _shared_out(queries, dataset, WHOLE, share.user) if dataset is not None else ()


def _dealt(queries: Queries) -> Iterator[_Found]:
    """Data that each rank has drawn for itself, and that a Trainer of a library deals out among all."""
    for share in (*dealt_by_trainer(queries), *dealt_by_lightning(queries)):
        yield from _shared_out(queries, share.whole, WHOLE, share.user) if share.whole is not None else ()


def _shared_out(queries: Queries, dataset: Place, axes: Axes, user: Place) -> Iterator[_Found]:
    """What draws the rows of a data set, or their order, on each rank for itself among those of some axes."""
    for draw in (*_drawn_before(dataset), *_in_constructor(queries, dataset)):
        apart = _among(_apart(draw), axes)
        if apart and not is_aside(draw.unit.path) and not only(draw.under, "rank", "member"):
            yield draw, apart, user


def _among(apart: Causes, axes: Axes) -> Causes:
    """The causes by which ranks differ that count along some axes."""
    return frozenset(c for c in apart if any(meets(c.axis, frozenset({axis})) for axis in axes))


def _in_constructor(queries: Queries, dataset: Place) -> Iterator[Place]:
    """What the constructor of a dataset of the project puts in an order of its own, and keeps; the orders that it
    draws, by which it looks its elements up."""
    classes = dict.fromkeys(o[1] for o in dataset.closed.each if o[0] in OBJECTS)
    for cls in classes if len(classes) == 1 else ():
        made = cls.find("__init__")
        unit = queries.flow.unit_of(made) if made is not None else None
        for call in queries.calls_in(unit) if unit is not None else ():
            mixed = call.argument("x", 0) if orders(call) else None
            if mixed is not None and _is_kept(queries, mixed):
                yield call
        stores = queries.values(unit, "store_attr") if unit is not None else ()
        for store in (each for each in stores if unit is not None and unit.is_receiver(each.operand(0).root.number)):
            if _looks_up(queries, cls, store.value.data):
                yield from _made_of(store.operand(1))


def _looks_up(queries: Queries, cls: ClassDef, name: str) -> bool:
    """Whether a dataset finds its elements at the numbers that it has under a name: `self.rows[self.name[i]]`."""
    method = cls.find("__getitem__")
    unit = queries.flow.unit_of(method) if method is not None else None
    items = queries.values(unit, "item") if unit is not None else ()
    owners = (item.operand(0).root for item in items)
    return any(owner.value.op == "attr" and owner.value.data == name for owner in owners)


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
    """The values from which one is computed, but for what has been made equal on all ranks since, and for numbers, such
    as how many ranks there are: no order is in them."""
    stack, seen = [place], {place}
    while stack:
        here = stack.pop()
        yield here
        for number, part in enumerate(map(here.operand, range(len(here.value.args)))):
            beside = here.value.op == "mut" and number == 1 and changes_nothing(part)
            if here.value.args[number] >= 0 and part not in seen and not beside and _may_be_order(part):
                seen.add(part)
                stack.append(part)


def _may_be_order(part: Place) -> bool:
    """Whether an order may be in a value that each rank has of its own."""
    held = part.val
    return UNIFORM not in held.v and not (held.each and all(o[0] in _NUMBERS for o in held.each))


def _drawn_before(dataset: Place, elsewhere: frozenset[str] = _ELSEWHERE) -> Iterator[Place]:
    """The values from which a data set is made: in its function, in those that give it and in what callers pass."""
    queue, seen = [dataset], {dataset}
    inside: set[Unit] = set()
    for start in queue:
        for here in _made_of(start):
            yield here
            if here.value.op not in elsewhere or here.value.op == "param" and here.unit in inside:
                continue  # a function that gives a part: the call of it, with what it passes, was met before
            before = [each for each in sources(here) or () if each not in seen and UNIFORM not in each.val.v]
            inside.update(each.unit for each in before if here.value.op == "call")
            seen.update(before)
            queue += before


def _apart(draw: Place) -> Causes:
    return drawn_apart(draw) if orders(draw) else NONE


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
                more += parameters_given(queries, user, each)
            elif user.value.op == "attr" and user.value.data in _INVERTING and user.is_called:
                return True
        queue += [each for each in more if each not in seen]
        seen.update(more)
    return False


def _rests_on(call: Place) -> str:
    """Why what a call draws is likely to differ between ranks, as the end of a sentence about it."""
    rows = [row for _, row in rows_of(call) if row is not None and row.draws]
    if not rows or generator_of(call, rows[0]) is not None:
        return ": its seed is each rank's own"
    return f": nothing seeds `{rows[0].draws}` alike before"


def _seeding(queries: Queries, call: Place) -> Iterator[Related]:
    """Where callers pass what each rank has for itself to a function, which seeds its shuffle with it."""
    positions = {part.value.data[0] for part in call.operand(0).sources if part.value.op == "param"}
    for caller in queries.calls_of(call.unit) if positions else ():
        passed = (argument_of(caller.unit, caller.number, call.unit, position) for position in positions)
        if any(number is not None and caller.value_at(number).varies("rank", "member") for number in passed):
            yield Related(caller.unit.path, caller.at[0], "each rank passes its own here")


def _report(queries: Queries, call: Place, apart: Causes, user: Place) -> Finding:
    name = call.operand(0).text
    sure = any(c.sure for c in apart)
    what = "every rank seeds its own shuffle" if sure else "every rank shuffles for itself"
    why = "" if sure else _rests_on(call)
    related = [Related(user.unit.path, user.at[0], "each rank takes its part here")]
    return RULE.finding(
        call.unit.path,
        call.at,
        f"{what} in `{call.unit.qualname}` (`{name}`), then takes its part of its own order{why}",
        help="shuffle with a generator seeded alike on all ranks (`random.Random(seed + epoch)`), then divide by rank",
        related=[*(related if user != call else []), *_seeding(queries, call)],
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

_FILES = """
import random
import torch.distributed as dist

class Shards:
    def __init__(self, files, rank, size):
        self.files, self.rank, self.size = files, rank, size

    def __iter__(self):
        yield from self.files[self.rank :: self.size]

def loaded(files, seed):
    random.seed(seed)
    random.shuffle(files){mark}
    return Shards(files, dist.get_rank(), dist.get_world_size())

def main(files):
    return loaded(files, seed={seed})
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

_SEEDING = """
def seed_all(number):
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)

"""

_SPLIT = """
import random
import time
import numpy as np
import torch
import torch.distributed as dist
from accelerate import Accelerator
from datasets import load_dataset
from my_library import set_all_seeds
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, random_split


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        row = list(self.rows[index])
        random.shuffle(row)
        return row

{seeding}
def pieces(rows):
    {split}


def prepare(args, rows, split_seed=None):
    accelerator = Accelerator()
    {before}
    train, valid = pieces(rows)
    return accelerator.prepare(DataLoader(train, shuffle=True)), valid


def deal(args, rows, split_seed=None):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    {before}
    train, valid = pieces(rows)
    {after}
    sampler = DistributedSampler(train)
    return DataLoader(train, sampler=sampler), valid
"""


def _split(split: str, before: str = "pass", after: str = "pass") -> str:
    seeding = _SEEDING if "seed_all(" in before else ""
    return _SPLIT.format(split=split, before=before, after=after, seeding=seeding)


_SEEDED = """
import random
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, random_split


def is_given(value):
    return value is not None


class Trainer:
    def __init__(self, data, split_seed=None):
        self.accelerator = Accelerator()
        self.data = data
        if not is_given(split_seed):
            split_seed = {seed}
        generator = torch.Generator().manual_seed(split_seed)
        self.data, self.valid = random_split(self.data, [90, 10], generator=generator){mark}
        self.loader = DataLoader(self.data, shuffle=True)
        self.loader = self.accelerator.prepare(self.loader)


{rest}
"""

INCORRECT = [
    # a dataset takes its part of files that were shuffled by who made it, with a seed that comes from further up
    _FILES.replace("{seed}", "7 + dist.get_rank()").replace("{mark}", "  # error: MP532"),
    _split("return random_split(rows, [90, 10])  # error: MP532"),
    _split("return train_test_split(rows, test_size=0.1)  # error: MP532"),
    _split("random.shuffle(rows)  # error: MP532\n    return Rows(rows[10:]), Rows(rows[:10])"),
    _split("order = np.random.permutation(100)  # error: MP532\n    return Subset(rows, order[10:]), order[:10]"),
    _split(
        'parts = load_dataset("rows")["train"].train_test_split(test_size=0.1)  # error: MP532\n'
        '    return parts["train"], parts["test"]'
    ),
    _split(
        "seed = int(time.time())\n"
        "    generator = torch.Generator().manual_seed(seed)\n"
        "    return random_split(rows, [90, 10], generator=generator)  # error: MP532"
    ),
    _split("return random_split(rows, [90, 10])  # error: MP532", "seed_all(args.seed + dist.get_rank())"),
    _SEEDED.format(seed="random.randrange(2**32)", mark="  # error: MP532", rest=""),
    _SEEDED.format(seed="random.randrange(2**32)", mark="  # error: MP532", rest="Trainer(list(range(100)))"),
    """
import numpy as np
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Picked(Dataset):
    def __init__(self, rows):
        self.rows = rows
        order = np.random.permutation(len(rows))  # error: MP532
        self.index = order[: len(rows) // 2]

    def __getitem__(self, index):
        return self.rows[self.index[index]]


def loader(rows):
    data = Picked(rows)
    return DataLoader(data, sampler=DistributedSampler(data))
""",
    """
import random
import torch.distributed as dist


def split(files):
    random.shuffle(files)  # error: MP532
    return files[10:], files[:10]


def main(files):
    dist.init_process_group("nccl")
    train, valid = split(files)
    return train[dist.get_rank() :: dist.get_world_size()], valid
""",
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
    """
import os
from datasets import load_dataset
from transformers import Trainer, TrainingArguments

def main(model):
    args = TrainingArguments("out")
    rank = int(os.environ["RANK"])
    data = load_dataset("json", data_files="rows.json", split="train")
    data = data.shuffle(seed=args.seed + rank)  # error: MP532
    Trainer(model=model, args=args, train_dataset=data).train()
""",
    # the rank that the sampler of the library has
    """
import torch
from torch.utils.data.distributed import DistributedSampler

class ByLength(DistributedSampler):
    def __init__(self, data, buckets, num_replicas=None, rank=None):
        super().__init__(data, num_replicas=num_replicas, rank=rank)
        self.buckets = buckets

    def __iter__(self):
        generator = torch.Generator()
        generator.manual_seed(self.epoch + self.rank)
        indices = [torch.randperm(len(each), generator=generator).tolist() for each in self.buckets]  # error: MP532
        for ids in indices:
            yield from ids[self.rank :: self.num_replicas]
""",
    # batches of each group, mixed by a generator whose seed tells the rank
    """\
import numpy as np
import torch.distributed as dist
from torch.utils.data import Sampler


class Grouped(Sampler):
    def __init__(self, dataset, world_size, rank, seed):
        self.groups, self.world_size, self.rank, self.seed = dataset.groups(), world_size, rank, seed

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        batches = [rows[i : i + 8] for rows in self.groups for i in range(0, len(rows), 8)]
        rng.shuffle(batches)  # error: MP532
        order = [row for batch in batches for row in batch]
        own = []
        for start in range(self.rank * 4, len(order), self.world_size * 4):
            own += order[start : start + 4]
        return iter(own)


def main(args, dataset):
    seed = args.seed + dist.get_rank()
    return Grouped(dataset, dist.get_world_size(), dist.get_rank(), seed)
""",
]


CORRECT = [
    _FILES.replace("{seed}", "7").replace("{mark}", ""),
    # each rank mixes what it has made itself; what is divided was gathered, by the number of ranks
    """
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

def main(model, epochs, make):
    accelerator = Accelerator()
    set_seed(7, device_specific=True)
    model = accelerator.prepare(model)
    for epoch in range(epochs):
        samples = make(model)
        rewards = accelerator.gather(samples["rewards"]).cpu().numpy()
        own = torch.as_tensor(rewards - rewards.mean()).reshape(accelerator.num_processes, -1)
        samples["advantages"] = own[accelerator.process_index]
        order = torch.randperm(len(samples["rewards"]), device=accelerator.device)
        samples = {key: value[order] for key, value in samples.items()}
        accelerator.backward(-(model(samples["x"]) * samples["advantages"]).mean())
""",
    # a draw that says which rows are looked at
    """
import random
import torch.distributed as dist

def pasted(labels):
    random.seed(7 + dist.get_rank())
    for i in random.sample(range(len(labels)), k=2):
        labels = labels + [labels[i]]
    return labels
""",
    # seeded alike before, here or by who calls; seeded apart later
    _split("return random_split(rows, [90, 10])", "seed_all(args.seed)", "seed_all(args.seed + rank)"),
    _split("return random_split(rows, [90, 10])", "if args.seed is not None:\n        seed_all(args.seed)"),
    _split("return train_test_split(rows, test_size=0.1)", "set_all_seeds(args.seed)"),
    _split("return train_test_split(rows, test_size=0.1, random_state=7)"),
    _split("return train_test_split(rows, test_size=0.1, shuffle=False)"),
    _split(
        'parts = load_dataset("rows")["train"].train_test_split(test_size=0.1, seed=7)\n'
        '    return parts["train"], parts["test"]'
    ),
    _split("return random_split(rows, [90, 10], generator=torch.Generator().manual_seed(42))"),
    # one rank's seed, or one rank's split, goes to all
    _split(
        "seed = [random.randrange(2**32)]\n"
        "    dist.broadcast_object_list(seed, src=0)\n"
        "    return random_split(rows, [90, 10], generator=torch.Generator().manual_seed(seed[0]))"
    ),
    _split(
        "parts = [None, None]\n"
        "    if dist.get_rank() == 0:\n"
        "        random.shuffle(rows)\n"
        "        parts = [rows[10:], rows[:10]]\n"
        "    dist.broadcast_object_list(parts, src=0)\n"
        "    return Rows(parts[0]), Rows(parts[1])"
    ),
    _SEEDED.format(seed="42", mark="", rest=""),
    _SEEDED.format(seed="random.randrange(2**32)", mark="", rest="Trainer(list(range(100)), split_seed=7)"),
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
    """
import os
from datasets import load_dataset
from transformers import Trainer, TrainingArguments

def main(model):
    args = TrainingArguments("out")
    rank = int(os.environ["RANK"])
    data = load_dataset("json", data_files="rows.json", split="train")
    data = data.shuffle(seed=args.seed)
    Trainer(model=model, args=args, train_dataset=data).train()
""",
]
