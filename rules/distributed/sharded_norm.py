"""The norm of sharded gradients, used without gathering it.

What it does
    Reports the result of `torch.nn.utils.clip_grad_norm_` kept under a name in a class or script that shards its
    model with `fully_shard`, where nothing turns it into a full tensor (`.full_tensor()`) or asks whether it
    is a DTensor.

Why is this bad
    Over FSDP2 parameters the norm is a DTensor with a partial placement: what a rank logs of it is the norm of its
    own shard, smaller than the true one by about the root of the number of ranks.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.full_tensor
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.places import is_aside, text_of, within
from validator.analysis.sharding import Sharding
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project, guarded_by
from validator.rule import Rule

RULE = Rule("MP526", "sharded-norm", "warning", "0.1.0", tokens=("clip_grad_norm_",))


def check_project(project: Project) -> Iterator[Finding]:
    sharding = project.analysis(Sharding)
    for function, call in project.calls("clip_grad_norm_"):
        if is_aside(function.path) or guarded_by(call.guards, "isinstance", "fsdp"):
            continue
        if project.dotted(function, call.target) != "torch.nn.utils.clip_grad_norm_":
            continue
        name = next((r.target for r in function.facts.assigns if r.value == call.target and within(call.at, r.at)), "")
        place = _sharding(sharding, function) if name else None
        text = text_of(function) if place else ""
        if (
            not place
            or any(word in text for word in ("full_tensor", "DTensor", "to_local", "is_fsdp1"))
            or text.count(name) < 2
        ):
            continue
        where, shard = place
        yield RULE.finding(
            function.path,
            call.at,
            f"`{name}` in `{function.qualname}` is the norm of gradients that `{shard.method}` has sharded,"
            " and is used as if it were whole",
            help="call `.full_tensor()` on the result, on all ranks, before logging or comparing it",
            related=[Related(where.path, shard.at[0], "the model is sharded here")],
            context=f"{function.qualname}:{name}",
        )


def _sharding(sharding: Sharding, function: Method) -> tuple[Method, Call] | None:
    """The call that shards the model of the class of a function, or of the function itself."""
    inside = function.cls.every_method() if function.cls is not None else [function]
    return next(((method, sharding.calls[method][0]) for method in inside if method in sharding.calls), None)


INCORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard

class Recipe:
    def setup(self, model):
        fully_shard(model)
        self.model = model

    def step(self, log):
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # error: MP526
        log["grad_norm"] = norm
""",
]

CORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard

class Recipe:
    def setup(self, model):
        fully_shard(model)
        self.model = model

    def step(self, log):
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).full_tensor()
        log["grad_norm"] = norm
""",
    """
import torch

class Recipe:
    def setup(self, model):
        self.model = torch.nn.parallel.DistributedDataParallel(model)

    def step(self, log):
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        log["grad_norm"] = norm
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

def train(model):
    fully_shard(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
""",
]
