"""A device mesh whose dimensions do not multiply to the number of ranks.

What it does
    Multiplies the sizes of a mesh, each followed to the formula that gives it its value, and reports a mesh in which
    a size of parallelism divides the ranks and is no dimension (ranks are left out), or is a dimension and was not
    divided by (more places than ranks). Also reports as many names as there are not sizes.

Why is this bad
    Ranks outside the mesh are in none of its groups: they fail when they ask for one, or train a model of their own
    while the others wait. A mesh that is too large fails at start.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.init_device_mesh
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from validator.analysis.sizes.dimensions import ONE, Dimensions, Size, product
from validator.analysis.sizes.meshes import Mesh, Meshes
from validator.domains.axes import MODEL_PARALLEL
from validator.finding import Finding
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP410", "mesh-size", "error", "0.1.0", tokens=("init_device_mesh",))


def check_project(project: Project) -> Iterator[Finding]:
    dimensions = project.analysis(Dimensions)
    for mesh in project.analysis(Meshes).all:
        if mesh.shape is None or is_aside(mesh.function.path):
            continue
        if mesh.names is not None and len(mesh.names) != len(mesh.shape):
            yield _report(
                mesh,
                f"has {len(mesh.names)} names for {len(mesh.shape)} dimensions",
                "name each dimension once",
            )
            continue
        total = ONE
        for part in mesh.shape:
            total = product(total, dimensions.size(mesh.function, part))
        lost, extra = _difference(total)
        if lost:
            yield _report(
                mesh, f"leaves out `{lost}`, by which the ranks were divided", f"make `{lost}` a dimension of the mesh"
            )
        elif extra:
            yield _report(
                mesh, f"has more places than ranks: `{extra}` multiplies them", f"divide the ranks by `{extra}` first"
            )


def _difference(total: Size) -> tuple[str, str]:
    """What keeps a product from being the world, below and above the bar; nothing where part of it is unknown."""
    over, under = Counter(f.tag for f in total.over), Counter(f.tag for f in total.under)
    over, under = over - under, under - over
    if over["world"] != 1 or "" in over or "" in under:
        return "", ""
    lost = next((f.text for f in total.under if under[f.tag] and f.tag in MODEL_PARALLEL), "")
    extra = next((f.text for f in total.over if over[f.tag] and f.tag in MODEL_PARALLEL), "")
    return lost, extra


def _report(mesh: Mesh, what: str, help: str) -> Finding:
    function = mesh.function
    names = f"({', '.join(mesh.names)})" if mesh.names is not None else "without names"
    return RULE.finding(
        function.path,
        function.module.source_text.at(mesh.call),
        f"the mesh {names} of `{function.qualname}` {what}",
        help=f"{help}: the sizes of a mesh must multiply to the number of ranks (constraint `mesh-product`)",
        context=f"{function.qualname}:{names}",
    )


INCORRECT = [
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Strategy:
    def setup(self):
        self.dp_size = dist.get_world_size() // (self.cp_size * self.tp_size)
        self.mesh = init_device_mesh("cuda", (self.dp_size, self.tp_size), mesh_dim_names=("dp", "tp"))  # error: MP410
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def build(args):
    dp_size = dist.get_world_size() // args.tp_size
    first = init_device_mesh("cuda", (dp_size, args.cp_size, args.tp_size))  # error: MP410
    second = init_device_mesh("cuda", (dp_size, args.tp_size), mesh_dim_names=("dp", "cp", "tp"))  # error: MP410
    return first, second
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Strategy:
    def setup(self):
        self.dp_size = dist.get_world_size() // (self.cp_size * self.tp_size)
        self.mesh = init_device_mesh(
            "cuda", (self.dp_size, self.cp_size, self.tp_size), mesh_dim_names=("dp", "cp", "tp")
        )
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def hybrid(world_size, fsdp_size, mine):
    return init_device_mesh("cuda", mesh_shape=(world_size // fsdp_size, fsdp_size), mesh_dim_names=("ddp", "fsdp"))

def flat():
    return init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
""",
]
