"""Gradients that are reduced in other rounds than those in which the optimizer steps.

What it does
    Computes two tests of the number of one loop in each round, for small sizes: the one by which gradients are reduced
    or kept (`no_sync`, `require_backward_grad_sync`, `set_requires_gradient_sync`), and the one by which the optimizer
    steps, in functions that the loop calls too. Reports where the optimizer steps in a round in which nothing is
    reduced, whatever the sizes that divide each other evenly; and one of several tests by which it steps (`or last`),
    where nothing is reduced in its rounds whatever the sizes that do not, nothing of the program reduces gradients
    itself, and no test before the loop refuses a length that leaves a shorter window.

Why is this bad
    Each rank steps with gradients of its own: what the last micro-batches added was reduced by nobody. The replicas
    drift apart, and nothing fails.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.loop_ways import Way, coincide, coincide_unevenly, deciding, ways_of, ways_to
from validator.flow.queries.training.optimizers import optimizer_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP559", "sync-out-of-step", "warning", "1.0", tokens=("no_sync", "grad_sync", "gradient_sync", "last_backward")
)


Finder = Callable[[Queries, Unit, tuple[Place, ...]], Iterator[list[Way]]]  # the ways to each thing that a unit does


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    keeping = _units(queries, queries.mentioning(*queries.flow.models.likely["accumulating"]), _kept)
    stepping = _units(queries, queries.flow.mentions.calling("step") if keeping else (), _steps)
    told: set[Place] = set()
    for unit in sorted(keeping & stepping, key=lambda each: each.place):
        steps = [] if is_aside(unit.path) or not unit.code.loops else list(_below(queries, unit, _steps, stepping))
        for kept in _below(queries, unit, _kept, keeping) if steps else ():
            finding = None if kept.switches[-1].test in told else _compared(queries, unit, kept, steps)
            if finding is not None:
                told.add(kept.switches[-1].test)
                yield finding


def _units(queries: Queries, units: Iterable[Unit], ways: Finder) -> frozenset[Unit]:
    """The units in which something is done, and those that come to it."""
    return queries.reaching({unit for unit in units if any(True for _ in ways(queries, unit, ()))})


def _compared(queries: Queries, unit: Unit, kept: Way, steps: list[Way]) -> Finding | None:
    # what comes under the step's own tests is decided by another one, if more decides than can be computed
    apart = [each for each in steps if kept.whole or not set(kept.switches) <= set(each.switches)]
    step = next((each for each in apart if coincide(kept, each)), None)
    if step is not None:
        return _finding(kept, step, "")
    last = next((each for each in apart if coincide_unevenly(kept, each)), None) if len(set(steps)) > 1 else None
    if last is None or _comes_out_even(queries, kept) or _reduces_itself(queries, unit):
        return None
    return _finding(kept, last, " too")


def _comes_out_even(queries: Queries, kept: Way) -> bool:
    """Whether a length of which a window leaves something over was refused before: `assert len(loader) % every == 0`,
    in the function of the loop or where its object was made."""
    loop = kept.switches[-1].at
    init = loop.unit.cls.find("__init__") if loop.unit.cls is not None else None
    made = queries.flow.unit_of(init) if init is not None else None
    ends = [Place(queries.flow, made, end) for end in made.code.returned] if made is not None else []
    return any(_leaves_nothing(*test) for place in (loop, *ends) for test in place.tests_before)


def _leaves_nothing(test: Place, holds: bool) -> bool:
    """Whether a test that came out so tells that a length is a multiple of something."""
    test, holds = test.asserted(holds)
    rest = test
    if test.value.op == "compare" and test.operand(1).val.constant() == 0:
        rest, holds = test.operand(0).root, holds is (test.value.data == "Eq")
    elif test.value.op != "binary":
        return False
    else:
        holds = not holds
    counted = rest.value.op == "binary" and rest.value.data == "Mod"
    return counted and holds and any(p.value.op == "call" and p.method == "len" for p in rest.operand(0).sources)


def _reduces_itself(queries: Queries, unit: Unit) -> bool:
    """Whether something that a unit runs communicates and has to do with gradients."""
    reading = set(queries.mentioning("grad"))
    return any(
        each in reading and any(p.operations for p in queries.calls_in(each)) for each in queries.reached([unit])
    )


def _below(
    queries: Queries, unit: Unit, ways: Finder, wanted: frozenset[Unit], calls: tuple[Place, ...] = ()
) -> Iterator[Way]:
    """The ways to what is done in a unit, and in the functions that it calls."""
    yield from (way for place in ways(queries, unit, calls) for way in place)
    for call in queries.calls_in(unit):
        targets = set(queries.targets(call))
        target = targets.pop() if len(targets) == 1 else None
        if target in wanted and target is not unit and not any(target is each.unit for each in calls):
            yield from _below(queries, target, ways, wanted, (*calls, call))


def _steps(queries: Queries, unit: Unit, calls: tuple[Place, ...]) -> Iterator[list[Way]]:
    """By which tests an optimizer steps in a round."""
    for call in queries.calls_in(unit):
        if call.method == "step" and optimizer_of(call) is not None:
            yield ways_to(call, calls)


def _kept(queries: Queries, unit: Unit, calls: tuple[Place, ...]) -> Iterator[list[Way]]:
    """By which tests gradients are kept in a round, not reduced: what switches that is given, or a `no_sync`."""
    switches = queries.flow.models.likely["accumulating"]
    places = list(queries.values(unit, "attr", "call", "store_attr"))
    given = [(place, what) for place in places if (what := _given(place, switches)) is not None]
    for place in places:
        if _is_keeping(place, switches):
            chosen_again = any(map(_is_chosen_again, (place, *calls)))
            yield [way._replace(whole=way.whole and not chosen_again) for way in ways_to(place, calls)]
    for place, what in given:
        if what.val.constant() is False:
            yield [way._replace(whole=False) for way in ways_to(place, calls)]
        elif what.val.constant() is True:
            yield [Way((s._replace(holds=not s.holds),), whole=False) for s in deciding(place, calls)]
        else:
            yield [way._replace(whole=way.whole and len(given) == 1) for way in ways_of(place, what, False, calls)]


def _is_chosen_again(manager: Place) -> bool:
    """Whether a variable that holds one of several managers may be given another one before it is used."""
    blocks, header = manager.unit.code.blocks, manager.unit.code.blocks[manager.value.block].loop
    chosen, queue = 0, [manager]
    for place in queue:
        for user in place.unit.users.get(place.number, ()):
            value = place.unit.code.values[user]
            if value.op == "phi" and value.block != header and blocks[value.block].loop == header:
                chosen += 1
                queue.append(place.value_at(user))
            elif value.op == "call" and value.args[0] == place.number:
                queue.append(place.value_at(user))
    return chosen > 1


def _is_keeping(place: Place, switches: Collection[str]) -> bool:
    """Whether a value is a `no_sync`: of an object, called or chosen for the rounds that keep, or called by name."""
    if place.value.op == "attr":
        return place.value.data in switches and "no_" in place.value.data
    called = place.value.op == "call" and place.operand(0).value.op != "attr" and place.method in switches
    return called and "no_" in place.method


def _given(place: Place, switches: Collection[str]) -> Place | None:
    """What a switch is given: `model.require_backward_grad_sync = x`, `model.set_requires_gradient_sync(x)`."""
    value = place.value
    if value.op == "store_attr":
        return place.operand(1) if value.data in switches else None
    switching = value.op == "call" and place.method in switches and "no_" not in place.method and value.data.names
    return place.operand(1) if switching else None


def _finding(kept: Way, step: Way, too: str) -> Finding:
    test = kept.switches[-1].test
    stepping = " and ".join(_said(each.test, each.holds) for each in step.switches)
    reducing = " or ".join(_said(each.test, not each.holds) for each in kept.switches)
    where = "in other rounds" if not too else "not in the rounds of a last, shorter window"
    return RULE.finding(
        test.unit.path,
        test.at,
        f"the optimizer steps where {stepping}{too}, and gradients are reduced where {reducing}: {where}{test.where}",
        help="decide both by one variable",
        related=[Related(step.switches[0].test.unit.path, step.switches[0].test.at[0], "by this the optimizer steps")],
        context=f"{test.unit.qualname}:{test.text}",
    )


def _said(test: Place, holds: bool) -> str:
    return f"`{test.text}`{'' if holds else ' does not hold'}"


INCORRECT = [
    """
