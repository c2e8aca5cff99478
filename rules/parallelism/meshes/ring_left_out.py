"""Parameters sharded over a mesh without its ring dimension, so that ring ranks' gradients are never reduced.

What it does
    Follows the mesh given to `fully_shard`, `FullyShardedDataParallel` or `DistributedDataParallel`, or the group over
    which gradients are reduced by hand, to the mesh that it is a part of, and reports a part without the dimension for
    ring (context, sequence) parallelism, where that mesh has one whose size is not 1 and nothing in the class reduces
    gradients over it. A mesh without the ring that is chosen over one with it where a test says that the ring has one
    rank is no finding, nor is a call that stands under such a test.

Why is this bad
    The ranks of a ring see different tokens of the same samples: their gradients differ, and only sharding or
    replication over the ring as well as over data adds them up. Without it every ring rank trains a model of its own:
    the losses go down, and the checkpoint is that of one rank.

References
    https://github.com/pytorch/torchtitan/blob/main/docs/composability.md
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import call_node
from validator.analysis.sizes.meshes import Meshes, Part
from validator.analysis.sizes.single_sizes import is_one
from validator.domains.axes import axes_of
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP412", "ring-left-out", "error", "0.1.0", tokens=("fully_shard", "DataParallel", "FSDP", "DDP", ".grad"))

_WRAPPERS = {
    "fully_shard": ("mesh",),
    "FullyShardedDataParallel": ("device_mesh", "process_group"),
    "FSDP": ("device_mesh", "process_group"),
    "DistributedDataParallel": ("device_mesh", "process_group"),
    "DDP": ("device_mesh", "process_group"),
}
_REDUCTIONS = {"all_reduce": ("group",), "all_reduce_coalesced": ("group",)}
_GRADIENT = re.compile(r"\bgrads?\b")
_RING = re.compile(r"^(cp|sp|ring|context|sequence|ulysses)(_|$)|_(cp|ring|context)$")


def check_project(project: Project) -> Iterator[Finding]:
    meshes = project.analysis(Meshes)
    for function in dict.fromkeys(function for function, _ in project.calls(*_WRAPPERS, *_REDUCTIONS)):
        calls = [c for c in function.facts.calls if c.method in _WRAPPERS or _reduces_gradients(c)]
        if not calls or is_aside(function.path):
            continue
        found = [(call, part, ring) for call in calls for part, ring in _without_ring(meshes, function, call)]
        if found and not _reduced_otherwise(function):
            yield _report(function, *found[0], again=[row[0] for row in found[1:]])


def _without_ring(meshes: Meshes, function: Method, call: Call) -> Iterator[tuple[Part, str]]:
    """The parts of meshes that a call shards or replicates over, with the ring dimension that they leave out."""
    node, names = call_node(function, call), (_WRAPPERS | _REDUCTIONS)[call.method]
    values = [k.value for k in node.keywords if k.arg in names] if node is not None else []
    known = [(g.text, not g.negated) for g in call.guards if g.kind == "if"]
    for value in values:
        for part in meshes.part(function, value) or ():
            if not {*part.keys} <= {*(part.mesh.names or ())}:
                continue  # no dimension of it: another rule's
            for name in part.mesh.names or ():
                size = part.mesh.size(name)
                alone = isinstance(size, ast.Constant) and size.value == 1 or is_one(name, size, known)
                spoken = any(name in key.split("_") or name == key for key in part.keys)
                if part.keys and _RING.search(name) and not alone and not spoken:
                    yield part, name
                    return


def _reduces_gradients(call: Call) -> bool:
    """Whether a call reduces gradients by hand."""
    return call.method in _REDUCTIONS and bool(call.positional) and bool(_GRADIENT.search(call.positional[0].value))


def _reduced_otherwise(function: Method) -> bool:
    """Whether the class, or the module of a function, reduces gradients over the ring itself."""
    methods = function.cls.every_method() if function.cls is not None else function.module.functions.values()
    for method in methods:
        for call in method.facts.calls:
            if _reduces_gradients(call) and any("cp" in axes_of(a.value) for a in call.args if a.keyword == "group"):
                return True
    return False


def _report(function: Method, call: Call, part: Part, ring: str, again: list[Call]) -> Finding:
    sharded = "_".join(part.keys)
    mesh = part.mesh
    names = ", ".join(mesh.names or ())
    return RULE.finding(
        function.path,
        call.at,
        f"`{call.method}` in `{function.qualname}` works over the dimension `{sharded}` of the mesh ({names}):"
        f" gradients of the `{ring}` ranks are never reduced",
        help=f'shard over both, `mesh["{part.keys[0]}", "{ring}"]._flatten("{part.keys[0]}_{ring}")`',
        related=[
            Related(mesh.function.path, mesh.call.lineno, f"the mesh with its dimension `{ring}` is made here"),
            *(Related(function.path, other.at[0], "and here") for other in again),
        ],
        context=f"{function.qualname}:{sharded}:{ring}",
    )


INCORRECT = [
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class FSDP2Strategy:
    def __init__(self):
        self.mesh = None
        self.dp_mesh = None

    def setup(self):
        sizes = (self.dp_size, self.ring_attn_size, self.tp_size)
        self.mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("dp", "sp", "tp"))
        self.dp_mesh = self.mesh["dp"]

    def wrap(self, model):
        for layer in model.layers:
            fully_shard(layer, mesh=self.dp_mesh)  # error: MP412
        return fully_shard(model, mesh=self.dp_mesh)
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Strategy:
    def setup(self, dp_size, cp_size):
        self.mesh = init_device_mesh("cuda", (dp_size, cp_size), mesh_dim_names=("dp", "cp"))

    def reduce(self, model):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=self.mesh["dp"].get_group())  # error: MP412
""",
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class Layout:
    def __init__(self, dp, ring):
        self.dp, self.ring = dp, ring

    def mesh(self):
        return init_device_mesh("cuda", (self.dp, self.ring), mesh_dim_names=("dp", "ring"))

