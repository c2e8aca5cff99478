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

import ast
from collections.abc import Iterator

from validator.analysis.bodies import Bodies
from validator.analysis.places import is_aside, text_of
from validator.facts.text import path_of
from validator.finding import Finding
from validator.project import Method, Project, guarded_by
from validator.rule import Rule

RULE = Rule("MP528", "full-tensor-on-buffer", "warning", "0.1.0", tokens=("full_tensor",))

_ASKING = ("DTensor", "hasattr", "is_dtensor", "AttributeError")


def check_project(project: Project) -> Iterator[Finding]:
    bodies = project.analysis(Bodies)
    for function in project.functions():
        calls = [c for c in function.facts.calls if c.method == "full_tensor"]
        if not calls or is_aside(function.path) or any(word in text_of(function) for word in _ASKING):
            continue
        node = bodies.node(function)
        names = dict(_values(function, node)) if node is not None else {}
        for call in calls:
            root = call.receiver.partition(".")[0]
            if root in names and not guarded_by(call.guards, "dtensor"):
                yield RULE.finding(
                    function.path,
                    call.at,
                    f"`{call.target}()` in `{function.qualname}` is called on every value of `{names[root]}`,"
                    " buffers that are plain tensors included",
                    help=f"ask first: `{root}.full_tensor() if isinstance({root}, DTensor) else {root}`",
                    context=f"{function.qualname}:{root}",
                )


def _values(function: Method, node: ast.AST) -> Iterator[tuple[str, str]]:
    """(variable, source) of loops over the values of a state dict or over buffers."""
    held = {row.target for row in function.facts.assigns if row.kind == "call" and row.value.endswith(".state_dict")}
    for each in ast.walk(node):
        if not isinstance(each, ast.For | ast.comprehension) or not isinstance(each.iter, ast.Call):
            continue
        source = path_of(each.iter.func)
        target = each.target.elts[-1] if isinstance(each.target, ast.Tuple) else each.target
        holder, _, method = source.rpartition(".")
        plain = method in ("items", "values") and (holder in held or holder.endswith(".state_dict()"))
        if isinstance(target, ast.Name) and (plain or method in ("named_buffers", "buffers")):
            yield target.id, ast.unparse(each.iter)


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
