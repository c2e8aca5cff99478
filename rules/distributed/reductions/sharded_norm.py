"""The norm of sharded gradients, used without gathering it.

What it does
    Reports the result of `torch.nn.utils.clip_grad_norm_` that is used in a class or script that shards its
    model with `fully_shard`, or is handed a model sharded so, where neither it, nor the function that calls it, nor
    one that the norm is handed to turns it into a full tensor (`.full_tensor()`) or asks whether it is a DTensor.

Why is this bad
    Over FSDP2 parameters the norm is a DTensor with a partial placement: what a rank logs of it is the norm of its
    own shard, smaller than the true one by about the root of the number of ranks. Newer releases (2.11 and 2.13
    do) reduce it by themselves: a note.

References
    https://github.com/pytorch/torchtitan/issues/766
    https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.full_tensor
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import DTENSOR, mostly
from validator.finding import Finding, Related
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import Holders, Index
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Placings, asks_first
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP526", "sharded-norm", "note", "0.1.0", tokens=("clip_grad_norm_",))

_KNOWING = frozenset({"full_tensor", "to_local", "redistribute", "_local_tensor"})


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    index = Index(placings.flow)
    for call in placings.queries.calls("torch.nn.utils.clip_grad_norm_"):
        given = call.argument("parameters", 0)
        if given is None or is_aside(call.unit.path) or asks_first(call):
            continue
        if not mostly(given.closed.placements, *DTENSOR):
            continue
        use = _use(Holders(placings.flow, index, call.unit, call.number), call)
        if use is not None:
            yield _report(placings, call, given, use)


def _use(norm: Holders, call: Place) -> Place | None:
    """Where the norm is used; None where nothing uses it, or somebody knows that it is sharded."""
    if norm.asked or any(name in _KNOWING for _, _, name in norm.called):
        return None
    if any(
        unit.code.values[number].op == "attr" and unit.code.values[number].data in _KNOWING
        for unit, number in norm.held
    ):
        return None
    used = [*norm.shown, *norm.given, *((unit, number) for unit, number, _ in norm.called)]
    if used:
        unit, number = min(used, key=lambda row: (row[0] is not call.unit, row[0].path, row[0].code.values[row[1]].at))
        return call._replace(unit=unit, number=number)
    return call if norm.escapes or norm.gathered else None


def _report(placings: Placings, call: Place, given: Place, use: Place) -> Finding:
    shard = placings.where(given, *DTENSOR)
    here = use.unit is call.unit
    line = use.at[0]
    who = (
        "it is used"
        if line == call.at[0] and here
        else f"line {line} uses it"
        if here
        else f"`{use.unit.qualname}` uses it"
    )
    how = f"`{shard.method}` has sharded" if shard is not None else "are sharded"
    related = [Related(use.unit.path, line, "the norm is used here")]
    if shard is not None:
        related.append(Related(shard.unit.path, shard.at[0], "the model is sharded here"))
    return RULE.finding(
        call.unit.path,
        call.at,
        f"what `{call.method}` gives in `{call.unit.qualname}` is the norm of gradients that {how}, and {who} as if it"
        " were whole",
        help="call `.full_tensor()` on the result, on all ranks, before logging or comparing it",
        related=related,
        context=f"{call.unit.qualname}:{call.method}",
    )


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

    def logged(self, log):
        log["grad_norm"] = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item()  # error: MP526

    def printed(self, log):
        print(torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0))  # error: MP526
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Actor:
    def __init__(self, module):
        self.module = module

    def update(self, metrics):
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)  # error: MP526
        metrics["grad_norm"] = norm.item()

class Worker:
    def build(self, module):
        for layer in module.layers:
            fully_shard(layer)
        fully_shard(module)
        self.actor = Actor(module)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        fully_shard(model)
        self.model = model

    def step(self, loss):
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # error: MP526
        return loss, norm

    def fit(self, losses):
        for each in losses:
            loss, grad_norm = self.step(each)
            print(loss.item(), grad_norm.item())
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
    """
import torch
from torch.distributed.fsdp import fully_shard

class Critic:
    def __init__(self, module):
        self.module = module

    def update(self, metrics):
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        metrics["grad_norm"] = norm.item()

class Actor:
    def __init__(self, module):
        self.module = module

    def step(self):
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        return norm

    def update(self, metrics):
        metrics["grad_norm"] = self.step().full_tensor().item()

class Worker:
    def build(self, module, value_head):
        fully_shard(module)
        self.models = [Actor(module), Critic(value_head)]
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        fully_shard(model)
        self.model = model

    def step(self, loss):
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        return loss, norm

    def fit(self, losses):
        for each in losses:
            loss, norm = self.step(each)
            print(loss.item())
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        fully_shard(model)
        self.model = model

    def clip(self):
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def step(self, optimizer, log):
        self.clip()
        log(torch.nn.utils.get_total_norm(self.model.parameters()))
        optimizer.step()
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        fully_shard(model)
        self.model = model

    def step(self, loss):
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        return loss, norm

    def fit(self, losses):
        for each in losses:
            loss, norm = self.step(each)
            self.log(loss, norm)

    def log(self, loss, value):
        value = getattr(value, "full_tensor", lambda: value)()
        print(loss.item(), value.item())
""",
]
