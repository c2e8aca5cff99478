"""A reduction over the data-parallel group of tokens that context parallelism has split.

What it does
    Reports `get_data_parallel_group()` without `with_context_parallel=True` whose group is used for a collective, in a
    function that cuts its sequences by the context-parallel rank (it asks for the size or the rank of context
    parallelism). Reports an `all_reduce` of what was computed inside torch's `context_parallel` over dimensions of a
    device mesh that leave its context dimension out, where nothing in the function reduces it over that one too.

Why is this bad
    Each context-parallel rank holds a part of every sequence. A mean, a variance or a token count over the group
    without them is computed once per part: the parts of one sequence are normalised differently.

References
    https://docs.pytorch.org/tutorials/unstable/context_parallel.html
    https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/core/core.parallel_state.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.analysis.collectives import dimension
from validator.analysis.meshes import Mesh, Meshes
from validator.analysis.places import is_aside
from validator.analysis.ring_parts import Part as RingPart
from validator.analysis.ring_parts import RingParts
from validator.facts.model import Call
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP512", "group-without-context-parallel", "error", "0.1.0", tokens=("get_data_parallel_group", "context_parallel")
)

_ASKS = frozenset({"get_context_parallel_world_size", "get_context_parallel_rank"})
_EXTREME = re.compile(r"\b(MAX|MIN)$")  # of a count that all context-parallel ranks share
_REDUCTIONS = ("all_reduce",)
_REDUCING = ("reduce", "whiten", "mean", "var", "norm", "sum", "aggregate")


def check_project(project: Project) -> Iterator[Finding]:
    yield from _of_megatron(project)
    parts, meshes = project.analysis(RingParts), project.analysis(Meshes)
    for function in dict.fromkeys(function for function, _ in project.calls("all_reduce")):
        for part in parts.of(function) if not is_aside(function.path) else ():
            yield from _of_mesh(meshes, function, part)


def _of_megatron(project: Project) -> Iterator[Finding]:
    for function, call in project.calls("get_data_parallel_group"):
        if is_aside(function.path) or call.args:
            continue
        slicing = next((c for c in function.facts.calls if c.method in _ASKS), None)
        reducing = _reduction(function, call) if slicing is not None else None
        if slicing is None or reducing is None:
            continue
        yield RULE.finding(
            function.path,
            call.at,
            f"`{function.qualname}` splits sequences over context-parallel ranks, but `{reducing.method}`"
            " works on the"
            " data-parallel group without them",
            help="ask for `get_data_parallel_group(with_context_parallel=True)`",
            related=[
                Related(function.path, slicing.at[0], f"`{slicing.target}()` is asked here"),
                Related(function.path, reducing.at[0], f"the group goes to `{reducing.method}` here"),
            ],
            context=f"{function.qualname}:{reducing.method}",
        )


def _of_mesh(meshes: Meshes, function: Method, part: RingPart) -> Iterator[Finding]:
    """The reduction of what was computed on parts, where each of them leaves the ring out."""
    node = function.node
    calls = [n for n in own_nodes(node) if isinstance(n, ast.Call)] if node is not None else []
    rows = [n for n in calls if path_of(n.func).endswith(_REDUCTIONS) and n.args and _path(n.args[0]) in part.products]
    lacking = [_lacking(meshes, function, call) for call in rows]
    extreme = any(_EXTREME.search(ast.unparse(a)) for n in rows for a in _operation(n))
    if extreme or None in lacking or not lacking or lacking[0] is None:
        return
    call, (keys, ring, made) = rows[0], lacking[0]
    value, names = ast.unparse(call.args[0]), '", "'.join(keys)
    yield RULE.finding(
        function.path,
        function.module.source_text.at(call),
        f"`{function.qualname}` computes `{value}` on this rank's part of each sequence, but `{path_of(call.func)}`"
        f" reduces it over {', '.join(f'`{key}`' for key in keys)} only: the parts of the other `{ring}` ranks are"
        " left out",
        help=f'reduce over `{ring}` as well: flatten it with the others, `mesh["{names}", "{ring}"]._flatten("loss")`',
        related=[
            Related(function.path, part.place.lineno, "the sequences are split here"),
            Related(made.function.path, made.call.lineno, f"the mesh with its dimension `{ring}` is made here"),
        ],
        context=f"{function.qualname}:{value}:{names}",
    )


def _operation(call: ast.Call) -> list[ast.expr]:
    return [*call.args[1:2], *(k.value for k in call.keywords if k.arg in ("op", "reduceOp"))]


def _path(node: ast.expr) -> str:
    return path_of(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _lacking(meshes: Meshes, function: Method, call: ast.Call) -> tuple[tuple[str, ...], str, Mesh] | None:
    """The dimensions that a reduction works over, and the ring that they lack; None where that is not known."""
    group = next((k.value for k in call.keywords if k.arg == "group"), call.args[2] if len(call.args) > 2 else None)
    found = (meshes.part(function, group) if group is not None else None) or []
    for keys, mesh in ((p.keys, p.mesh) for p in found):
        rings = [n for n in mesh.names or () if dimension(n) == "cp" and not _is_one(mesh.size(n))]
        data = bool(keys) and all(key in (mesh.names or ()) and dimension(key) == "dp" for key in keys)
        if not rings or not data or len(found) > 1:
            return None
        return keys, rings[0], mesh
    return None


def _is_one(size: ast.expr | None) -> bool:
    return isinstance(size, ast.Constant) and size.value == 1


def _reduction(function: Method, group: Call) -> Call | None:
    """The call that reduces over the group: it gets the call's result directly or under a name."""
    names = {
        row.target
        for row in function.facts.assigns
        if row.kind == "call" and row.value == group.target and row.at[:2] <= group.at[:2]
    }
    for call in function.facts.calls:
        if not any(word in call.method for word in _REDUCING) or any(_EXTREME.search(a.value) for a in call.args):
            continue
        for argument in call.args:
            if argument.kind == "path" and argument.value in names and call.at[0] >= group.at[0]:
                return call
            if argument.kind == "call" and argument.at == group.at:
                return call
    return None


