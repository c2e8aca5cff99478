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

from validator.analysis.places import every_guard, is_aside
from validator.analysis.sharding import Sharding
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP605", "no-sync-without-effect", "warning", "0.1.0", tokens=("no_sync", "no_grad_sync"))

_NAMES = frozenset({"no_sync", "maybe_no_sync", "no_grad_sync"})


def check_project(project: Project) -> Iterator[Finding]:
    sharding = project.analysis(Sharding)
    for cls in sharding.classes:
        if is_aside(cls.path):
            continue
        for name in sorted(_NAMES & set(cls.methods)):
            if _does_nothing(cls.methods[name]):
                yield _empty(sharding, cls, cls.methods[name])
        for attribute, (where, shard) in sharding.models(cls).items():
            for method in cls.every_method():
                for call in method.facts.calls:
                    told = any(g.kind in ("if", "try") for g in every_guard(method, call.guards))
                    if call.target == f"self.{attribute}.no_sync" and not told:
                        yield RULE.finding(
                            method.path,
                            call.at,
                            f"`{method.qualname}` asks `self.{attribute}` for `no_sync`, which a model sharded by"
                            f" `{shard.method}` does not have",
                            help=f"call `self.{attribute}.set_requires_gradient_sync(last)` before each forward"
                            " instead",
                            related=[Related(where.path, shard.at[0], "the model is sharded here")],
                            context=f"{method.qualname}:no_sync",
                        )


def _does_nothing(method: Method) -> bool:
    facts = method.facts
    if facts.is_generator:
        return not facts.calls and not facts.assigns
    kinds = {row.value.rpartition(".")[2] for row in facts.returns if row.kind == "call"}
    return kinds == {"nullcontext"} and len(facts.returns) == 1 and len(facts.calls) == 1


def _empty(sharding: Sharding, cls: ClassDef, method: Method) -> Finding:
    where, shard = next((m, sharding.calls[m][0]) for m in cls.every_method() if m in sharding.calls)
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"`{method.qualname}` does nothing: a model sharded by `{shard.method}` still reduces gradients in every"
        " micro-batch",
        help="call `model.set_requires_gradient_sync(False)` for all but the last micro-batch",
        related=[Related(where.path, shard.at[0], "the model is sharded here")],
        context=method.qualname,
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
