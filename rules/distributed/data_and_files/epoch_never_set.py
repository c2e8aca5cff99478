"""A shuffling `DistributedSampler` whose epoch nobody sets.

What it does
    Reports `DistributedSampler(…)` that shuffles (the default) in a project in which nothing calls `set_epoch`. Where
    a parameter says whether it shuffles (`shuffle=shuffle`), some call must say so, or leave its default of True.
    Silent where the data, or the sampler, is called after evaluation (`val_dataset`): its order does not matter. Also
    reports `set_epoch` in a loop that gives the sampler the same number in every round, and a shuffling sampler whose
    loader is gone through in a loop, epoch after epoch, where `set_epoch` is called on other samplers alone, or on
    this one outside of any loop. That goes for samplers of the project too, where what `set_epoch` keeps decides over
    the order; of a function that gives loaders to several programs each loader is judged alone. Also reports
    `set_epoch` with a number that each rank draws for itself; and `loader.sampler` that is told the epoch where the
    loader was made with a `batch_sampler` that could be told, and is not. Silent where the sampler, or its loader,
    goes where it cannot be followed, and where each round of a loop makes a sampler with a seed of that round.

Why is this bad
    The order depends on seed and epoch. Without `set_epoch` every epoch shows the same batches in the same order.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.origins import calls_behind, trail
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.random_draws import drawn_apart, draws
from validator.flow.queries.ranks.run_by_all import setting_up
from validator.flow.queries.training.cleared_gradients import Gradients
from validator.flow.queries.training.loaders import makes_loader
from validator.flow.queries.training.sampler_rounds import Rounds, passed_through
from validator.flow.queries.training.samplers import Sampler, samplers
from validator.flow.values import const_obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP530", "epoch-never-set", "warning", "0.1.0", tokens=("DistributedSampler", "set_epoch"))

_NOWHERE = "nothing in the project calls `set_epoch`"


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    calls = list(queries.named("set_epoch"))
    for call in calls:
        if not is_aside(call.unit.path) and _is_same_each_round(queries, call):
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.operand(0).text}` in `{call.unit.qualname}` gets `{call.operand(1).text}` in every round"
                " of the loop: each epoch has the order of the one before",
                help="pass the number of the epoch",
                context=f"{call.unit.qualname}:set_epoch",
            )
        drawn = next((part for part in call.parts if draws(part) and drawn_apart(part)), None)
        if drawn is not None and not is_aside(call.unit.path) and len(call.value.args) == 2:
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.operand(0).text}` in `{call.unit.qualname}` gets `{drawn.text}`, which each rank draws for"
                " itself: the parts that the ranks take are of different orders",
                help="pass the number of the epoch, which is the same on all ranks",
                context=f"{call.unit.qualname}:set_epoch",
            )
    yield from _told_to_another(calls)
    rounds = Rounds(queries)
    for sampler in samplers(queries):
        place = sampler.place
        if is_aside(place.unit.path):
            continue
        seed = place.argument("seed", 4) if not sampler.is_own else place.argument("seed")
        if seed is not None and _counts_rounds(queries, seed, set()):
            continue
        if not calls and not sampler.is_own and _shuffles(sampler) and not _evaluates(place):
            yield _never_told(sampler, place, _NOWHERE)
        for untold in rounds.untold(place) if calls or sampler.is_own else ():
            loader = untold.loader
            trains = not untold.units.isdisjoint(project.analysis(Gradients).computing)
            measures = any(_evaluates(each, trains) for each in (place, loader.place, *loader.calls))
            if _shuffles(sampler, loader.calls) and not measures and _has_group(queries, place, untold.units):
                why = untold.why if calls else _NOWHERE
                yield _never_told(sampler, place if untold.alone else loader.place, why)


def _has_group(queries: Queries, sampler: Place, users: frozenset[Unit]) -> bool:
    """Whether a sampler that is only made where there is a process group is made for what goes through its data: that,
    or what calls it in the same process, sets one up."""
    if not any(word.endswith("is_initialized") for test in sampler.tests_inside for word in test.words):
        return True
    return not setting_up(queries).isdisjoint(queries.reaching(users, handed_on=False))


def _never_told(sampler: Sampler, place: Place, why: str) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.unit.qualname}` makes a shuffling `{sampler.name}`, and {why}"
        if place == sampler.place
        else f"the loader that `{place.unit.qualname}` gets here shuffles by a `{sampler.name}`, and {why}",
        help="call `sampler.set_epoch(epoch)` at the start of every epoch, or pass `shuffle=False` where"
        " order does not matter",
        context=place.unit.qualname,
    )


def _told_to_another(calls: list[Place]) -> Iterator[Finding]:
    """Where the number of the epoch goes to the `sampler` of a loader that was made with a sampler of batches, which
    nobody tells it."""
    if any("batch_sampler" in call.operand(0).words for call in calls):
        return
    for call in calls:
        asked = [] if call.receiver is None or is_aside(call.unit.path) else trail(call.receiver, frozenset())
        for owner in (each.operand(0) for each in asked if each.value.op == "attr" and each.value.data == "sampler"):
            loaders = calls_behind(owner, makes_loader) or []
            if loaders and all(_is_by_batches(loader) for loader in loaders):
                yield RULE.finding(
                    call.unit.path,
                    call.at,
                    f"`{call.operand(0).text}` in `{call.unit.qualname}` tells the epoch to the `sampler` of a loader"
                    " that takes its batches from `batch_sampler=`: its `sampler` only counts the samples, in order",
                    help="tell it to `loader.batch_sampler`",
                    related=[Related(each.unit.path, each.at[0], "the loader is made here") for each in loaders[:1]],
                    context=f"{call.unit.qualname}:set_epoch:batch_sampler",
                )
                break


def _is_by_batches(loader: Place) -> bool:
    """Whether a loader is given a sampler of batches, whose class has a `set_epoch` of its own."""
    given = loader.argument("batch_sampler", 4)
    owners = [o[1] for o in given.closed.each if o[0] in ("inst", "self")] if given is not None else []
    return bool(owners) and all(cls.find("set_epoch") is not None for cls in owners)


def _is_same_each_round(queries: Queries, call: Place) -> bool:
    """Whether a loop around a call passes the same number in each of its rounds: one that is written there, or that was
    known before."""
    control, code = call.unit.control, call.unit.code
    loops = [header for header in control.loops_around(call.value.block) if code.loops[header].iterator >= 0]
    if not loops or len(call.value.args) != 2 or call.is_tried or not _goes_through_data(call, loops[0]):
        return False
    inside = {block for header in loops for block in (*blocks_of(code, header), header)}
    if call.receiver is None:
        return False
    owner = call.receiver.root
    while owner.value.op == "attr":
        owner = owner.operand(0).root
    if owner.value.block in inside:
        return False  # each round has a sampler of its own, or a loader
    given = call.operand(1).root
    if given.value.op in ("param", "binary"):
        return given.value.block not in inside and not _counts_rounds(queries, given, set())
    # of another variable the loop itself must tell that it is the first of its numbers
    return given.value.op == "const" or any(_begins_with(call, code.loops[header].iterator, given) for header in loops)


def _begins_with(call: Place, iterator: int, number: Place) -> bool:
    """Whether a loop goes through a `range` that is given a number."""
    source = call.value_at(iterator).root
    source = source.operand(0).root if source.value.op == "iter" else source
    is_range = source.value.op == "call" and source.operand(0).text == "range" and len(source.value.args) > 2
    return is_range and source.operand(1).root.number == number.number


def _counts_rounds(queries: Queries, value: Place, seen: set[Place]) -> bool:
    """Whether a value is another one in each round of a loop, in its function or where that is called."""
    for part in value.parts:
        if part.value.op == "next" or part.value.op == "phi" and part.value.block in part.unit.code.loops:
            return True
        if part.value.op == "param" and part not in seen:
            seen.add(part)
            for call in queries.calls_of(part.unit):
                number = argument_of(call.unit, call.number, part.unit, part.value.data[0])
                if number is not None and _counts_rounds(queries, call.value_at(number), seen):
                    return True
    return False


def _goes_through_data(call: Place, header: int) -> bool:
    """Whether a round of a loop goes through the data, or trains, behind the call."""
    inside = {*blocks_of(call.unit.code, header), header}
    later = call.unit.code.values[call.number + 1 :]
    return any(value.op in ("iter", "call") for value in later if value.block in inside)


def _evaluates(place: Place, trains: bool = False) -> bool:
    """Whether the names of the data, of the sampler, or of the function say that a model is only measured with it.
    `trains`: whether gradients are computed with it, whatever the function is called."""
    given = place.argument("dataset", 0)
    named = {place.number} if given is None else {place.number, given.number, given.root.number}
    names = [name for name, numbers in place.unit.code.definitions.items() if not named.isdisjoint(numbers)]
    names += ["" if given is None else given.hint, "" if trains else place.unit.qualname.rpartition(".")[2]]
    words = {word for name in names for word in name.lower().split("_")}
    return not words.isdisjoint(place.flow.models.likely["evaluating"])


def _shuffles(sampler: Sampler, calls: tuple[Place, ...] = ()) -> bool:
    """Whether a sampler shuffles: by default, or because some caller says so; without callers a parameter's default.
    `calls`: those that lead to the one loader which is asked about."""
    place = sampler.place
    if "**" in place.value.data.names:
        return False
    argument = place.argument("shuffle", sampler.position)
    if argument is None:
        return sampler.default
    value = argument.root.value
    passed = passed_through(argument, calls).objs
    if value.op == "param" and const_obj(True) not in passed and const_obj(False) not in passed:
        passed = place.flow.parameters.default(place.unit, value.data[1]).objs
    return const_obj(True) in passed


# Two programs that go through their loaders by the same generator: one for some epochs, the other as `{epochs}` says.
_PROGRAMS = """
from torch.utils.data import DataLoader, DistributedSampler

