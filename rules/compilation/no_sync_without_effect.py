"""`no_sync` that does not stop gradients from being reduced.

What it does
    Reports a method `no_sync` (or `maybe_no_sync`, `no_grad_sync`) that does nothing but return `nullcontext()` or
    yield, in a class whose model `fully_shard` shards; and `with self.model.no_sync()` on such a model.

Why is this bad
    The caller believes that micro-batches are accumulated without communication. Every one of them reduces its
    gradients: right, and slower by the number of accumulation steps. `fully_shard` has no `no_sync` at all
    (AttributeError); it has `set_requires_gradient_sync`.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule.set_requires_gradient_sync
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import may, mostly
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.pure_functions import is_idle
from validator.flow.queries.training.placements import Placings, asks_first, decided_by
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP605", "no-sync-without-effect", "warning", "0.1.0", tokens=("no_sync", "no_grad_sync"))

_NAMES = frozenset({"no_sync", "maybe_no_sync", "no_grad_sync"})
_NOTHING = frozenset({"contextlib.nullcontext"})


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for unit in placings.queries.called(*_NAMES):
        if unit.cls is not None and not is_aside(unit.path) and _does_nothing(placings, unit):
            shard = next(placings.of_class(unit, "fsdp2"), None)
            if shard is not None:
                yield _empty(unit, shard[0])
    for call in placings.queries.named("no_sync"):
        model = call.receiver
        state = model.closed.state if model is not None and not is_aside(call.unit.path) else frozenset()
        if model is None or not mostly(state, "fsdp2") or may(state, "ddp", "fsdp1", "deepspeed"):
            continue
        if not asks_first(call) and not list(decided_by(call)):
            yield _absent(call, model, placings.where(model, "fsdp2"))


def _does_nothing(placings: Placings, unit: Unit) -> bool:
    idle = {v.args[0] for v in unit.code.values if v.op == "enter" and is_idle(placings.flow, unit, v.args[0])}
    calls = [call for call in placings.queries.calls_in(unit) if call.number not in idle]
    if unit.code.is_generator:
        return not calls and not any(v.op in ("store_attr", "store_item", "enter") for v in unit.code.values)
    empty = [c for c in calls if any(o[0] == "ext" and o[1] in _NOTHING for o in c.operand(0).val.each)]
    return len(calls) == len(empty) == 1


def _empty(unit: Unit, shard: Place) -> Finding:
    return RULE.finding(
        unit.path,
        unit.method.facts.name_at if unit.method is not None else unit.at(unit.code.at),
        f"`{unit.qualname}` does nothing: a model sharded by `{shard.method}` still reduces gradients in every"
        " micro-batch",
        help="call `model.set_requires_gradient_sync(False)` for all but the last micro-batch",
        related=[Related(shard.unit.path, shard.at[0], "the model is sharded here")],
        context=unit.qualname,
    )


def _absent(call: Place, model: Place, shard: Place | None) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.unit.qualname}` asks `{model.text}` for `no_sync`, which a model sharded by `fully_shard` does"
        " not have",
        help=f"call `{model.text}.set_requires_gradient_sync(last)` before each forward instead",
        related=[Related(shard.unit.path, shard.at[0], "the model is sharded here")] if shard is not None else [],
        context=f"{call.unit.qualname}:no_sync",
    )


INCORRECT = [
    """
from contextlib import nullcontext
from torch.distributed.fsdp import fully_shard

class Strategy:
    def prepare(self, model):
        return fully_shard(model)

    def no_sync(self, model):  # error: MP605
        return nullcontext()
""",
    """
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def step(self, batch):
        with self.model.no_sync():  # error: MP605
            self.model(batch).loss.backward()
""",
]

CORRECT = [
    """
from contextlib import contextmanager
from torch.distributed.fsdp import fully_shard

class Strategy:
    def prepare(self, model):
        return fully_shard(model)

    @contextmanager
    def no_sync(self, model):
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)
""",
    """
from contextlib import nullcontext
import torch.distributed as dist

class SingleDevice:
    def no_sync(self, model):
        return nullcontext()
""",
]
