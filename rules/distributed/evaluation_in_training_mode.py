"""An evaluation that leaves the model in training mode.

What it does
    Reports a function called `evaluate`, `validate` or alike that runs a forward of an FSDP, DDP or DeepSpeed model
    without gradients, itself or through a function that it calls (`self.compute_loss(batch)`), and neither switches to
    `eval()` nor is called where that has been done.

Why is this bad
    Dropout stays on, and differs between ranks: the metric is noise, and where a decision hangs on it (stop early, keep
    the best checkpoint) ranks may decide differently. `no_grad` does not switch it off.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.places import is_aside, text_of
from validator.analysis.wrapped import Wrapped
from validator.facts.model import Call
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP521", "evaluation-in-training-mode", "warning", "0.1.0", tokens=("no_grad", "inference_mode"))

_EVALUATING = re.compile(r"^_?(run_|do_)?(evaluate|eval|validate|validation|val)(_\w+)?$")
_NO_GRADIENT = re.compile(r"no_grad|inference_mode")
_SWITCH = re.compile(r"\.eval\(\)|\.train\((False|mode)|set_eval|eval_mode|training = False|switch_to_eval")
_MODEL = re.compile(r"^(self\.)?(\w+_)?(model|module|engine|net)$")
_WRAPPING = re.compile(r"\b(FSDP|FullyShardedDataParallel|fully_shard|DistributedDataParallel|DDP)\b")


class Forward(NamedTuple):
    """A forward of a model, and the call by which an evaluation comes to it (the same where it runs it itself)."""

    model: str
    call: Call


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if not _EVALUATING.match(function.name) or is_aside(function.path) or not _without_gradient(function):
            continue
        if _SWITCH.search(text_of(function)) or (forward := _forward(project, function)) is None:
            continue
        callers = [caller for caller, _ in project.types.callers.get(function, ())]
        if not callers or any(_SWITCH.search(text_of(caller)) for caller in callers):
            continue
        yield _report(function, forward)


def _forward(project: Project, function: Method) -> Forward | None:
    """The first forward that a function runs of a wrapped model, in its own body or one call deeper."""
    wrapped = project.analysis(Wrapped)
    wraps = _WRAPPING.search(function.module.source.text) is not None
    for call in function.facts.calls:
        if wraps and _MODEL.match(call.target) or wrapped.at(function, call.target, call.at):
            return Forward(call.target, call)
        for target in project.types.called(function, call.target):
            inner = next((c for c in target.facts.calls if wrapped.at(target, c.target, c.at)), None)
            if inner is not None and not _SWITCH.search(text_of(target)):
                return Forward(inner.target, call)
    return None


def _without_gradient(function: Method) -> bool:
    decorated = any(_NO_GRADIENT.search(d) for d in function.facts.decorators)
    return decorated or any(
        _NO_GRADIENT.search(g.text) for c in function.facts.calls for g in c.guards if g.kind == "with"
    )


def _report(function: Method, forward: Forward) -> Finding:
    through = "" if forward.call.target == forward.model else f", through `{forward.call.target}`,"
    return RULE.finding(
        function.path,
        forward.call.at,
        f"`{function.qualname}` runs `{forward.model}`{through} without having switched it to evaluation: dropout"
        " stays on",
        help=f"call `{forward.model}.eval()` on all ranks before, and `{forward.model}.train()` after",
        context=f"{function.qualname}:{forward.model}",
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
    """
import deepspeed
import torch

class Trainer:
    def __init__(self, model):
        self.model = model

    def compute_loss(self, batch):
        return self.model(batch).loss

    @torch.no_grad()
    def evaluate(self, batches):
        return sum(self.compute_loss(batch) for batch in batches)  # error: MP521

    def fit(self, batches):
        self.model.train()
        return self.evaluate(batches)

def main(model, batches):
    engine, _, _, _ = deepspeed.initialize(model=model)
    Trainer(engine).fit(batches)
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
    """
import deepspeed
import torch

class Trainer:
    def __init__(self, model, judge):
        self.model = model
        self.judge = judge

    def compute_loss(self, batch):
        self.model.eval()
        return self.model(batch).loss

    def score(self, batch):
        return self.judge(batch)

    @torch.no_grad()
    def evaluate(self, batches):
        return sum(self.compute_loss(batch) - self.score(batch) for batch in batches)

    def fit(self, batches):
        return self.evaluate(batches)

def main(model, judge, batches):
    engine, _, _, _ = deepspeed.initialize(model=model)
    Trainer(engine, judge).fit(batches)
""",
]
