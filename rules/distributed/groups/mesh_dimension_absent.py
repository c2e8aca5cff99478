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

from collections.abc import Iterator

from validator.domains.axes import axes_of
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP540", "mesh-dimension-absent", "error", "0.1.0", tokens=("init_device_mesh",))

_ABOVE_ONE = (("Gt", 1), ("NotEq", 1), ("GtE", 2))


def check_project(project: Project) -> Iterator[Finding]:
    for made in project.analysis(Queries).collectives("init_device_mesh"):
        names = made.argument("mesh_dim_names", 2)
        if names is None or not _chosen(names):
            continue
        for used in _uses(made):
            keys = _keys(used)
            if not keys or _is_asked_for(used, keys[0]):
                continue
            yield RULE.finding(
                made.unit.path,
                used.at,
                f"`{made.unit.qualname}` takes the dimension `{keys[0]}` of a mesh that has it only where its size is"
                " above 1",
                help=f"ask for the size of `{keys[0]}` before using it, as for the other dimensions",
                related=[
                    Related(made.unit.path, made.at[0], "the mesh is made here, of the dimensions that were kept")
                ],
                context=f"{made.unit.qualname}:{'_'.join(keys)}:{keys[0]}",
            )


def _chosen(names: Place) -> bool:
    """Whether names are collected one by one, under a test of their size."""
    code = names.unit.code
    for number in (each.number for each in names.sources):
        value = code.values[number]
        if value.op == "mut" and value.data == -1 and names.value_at(value.args[1]).method == "append":
            for branch, way in names.unit.control.settled(code.values[value.args[1]].block):
                end = code.blocks[branch].end
                if way == end[2] and _is_above_one(names.value_at(end[1]).origin):
                    return True
    return False


def _is_above_one(test: Place) -> bool:
    value = test.value
    return value.op == "compare" and (value.data, test.operand(1).val.constant()) in _ABOVE_ONE


def _uses(made: Place) -> Iterator[Place]:
    """Where items of the mesh are taken in the same function."""
    for number, value in enumerate(made.unit.code.values):
        if value.op == "item" and made.value_at(value.args[0]).root.number == made.number:
            yield made.value_at(number)


def _keys(used: Place) -> list[str]:
    key = used.operand(1).val
    parts = [part for o in key.of("tuple") for part in o[1]] or [key]
    return [name for part in parts if isinstance(name := part.constant(), str)]


def _is_asked_for(used: Place, name: str) -> bool:
    """Whether a place is only reached where a condition about a dimension holds, or under a handler."""
    if used.is_tried:
        return True
    blocks, deciding = used.unit.code.blocks, used.unit.control.deciding(used.value.block)
    seen, stack = {0}, [0]
    while stack:
        at = stack.pop()
        end = blocks[at].end
        ways = {*blocks[at].successors(), *blocks[at].handlers}
        if at in deciding:
            test = used.value_at(end[1]).origin
            if any(_speaks_of(source, name) for source in test.sources):
                ways -= {end[2]} if _is_above_one(test) else {end[2], end[3]}
        stack += ways - seen
        seen |= ways
    return used.value.block not in seen


def _speaks_of(part: Place, name: str) -> bool:
    value = part.value
    if value.op == "const":
        return bool(value.data == name)
    said = part.hint if value.op in ("attr", "name", "param", "phi", "free") else ""
    return bool(said) and (said.startswith(name.split("_")[0]) or bool(axes_of(said) & axes_of(name)))


INCORRECT = [
    """
from torch.distributed.device_mesh import init_device_mesh

class Dims:
    def build_mesh(self, kind):
        dims, names = [], []
        for d, name in zip([self.dp_replicate, self.dp_shard, self.cp], ["dp_replicate", "dp_shard", "cp"]):
            if d > 1:
                dims.append(d)
                if name == "dp_shard" and self.dp_replicate == 1:
                    names.append("dp")
                else:
                    names.append(name)
        mesh = init_device_mesh(kind, dims, mesh_dim_names=tuple(names))
        if self.cp > 1:
            if self.dp_replicate > 1 and self.dp_shard > 1:
                mesh["dp_replicate", "dp_shard", "cp"]._flatten(mesh_dim_name="dp_cp")
            else:
                mesh["dp", "cp"]._flatten(mesh_dim_name="dp_cp")  # error: MP540
        return mesh
""",
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