class Log:
    def every(self, iterable, freq):
        for i, item in enumerate(iterable):
            yield item
            print(i, freq, len(iterable))

def train(model, loader):
    log = Log()
    for images, labels in log.every(loader, 10):
        images = images.cuda()
        model(images, labels).backward()

def pretrain(model, data):
    loader = DataLoader(data, sampler=DistributedSampler(data))
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        train(model, loader)

def features(model, loader):
    return [model(images) for images, _ in Log().every(loader, 10)]

def eval_linear(model, data):
    sampler = DistributedSampler(data){mark}
    loader = DataLoader(data, sampler=sampler)
    {epochs}
"""

# Trainers of two programs, that get their loaders from one function, with a sampler of the project.
_SETUP = 'dist.init_process_group("nccl")'
_TRAINERS = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler

class Shares(Sampler):
    def __init__(self, data, shuffle=True, seed=0):
        self.data, self.shuffle, self.seed, self.epoch = data, shuffle, seed, 0

    def __iter__(self):
        order = list(range(len(self.data)))
        if self.shuffle:
            draw = torch.Generator()
            draw.manual_seed(self.seed + self.epoch)
            order = torch.randperm(len(self.data), generator=draw).tolist()
        return iter(order[dist.get_rank()::dist.get_world_size()])

    def set_epoch(self, epoch):
        self.epoch = epoch

class Strategy:
    def loader(self, data, shuffle=True, sampler=None):
        if sampler is None and dist.is_initialized():
            sampler = Shares(data, shuffle=shuffle)
        return DataLoader(data, sampler=sampler, shuffle=shuffle if sampler is None else False)

class Tuner:
    def __init__(self, model, train_loader, eval_loader):
        self.model, self.train_loader, self.eval_loader = model, train_loader, eval_loader

    def fit(self):
        for epoch in range(4):
            if isinstance(self.train_loader.sampler, Shares):
                self.train_loader.sampler.set_epoch(epoch)
            for batch in self.train_loader:
                self.model(batch).backward()
            self.evaluate(self.eval_loader)

    def evaluate(self, loader):
        for batch in loader:
            self.model(batch)

class Rater:
    def __init__(self, model, train_loader):
        self.model, self.train_loader = model, train_loader

    def fit(self):
        for epoch in range(4):
            {tell}
            for batch in self.train_loader:
                self.model(batch).backward()

def tune(model, data, held_out):
    strategy = Strategy()
    Tuner(model, strategy.loader(data), strategy.loader(held_out, shuffle=False)).fit()

def rate(model, data):
    {setup}
    strategy = Strategy()
    train_loader = strategy.loader(data, True){mark}
    Rater(model, train_loader).fit()
"""

