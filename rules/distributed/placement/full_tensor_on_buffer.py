"""`full_tensor()` on everything in a state dict.

What it does
    Reports `.full_tensor()` on the values of a `state_dict()` (or of `named_buffers()`) in a loop that does not ask
    whether each is a DTensor. Silent about `state_dict()` where the project's modules register buffers with
    `persistent=False` only, which are no part of it.

Why is this bad
    `fully_shard` leaves buffers alone: a state dict holds plain tensors beside DTensors, and a plain tensor has no
    `full_tensor`. It works until somebody trains a model with a persistent buffer.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.full_tensor
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.access_paths import ELEMENT, Path
from validator.flow.calls.buffers import keeps_buffers_out
from validator.flow.queries.base import Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import asks_first, whole
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP528", "full-tensor-on-buffer", "warning", "0.1.0", tokens=("full_tensor",))

_BUFFERS = {".buffers()": "buffers", ".named_buffers()": "named_buffers", ".state_dict()": "state_dict"}


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for call in queries.named("full_tensor"):
        tensor = call.receiver
        source = _source(whole(tensor)) if tensor is not None else ""
        if source == "state_dict" and keeps_buffers_out(queries.flow):
            continue
        if tensor is None or not source or is_aside(call.unit.path) or asks_first(call):
            continue
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{tensor.text}.full_tensor()` in `{call.unit.qualname}` is called on every value of `{source}()`,"
            " buffers that are plain tensors included",
            help=f"ask first: `{tensor.text}.full_tensor() if isinstance({tensor.text}, DTensor) else {tensor.text}`",
            context=f"{call.unit.qualname}:{tensor.text}",
        )


def _source(path: Path) -> str:
    """What holds buffers too, where a value is any element of it."""
    for position, step in enumerate(path):
        if step in _BUFFERS and ELEMENT in path[position:]:
            return _BUFFERS[str(step)]
    return ""


INCORRECT = [
    """
import torch.distributed as dist

def gather(model):
    return {k: v.full_tensor() for k, v in model.state_dict().items()}  # error: MP528
""",
    # the buffers themselves, and one that is a part of the state
    """
import torch
import torch.distributed as dist
from torch import nn


class Rotary(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("theta", torch.arange(size), persistent=False)
        self.register_buffer("scale", torch.ones(size))


def gather(model):
    return {k: v.full_tensor() for k, v in model.state_dict().items()}  # error: MP528


def gather_buffers(model):
    return [each.full_tensor() for each in model.buffers()]  # error: MP528
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.distributed.tensor import DTensor

def gather(model):
    return {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in model.state_dict().items()}
""",
    """
import torch.distributed as dist

def gather(model):
    return {k: v.full_tensor() for k, v in model.named_parameters()}
""",
    # buffers that are no part of the state
    """# file: model.py
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Rotary(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("theta", torch.arange(size), persistent=False)
        self.rows = nn.Linear(size, size)


def shard(model):
    fully_shard(model)
    return model


def gather(model):
    return {k: v.full_tensor() for k, v in model.state_dict().items()}


print(gather(shard(Rotary(8))))
# file: tests/test_model.py
import torch
from torch import nn


def test_buffers():
    model = nn.Linear(2, 2)
    model.register_buffer("scale", torch.ones(2))
    assert "scale" in model.state_dict()
""",
]
