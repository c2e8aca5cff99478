"""`.module` of a model that `fully_shard` has sharded.

What it does
    Reports `self.model.module` in a class whose `self.model` is sharded by `fully_shard` and by nothing that wraps
    (DDP, FSDP1, DeepSpeed), where nothing asks whether there is such an attribute.

Why is this bad
    `fully_shard` changes the model in place: there is no wrapper, and `.module` raises AttributeError, often at the
    first checkpoint.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import may, mostly
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Placings, asks_about, asks_first
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP522", "unwrapping-fsdp2", "error", "0.1.0", tokens=("fully_shard",))

_WRAPPING = ("fsdp1", "ddp", "deepspeed", "compiled")


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for place in project.analysis(Queries).attributes("module"):
        owner = place.operand(0)
        state = owner.closed.state
        if is_aside(place.unit.path) or not mostly(state, "fsdp2") or may(state, *_WRAPPING):
            continue
        if asks_first(place) or asks_about(place, owner) or _has_one(owner):
            continue
        shard = placings.where(owner, "fsdp2")
        yield RULE.finding(
            place.unit.path,
            place.at,
            f"`{place.unit.qualname}` reads `{place.text}`, but `fully_shard` shards in place: there is no"
            " wrapper to take off",
            help=f"use `{owner.text}` itself",
            related=[Related(shard.unit.path, shard.at[0], "the model is sharded here")] if shard is not None else [],
            context=f"{place.unit.qualname}:{place.text}",
        )


def _has_one(owner: Place) -> bool:
    """Whether the model may have an attribute of that name by itself, or be something that holds the model."""
    for o in owner.closed.each:
        if o[0] in ("inst", "self") and ("module" in o[1].instance_attributes or o[1].find("module") is not None):
            return True
    return False


INCORRECT = [
    """
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = model
        fully_shard(self.model)

    def save(self, path):
        self.model.module.save_pretrained(path)  # error: MP522
""",
]

CORRECT = [
    # asked first, of what holds the model or by a helper
    """
import torch
from torch.distributed.fsdp import fully_shard

def is_wrapped(model):
    return type(model).__name__ == "FullyShardedDataParallel"

class State:
    def __init__(self, model):
        fully_shard(model)
        self.model = model
        self.is_ddp = False

def export(model):
    state = State(model)
    inner = state.model.module if state.is_ddp else state.model
    if is_wrapped(inner):
        inner = inner.module
    return inner
""",
    """
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = model
        fully_shard(self.model)

    def save(self, path):
        model = self.model.module if hasattr(self.model, "module") else self.model
        if hasattr(self.model, "module"):
            self.model.module.save_pretrained(path)
""",
    """
from torch.nn.parallel import DistributedDataParallel

class Trainer:
    def build(self, model):
        self.model = DistributedDataParallel(model)

    def save(self, path):
        self.model.module.save_pretrained(path)
""",
]
