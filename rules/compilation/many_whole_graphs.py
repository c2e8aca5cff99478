"""Each layer compiled as a whole graph, without room for them all.

What it does
    Notes `torch.compile(layer, fullgraph=True)` (or `layer.compile(fullgraph=True)`) in a loop over layers, in a
    project that never raises Dynamo's limit of recompilations.

Why is this bad
    Layers share one piece of code. If anything in a layer is guarded by its number (`layer_idx`), each layer is a
    recompilation; beyond the limit (8) `fullgraph=True` raises, at the ninth layer of a model that ran with four.

References
    https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP603", "many-whole-graphs", "note", "0.1.0", tokens=("fullgraph",))

_LAYERS = re.compile(r"layers|blocks|children\(\)|\.h\b")
_LIMITS = re.compile(r"(recompile_limit|cache_size_limit|accumulated_\w*limit)$")


def check_project(project: Project) -> Iterator[Finding]:
    found = []
    for function, call in project.calls("compile"):
        whole = call.keyword("fullgraph")
        looped = any(g.kind == "loop" and _LAYERS.search(g.text) for g in call.guards)
        if whole is not None and whole.value == "True" and looped and not is_aside(function.path):
            found.append((function, call))
    if found and any(_LIMITS.search(row.target) for function in project.functions() for row in function.facts.assigns):
        return
    for function, call in found:
        yield RULE.finding(
            function.path,
            call.at,
            f"`{function.qualname}` compiles every layer with `fullgraph=True`; with the layer's number in a"
            " guard more than 8 of them raise",
            help="set `torch._dynamo.config.recompile_limit` above the number of layers, or keep the layer's"
            " number out of its forward",
            context=function.qualname,
        )


INCORRECT = [
    """
import torch

def compile_layers(model):
    for layer in model.layers:
        layer.forward = torch.compile(layer.forward, fullgraph=True)  # error: MP603
""",
]

CORRECT = [
    """
import torch

def compile_layers(model):
    torch._dynamo.config.recompile_limit = 2 * len(model.layers)
    for layer in model.layers:
        layer.forward = torch.compile(layer.forward, fullgraph=True)
""",
    """
import torch

def compile_model(model):
    return torch.compile(model, fullgraph=True)
""",
]
