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

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.loop_rounds import Switch, coincide, deciding, switch
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
        for sync in _syncs(queries, unit) if steps else ():
            step = next((each for each in steps if _is_apart(sync, each)), None)
            if step is not None:
                yield _finding(sync, step)


def _is_apart(sync: Switch, step: Switch) -> bool:
    return sync.test != step.test and coincide(sync.test, step.test, (not sync.holds, step.holds))


def _steps(queries: Queries, unit: Unit) -> Iterator[Switch]:
    """What decides in which rounds an optimizer steps."""
    for call in queries.calls_in(unit):
        if call.method == "step" and optimizer_of(call) is not None:
            yield from deciding(call)
        for target in queries.targets(call):
            for position, holds in _asked_to_step(queries, target):
                given = argument_of(unit, call.number, target, position)
                found = switch(call.value_at(given), holds) if given is not None else None
                if found is not None:
                    yield found


def _asked_to_step(queries: Queries, unit: Unit) -> Iterator[tuple[int, bool]]:
    """The parameters that tell a function whether its optimizer steps, and how: `if update: optimizer.step()`."""
    for call in queries.calls_in(unit) if unit in queries.flow.mentions.calling("step") else ():
        if call.method == "step" and optimizer_of(call) is not None:
            for branch, way in unit.control.settled(call.value.block):
                end = unit.code.blocks[branch].end
                test = call.value_at(end[1]).root
                if test.value.op == "param":
                    yield test.value.data[0], way == end[2]


def _syncs(queries: Queries, unit: Unit) -> Iterator[Switch]:
    """What decides in which rounds gradients are reduced: what switches it is given, or a `no_sync` that is skipped."""
    switches = queries.flow.models.likely["accumulating"]
    for number, value in enumerate(unit.code.values):
        place = Place(queries.flow, unit, number)
        given = place.operand(1) if value.op == "store_attr" and value.data in switches else None
        if value.op == "call" and place.method in switches:
            if "no_" in place.method:
                yield from (Switch(test, not holds) for test, holds in deciding(place))
                continue
            given = place.operand(1) if value.data.names else None
        if given is None:
            continue
        if (found := switch(given, True)) is not None:
            yield found
        elif isinstance(on := given.val.constant(), bool):
            yield from (Switch(test, holds is on) for test, holds in deciding(place))


def _finding(sync: Switch, step: Switch) -> Finding:
    unit = sync.test.unit
    stepping, reducing = (f"`{each.test.text}`{'' if each.holds else ' does not hold'}" for each in (step, sync))
    return RULE.finding(
        unit.path,
        sync.test.at,
        f"the optimizer steps where {stepping}, and gradients are reduced where {reducing}:"
        f" in other rounds{sync.test.where}",
        help="decide both by one variable",
        related=[Related(unit.path, step.test.at[0], "by this the optimizer steps")],
        context=f"{unit.qualname}:{sync.test.text}",
    )


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
]
