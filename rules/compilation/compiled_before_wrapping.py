"""A model that is compiled before DDP or FSDP wraps it.

What it does
    Reports `DistributedDataParallel` and `FullyShardedDataParallel` around a model that `torch.compile` has wrapped.
    `fully_shard` of compiled blocks is meant to be so, and is not reported.

Why is this bad
    The wrapper adds hooks that gather and reduce. A graph that was made before knows nothing of them: DDP cannot split
    it into buckets and reduces all gradients after the backward pass, FSDP gathers around one graph in which nothing
    overlaps, and state dicts bear the prefix `_orig_mod.` inside of `module.`.

References
    https://docs.pytorch.org/docs/stable/notes/ddp.html#torchdynamo-ddpoptimizer
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import mostly
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Placings
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP609", "compiled-before-wrapping", "warning", "0.1.0", tokens=("compile",))


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for call, model, step in placings.everywhere("ddp", "fsdp1"):
        if is_aside(call.unit.path) or placings.queries.targets(call) or not mostly(model.val.state, "compiled"):
            continue
        compiled = placings.where(model, "compiled")
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{call.method}` in `{call.unit.qualname}` wraps `{model.text}`, which is compiled already: the graph"
            f" knows nothing of the hooks that {'reduce gradients' if step == 'ddp' else 'gather parameters'}",
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
