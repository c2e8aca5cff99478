"""A norm or a sum over the shard of one rank, used as if it were that of the whole tensor.

What it does
    Reports `norm`, `sum`, `mean`, `max` and alike of the shard that `.to_local()` gives where the result becomes a
    number, a message or a decision, or scales other tensors (`clip_grads_with_norm_`, `mul_`), and no collective over
    ranks that hold other shards has combined their results: pipeline stages hold other layers. Silent where the result
    leaves for code that cannot be followed, and where a function that is handed a shard only shows the result.

Why is this bad
    Each rank sees its own part: a gradient norm is smaller than the true one by about the root of the number of ranks,
    and ranks that decide by it decide differently.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.to_local
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import may, mostly
from validator.finding import Finding, Related
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Derived, Placings
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP570", "local-shard-as-whole", "warning", "0.1.0", tokens=("to_local", "_local_tensor"))

_COMBINING = frozenset({
    "norm", "sum", "mean", "max", "min", "std", "var", "prod", "vector_norm", "get_total_norm", "nansum", "all", "any",
})  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    followed: set[Place] = set()
    for call in placings.queries.named(*_COMBINING):
        shard = _shard(call) if not is_aside(call.unit.path) and call not in followed else None
        if shard is None:
            continue
        derived = Derived(placings.flow, call)
        followed |= derived.all.keys()
        # a function that is handed the shard of somebody else may well be asked for that of the shard
        used = derived.used if may(shard.val.placements, "local") else [] if derived.reduced else derived.scaling
        if used:
            yield _report(call, shard, used[0])


def _shard(call: Place) -> Place | None:
    """The shard of which a call takes all elements together."""
    given = [call.value_at(each) for each in call.value.args[1:]]
    if call.receiver is not None and mostly(call.receiver.closed.state, "local"):
        dimension = call.argument("dim") is not None or (call.method != "norm" and bool(given))
        return None if dimension else call.receiver
    if call.method in ("all", "any"):
        return None  # the builtins
    return next((each for each in given[:1] if _is_shard(each)), None)


def _is_shard(place: Place) -> bool:
    """Whether a value holds shards: on every way that is known, or in a list on one of the ways by which it is made."""
    root = place.root
    if root.value.op == "attr" and root.value.data not in place.flow.models.tensors["placing"]:
        owner = root.operand(0).closed
        if not any(o[0] in ("inst", "self", "class", "made") for o in owner.each) and not may(owner.state, "local"):
            return False  # by its name alone: a `weight` need be no tensor
    return mostly(place.closed.placements, "local") or may(place.val.placements, "local")


def _report(call: Place, shard: Place, use: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}` in `{call.unit.qualname}` is taken over this rank's shard alone, and `{use.text}` uses it as if"
        " it were that of the whole tensor",
        help=f"reduce it over the mesh first (`all_reduce`; of a norm the sum of squares), or ask the DTensor: without"
        f" `.to_local()` and with `.full_tensor()` on the result ({shard.text})",
        related=[Related(use.unit.path, use.at[0], "it is used here")],
        context=f"{call.unit.qualname}:{call.text}",
    )


INCORRECT = [
    """
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self, writer):
        for name, param in self.model.named_parameters():
            norm = param.grad.to_local().norm()  # error: MP570
            print(name, norm.item())

    def total(self):
        total = 0.0
        for param in self.model.parameters():
            total = total + param.grad.to_local().pow(2).sum()  # error: MP570
        if total > 1.0:
            self.skipped = True
""",
    """
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

def clip(parameters, limit, pp_mesh):
    grads = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in parameters]
    total = torch.nn.utils.get_total_norm(grads)  # error: MP570
    if isinstance(total, DTensor):
        total = total.full_tensor()
    if pp_mesh is not None:
        total **= 2
        dist.all_reduce(total, group=pp_mesh.get_group())
        total **= 0.5
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, total)
    return total

class Trainer:
    def norm(self):
        return torch.stack([p.grad._local_tensor.norm() for p in self.model.parameters()]).norm()  # error: MP570

    def step(self, optimizer):
        if self.norm() < 10:
            optimizer.step()

    def scale(self, limit):
        total = torch.linalg.vector_norm(torch.stack([p.grad.to_local().norm() for p in self.params]))  # error: MP570
        for param in self.params:
            param.grad.mul_(limit / total)
""",
]

CORRECT = [
    """
from torch.distributed.fsdp import fully_shard

def described(tensor):
    return f"norm {tensor.norm().item():.3e}"

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def note(self, name, param):
        print(name, "of this rank's shard:", described(param.to_local()))
""",
    """
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

def clip(parameters, limit, dp_mesh, pp_mesh):
    grads = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in parameters]
    total = torch.nn.utils.get_total_norm(grads) ** 2
    dist.all_reduce(total, group=dp_mesh.get_group())
    if pp_mesh is not None:
        dist.all_reduce(total, group=pp_mesh.get_group())
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, total ** 0.5)

def clip_whole(parameters, limit, pp_mesh):
    total = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    if isinstance(total, DTensor):
        total = total.full_tensor()
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, total)

class Trainer:
    def norm(self):
        total = torch.stack([p.grad._local_tensor.norm() for p in self.model.parameters()]).norm() ** 2
        dist.all_reduce(total)
        return total.sqrt()

    def step(self, optimizer):
        if self.norm() < 10:
            optimizer.step()
""",
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def total(self):
        total = 0.0
        for param in self.model.parameters():
            total = total + param.grad.to_local().pow(2).sum()
        dist.all_reduce(total)
        if total > 1.0:
            self.skipped = True
""",
    """
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def parts(self):
        return [param.grad.to_local().norm() for param in self.model.parameters()]

    def whole(self):
        for param in self.model.parameters():
            print(param.grad.norm().full_tensor().item(), param.to_local().shape)
""",
    """
from dataclasses import dataclass
from torch.distributed.fsdp import fully_shard

@dataclass
class Stats:
    mean: float

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def stats(self, param):
        return Stats(mean=param.grad.to_local().mean().item())

    def note(self, file):
        for param in self.model.parameters():
            file.write(str(self.stats(param)))
""",
]
