"""An FSDP2 model that is trained with no full-precision copy of its parameters.

What it does
    Reports a function that brings a model to bf16 or fp16 (`torch_dtype=torch.bfloat16`, `.to(torch.bfloat16)`,
    `.bfloat16()`), shards it with `fully_shard`, itself or through a helper (`model = strategy.shard(model)`), and
    makes an optimizer from its parameters.

Why is this bad
    The optimizer then updates bf16 parameters: updates smaller than 1/256 of a weight vanish. DeepSpeed keeps fp32
    masters, so the same recipe trains differently: a loss of 11.65 after 8 steps where DeepSpeed had 7.43.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.MixedPrecisionPolicy
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import comes_before
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Placings, follows, models_of, related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP524", "half-precision-master", "warning", "0.1.0", tokens=("fully_shard",))


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for optimizer in project.analysis(Queries).prefixed("torch.optim."):
        given = optimizer.argument("params", 0)
        if given is None or is_aside(optimizer.unit.path):
            continue
        if not comes_before(given.closed.placements, ["half"], "fsdp2"):
            continue
        shard = _shard(placings, optimizer, given)
        if shard is not None:
            yield _report(placings, shard, optimizer)


def _shard(placings: Placings, optimizer: Place, given: Place) -> Place | None:
    """The call that shards the model: before the optimizer is made, or elsewhere."""
    models = models_of(given)
    for call, model, _ in placings.of(optimizer.unit, "fsdp2"):
        if follows(call, optimizer) and any(related(model, each) for each in models):
            return call
    return placings.where(given, "fsdp2")


def _report(placings: Placings, shard: Place, optimizer: Place) -> Finding:
    model = next((given for call, given, _ in placings.of(shard.unit, "fsdp2") if call == shard), shard)
    where = [Related(optimizer.unit.path, optimizer.at[0], "the optimizer gets the parameters here")]
    return RULE.finding(
        shard.unit.path,
        shard.at,
        f"`{shard.unit.qualname}` shards `{model.text}` in half precision and trains those parameters: no fp32 copy is"
        " kept",
        help="load the model in fp32 and give `fully_shard` a `MixedPrecisionPolicy(param_dtype=torch.bfloat16)`",
        related=where,
        context=f"{shard.unit.qualname}:{model.text}",
    )


INCORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

def build(path):
    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.bfloat16)
    fully_shard(model)  # error: MP524
    return model, torch.optim.AdamW(model.parameters(), lr=1e-6)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

class Strategy:
    def shard(self, model):
        return fully_shard(model)

def train(path):
    strategy = Strategy()
    model = AutoModelForCausalLM.from_pretrained(path, dtype="bfloat16")
    model = strategy.shard(model)  # error: MP524
    return model, torch.optim.AdamW(model.parameters(), lr=1e-6)
""",
]

CORRECT = [
    """
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM

def build(path):
    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float32)
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-6)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

def build_reference(path):
    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.bfloat16)
    fully_shard(model)
    return model.eval()
""",
    """
import torch
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

def build(path, device):
    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.bfloat16).to(device)
    model = model.to(torch.float32)
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-6)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

def build(path):
    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.bfloat16).to(torch.float32)
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-6)
""",
]
