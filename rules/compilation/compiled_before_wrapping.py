"""A model that is compiled before DDP or FSDP wraps it.

What it does
    Notes `DistributedDataParallel` and `FullyShardedDataParallel` around a model that `torch.compile` has wrapped.
    `fully_shard` of compiled blocks is meant to be so, and is not reported.

Why is this bad
    The keys of what lies inside the wrapper have `_orig_mod.` then: `wrapped.module.state_dict()` does not load into a
    model that is not compiled. Gradients and speed are the same in either order: `torch.compile` traces at the first
    call, when the wrapper is there, and DDP's forward names itself to Dynamo, whose DDPOptimizer splits the graph by
    buckets (torch 2.13: one backward graph for each bucket, each followed by its reduction, whichever wraps first; one
    graph for each block that FSDP1 wraps).

References
    https://docs.pytorch.org/docs/stable/notes/ddp.html#torchdynamo-ddpoptimizer
    https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import mostly
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Placings
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP609", "compiled-before-wrapping", "note", "0.1.0", tokens=("compile",))


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for call, model, _ in placings.everywhere("ddp", "fsdp1"):
        if is_aside(call.unit.path) or placings.queries.targets(call) or not mostly(model.val.state, "compiled"):
            continue
        compiled = placings.where(model, "compiled")
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{call.method}` in `{call.unit.qualname}` wraps `{model.text}`, which is compiled already: the keys"
            " of what it wraps have `_orig_mod.`",
            help="wrap the model first, and compile what the wrapper returns",
            related=[Related(compiled.unit.path, compiled.at[0], "it is compiled here")]
            if compiled is not None
            else [],
            context=f"{call.unit.qualname}:{model.text}",
        )


INCORRECT = [
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def build(model, device):
    model = torch.compile(model.to(device))
    return DDP(model)  # error: MP609
""",
]

CORRECT = [
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def build(model, device):
    return torch.compile(DDP(model.to(device)))
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

def build(model):
    for index, block in enumerate(model.layers):
        model.layers[index] = fully_shard(torch.compile(block))
    return fully_shard(model)
""",
]
