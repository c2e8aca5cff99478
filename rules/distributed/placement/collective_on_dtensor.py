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

from collections.abc import Iterator

from validator.domains.placement import DTENSOR, mostly
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Placings, asks_first
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP527", "collective-on-dtensor", "error", "0.1.0", tokens=("fully_shard", "distribute_tensor"))


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for call in project.analysis(Queries).collectives():
        given = _tensor(call) if not is_aside(call.unit.path) else None
        if given is None or not mostly(given.closed.state, *DTENSOR) or asks_first(call):
            continue
        shard = placings.where(given, *DTENSOR)
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{call.method}` in `{call.unit.qualname}` gets `{given.text}`, a DTensor"
            + (f": `{shard.method}` has sharded what it belongs to" if shard is not None else ""),
            help="make it whole first, on all ranks (`.full_tensor()`), or local where shards are meant: `.to_local()`",
            related=[Related(shard.unit.path, shard.at[0], "it is sharded here")] if shard is not None else [],
            context=f"{call.unit.qualname}:{call.method}:{given.text}",
        )


def _tensor(call: Place) -> Place | None:
    """The tensor that a collective of torch.distributed works on."""
    for operation in call.operations:
        which = operation.row.equal or operation.row.writes or operation.row.reads
        if which is not None and operation.sure and not operation.row.objects and call.value.op == "call":
            return call.argument(*which)
    return None


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
    # through a dictionary of one parameter
    """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Sender:
    def __init__(self, model):
        self.model = fully_shard(model)

    def update(self, group):
        state = self.model.state_dict()
        for name in state:
            self.send({name: state[name].to(torch.bfloat16)}, group)

    def send(self, named, group):
        for name, param in named.items():
            dist.broadcast(param.data.contiguous(), 0, group=group)  # error: MP527
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
