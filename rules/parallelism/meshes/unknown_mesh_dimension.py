"""A dimension of a device mesh that the mesh does not have.

What it does
    Follows a mesh from `init_device_mesh` with literal names to where it is indexed or asked for a group
    (`mesh["sp"]`, `mesh.get_group("sp")`), through attributes, properties, arguments, the results of functions and the
    fields of dataclasses, and reports a name that is none of its dimensions and that no `_flatten` gives. Silent in a
    function that asks whether the mesh has the dimension, and where names are computed.

Why is this bad
    It raises `KeyError` when that line is reached: at start, or after loading the model, and often only with the
    option that needs the group.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.DeviceMesh
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.analysis.places import outermost, text_of
from validator.analysis.sizes.meshes import Meshes, Part
from validator.errors import nearest
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP411", "unknown-mesh-dimension", "error", "0.1.0", tokens=("init_device_mesh", "mesh"), solves=True)

_INDEX = ".mesh_dim_names.index"
_WORDS = ("mesh_dim_names", "mesh[", "mesh()[")
_ASKS = frozenset({"get_group", "get_local_rank"})


def check_project(project: Project) -> Iterator[Finding]:
    meshes = project.analysis(Meshes)
    if not any(mesh.names for mesh in meshes.all) or meshes.names_computed:
        return
    for function in project.functions():
        if is_aside(function.path) or not _handles_mesh(function):
            continue
        for node, owner, key in _asked(meshes, function):
            parts = meshes.part(function, owner) or []
            names = {n for p in parts for n in (p.keys or p.mesh.names or ())}
            known = all(p.mesh.names is not None for p in parts)
            if not parts or not known or key in {*names, *meshes.flattened} or _asks_for(function, key):
                continue
            yield _report(meshes, function, node, owner, key, [*names, *meshes.flattened_of(parts[0].mesh)], parts[0])


def _report(
    meshes: Meshes, function: Method, node: ast.expr, owner: ast.expr, key: str, names: list[str], part: Part
) -> Finding:
    path, mesh = path_of(owner), part.mesh
    return RULE.finding(
        function.path,
        function.module.source_text.at(node),
        f"`{function.qualname}` asks the mesh `{path}` for the dimension `{key}`, of which it has only"
        f" {', '.join(f'`{n}`' for n in sorted({*names}))}",
        help=_help(key, names),
        related=[Related(mesh.function.path, mesh.call.lineno, "the mesh is made here")],
        context=f"{function.qualname}:{path}:{key}",
    )


def _asks_for(function: Method, key: str) -> bool:
    """Whether a function tests for a dimension, or catches that there is none."""
    text = text_of(outermost(function))
    return bool(re.search(rf"""["']{re.escape(key)}["']\s+(not\s+)?in\b|except\b.*\b(KeyError|RuntimeError)""", text))


def _handles_mesh(function: Method) -> bool:
    """Whether a function indexes something, or asks it for a group: its syntax is read only then."""
    if "mesh" not in function.module.source.text or "mesh" not in text_of(function):
        return False
    facts = function.facts
    paths = (
        [r.path for r in facts.refs] + [c.target for c in facts.calls] + [a.value for c in facts.calls for a in c.args]
    )
    paths += [row.value for row in facts.assigns]
    paths += [row.value for row in facts.returns]
    return any(
        any(word in path for word in _WORDS) or path.rpartition(".")[2] in _ASKS and "mesh" in path for path in paths
    )


def _asked(meshes: Meshes, function: Method) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """The places where a mesh is asked for a dimension by name, with the mesh."""
    for node in own_nodes(function.node) if function.node is not None else ():
        if isinstance(node, ast.Subscript):
            for keys in meshes.keys(function, node.slice) or ():
                yield from ((node, node.value, key) for key in keys)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args + node.keywords:
            first = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "mesh_dim"), None)
            indexed = node.func.value if path_of(node.func).endswith(_INDEX) else None
            owner = indexed.value if isinstance(indexed, ast.Attribute) else node.func.value
            key = first.value if isinstance(first, ast.Constant) else None
            if isinstance(key, str) and (indexed is not None or node.func.attr in _ASKS):
                yield node, owner, key


def _help(key: str, names: list[str]) -> str:
    near = nearest(key, sorted({*names}))
    return f"did you mean `{near}`?" if near else "use a name that is given to `mesh_dim_names`"


