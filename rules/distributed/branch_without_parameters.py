"""A sub-module that some batches, or some ranks, leave out of the forward pass.

What it does
    In a module whose objects are wrapped in DDP without `find_unused_parameters=True`, or in FSDP, reports a
    sub-module that `forward` calls only under a condition on the contents or the presence of data, on chance or on
    the rank. Silent where the other way calls the sub-module too (a dummy forward), and under conditions that are
    the same on all ranks, such as the configuration or `self.training`.

Why is this bad
    DDP waits for the gradient of every parameter: in the first step without the branch it raises in the next forward,
    or reduces buckets in another order than the other ranks. Under FSDP the ranks that take the branch wait in the
    all-gather of its parameters for those that do not.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.analysis.conditions import Taint
from validator.analysis.places import is_aside
from validator.analysis.sharding import Wrapped, Wrapping
from validator.analysis.taint import Taints
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP542", "branch-without-parameters", "warning", "0.1.0",
    tokens=("DistributedDataParallel", "DDP", "fully_shard", "FullyShardedDataParallel", "FSDP"),
)  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    for cls, wrapped in project.analysis(Wrapping).classes.items():
        forward = cls.methods.get("forward")
        if forward is None or is_aside(cls.path) or wrapped.finds_unused:
            continue
        yield from _judge(project, cls, forward, wrapped)


def _judge(project: Project, cls: ClassDef, forward: Method, wrapped: Wrapped) -> Iterator[Finding]:
    modules = _modules(project, cls)
    node = forward.node
    if node is None or not modules:
        return
    taints = project.analysis(Taints)
    reported: set[str] = set()
    for branch in own_nodes(node):
        if not isinstance(branch, ast.If | ast.IfExp):
            continue
        arms = [_called(branch.body), _called(branch.orelse)]
        everywhere = _called([n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)], outside=branch)
        lone = {name: call for name, call in arms[0].items() if name not in arms[1]}
        lone |= {name: call for name, call in arms[1].items() if name not in arms[0]}
        lone = {n: c for n, c in lone.items() if n in modules and n not in everywhere and n not in reported}
        taint = taints.condition(branch.test, forward).taint if lone else None
        for name, call in lone.items() if taint is not None else ():
            assert taint is not None
            reported.add(name)
            yield _report(forward, name, call, branch, taint, wrapped)


def _modules(project: Project, cls: ClassDef) -> set[str]:
    """The attributes that hold modules with parameters: made by torch.nn or by a class with a `forward`."""
    found: set[str] = set()
    for method in cls.every_method():
        for row in method.facts.assigns:
            if row.kind != "call" or not row.target.startswith("self."):
                continue
            dotted = project.dotted(method, row.value)
            made = project.types.of(method, row.value + "()")
            if (dotted.startswith("torch.nn.") and dotted.rpartition(".")[2] in _WITH_PARAMETERS) or any(
                c.find("forward") is not None and c.find("__init__") is not None for c in made
            ):
                found.add(row.target)
    return found


_WITH_PARAMETERS = frozenset({
    "Linear", "Bilinear", "Embedding", "EmbeddingBag", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "LayerNorm",
    "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "MultiheadAttention", "LSTM", "GRU", "TransformerEncoder",
    "TransformerEncoderLayer", "TransformerDecoderLayer", "Sequential", "ModuleList",
})  # fmt: skip


def _called(body: list[ast.stmt] | ast.expr, outside: ast.AST | None = None) -> dict[str, ast.Call]:
    """The attributes of `self` that code calls, by path, with the calls; what lies inside `outside` left out."""
    found: dict[str, ast.Call] = {}
    stack: list[ast.AST] = list(body) if isinstance(body, list) else [body]
    while stack:
        each = stack.pop()
        if each is outside:
            continue
        if isinstance(each, ast.Call):
            path = path_of(each.func)
            if path.startswith("self.") and path.count(".") == 1:
                found[path] = each
        stack += ast.iter_child_nodes(each)
    return found


def _report(
    forward: Method, name: str, call: ast.Call, branch: ast.If | ast.IfExp, taint: Taint, wrapped: Wrapped
) -> Finding:
    way = "DDP without `find_unused_parameters`" if wrapped.kind == "DDP" else "FSDP"
    return RULE.finding(
        forward.path,
        forward.module.source_text.at(call),
        f"`{forward.qualname}` calls `{name}` only where `{taint.why}` says so, which differs between ranks; the"
        f" model is wrapped in {way}",
        help=f"call `{name}` on every rank, on a made-up input whose result counts zero times where there is none"
        + (", or set `find_unused_parameters=True`" if wrapped.kind == "DDP" else ""),
        related=[
            Related(forward.path, branch.lineno, f"the ranks part here, on `{taint.why}`"),
            Related(wrapped.path, wrapped.line, "the model is wrapped here"),
        ],
        context=f"{forward.qualname}:{name}",
    )


INCORRECT = [
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.text = torch.nn.Linear(8, 8)
        self.vision = torch.nn.Linear(8, 8)

    def forward(self, input_ids, pixel_values=None):
        hidden = self.text(input_ids)
        if pixel_values is not None:
            hidden = hidden + self.vision(pixel_values)  # error: MP542
        return hidden

def build():
    return DDP(Model())
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cheap = torch.nn.Linear(8, 8)
        self.dear = torch.nn.Linear(8, 8)

    def forward(self, batch):
        hidden = self.cheap(batch)
        if batch.max().item() > 1.0:
            hidden = self.dear(hidden)  # error: MP542
        return hidden

def build():
    model = Model()
    fully_shard(model)
    return model
""",
]

CORRECT = [
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.text = torch.nn.Linear(8, 8)
        self.vision = torch.nn.Linear(8, 8)

    def forward(self, input_ids, pixel_values=None):
        hidden = self.text(input_ids)
        if pixel_values is not None:
            hidden = hidden + self.vision(pixel_values)
        else:
            hidden = hidden + 0.0 * self.vision(torch.zeros(1, 8)).sum()
        return hidden

def build():
    return DDP(Model())
""",
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.text = torch.nn.Linear(8, 8)
        self.vision = torch.nn.Linear(8, 8)

    def forward(self, input_ids, pixel_values=None):
        hidden = self.text(input_ids)
        if pixel_values is not None:
            hidden = hidden + self.vision(pixel_values)
        return hidden

def build():
    return DDP(Model(), find_unused_parameters=True)
""",
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.text = torch.nn.Linear(8, 8)
        self.adapter = torch.nn.Linear(8, 8)
        self.config = config

    def forward(self, input_ids):
        hidden = self.text(input_ids)
        if self.config.adapt:
            hidden = self.adapter(hidden)
        return hidden

def build(config):
    return DDP(Model(config))
""",
]
