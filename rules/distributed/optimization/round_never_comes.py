"""A test for the last round of a loop that comes true in none.

What it does
    Computes tests of the number of a loop (`for i in range(0, total, size)`, `enumerate(…)`) in each round, also in a
    function that is given the number, for small sizes in the place of the ones that the loop leaves alone. Reports a
    test by which gradients are reduced or kept (`no_sync`, `set_requires_gradient_sync`) or the optimizer steps, and
    that comes true in no round, or fails in none, or does so where the sizes divide each other evenly.

Why is this bad
    All rounds take the way of a round in the middle: under `no_sync` gradients are never reduced, the replicas drift
    apart, and nothing fails.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.loop_rounds import decided_by, rounds
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP550",
    "round-never-comes",
    "warning",
    "1.0",
    tokens=("no_sync", "step", "gradient_sync", "last_backward", "all_reduce"),
)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    likely = queries.flow.models.likely
    accumulating, stepping = likely["accumulating"], likely["stepping"]
    for unit in queries.mentioning(*accumulating, *stepping):
        for number, value in enumerate(unit.code.values if not is_aside(unit.path) else ()):
            test = Place(queries.flow, unit, number)
            if value.op != "compare" or (found := rounds(test, queries.calls_of)) is None:
                continue
            names = accumulating if found.outcome else accumulating | stepping
            what = next((name for name in map(_named, decided_by(test)) if name in names), "")
            if what:
                when = "" if found.always else " where the sizes divide each other evenly"
                yield RULE.finding(
                    unit.path,
                    test.at,
                    f"`{test.text}`{test.where} {'fails' if found.outcome else 'comes true'} in no round{when}, and"
                    f" decides over `{what}`",
                    help="compare with the number of the last round: `i + size >= total`, `i == count - 1`",
                    context=f"{unit.qualname}:{test.text}",
                )


def _named(place: Place) -> str:
    return place.method if place.value.op == "call" else str(place.value.data)


INCORRECT = (
    """
import torch

def train(model, batch, loss_of, size):
    for i in range(0, batch.shape[0], size):
        micro = batch[i : i + size]
        last = (i + size) > batch.shape[0]  # error: MP550
        if last or not model.distributed:
            loss_of(model, micro).backward()
        else:
            with model.no_sync():
                loss_of(model, micro).backward()
""",
    """
import contextlib

import torch

def train(args, model, x, count):
    for index in range((count - 1) // args.size + 1):
        end = min((index + 1) * args.size, count)
        last = index == count // args.size  # error: MP550
        with model.no_sync() if args.sharded and not last else contextlib.nullcontext():
            model(x[index * args.size : end]).backward()

def contexts(model, batches):
    count = len(batches)
    for index, batch in enumerate(batches):
        context = contextlib.nullcontext
        if index != count:  # error: MP550
            context = model.no_sync
        with context():
            model(batch).backward()

def accumulate(model, batches, optimizer):
    for step, batch in enumerate(batches):
        model.set_requires_gradient_sync(step == len(batches))  # error: MP550
        model(batch).backward()
        if step + 1 > len(batches):  # error: MP550
            optimizer.step()
""",
    """
import torch

class Trainer:
    def configure(self, step, steps):
        if step == 0:
            self.model.set_requires_all_reduce(False)
        elif step == steps:  # error: MP550
            self.model.set_requires_all_reduce(True)

    def train(self, batches):
        steps = len(batches)
        for step, batch in enumerate(batches):
            self.configure(step, steps)
            self.model(batch).backward()
""",
)

CORRECT = (
    # a run that is not resumed begins with epoch 0
    """
import torch

def train(model, loader, scheduler, epoch, warmup):
    for i, batch in enumerate(loader):
        model(batch).backward()
        if epoch == 0 and i < warmup:
            scheduler.step(i)

def main(args, model, loader, scheduler):
    start = 0
    if args.resume:
        start = torch.load(args.resume)["epoch"] + 1
    for epoch in range(start, 10):
        train(model, loader, scheduler, epoch, 20)
""",
    """
import contextlib

import torch

def train(args, model, batch, loss_of, size):
    for i in range(0, batch.shape[0], size):
        last = (i + size) >= len(batch)
        with contextlib.nullcontext() if last else model.no_sync():
            loss_of(model, batch[i : i + size]).backward()

def rounds(args, model, x, count):
    for index in range((count - 1) // args.size + 1):
        end = min((index + 1) * args.size, count)
        with model.no_sync() if end != count else contextlib.nullcontext():
            model(x[index * args.size : end]).backward()
""",
    # the remainder alone is padded; how many rounds there are is not known
    """
import torch

def train(model, batch, size, optimizer, loader, every, most):
    for i in range(0, len(batch), size):
        micro = batch[i : i + size]
        if i + size > len(batch):
            micro = pad(micro, size)
        model(micro).backward()
    optimizer.step()
    for step, batch in enumerate(loader):
        if (step + 1) % every == 0:
            optimizer.step()
        if step == most:
            optimizer.zero_grad()
""",
    """
import torch

class Trainer:
    def configure(self, step, steps):
        if step == 0:
            self.model.set_requires_all_reduce(False)
        elif step == steps:
            self.model.set_requires_all_reduce(True)

    def train(self, batches):
        steps = len(batches) - 1
        for step, batch in enumerate(batches):
            self.configure(step, steps)
            self.model(batch).backward()

    def one(self, batches, step):
        self.configure(step, len(batches))
""",
    """
import torch

def train(loader, sizes, steps):
    for step in range(min(sizes)):
        if step == min(*steps) or step == max():
            torch.save(step, "step.pt")
""",
)