_BATCHES = """
import torch.distributed as dist
from torch.utils.data import DataLoader

class Buckets:
    def __init__(self, lengths):
        self.lengths, self.rank, self.epoch = lengths, dist.get_rank(), 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([self.lengths])

def build(data):
    return DataLoader(data, batch_sampler=Buckets(data.lengths))

def tell(loader, epoch):
    sampler = loader.{name}
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch){mark}

def fit(data, epochs):
    loader = build(data)
    for epoch in range(epochs):
        tell(loader, epoch)
        for batch in loader:
            print(batch)
"""

_REFRESHED = """\
from torch.utils.data import DataLoader, DistributedSampler


def train(data, model, resume, epochs, steps):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler)
    start_epoch = 0
    if resume is not None:
        start_epoch = resume["epoch"]
    sampler.set_epoch(start_epoch)
    rows = iter(loader)
    for epoch in range(start_epoch, epochs):
        for _ in range(steps):
            try:
                batch = next(rows)
            except StopIteration:
                sampler.set_epoch({told}){mark}
                rows = iter(loader)
                batch = next(rows)
            model(batch, epoch)
"""

INCORRECT = [
    _PROGRAMS.format(mark="  # error: MP530", epochs="for _ in range(5): train(model, loader)"),
    _TRAINERS.format(
        setup=_SETUP, mark="  # error: MP530", tell="assert isinstance(self.train_loader.sampler, Shares)"
    ),
    _BATCHES.format(name="sampler", mark="  # error: MP530"),
    """
import random
from torch.utils.data import DataLoader, DistributedSampler

def endless(loader):
    while True:
        loader.sampler.set_epoch(random.randint(0, 2**31))  # error: MP530
        yield from loader

def batches(dataset):
    return endless(DataLoader(dataset, sampler=DistributedSampler(dataset)))
""",
    """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def train(dataset, start, epochs):
    sampler = DistributedSampler(dataset)
    for epoch in range(start, epochs):
        sampler.set_epoch(start)  # error: MP530
        for batch in DataLoader(dataset, sampler=sampler):
            print(batch)
""",
    """
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def loader(dataset, world_size, rank):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)  # error: MP530
    return DataLoader(dataset, sampler=sampler)
""",
    """
from torch.utils.data import DataLoader, DistributedSampler

class Strategy:
    def setup_dataloader(self, dataset, shuffle=True):
        sampler = DistributedSampler(dataset, shuffle=shuffle)  # error: MP530
        return DataLoader(dataset, sampler=sampler)

def ordered(dataset, shuffle=False):
    return DistributedSampler(dataset, shuffle=shuffle)  # error: MP530

def loaders(strategy: Strategy, train, valid):
    return strategy.setup_dataloader(train), strategy.setup_dataloader(valid, shuffle=False), ordered(train, True)
""",
    # told to another sampler, or once
    """
from torch.utils.data import DataLoader, DistributedSampler

def main(train, val):
    ts = DistributedSampler(train)  # error: MP530
    vs = DistributedSampler(val, shuffle=False)
    loader = DataLoader(train, sampler=ts)
    for epoch in range(10):
        vs.set_epoch(epoch)
        step(loader)
        measure(DataLoader(val, sampler=vs))

def step(loader):
    for batch in loader:
        print(batch)

def measure(loader):
    return list(loader)

class Trainer:
    def __init__(self, data):
        self.sampler = DistributedSampler(data)  # error: MP530
        self.loader = DataLoader(data, 4, sampler=self.sampler)

    def fit(self, epochs):
        self.sampler.set_epoch(0)
        for epoch in range(epochs):
            for batch in self.loader:
                print(batch)
""",
    # a number that was known before the loop
    _REFRESHED.format(told="start_epoch", mark="  # error: MP530"),
]

