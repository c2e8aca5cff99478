"""A batch divided among all ranks where groups of ranks work on the same samples.

What it does
    Follows what a batch size is divided by to what it counts, and reports the number of all ranks where the function
    or its class knows sizes of ring (context, sequence), tensor or pipeline parallelism and none of them is in the
    formula.

Why is this bad
    The ranks of such a group see the same samples, so a step takes in the group size too few of them: gradients are
    accumulated too rarely, the batch is smaller than the one that was asked for, or it becomes zero.

References
    https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters
    https://docs.nvidia.com/megatron-core/developer-guide/latest/user-guide/parallelism-guide.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.sizes.dimensions import Dimensions
from validator.analysis.sizes.quotients import Quotient, Quotients
from validator.domains.axes import MODEL_PARALLEL
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP402", "batch-over-world", "error", "0.1.0", tokens=("//",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    dimensions = project.analysis(Dimensions)
    found: dict[Method, list[Quotient]] = {}
    for row in project.analysis(Quotients).all:
        if _is_batch(row) and row.size.below("world") and not row.size.tags & MODEL_PARALLEL:
            found.setdefault(row.function, []).append(row)
    for function, rows in found.items():
        sizes = dimensions.model_parallel(function)
        if sizes:
            yield _report(function, sorted(rows, key=lambda r: r.node.lineno), sorted(sizes.values())[0])


def _is_batch(row: Quotient) -> bool:
    """Whether a batch is divided: the whole one, or in place one that was given for all ranks together."""
    tags = row.size.tags
    return "batch" in tags or ("micro" in tags and isinstance(row.node, ast.AugAssign))


def _report(function: Method, rows: list[Quotient], shared: str) -> Finding:
    text = function.module.source_text
    first, *others = rows
    batch = next(f.text for f in first.size.over if f.tag in ("batch", "micro"))
    world = " * ".join(f.text for f in first.size.under if f.tag in ("world", "nodes", "gpus"))
    return RULE.finding(
        function.path,
        text.at(first.node),
        f"`{function.qualname}` divides `{batch}` by all ranks (`{world}`), although the ranks of `{shared}` share"
        " their samples",
        help="divide by the data-parallel size: the ranks over the sizes of ring, tensor and pipeline parallelism",
        related=[Related(function.path, row.node.lineno, "and here") for row in others],
        context=f"{function.qualname}:{batch}",
    )


INCORRECT = [
    """
import torch.distributed as dist

class FSDP2Strategy:
    def setup_distributed(self):
        self.world_size = dist.get_world_size()
        self.dp_size = self.world_size // (self.ring_attn_size * self.tp_size)
        self.tp_size = self.args.tp_size
        effective_batch = self.micro_train_batch_size * self.world_size
        self.accumulated_gradient = max(1, self.train_batch_size // effective_batch)  # error: MP402
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Worker:
    def __init__(self, config):
        self.mesh = init_device_mesh("cuda", mesh_shape=(dist.get_world_size(),), mesh_dim_names=["fsdp"])
        self.ulysses_sequence_parallel_size = config.get("ulysses_sequence_parallel_size", 1)
        config.ppo_mini_batch_size //= self.mesh.shape[0]  # error: MP402
        config.ppo_micro_batch_size //= self.mesh.size()
""",
    """
from dataclasses import dataclass

@dataclass(frozen=True)
class Layout:
    world: int
    ring: int
    tp: int

    @property
    def dp(self):
        return self.world // (self.ring * self.tp)

    def accumulation(self, train_batch, micro_batch):
        step = micro_batch * self.world
        return train_batch // step  # error: MP402
""",
]

CORRECT = [
    """
from dataclasses import dataclass

@dataclass(frozen=True)
class Layout:
    world: int
    ring: int
    tp: int

    @property
    def dp(self):
        return self.world // (self.ring * self.tp)

    def accumulation(self, train_batch, micro_batch):
        return train_batch // (micro_batch * self.dp)

    def steps_by_world(self, train_batch, micro_batch):
        return train_batch * self.ring * self.tp // (micro_batch * self.world)
""",
    """
import torch.distributed as dist

class FSDP2Strategy:
    def setup_distributed(self):
        self.world_size = dist.get_world_size()
        self.tp_size = self.args.tp_size
        self.dp_size = self.world_size // (self.ring_attn_size * self.tp_size)
        effective_batch = self.micro_train_batch_size * self.dp_size
        self.accumulated_gradient = max(1, self.train_batch_size // effective_batch)
""",
    """
import torch.distributed as dist

class DDPStrategy:
    def setup_distributed(self):
        self.world_size = dist.get_world_size()
        self.accumulated_gradient = self.train_batch_size // self.micro_train_batch_size // self.world_size
""",
    """
class Strategy:
    def __init__(self, args):
        self.tp_size = args.tp_size

    def config(self):
        return self.train_batch_size * self.tp_size // self.micro_train_batch_size // self.world_size
""",
]
