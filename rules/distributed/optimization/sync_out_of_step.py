"""Gradients that are reduced in other rounds than those in which the optimizer steps.

What it does
    Computes two tests of the number of one loop in each round, for small sizes: the one by which gradients are reduced
    or kept (`no_sync`, `require_backward_grad_sync`, `set_requires_gradient_sync`), and the one by which the optimizer
    steps. Reports where the optimizer steps in a round in which nothing is reduced, whatever the sizes that divide each
    other evenly.

Why is this bad
    Each rank steps with gradients of its own: what the last micro-batches added was reduced by nobody. The replicas
    drift apart, and nothing fails.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.loop_rounds import Way, coincide, deciding, ways_of, ways_to
from validator.flow.queries.training.optimizers import optimizer_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP559", "sync-out-of-step", "warning", "1.0", tokens=("no_sync", "grad_sync", "gradient_sync", "last_backward")
)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.mentioning(*queries.flow.models.likely["accumulating"]):
        steps = [] if is_aside(unit.path) else list(_steps(queries, unit))
        for kept in _kept(queries, unit) if steps else ():
            step = next((each for each in steps if coincide(kept, each)), None)
            if step is not None:
                yield _finding(kept, step)


def _steps(queries: Queries, unit: Unit) -> Iterator[Way]:
    """By which tests an optimizer steps in a round."""
    for call in queries.calls_in(unit):
        if _is_step(call):
            yield from ways_to(call)
        yield from _through(queries, call, _steps_in)


def _steps_in(queries: Queries, unit: Unit) -> Iterator[Place]:
    calls = queries.calls_in(unit) if unit in queries.flow.mentions.calling("step") else ()
    return (call for call in calls if _is_step(call))


def _is_step(call: Place) -> bool:
    return call.method == "step" and optimizer_of(call) is not None


def _through(queries: Queries, call: Place, doing: Callable[[Queries, Unit], Iterator[Place]]) -> Iterator[Way]:
    """By which tests something is done in a function that is told whether to: `if update: optimizer.step()`."""
    for target in queries.targets(call):
        for place in doing(queries, target):
            for position, holds in _told(place):
                given = argument_of(call.unit, call.number, target, position)
                if given is not None:
                    yield from ways_of(call.value_at(given), holds)


def _told(place: Place) -> Iterator[tuple[int, bool]]:
    """The parameters that decide in a function over a place, and how they come out there."""
    unit = place.unit
    for branch, way in unit.control.settled(place.value.block):
        end = unit.code.blocks[branch].end
        test, holds = place.value_at(end[1]).asserted(way == end[2])
        if test.value.op == "param":
            yield test.value.data[0], holds


def _kept(queries: Queries, unit: Unit) -> Iterator[Way]:
    """By which tests gradients are kept in a round, not reduced: what switches that is given, or a `no_sync`."""
    switches = queries.flow.models.likely["accumulating"]
    for place in queries.values(unit, "attr", "call", "store_attr"):
        if place.value.op == "call":
            yield from _through(queries, place, _keeping_in)
        given = _given(place, switches)
        if _is_keeping(place, switches) or given is not None and given.val.constant() is False:
            yield from ways_to(place)
        elif given is not None and given.val.constant() is True:
            yield from ((switch._replace(holds=not switch.holds),) for switch in deciding(place))
        elif given is not None:
            yield from ways_of(given, False)


def _keeping_in(queries: Queries, unit: Unit) -> Iterator[Place]:
    switches = queries.flow.models.likely["accumulating"]
    values = queries.values(unit, "attr", "call") if unit in queries.mentioning(*switches) else ()
    return (place for place in values if _is_keeping(place, switches))


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


def _finding(kept: Way, step: Way) -> Finding:
    test = kept[-1].test
    stepping = " and ".join(_said(each.test, each.holds) for each in step)
    reducing = " or ".join(_said(each.test, not each.holds) for each in kept)
    return RULE.finding(
        test.unit.path,
        test.at,
        f"the optimizer steps where {stepping}, and gradients are reduced where {reducing}:"
        f" in other rounds{test.where}",
        help="decide both by one variable",
        related=[Related(test.unit.path, step[0].test.at[0], "by this the optimizer steps")],
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
]

CORRECT = [
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
]
