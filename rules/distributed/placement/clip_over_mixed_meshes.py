"""One gradient norm over parameters of different device meshes.

What it does
    Reports `torch.nn.utils.clip_grad_norm_` in a class or function that applies tensor parallelism
    (`parallelize_module`, `distribute_tensor`) on one mesh and `fully_shard` on another. Silent where the plan has
    `SequenceParallel`, which splits the norms, too.

Why is this bad
    Parameters that tensor parallelism leaves alone live on the data-parallel mesh only, the others on both. The norm
    stacks their norms, which DTensor refuses across meshes: the first step that clips ends the run.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grads_with_norm_.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import steps_of
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Placings, asks_first
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP525", "clip-over-mixed-meshes", "warning", "0.1.0", tokens=("clip_grad_norm_",))

_BOTH = {"tp", "fsdp2"}


def check_project(project: Project) -> Iterator[Finding]:
    placings, queries = project.analysis(Placings), project.analysis(Queries)
    for call in queries.calls("torch.nn.utils.clip_grad_norm_"):
        given = call.argument("parameters", 0)
        if given is None or is_aside(call.unit.path) or asks_first(call):
            continue
        if not any(steps_of(each) >= _BOTH for each in given.closed.placements):
            continue
        cut, shard = placings.where(given, "tp"), placings.where(given, "fsdp2")
        if cut is None or shard is None or _splits_norms(queries, cut):
            continue
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{call.method}` in `{call.unit.qualname}` takes one norm over parameters of two meshes, where"
            f" the plan of `{cut.method}` leaves some to `{shard.method}` alone",
            help="group the gradients by `grad.device_mesh`, take `get_total_norm` of each group, and clip"
            " by the root of the sum of their squares",
            related=[
                Related(cut.unit.path, cut.at[0], "tensor parallelism is applied here"),
                Related(shard.unit.path, shard.at[0], "the model is sharded here"),
            ],
            context=f"{call.unit.qualname}:{call.method}",
        )


def _splits_norms(queries: Queries, cut: Place) -> bool:
    """Whether the plans by which a call splits a model name its norms as well: they leave nothing to the other mesh."""
    return any("SequenceParallel" in unit.words for unit in (cut.unit, *queries.reached(queries.targets(cut))))


INCORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module

class Trainer:
    def build(self, model, mesh, plan):
        parallelize_module(model, mesh["tp"], plan)
        fully_shard(model, mesh=mesh["dp"])
        self.model = model

    def clip(self):
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # error: MP525
""",
]

CORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

def build(model, mesh):
    plan = {"norm": SequenceParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in model.layers:
        parallelize_module(block, mesh["tp"], plan)
    return fully_shard(model, mesh=mesh["dp"])

def step(model, mesh):
    model = build(model, mesh)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model, mesh):
        fully_shard(model, mesh=mesh["dp"])
        self.model = model

    def clip(self):
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).full_tensor()
""",
    """
import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module

class Trainer:
    def build(self, model, mesh, plan):
        parallelize_module(model, mesh["tp"], plan)
        fully_shard(model, mesh=mesh["dp"])
        self.model = model

    def clip(self, groups):
        norms = [torch.nn.utils.get_total_norm(grads) for grads in groups.values()]
        return sum(n.full_tensor() ** 2 for n in norms) ** 0.5
""",
]
