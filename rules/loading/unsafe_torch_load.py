"""`torch.load` that runs the code inside the file it loads.

What it does
    Reports `torch.load` without `weights_only` in a project that admits a torch before 2.6, where the default was
    False, or that does not say: a warning where the file was fetched over a network, through whatever functions its
    path came, otherwise a note: most files that a program loads it wrote itself. `weights_only=False` is meant, and a
    note. Tests, examples and scripts are silent. The fix is not safe: what holds more than tensors no longer loads.

Why is this bad
    A pickle runs what its author wants. A checkpoint from a hub or a shared disk then owns the training machine.

References
    https://docs.pytorch.org/docs/stable/generated/torch.load.html
    https://pytorch.org/blog/pytorch2-6/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validator.analysis.requirements import Requirements
from validator.facts.model import Call
from validator.finding import Finding
from validator.flow.objects import Objects
from validator.flow.queries.network import is_fetched
from validator.flow.queries.outside_program import is_by_hand
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP802", "unsafe-torch-load", "warning", "0.1.0", tokens=("torch.load", "load("), fix="unsafe", solves=True)

_SAFE_SINCE = (2, 6)
_HELP = "add `weights_only=True`"
_VLLM_WITH_IT = (0, 8)  # vLLM pins torch; from 0.8 on to 2.6 and later


def check_project(project: Project) -> Iterator[Finding]:
    requirements = project.analysis(Requirements)
    for function, call in project.calls("load"):
        if is_by_hand(function.path) or project.dotted(function, call.target) != "torch.load":
            continue
        only = call.keyword("weights_only")
        if any(a.keyword == "**" for a in call.args) or (only is not None and only.value != "False"):
            continue
        if only is not None:
            yield _explicit(function, call)
        else:
            oldest = requirements.oldest("torch", function.module.source.absolute)
            if oldest < _SAFE_SINCE if oldest else not _implied(requirements, function):
                yield _implicit(function, call, oldest, _is_fetched(project, function, call))


def _implied(requirements: Requirements, function: Method) -> bool:
    """Whether another requirement brings a torch whose default is safe."""
    vllm = requirements.oldest("vllm", function.module.source.absolute)
    return vllm is not None and vllm >= _VLLM_WITH_IT


def _is_fetched(project: Project, function: Method, call: Call) -> bool:
    place = project.analysis(Objects).call_at(function.module, call.at)
    path = place.argument("f", 0) if place is not None else None
    return path is not None and is_fetched(path)


def _explicit(function: Method, call: Call) -> Finding:
    return RULE.finding(
        function.path,
        call.at,
        f"`torch.load` in `{function.qualname}` runs whatever code the file holds: `weights_only=False`",
        help="load tensors with `weights_only=True`, name other classes with `torch.serialization.safe_globals`,"
        " or save as safetensors",
        context=f"{function.qualname}:{call.args[0].value if call.args else ''}",
        severity="note",
    )


def _implicit(function: Method, call: Call, oldest: tuple[int, ...] | None, fetched: bool) -> Finding:
    bound = f"torch {'.'.join(map(str, oldest))}, which the project admits," if oldest else "torch before 2.6"
    source = call.args[0].value if call.args else ""
    return RULE.finding(
        function.path,
        call.at,
        f"`torch.load({source})` in `{function.qualname}` says nothing of `weights_only`: {bound} runs whatever"
        " code the file holds",
        help=_HELP,
        context=f"{function.qualname}:{source}",
        severity="warning" if fetched else "note",
    )


def fix(node: Any, finding: Finding) -> Any:
    """Add `weights_only=True` to a call that does not say."""
    import libcst as cst

    if not isinstance(node, cst.Call) or finding.help != _HELP:
        return None
    plain = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return node.with_changes(args=[*node.args, cst.Arg(cst.Name("True"), cst.Name("weights_only"), plain)])


INCORRECT = [
    """
import torch

def load_model(model, path):
    model.load_state_dict(torch.load(path, map_location="cpu"))  # error: MP802
""",
    """
import os

import torch
from huggingface_hub import snapshot_download

def read(path):
    return torch.load(path, map_location="cpu")  # error: MP802

def load_model(model, name):
    folder = snapshot_download(name)
    model.load_state_dict(read(os.path.join(folder, "model.bin")))
""",
]

CORRECT = [
    """
import torch

def load_model(model, path):
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
""",
    """
import torch

def load_model(model, path, **options):
    model.load_state_dict(torch.load(path, **options))
""",
    """
from safetensors import torch as safe

def load_model(model, path):
    model.load_state_dict(safe.load(path))
""",
]
