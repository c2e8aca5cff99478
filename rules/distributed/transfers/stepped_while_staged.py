"""An optimizer that changes weights which an asynchronous checkpoint still copies.

What it does
    Follows the future that says that an asynchronous save has copied its tensors (`staging_completion` of what
    `async_save` gives) to where it is waited for. Reports `optimizer.step()` in a class or function that starts such
    saves, itself or by what it calls, and comes to no such wait.

Why is this bad
    The copy into pinned memory runs beside the training. Weights that the optimizer changes meanwhile are saved as they
    are then: the checkpoint mixes two steps, and nothing says so.

References
    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import Holders, Index
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP585", "stepped-while-staged", "warning", "0.4.0", tokens=("async_save",))

_WAITS = frozenset({"result", "wait", "exception", "add_done_callback"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    rows = [row for row in queries.flow.models.calls.values() if row.staged]
    starts = {call.unit: call for row in rows for call in queries.named(row.name)}
    waiting = {unit for row in rows for unit in _waiting(queries, row.staged)}
    if not starts or not any(True for row in rows for _ in queries.attributes(row.staged)):
        return  # no save gives such a future, as far as is known
    for step in queries.named("step"):
        if is_aside(step.unit.path) or not _is_optimizer(step):
            continue
        runs = _with(queries, step.unit)
        started = next((starts[unit] for unit in runs if unit in starts), None)
        if started is not None and waiting.isdisjoint(runs):
            yield _report(step, started, min(waiting, key=lambda unit: unit.place, default=None))


def _waiting(queries: Queries, staged: str) -> Iterator[Unit]:
    """The functions that wait for the copy."""
    index = Index(queries.flow)
    for read in queries.attributes(staged):
        holders = Holders(queries.flow, index, read.unit, read.number)
        yield from (unit for unit, _, name in holders.called if name in _WAITS)
        yield from (unit for unit, _ in holders.given)  # `wait([future])` of somebody else


def _is_optimizer(step: Place) -> bool:
    return step.receiver is not None and any("optim" in word.lower() for word in step.receiver.words)


def _with(queries: Queries, unit: Unit) -> list[Unit]:
    """All that runs where a function does: its class by itself, without what classes below it do instead."""
    if unit.cls is None:
        return queries.reached([unit])
    names = dict.fromkeys(name for owner in unit.cls.mro for name in owner.methods)
    methods = (unit.cls.find(name) for name in names)
    mine = queries.flow.units(method for method in methods if method is not None)
    return queries.reached(mine, frozenset(unit.cls.descendants()) - {unit.cls})


def _report(step: Place, started: Place, waiting: Unit | None) -> Finding:
    comes = f"nothing here comes to `{waiting.qualname}`" if waiting is not None else "nothing waits for the copy"
    related = [Related(started.unit.path, started.at[0], "the save is started here")]
    if waiting is not None:
        related.append(Related(waiting.path, waiting.at(waiting.code.at)[0], "this waits for its copy"))
    return RULE.finding(
        step.unit.path,
        step.at,
        f"`{step.text}` in `{step.unit.qualname}` may change weights that `{started.method}` still copies: {comes}",
        help="wait for the copy before the step" + (f" (`{waiting.qualname}`)" if waiting is not None else ""),
        related=related,
        context=f"{step.unit.qualname}:{step.text}",
    )


INCORRECT = [
    """
import torch.distributed.checkpoint as dcp

class Checkpointer:
    def __init__(self):
        self.staging = None

    def save(self, state, path):
        response = dcp.async_save(state, checkpoint_id=path, async_stager=self.stager)
        self.staging = response.staging_completion
        self.saving = response.upload_completion

    def wait_for_staging(self):
        if self.staging is not None:
            self.staging.result()

class Trainer:
    checkpointer: Checkpointer

    def step(self, loss):
        loss.backward()
        self.optimizers.step()  # error: MP585

    def train(self, losses, state):
        for loss in losses:
            self.step(loss)
            self.checkpointer.save(state, "last")

class Other(Trainer):
    def step(self, loss):
        loss.backward()
        self.checkpointer.wait_for_staging()
        self.optimizers.step()
""",
]

CORRECT = [
    """
import torch.distributed.checkpoint as dcp

class Checkpointer:
    def __init__(self):
        self.staging = None

    def save(self, state, path):
        response = dcp.async_save(state, checkpoint_id=path, async_stager=self.stager)
        self.staging = response.staging_completion
        self.saving = response.upload_completion

    def wait_for_staging(self):
        if self.staging is not None:
            self.staging.result()

class Trainer:
    checkpointer: Checkpointer

    def step(self, loss):
        loss.backward()
        self.checkpointer.wait_for_staging()
        self.optimizers.step()

    def train(self, losses, state):
        for loss in losses:
            self.step(loss)
            self.checkpointer.save(state, "last")

def evaluate(optimizer):
    optimizer.step()
""",
    """
import torch.distributed.checkpoint as dcp

def train(losses, optimizer, state):
    for loss in losses:
        loss.backward()
        optimizer.step()
        response = dcp.async_save(state, checkpoint_id="last")
        response.staging_completion.result()
    response.upload_completion.result()
""",
]
