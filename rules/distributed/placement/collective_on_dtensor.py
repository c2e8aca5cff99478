"""A plain collective on a parameter that FSDP2 holds as a DTensor.

What it does
    Where a model is sharded by `fully_shard`, reports `torch.distributed` collectives on the `.data` of
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
from validator.flow.queries import origins
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training import placements
from validator.flow.queries.training.placements import Placings, asks_first
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP527", "collective-on-dtensor", "error", "0.1.0", tokens=("fully_shard", "distribute_tensor"))

_LISTING = frozenset({"parameters", "named_parameters", "get_parameter", "state_dict", "get_model_state_dict"})


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for call in project.analysis(Queries).collectives():
        given = _tensor(call) if not is_aside(call.unit.path) else None
        if given is None or not mostly(given.closed.state, *DTENSOR) or asks_first(call) or not _is_parameter(given):
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


def _is_parameter(tensor: Place) -> bool:
    """Whether a tensor was asked of a model as one of its parameters: what else a module holds is not sharded."""
    seen = {tensor}
    queue = [tensor]
    for each in queue:
        if each.value.op == "call" and each.method in _LISTING:
            return True
        before = origins.sources(each) if each.value.op in ("param", "free", "attr") else None
        fresh = [place for place in (*placements.sources(each), *(before or ())) if place not in seen]
        seen.update(fresh)
        queue += fresh
    return False


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
    # counts that the modules of a sharded model keep
    """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Experts(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.router = torch.nn.Linear(8, count)
        self.top_k = 2
        self.register_buffer("load", torch.zeros(count), persistent=False)

def balance(model):
    loads = []
    for layer in model.layers:
        loads.append(layer.mlp.load.sum() / layer.mlp.top_k)
        layer.mlp.load.zero_()
    return {"load": torch.stack(loads)}

def train(model):
    fully_shard(model)
    for name, values in balance(model).items():
        value = values.mean()
        dist.all_reduce(value)
        print(name, value.item())
""",
]