INCORRECT = [
    """
from megatron.core import mpu
from stats import masked_whiten

def advantages(values, mask):
    size = mpu.get_context_parallel_world_size()
    if size > 1:
        mask = mask.chunk(size)[mpu.get_context_parallel_rank()]
    group = mpu.get_data_parallel_group()  # error: MP512
    return masked_whiten(values, mask, process_group=group)
""",
    """
import contextlib
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

class Sizes:
    def __init__(self, dp, cp):
        self.dp, self.cp = dp, cp

    @property
    def mesh(self):
        return init_device_mesh("cuda", (self.dp, self.cp), mesh_dim_names=("dp", "cp"))

class Trainer:
    def __init__(self, dp, cp):
        self.sizes = Sizes(dp, cp)

    def split(self, tokens, labels):
        if self.sizes.cp == 1:
            return contextlib.nullcontext()
        return context_parallel(self.sizes.mesh["cp"], buffers=[tokens, labels], buffer_seq_dims=[1, 1])

    def evaluate(self, loader):
        total, rows = 0.0, 0
        for tokens, labels in loader:
            with self.split(tokens, labels):
                total += self.loss(self.model(tokens), labels)
                rows += tokens.size(0)
        mean = total / rows
        dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=self.sizes.mesh["dp"].get_group())  # error: MP512
        return mean
""",
    """
import contextlib
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

class Trainer:
    def setup(self, dp, cp):
        self.cp = cp
        self.mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
        self.dp_group = self.mesh.get_group("dp")

    def evaluate(self, loader):
        losses = []
        for tokens, labels in loader:
            ring = self.mesh["cp"]
            split = context_parallel(ring, buffers=[tokens, labels]) if self.cp > 1 else contextlib.nullcontext()
            with torch.no_grad(), split:
                loss = self.model(tokens, labels)
            losses.append(loss)
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=self.dp_group)  # error: MP512
        return mean
""",
]

CORRECT = [
    """
from megatron.core import mpu
from stats import masked_whiten

def advantages(values, mask):
    size = mpu.get_context_parallel_world_size()
    if size > 1:
        mask = mask.chunk(size)[mpu.get_context_parallel_rank()]
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    return masked_whiten(values, mask, process_group=group)
""",
    """
from megatron.core import mpu
from stats import masked_whiten

def advantages(values, mask):
    return masked_whiten(values, mask, process_group=mpu.get_data_parallel_group())
""",
    """
import torch.distributed as dist
from megatron.core import mpu

def schedule(count):
    cp = mpu.get_context_parallel_world_size()
    dist.all_reduce(count, op=dist.ReduceOp.MAX, group=mpu.get_data_parallel_group())
    return count * cp
""",
    """
from megatron.core import mpu

def schedule(batches):
    cp = mpu.get_context_parallel_world_size()
    return split(batches, mpu.get_data_parallel_group().rank(), cp)
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

class Trainer:
    def setup(self, dp, cp):
        self.mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
        self.mesh["dp", "cp"]._flatten("loss")

    def evaluate(self, loader):
        rows = total = other = worst = 0.0
        data = self.mesh["dp"].get_group()
        for tokens, labels in loader:
            with context_parallel(self.mesh["cp"], buffers=[tokens, labels]):
                loss = self.loss(self.model(tokens), labels)
                rows += len(tokens)
            total += loss
            other += loss
            worst = max(worst, loss)
        dist.all_reduce(total, group=self.mesh["loss"].get_group())
        dist.all_reduce(rows, group=data)
        for name in ("dp", "cp"):
            dist.all_reduce(other, group=self.mesh[name].get_group())
        dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=data)
        return total, rows, other, worst

    def in_two_steps(self, tokens):
        with context_parallel(self.mesh["cp"], buffers=[tokens]):
            loss = self.model(tokens)
        dist.all_reduce(loss, group=self.mesh["cp"].get_group())
        dist.all_reduce(loss, group=self.mesh["dp"].get_group())
        return loss
""",
]
