"""Each layer compiled as a whole graph, without room for them all.

What it does
    Notes `torch.compile(layer, fullgraph=True)` (or `layer.compile(fullgraph=True)`) in a loop over layers, in a
    project that never raises Dynamo's limit of recompilations. Silent where the project makes these layers itself and
    gives none of them its number (`ModuleList(Block(config) for _ in range(n))`).

Why is this bad
    Layers share one piece of code. If anything in a layer is guarded by its number (`layer_idx`), each layer is a
    recompilation; beyond the limit (8) `fullgraph=True` raises, at the ninth layer of a model that ran with four.

References
    https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.facts.text import path_of
from validator.finding import Finding
from validator.flow.queries.outside_program import is_aside
from validator.project import Module, Project
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
            names = {name for g in call.guards if g.kind == "loop" for name in _LAYERS.findall(g.text)}
            if not _without_numbers(project, names):
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


def _without_numbers(project: Project, names: set[str]) -> bool:
    """Whether the project makes the layers of such a name, all of them without their number."""
    modules = (m for m in project.modules.values() if b"ModuleList" in m.source.data and m.facts.problem is None)
    values = [value for module in modules if not is_aside(module.path) for value in _given(module, names)]
    return bool(values) and all(map(_makes_equal, values))


def _given(module: Module, names: set[str]) -> Iterator[ast.expr]:
    """What a module makes attributes of these names of; read from its syntax, for few models hold facts of interest."""
    for node in ast.walk(module.source.tree):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Attribute) and t.attr in names for t in node.targets):
            yield node.value


def _makes_equal(value: ast.expr) -> bool:
    """Whether `ModuleList(Block(…) for _ in …)` makes its blocks without a look at which one it makes."""
    if not isinstance(value, ast.Call) or path_of(value.func).rpartition(".")[2] != "ModuleList" or not value.args:
        return False
    made = value.args[0]
    if not isinstance(made, ast.ListComp | ast.GeneratorExp):
        return False
    turns = {n.id for each in made.generators for n in ast.walk(each.target) if isinstance(n, ast.Name)}
    return turns.isdisjoint(n.id for n in ast.walk(made.elt) if isinstance(n, ast.Name))


INCORRECT = [
    """
import torch

def compile_layers(model):
    for layer in model.layers:
        layer.forward = torch.compile(layer.forward, fullgraph=True)  # error: MP603
""",
    """
import torch

class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(config, number) for number in range(config.layers))

def compile_layers(model):
    for block in model.blocks:
        torch.compile(block, fullgraph=True)  # error: MP603
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
    """
import torch

class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(config) for _ in range(config.layers))

def compile_layers(model):
    for block in model.blocks:
        torch.compile(block, fullgraph=True)
""",
]
