"""A dimension of a device mesh that the mesh does not have.

What it does
    Follows a mesh from `init_device_mesh` with literal names to where it is indexed or asked for a group
    (`mesh["sp"]`, `mesh.get_group("sp")`), through attributes and arguments, and reports a name that is none of its
    dimensions and that no `_flatten` gives.

Why is this bad
    It raises `KeyError` when that line is reached: at start, or after loading the model, and often only with the
    option that needs the group.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.DeviceMesh
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.analysis.meshes import Meshes
from validator.analysis.places import is_aside, text_of
from validator.errors import nearest
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP411", "unknown-mesh-dimension", "error", "0.1.0", tokens=("init_device_mesh", "mesh"))

_INDEX = ".mesh_dim_names.index"
_ASKS = frozenset({"get_group", "get_local_rank"})


def check_project(project: Project) -> Iterator[Finding]:
    meshes = project.analysis(Meshes)
    if not any(mesh.names for mesh in meshes.all):
        return
    for function in project.functions():
        if is_aside(function.path) or not _handles_mesh(function):
            continue
        for node, path, key in _asked(function):
            parts = meshes.parts(function, path)
            names = {n for p in parts for n in (p.keys or p.mesh.names or ())}
            if not parts or any(p.mesh.names is None for p in parts) or key in names | meshes.flattened:
                continue
            mesh = parts[0].mesh
            yield RULE.finding(
                function.path,
                function.module.source_text.at(node),
                f"`{function.qualname}` asks the mesh `{path}` for the dimension `{key}`, of which it has only"
                f" {', '.join(f'`{n}`' for n in sorted(names))}",
                help=_help(key, names),
                related=[Related(mesh.function.path, mesh.call.lineno, "the mesh is made here")],
                context=f"{function.qualname}:{path}:{key}",
            )


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
        "mesh_dim_names" in path or "mesh[" in path or path.rpartition(".")[2] in _ASKS and "mesh" in path
        for path in paths
    )


def _asked(function: Method) -> Iterator[tuple[ast.expr, str, str]]:
    """The places where a mesh is asked for a dimension by name."""
    for node in own_nodes(function.node) if function.node is not None else ():
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name | ast.Attribute):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for part in parts:
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield node, path_of(node.value), part.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ASKS:
            first = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "mesh_dim"), None)
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node, path_of(node.func.value), first.value
        elif isinstance(node, ast.Call) and path_of(node.func).endswith(_INDEX) and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node, path_of(node.func).removesuffix(_INDEX), name.value


def _help(key: str, names: set[str]) -> str:
    near = nearest(key, sorted(names))
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
]
