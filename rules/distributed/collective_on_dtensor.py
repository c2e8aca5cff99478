"""A plain collective on a parameter that FSDP2 holds as a DTensor.

What it does
    In a class that holds a model sharded by `fully_shard`, reports `torch.distributed` collectives on the `.data` of
    a parameter taken from a state dict or from `named_parameters()`, where neither the function nor its callers in
    the class make the tensor whole or local first (`full_tensor()`, `to_local()`, `redistribute()`).

Why is this bad
    c10d collectives take plain tensors. On a DTensor they fail in its dispatcher (`compute_mesh is None`), or send
    the local shard in place of the parameter: the receivers train or generate with wrong weights.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.effects import Effects
from validator.analysis.places import is_aside, text_of
from validator.analysis.sharding import Sharding
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP527", "collective-on-dtensor", "error", "0.1.0", tokens=("fully_shard",))

_WHOLE = re.compile(r"full_tensor|to_local|redistribute|DTensor|summon_full_params|full_state_dict|_local_tensor")
_PARAMETERS = re.compile(r"(state_dict\w*|\w*params\w*|named_parameters|named_tensors)(\.items)?$")


def check_project(project: Project) -> Iterator[Finding]:
    sharding, effects = project.analysis(Sharding), project.analysis(Effects)
    for function, rows in effects.direct.items():
        cls = function.cls
        if cls is None or is_aside(function.path) or not (models := sharding.models(cls)):
            continue
        for call, row in sorted(rows.values(), key=lambda pair: pair[0].at):
            name = _parameter(function, call)
            if (
                not name
                or _WHOLE.search(text_of(function))
                or any(_WHOLE.search(text_of(m)) for m in _callers(cls, function))
            ):
                continue
            attribute, (where, shard) = next(iter(models.items()))
            yield RULE.finding(
                function.path,
                call.at,
                f"`{row.name}` in `{function.qualname}` gets `{name}.data`, a DTensor: `self.{attribute}` is"
                " sharded by `fully_shard`",
                help=f"make it whole first, on all ranks (`{name}.full_tensor()`), or local where shards are"
                f" meant (`{name}.to_local()`)",
                related=[Related(where.path, shard.at[0], "the sharded model comes from here")],
                context=f"{function.qualname}:{row.name}:{name}",
            )


def _parameter(function: Method, call: Call) -> str:
    """The loop variable over parameters whose `.data` a collective gets."""
    first = call.args[0].value if call.args else ""
    values = [first, *(row.value for row in function.facts.assigns if row.target == first)]
    for row in function.facts.assigns:
        looped = row.kind == "for" or row.kind.startswith("unpack")
        if looped and _PARAMETERS.search(row.value) and any(v.startswith(f"{row.target}.data") for v in values):
            return row.target
    return ""


def _callers(cls: ClassDef, function: Method) -> list[Method]:
    return [m for m in cls.every_method() if any(c.target == f"self.{function.name}" for c in m.facts.calls)]


INCORRECT = [
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Sender:
    def setup(self, model):
        self.model = fully_shard(model)

    def send(self, group):
        for name, param in self.model.named_parameters():
            dist.broadcast(param.data, 0, group=group)  # error: MP527
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Sender:
    def setup(self, model):
        self.model = fully_shard(model)

    def send(self, group):
        for name, param in self.model.named_parameters():
            dist.broadcast(param.full_tensor().data, 0, group=group)
""",
    """
import torch.distributed as dist

class Sender:
    def setup(self, model):
        self.model = model

    def send(self, group):
        for name, param in self.model.named_parameters():
            dist.broadcast(param.data, 0, group=group)
""",
]