CORRECT = [
    # once; told by another name
    _PROGRAMS.format(mark="", epochs="features(model, loader)"),
    _TRAINERS.format(setup="print(model)", mark="", tell="assert self.train_loader.sampler"),  # nor is there a group
    _TRAINERS.format(setup=_SETUP, mark="", tell='getattr(self.train_loader.sampler, "set_epoch", print)(epoch)'),
    # loaders that measure, one after another
    """
def begin(loaders):
    for loader in loaders:
        if hasattr(loader, "sampler") and hasattr(loader.sampler, "set_epoch"):
            print(len(loader))
            loader.sampler.set_epoch(0)
""",
    # what is told does not decide over the order; a sampler of its own for each epoch; one epoch
    """
import random
from torch.utils.data import DataLoader, DistributedSampler, Sampler

class Counted(Sampler):
    def __init__(self, data):
        self.data, self.epoch = data, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        print(self.epoch)
        order = list(range(len(self.data)))
        random.shuffle(order)
        return iter(order)

class Mixed(Counted):
    def __iter__(self):
        order = list(range(len(self.data)))
        random.Random(self.epoch).shuffle(order)
        return iter(order)

def train(model, data):
    loader = DataLoader(data, sampler=Counted(data))
    for epoch in range(3):
        for batch in loader:
            model(batch)

def anew(model, data):
    for epoch in range(3):
        sampler = Mixed(data)
        sampler.epoch = epoch
        for batch in DataLoader(data, sampler=sampler):
            model(batch)

def once(model, data):
    for batch in DataLoader(data, sampler=Mixed(data)):
        model(batch)
""",
    _BATCHES.format(name="batch_sampler", mark=""),
    # both are told
    _BATCHES.format(name="sampler", mark="\n    loader.batch_sampler.set_epoch(epoch)"),
    # what is measured is the same in any order
    """
from torch.utils.data import DataLoader, DistributedSampler

def validate(model, valset):
    return [model(batch) for batch in DataLoader(valset, sampler=DistributedSampler(valset))]
""",
    # each epoch has a sampler with a seed of its own
    """
from torch.utils.data import DataLoader, DistributedSampler

def loader_of(dataset, seed):
    return DataLoader(dataset, sampler=DistributedSampler(dataset, seed=seed))

def train(dataset, model, first):
    for epoch in range(10):
        for batch in loader_of(dataset, first + epoch):
            model(batch)
""",
    """
import random
from torch.utils.data import DataLoader, DistributedSampler

def endless(loader, seed):
    draw = random.Random(seed)
    while True:
        loader.sampler.set_epoch(draw.randint(0, 2**31))
        yield from loader

def batches(dataset):
    return endless(DataLoader(dataset, sampler=DistributedSampler(dataset)), 7)
""",
    """
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(dataset, world_size, rank, epochs):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        run(DataLoader(dataset, sampler=sampler))
""",
    """
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def evaluate(dataset, world_size, rank):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=False)
    return DataLoader(dataset, sampler=sampler)
""",
    """
from torch.utils.data import DataLoader, DistributedSampler

def loader(dataset, shuffle=True, options=None):
    sampler = DistributedSampler(dataset, shuffle=shuffle)
    return DataLoader(dataset, sampler=sampler)

def loaders(valid_dataset, dataset):
    test_sampler = DistributedSampler(dataset)
    return DistributedSampler(valid_dataset), test_sampler

def evaluate(dataset, args):
    return loader(dataset, shuffle=False), DistributedSampler(dataset, shuffle=args.shuffle)
""",
    # told through the loader, by what calls it in a loop, by somebody else; one epoch
    """
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler

def make(data):
    sampler = DistributedSampler(data)
    return DataLoader(data, sampler=sampler)

def through_loader(data):
    loader = make(data)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            print(batch)

class Trainer:
    def __init__(self, data):
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, 4, sampler=self.sampler)

    def begin(self, epoch):
        self.sampler.set_epoch(epoch)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.begin(epoch)
            for batch in self.loader:
                print(batch)

def prepared(data):
    loader = Accelerator().prepare(DataLoader(data, sampler=DistributedSampler(data)))
    for epoch in range(3):
        for batch in loader:
            print(batch)

def once(data):
    for batch in DataLoader(data, sampler=DistributedSampler(data)):
        print(batch)

def each(all_data):
    for data in all_data:
        once(data)
""",
    # the number of the round
    _REFRESHED.format(told="epoch", mark=""),
]