import contextlib

import torch

class Scaler:
    def __call__(self, loss, optimizer, update=True):
        loss.backward()
        if update:
            optimizer.step()

def train(model, batches, optimizer, every, distributed):
    scaler = Scaler()
    for number, batch in enumerate(batches):
        if distributed and number % every != 0:  # error: MP559
            context = model.no_sync()
        else:
            context = contextlib.nullcontext()
        with context:
            scaler(model(batch), optimizer, update=(number + 1) % every == 0)

train(print, [], print, 2, True)
""",
    """
import contextlib

import torch

def train(model, batches, optimizer, every):
    for number, batch in enumerate(batches):
        model.require_backward_grad_sync = number % every == 0  # error: MP559
        model(batch).backward()
        if (number + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()

def contexts(args, model, batches, opt):
    for i, batch in enumerate(batches):
        with model.no_sync() if i % args.accumulate != 0 else contextlib.nullcontext():  # error: MP559
            model(batch).backward()
        if i % args.accumulate == args.accumulate - 1:
            opt.step()

def switched(model, batches, optimizer, every):
    for i in range(len(batches)):
        last = (i + 1) % every == 0  # error: MP559
        model.set_requires_gradient_sync(not last)
        model(batches[i]).backward()
        if last:
            optimizer.step()
            continue
        if i % every == every - 1:
            optimizer.step()
""",
    # the method is chosen, and called later; the last batch steps, too
    """
import contextlib

import torch

def train(args, model, batches, optimizer):
    for number, batch in enumerate(batches):
        reduces = number % args.every == 0  # error: MP559
        context = contextlib.nullcontext if args.fsdp or reduces else model.no_sync
        with context():
            model(batch).backward()
        if (number + 1) % args.every == 0 or number == len(batches) - 1:
            optimizer.step()

def by_variable(model, batches, optimizer, every):
    for number, batch in enumerate(batches):
        model.set_requires_gradient_sync(number % every == 0 and number > 0)  # error: MP559
        model(batch).backward()
        steps = (number + 1) % every == 0 or number + 1 == len(batches)
        if steps:
            optimizer.step()
""",
    # the context is chosen by a function
    """
import contextlib

import torch

def maybe_no_sync(model, reduces):
    return contextlib.nullcontext() if reduces else model.no_sync()

def train(model, batches, optimizer, every):
    for number, batch in enumerate(batches):
        with maybe_no_sync(model, number % every == 0):  # error: MP559
            model(batch).backward()
        if (number + 1) % every == 0:
            optimizer.step()
""",
    # the shorter window at the end steps, too; the tests stand in functions
    """
import contextlib

import torch

class Trainer:
    def __init__(self, model, loader, every):
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.loader, self.every = loader, every

    def closes(self, index):
        if index + 1 == len(self.loader):
            return True
        return (index + 1) % self.every == 0

    def forward(self, index, batch):
        full = (index + 1) % self.every == 0  # error: MP559
        with contextlib.nullcontext() if full else self.model.no_sync():
            self.model(batch).backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fit(self):
        for index, batch in enumerate(self.loader):
            self.forward(index, batch)
            if self.closes(index):
                self.update()

def train(model, batches, optimizer, every):
    for number, batch in enumerate(batches):
        model.set_requires_gradient_sync(number % every == every - 1)  # error: MP559
        model(batch).backward()
        if (number + 1) % every == 0 or number + 1 == len(batches):
            optimizer.step()
            optimizer.zero_grad()

train(Trainer(print, [], 2).model, [], print, 2)
""",
]

CORRECT = [
    """
import contextlib

import torch

class Accumulator:
    def __init__(self, model, every):
        self.model, self.every, self.count = model, every, 0

    def run(self, batch):
        self.count += 1
        closes = self.count % self.every == 0
        with contextlib.nullcontext() if closes else self.model.no_sync():
            self.model(batch).mean().backward()
        return closes

def train(model, batches, optimizer, begin):
    accumulator = Accumulator(torch.nn.parallel.DistributedDataParallel(model), 4)
    for step, batch in enumerate(batches):
        if step < begin:
            continue
        if accumulator.run(batch):
            optimizer.step()
            optimizer.zero_grad()

train(torch.nn.Linear(4, 4), [torch.ones(4)], torch.optim.SGD([torch.ones(4)], lr=0.1), 3)
""",
    """
import contextlib

import torch

def train(model, batches, optimizer, every):
    for number, batch in enumerate(batches):
        model.require_backward_grad_sync = (number + 1) % every == 0
        model(batch).backward()
        if number % every == every - 1:
            optimizer.step()
            optimizer.zero_grad()

def contexts(args, model, batches, opt):
    for i, batch in enumerate(batches):
        with model.no_sync() if (i + 1) % args.accumulate != 0 else contextlib.nullcontext():
            model(batch).backward()
        if (i + 1) % args.accumulate == 0:
            opt.step()
""",
    """
import torch

def train(model, batches, optimizer, every, log):
    for number, batch in enumerate(batches):
        last = (number + 1) % every == 0
        model.set_requires_gradient_sync(last)
        model(batch).backward()
        if last:
            optimizer.step()
        if number % log == 0:
            print(number)
""",
    # more is reduced than is used up; the last batch may be reduced with the rest
    """
import contextlib

import torch

def train(args, model, batches, optimizer):
    for number, batch in enumerate(batches):
        reduces = (number + 1) % args.every == 0 or number == len(batches) - 1
        context = contextlib.nullcontext if args.fsdp or reduces else model.no_sync
        with context():
            model(batch).backward()
        if (number + 1) % args.every == 0 or number == len(batches) - 1:
            optimizer.step()

def first_too(model, batches, optimizer, every):
    for number, batch in enumerate(batches):
        if number == 0 or number % every == every - 1:
            context = contextlib.nullcontext()
        else:
            context = model.no_sync()
        with context:
            model(batch).backward()
        if (number + 1) % every == 0:
            optimizer.step()

def kept(model, batches, optimizer, every):
    for number, batch in enumerate(batches):
        keeps = number % every != every - 1 and number + 1 != len(batches)
        model.set_requires_gradient_sync(not keeps)
        model(batch).backward()
        if (number + 1) % every == 0 or number + 1 == len(batches):
            optimizer.step()

def all_but_last(model, batches, optimizer):
    for number, batch in enumerate(batches):
        with contextlib.nullcontext() if number == len(batches) - 1 else model.no_sync():
            model(batch).backward()
    optimizer.step()
""",
    # counted from one; the first rounds are reduced, whatever comes
    """
import contextlib

import torch

def maybe_no_sync(model, reduces):
    return contextlib.nullcontext() if reduces else model.no_sync()

def train(model, batches, optimizer, every):
    for number, batch in enumerate(batches, start=1):
        with maybe_no_sync(model, number % every == 0):
            model(batch).backward()
        if number % every == 0:
            optimizer.step()

def warm(model, batches, optimizer, every, rounds):
    for number, batch in enumerate(batches):
        reduces = number < rounds or (number + 1) % every == 0
        with maybe_no_sync(model, reduces):
            model(batch).backward()
        if number < rounds:
            optimizer.step()
        elif (number + 1) % every == 0:
            optimizer.step()
""",
    # the last round is reduced by another choice, by hand, for a reason that is not known, or is the end of a window
    """
import contextlib

import torch

class Trainer:
    def __init__(self, model, loader, every):
        self.model, self.loader, self.every = model, loader, every

    def is_last(self, index):
        return index + 1 == len(self.loader)

    def context(self, index):
        context = contextlib.nullcontext() if (index + 1) % self.every == 0 else self.model.no_sync()
        if self.is_last(index):
            context = contextlib.nullcontext()
        return context

    def fit(self, optimizer):
        for index, batch in enumerate(self.loader):
            with self.context(index):
                self.model(batch).backward()
            if (index + 1) % self.every == 0 or self.is_last(index):
                optimizer.step()

def unknown(model, batches, optimizer, every, accelerator):
    for number, batch in enumerate(batches):
        reduces = (number + 1) % every == 0 or accelerator.end_of_loader
        with contextlib.nullcontext() if reduces else model.no_sync():
            model(batch).backward()
        if (number + 1) % every == 0 or number + 1 == len(batches):
            optimizer.step()

def whole_windows(model, batches, optimizer, every):
    rounds = len(batches) // every * every
    for number in range(rounds):
        model.set_requires_gradient_sync((number + 1) % every == 0)
        model(batches[number]).backward()
        if (number + 1) % every == 0 or number + 1 == rounds:
            optimizer.step()

unknown(print, [], Trainer(print, [], 2).fit(print), 2, print)
""",
    """
import torch
import torch.distributed as dist

def reduce(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)

def train(model, batches, optimizer, every):
    for number, batch in enumerate(batches):
        full, last = (number + 1) % every == 0, number + 1 == len(batches)
        model.set_requires_gradient_sync(full)
        model(batch).backward()
        if full or last:
            if not full:
                reduce(model)
            optimizer.step()
""",
    # a length that leaves a shorter window at the end is refused
    """
import torch

class Trainer:
    def __init__(self, model, loader, every):
        if len(loader) % every != 0:
            raise ValueError("the last window is shorter")
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.loader, self.every = loader, every

    def fit(self):
        for index, batch in enumerate(self.loader):
            self.model.require_backward_grad_sync = (index + 1) % self.every == 0
            self.model(batch).backward()
            if (index + 1) % self.every == 0 or index + 1 == len(self.loader):
                self.optimizer.step()

def train(model, batches, optimizer, every):
    steps = len(batches)
    assert steps % every == 0
    for number, batch in enumerate(batches):
        model.set_requires_gradient_sync(number % every == every - 1)
        model(batch).backward()
        if (number + 1) % every == 0 or number + 1 == len(batches):
            optimizer.step()

train(Trainer(print, [], 2).model, [], print, 2)
""",
]
