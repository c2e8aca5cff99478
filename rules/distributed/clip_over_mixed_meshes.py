"""One gradient norm over parameters of different device meshes.

What it does
    Reports `torch.nn.utils.clip_grad_norm_` in a class or function that applies tensor parallelism
    (`parallelize_module`, `distribute_tensor`) on one mesh and `fully_shard` on another.

Why is this bad
    Parameters that tensor parallelism leaves alone live on the data-parallel mesh only, the others on both. The norm
    stacks their norms, which DTensor refuses across meshes: the first step that clips ends the run.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grads_with_norm_.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.places import is_aside
from validator.analysis.sharding import Sharding
from validator.finding import Finding, Related
from validator.project import Method, Project, guarded_by
from validator.rule import Rule

RULE = Rule("MP525", "clip-over-mixed-meshes", "warning", "0.1.0", tokens=("clip_grad_norm_",))

_TENSOR_PARALLEL = frozenset({"parallelize_module", "apply_tensor_parallelism"})


def check_project(project: Project) -> Iterator[Finding]:
    sharding = project.analysis(Sharding)
    for function in project.functions():
        clips = [c for c in function.facts.calls if c.method == "clip_grad_norm_"]
        if not clips or is_aside(function.path):
            continue
        inside: list[Method] = list(function.cls.every_method()) if function.cls is not None else [function]
        cut = next(((m, c) for m in inside for c in m.facts.calls if c.method in _TENSOR_PARALLEL), None)
        shard = next(((m, sharding.direct[m][0]) for m in inside if m in sharding.direct), None)
        for call in clips:
            if (
                cut is None
                or shard is None
                or project.dotted(function, call.target) != "torch.nn.utils.clip_grad_norm_"
            ):
                continue
            if guarded_by((*function.facts.guards, *call.guards), "tp", "tensor_parallel", "isinstance", "mesh"):
                continue
            yield RULE.finding(
                function.path,
                call.at,
                f"`{call.target}` in `{function.qualname}` takes one norm over parameters of two meshes: of"
                f" `{cut[1].method}` and of `{shard[1].method}`",
                help="group the gradients by `grad.device_mesh`, take `get_total_norm` of each group, and clip"
                " by the root of the sum of their squares",
                related=[
                    Related(cut[0].path, cut[1].at[0], "tensor parallelism is applied here"),
                    Related(shard[0].path, shard[1].at[0], "the model is sharded here"),
                ],
                context=f"{function.qualname}:{call.target}",
            )


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