class Strategy:
    def setup(self, dp, ring):
        self.layout = Layout(dp, ring)
        self.mesh = self.layout.mesh()
        self.shards = self.mesh["dp"]

    def wrap(self, model):
        return fully_shard(model, mesh=self.shards)  # error: MP412
""",
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class State:
    def __init__(self, mesh):
        self._mesh = mesh

    @classmethod
    def create(cls, dp, ring) -> "State":
        return cls(init_device_mesh("cuda", (dp, ring), mesh_dim_names=("dp", "ring")))

    @property
    def mesh(self):
        return self._mesh

def wrap(model, dp, ring):
    state = State.create(dp, ring)
    return fully_shard(model, mesh=state.mesh["dp"])  # error: MP412
""",
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class Strategy:
    def setup(self, dp, ring, stride):
        self.mesh = init_device_mesh("cuda", (dp, ring), mesh_dim_names=("dp", "ring"))
        self.shards = self.mesh["dp"] if ring > 1 else self.mesh["dp", "ring"]._flatten("whole")
        self.critics = self.mesh["dp"]
        if ring > 1 and stride > 1:
            self.critics = self.mesh["whole"]
        if stride == 1:
            self.rewards = self.mesh["dp"]
        else:
            self.rewards = self.mesh["whole"]

    def wrap(self, model):
        return fully_shard(model, mesh=self.shards)  # error: MP412

    def wrap_critic(self, critic):
        return fully_shard(critic, mesh=self.critics)  # error: MP412

    def wrap_reward(self, reward):
        return fully_shard(reward, mesh=self.rewards)  # error: MP412
""",
]

CORRECT = [
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(model, wide):
    mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("dp", "ring", "tp"))
    key = key if wide else ("dp", "ring")
    fully_shard(model, mesh=mesh[key])
""",
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class FSDP2Strategy:
    def setup(self):
        sizes = (self.dp_size, self.ring_attn_size, self.tp_size)
        self.mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("dp", "cp", "tp"))
        self.fsdp_mesh = self.mesh["dp", "cp"]._flatten(mesh_dim_name="dp_cp")

    def wrap(self, model):
        return fully_shard(model, mesh=self.fsdp_mesh)
""",
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class FSDP2Strategy:
    def setup(self):
        sizes = (self.dp_size, self.ring_attn_size, self.tp_size)
        self.mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("dp", "cp", "tp"))
        self.mesh["dp", "cp"]._flatten("fsdp")

    def wrap(self, model):
        return fully_shard(model, mesh=self.mesh["fsdp"])
""",
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

def wrap(model, dp_size, tp_size):
    mesh = init_device_mesh("cuda", (dp_size, tp_size), mesh_dim_names=("dp", "tp"))
    return fully_shard(model, mesh=mesh["dp"])
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class Strategy:
    def wrap(self, model):
        self.mesh = init_device_mesh("cuda", (self.dp_size, self.cp_size), mesh_dim_names=("dp", "cp"))
        return fully_shard(model, mesh=self.mesh["dp"])

    def reduce_over_ring(self, model):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=self.cp_group)
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Strategy:
    def setup(self, dp_size, cp_size):
        self.mesh = init_device_mesh("cuda", (dp_size, cp_size), mesh_dim_names=("dp", "cp"))

    def reduce(self, model):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)

    def mean(self, loss):
        dist.all_reduce(loss, group=self.mesh["dp"].get_group())
""",
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class Layout:
    def __init__(self, dp, ring):
        self.dp, self.ring = dp, ring

    def mesh(self):
        return init_device_mesh("cuda", (self.dp, self.ring), mesh_dim_names=("dp", "ring"))

    def whole(self):
        return self.mesh()["dp", "ring"]._flatten("whole")

class Strategy:
    def setup(self, dp, ring):
        self.layout = Layout(dp, ring)
        self.mesh = self.layout.mesh()
        names = tuple(name for name in self.mesh.mesh_dim_names if name != "tp")
        self.shards = self.mesh[names]._flatten("shards")

    def wrap(self, model, critic):
        return fully_shard(model, mesh=self.shards), fully_shard(critic, mesh=self.layout.whole())
""",
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class Strategy:
    def setup(self, args, dp):
        self.args = args
        self.mesh = init_device_mesh("cuda", (dp, args.ring_size), mesh_dim_names=("dp", "ring"))
        whole = self.mesh["dp", "ring"]._flatten("whole")
        self.shards = self.mesh["dp"] if args.ring_size == 1 else whole
        if not self.args.ring_size > 1:
            self.critics = self.mesh["dp"]
        else:
            self.critics = self.mesh["whole"]
        self.rewards = self.mesh["dp"]
        if args.ring_size > 1:
            self.rewards = whole

    def reference_mesh(self):
        if self.mesh["ring"].size() > 1:
            return self.mesh["whole"]
        return self.mesh["dp"]

    def wrap(self, model, critic, reward, reference):
        fully_shard(model, mesh=self.shards)
        fully_shard(critic, mesh=self.critics)
        fully_shard(reward, mesh=self.rewards)
        fully_shard(reference, mesh=self.reference_mesh())
        if self.args.ring_size == 1:
            fully_shard(model.head, mesh=self.mesh["dp"])
""",
]