INCORRECT = [
    """
from torch.distributed.device_mesh import init_device_mesh

class Strategy:
    def setup(self, sizes):
        self.mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("dp", "cp", "tp"))
        self.setup_ring(self.mesh)

    def setup_ring(self, device_mesh):
        self.group = device_mesh["sp"].get_group()  # error: MP411

    def dp_group(self):
        return self.mesh.get_group("data")  # error: MP411

    def dp_mesh(self):
        return self.mesh["data"]  # error: MP411

    def ring_size(self):
        return self.mesh.size(self.mesh.mesh_dim_names.index("ring"))  # error: MP411
""",
    """
from dataclasses import dataclass
from functools import cached_property
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

@dataclass
class Sizes:
    shards: int
    parts: int

    @cached_property
    def mesh(self):
        mesh = init_device_mesh("cuda", (self.shards, self.parts), mesh_dim_names=("dp", "cp"))
        mesh["dp", "cp"]._flatten("both")
        return mesh

    def whole_mesh(self):
        return self.mesh

@dataclass
class Context:
    mesh: DeviceMesh

def shard(model, sizes: Sizes):
    names = ("dp", "context") if sizes.parts > 1 else "dp"
    return fully_shard(model, mesh=sizes.mesh[names])  # error: MP411

def ring(sizes: Sizes):
    return sizes.whole_mesh()["ring"].get_group()  # error: MP411

def context(sizes: Sizes):
    return Context(sizes.mesh)

def heads(context: Context):
    return context.mesh["tp"].size()  # error: MP411
""",
    """
from torch.distributed.device_mesh import init_device_mesh

_MESH = None

def setup(dp, cp):
    global _MESH
    _MESH = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))

def get_mesh():
    return _MESH

def build(dp, tp):
    mesh = init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp"))
    return mesh, mesh["tp"]

class Strategy:
    def setup(self, dp, tp):
        self.mesh, self.tp_mesh = build(dp, tp)

    def ring_group(self):
        return self.mesh.get_group("cp")  # error: MP411

def ring():
    return get_mesh()["ring"]  # error: MP411
""",
]

CORRECT = [
    """
from torch.distributed.device_mesh import init_device_mesh

class Strategy:
    def setup(self, sizes):
        self.mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("dp", "sp", "tp"))
        self.mesh["dp", "sp"]._flatten(mesh_dim_name="dp_sp")
        self.setup_ring(self.mesh)

    def setup_ring(self, device_mesh):
        self.group = device_mesh["sp"].get_group()

    def dp_group(self):
        return self.mesh["dp_sp"].get_group()
""",
    """
from torch.distributed.device_mesh import init_device_mesh

def group(sizes, names, other):
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=names)
    return mesh["dp"], other["tp"]
""",
    """
from functools import cached_property
from torch.distributed.device_mesh import init_device_mesh

BOTH = "_".join(("dp", "cp", "both"))

class Sizes:
    def __init__(self, shards, parts):
        self.shards, self.parts = shards, parts

    @cached_property
    def mesh(self):
        mesh = init_device_mesh("cuda", (self.shards, self.parts), mesh_dim_names=("dp", "cp"))
        mesh["dp", "cp"]._flatten(BOTH)
        mesh["dp", "cp"]._flatten()
        return mesh

    def pieces(self):
        names = ["dp"]
        if self.parts > 1:
            names.append("cp")
        return init_device_mesh("cuda", (self.shards,), mesh_dim_names=names)

class Wide(Sizes):
    @cached_property
    def wide_mesh(self):
        return init_device_mesh("cuda", (self.shards, 2), mesh_dim_names=("dp", "tp"))

def groups(sizes: Sizes, wide: Wide):
    if "pp" in sizes.mesh.mesh_dim_names:
        return sizes.mesh["pp"]
    return sizes.mesh["dp_cp_both"], sizes.mesh["dp_cp"], sizes.pieces()["tp"], wide.wide_mesh["tp"]
""",
    """
from torch.distributed.device_mesh import init_device_mesh

_MESH = None

def setup(dp, cp):
    global _MESH
    _MESH = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))

def setup_wide(sizes, names):
    global _MESH
    _MESH = init_device_mesh("cuda", sizes, mesh_dim_names=names)

def ring():
    return _MESH["ring"]

def both(dp, tp, config):
    return init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp")), config["mesh"]

def groups(dp, tp, config):
    mesh, settings = both(dp, tp, config)
    return mesh["tp"], settings["ring"]
""",
]
