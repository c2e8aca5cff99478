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

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside, within
from validator.analysis.wrapped import SHARDED, Wrapped
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP524", "half-precision-master", "warning", "0.1.0", tokens=("fully_shard",))

_HALF = re.compile(r"""^(torch\.(bfloat16|float16|half)|["'](bfloat16|float16)["'])$""")
_FULL = re.compile(r"(^|\.)float32$|^torch\.float$")


def check_project(project: Project) -> Iterator[Finding]:
    wrapped = project.analysis(Wrapped)
    for function in wrapped.givers():
        if is_aside(function.path):
            continue
        for shard, model, kind in wrapped.given(function):
            half = _half(function, model, shard) if kind == SHARDED else None
            optimizer = _optimizer(project, function, model, shard) if half is not None else None
            if half is not None and optimizer is not None:
                yield RULE.finding(
                    function.path,
                    shard.at,
                    f"`{function.qualname}` shards `{model}` in half precision and trains those parameters: no"
                    " fp32 copy is kept",
                    help="load the model in fp32 and give `fully_shard` a"
                    " `MixedPrecisionPolicy(param_dtype=torch.bfloat16)`",
                    related=[
                        Related(function.path, half.at[0], "half precision comes from here"),
                        Related(function.path, optimizer.at[0], "the optimizer gets the parameters here"),
                    ],
                    context=f"{function.qualname}:{model}",
                )


def _half(function: Method, model: str, shard: Call) -> Call | None:
    """The call that brings the model to half precision before it is sharded, and which none takes back."""
    found: Call | None = None
    for call in sorted((c for c in function.facts.calls if c.at < shard.at), key=lambda c: c.at):
        made = any(row.target == model and within(call.at, row.at) for row in function.facts.assigns)
        chained = made and call.receiver.endswith("from_pretrained()")  # `from_pretrained(…).float()`
        on_model = chained or call.receiver == model and (made or call.use == "discard")
        if on_model and (
            call.method in ("bfloat16", "half") or call.method == "to" and any(_HALF.match(a.value) for a in call.args)
        ):
            found = call
        elif on_model and (call.method == "float" or any(_FULL.search(a.value) for a in call.args)):
            found = None
        dtype = call.keyword("torch_dtype") or call.keyword("dtype")
        if made and call.method == "from_pretrained" and dtype is not None and _HALF.match(dtype.value):
            found = call
    return found


def _optimizer(project: Project, function: Method, model: str, shard: Call) -> Call | None:
    for call in function.facts.calls:
        first = call.args[0].value if call.args else ""
        if call.at > shard.at and first == f"{model}.parameters" and "optim" in project.dotted(function, call.target):
            return call
    return None


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
