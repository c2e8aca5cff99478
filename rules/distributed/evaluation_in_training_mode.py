"""An evaluation that leaves the model in training mode.

What it does
    Reports a function called `evaluate`, `validate` or alike that runs a forward of an FSDP or DDP model without
    gradients and neither switches to `eval()` nor is called where that has been done.

Why is this bad
    Dropout stays on, and differs between ranks: the metric is noise, and where a decision hangs on it (stop early, keep
    the best checkpoint) ranks may decide differently. `no_grad` does not switch it off.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside, text_of
from validator.facts.model import Call
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP521", "evaluation-in-training-mode", "warning", "0.1.0", tokens=("no_grad", "inference_mode"))

_EVALUATING = re.compile(r"^_?(evaluate|eval|validate|validation)(_model|_loop|_epoch|_step)?$")
_NO_GRADIENT = re.compile(r"no_grad|inference_mode")
_SWITCH = re.compile(r"\.eval\(\)|\.train\((False|mode)|set_eval|eval_mode|training = False|switch_to_eval")
_MODEL = re.compile(r"^(self\.)?(\w+_)?(model|module|engine|net)$")
_WRAPPING = re.compile(r"\b(FSDP|FullyShardedDataParallel|fully_shard|DistributedDataParallel|DDP)\b")


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if not _EVALUATING.match(function.name) or is_aside(function.path) or not _without_gradient(function):
            continue
        forward = next((c for c in function.facts.calls if _MODEL.match(c.target)), None)
        if forward is None or _SWITCH.search(text_of(function)) or not _WRAPPING.search(function.module.source.text):
            continue
        callers = [caller for caller, _ in project.types.callers.get(function, ())]
        if not callers or any(_SWITCH.search(text_of(caller)) for caller in callers):
            continue
        yield _report(function, forward)


def _without_gradient(function: Method) -> bool:
    decorated = any(_NO_GRADIENT.search(d) for d in function.facts.decorators)
    return decorated or any(
        _NO_GRADIENT.search(g.text) for c in function.facts.calls for g in c.guards if g.kind == "with"
    )


def _report(function: Method, forward: Call) -> Finding:
    return RULE.finding(
        function.path,
        forward.at,
        f"`{function.qualname}` runs `{forward.target}` without having switched it to evaluation: dropout stays on",
        help=f"call `{forward.target}.eval()` on all ranks before, and `{forward.target}.train()` after",
        context=f"{function.qualname}:{forward.target}",
    )


INCORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    @torch.no_grad()
    def evaluate(self, batches):
        return sum(self.model(batch).loss for batch in batches)  # error: MP521

    def fit(self, batches):
        return self.evaluate(batches)
""",
]

CORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    @torch.no_grad()
    def evaluate(self, batches):
        self.model.eval()
        return sum(self.model(batch).loss for batch in batches)

    def fit(self, batches):
        return self.evaluate(batches)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    @torch.no_grad()
    def evaluate(self, batches):
        return sum(self.model(batch).loss for batch in batches)

    def fit(self, batches):
        self.model.eval()
        return self.evaluate(batches)
""",
]
