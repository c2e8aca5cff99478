"""`full_tensor()` on everything in a state dict.

What it does
    Reports `.full_tensor()` on the values of a `state_dict()` (or of `named_buffers()`) in a loop that does not ask
    whether each is a DTensor.

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
from validator.flow.queries.base import Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import asks_first, whole
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP528", "full-tensor-on-buffer", "warning", "0.1.0", tokens=("full_tensor",))

_BUFFERS = {".buffers()": "buffers", ".named_buffers()": "named_buffers", ".state_dict()": "state_dict"}


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).named("full_tensor"):
        tensor = call.receiver
        source = _source(whole(tensor)) if tensor is not None else ""
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
]
