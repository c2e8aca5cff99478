"""A dimension of a device mesh that is used where it may not have been made.

What it does
    In a function that builds a mesh from a list of names, of which it keeps those whose size is above one, reports
    `mesh["name"]` where no condition around the place speaks of that dimension.

Why is this bad
    With size one the dimension does not exist: `KeyError` at start, and only for the combination of sizes that
    nobody tried (context parallelism without data parallelism).

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.init_device_mesh
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bodies import Bodies
from validator.analysis.places import is_aside
from validator.facts.model import Guard
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP540", "mesh-dimension-absent", "error", "0.1.0", tokens=("init_device_mesh",))

_KEPT = re.compile(r"^\w+ (> 1|!= 1|>= 2)$")


def check_project(project: Project) -> Iterator[Finding]:
    bodies = project.analysis(Bodies)
    for function in project.functions():
        made = next((c for c in function.facts.calls if c.method == "init_device_mesh"), None)
        names = made.keyword("mesh_dim_names") if made is not None else None
        if made is None or names is None or names.kind != "path" or is_aside(function.path):
            continue
        holders = {row.target for row in function.facts.assigns if row.value == made.target}
        if not _chosen(function):
            continue
        node = bodies.node(function)
        for name, place, first in _used(node, holders) if node is not None else ():
            at = function.module.source_text.at(place)
            guards = _guards(function, at[0])
            if any(_speaks_of(guard, name) for guard in guards):
                continue
            yield RULE.finding(
                function.path,
                at,
                f"`{function.qualname}` takes the dimension `{name}` of a mesh that has it only where its size is"
                " above 1",
                help=f"ask for the size of `{name}` before using it, as for the other dimensions",
                related=[Related(function.path, made.at[0], "the mesh is made here, of the dimensions that were kept")],
                context=f"{function.qualname}:{first}:{name}",
            )


def _chosen(function: Method) -> bool:
    """Whether names are collected one by one, under a test of their size."""
    appending = (
        c
        for c in function.facts.calls
        if c.method == "append" and c.receiver in ("names", "mesh_dim_names", "dim_names")
    )
    return any(_KEPT.match(g.text) and not g.negated for c in appending for g in c.guards if g.kind == "if")


def _used(node: ast.AST, holders: set[str]) -> Iterator[tuple[str, ast.AST, str]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name) and each.value.id in holders:
            keys = each.slice.elts if isinstance(each.slice, ast.Tuple) else [each.slice]
            texts = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            for text in texts[:1]:
                yield text, each, "_".join(texts)


def _guards(function: Method, line: int) -> tuple[Guard, ...]:
    """The conditions around a line, by the calls that stand on it."""
    near = [call.guards for call in function.facts.calls if call.at[0] <= line <= call.at[2]]
    return max(near, key=len, default=())


def _speaks_of(guard: Guard, name: str) -> bool:
    words = name.split("_")
    return (
        guard.kind in ("if", "try")
        and not guard.negated
        and (
            guard.kind == "try"
            or name in guard.text
            or re.search(rf"\b(self\.)?{re.escape(words[0])}(_\w+)?\b", guard.text) is not None
        )
    )


INCORRECT = [
    """
from torch.distributed.device_mesh import init_device_mesh

class Dims:
    def build_mesh(self, kind):
        dims, names = [], []
        for d, name in zip([self.dp, self.cp], ["dp", "cp"]):
            if d > 1:
                dims.append(d)
                names.append(name)
        names = tuple(names)
        mesh = init_device_mesh(kind, dims, mesh_dim_names=names)
        if self.cp > 1:
            mesh["dp", "cp"]._flatten(mesh_dim_name="dp_cp")  # error: MP540
        return mesh
""",
]

CORRECT = [
    """
from torch.distributed.device_mesh import init_device_mesh

class Dims:
    def build_mesh(self, kind):
        dims, names = [], []
        for d, name in zip([self.dp, self.cp], ["dp", "cp"]):
            if d > 1:
                dims.append(d)
                names.append(name)
        mesh = init_device_mesh(kind, dims, mesh_dim_names=names)
        if self.cp > 1 and self.dp_shard > 1:
            mesh["dp", "cp"]._flatten(mesh_dim_name="dp_cp")
        return mesh
""",
    """
from torch.distributed.device_mesh import init_device_mesh

def build_mesh(kind, dims):
    names = ("dp", "cp")
    mesh = init_device_mesh(kind, dims, mesh_dim_names=names)
    return mesh["dp"]
""",
]
