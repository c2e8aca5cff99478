"""A mesh for hybrid sharding whose dimensions stand the wrong way round.

What it does
    Follows a mesh with two named dimensions, or a slice of one, to `FullyShardedDataParallel(device_mesh=…)` and
    `fully_shard(mesh=…)`, and reports one whose first dimension is called a shard (`shard`, `fsdp`, `dp_shard`) and
    whose second one is called a replica (`replicate`, `ddp`, `dp_replicate`). Rests on the names: silent where one of
    them says neither (`dp`, `outer`), and where `dp_mesh_dims` says which dimension is which.

Why is this bad
    Both take the first dimension to replicate and the second one to shard, whatever they are called. Parameters are
    then sharded among as many ranks as there should be replicas, and among hosts instead of within one: memory runs
    out or steps are slow, and what takes the mesh by name (checkpoints, the data loader) works in other groups.

References
    https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import of_data_parallelism
from validator.finding import Finding, Related
from validator.flow.calls.meshes import dimensions_of, part_of_mesh
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import calls_behind
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import Obj, Val
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP428",
    "hybrid-mesh-reversed",
    "warning",
    "1.0",
    tokens=("fully_shard", "FullyShardedDataParallel"),
    solves=True,
)

# Of what shards: the parameter that takes the mesh, and its position.
_TAKING = {
    "torch.distributed.fsdp.FullyShardedDataParallel": ("device_mesh", 15),
    "torch.distributed.fsdp.fully_shard": ("mesh", -1),
}
_UNKNOWN: Obj = ("mesh", None, None)


def check_project(project: Project) -> Iterator[Finding]:
    seen: set[tuple[object, ...]] = set()
    for call, name in _calls(project.analysis(Queries)):
        dimensions = () if is_aside(call.unit.path) else _reversed(call, *_TAKING[name])
        if dimensions and (call.unit, dimensions) not in seen:
            seen.add((call.unit, dimensions))
            yield _finding(call, name, dimensions)


def _calls(queries: Queries) -> Iterator[tuple[Place, str]]:
    """The calls of what shards, at once or later (`partial(FSDP, device_mesh=mesh)`), each with its full name."""
    for name in _TAKING:
        yield from ((call, name) for call in queries.calls(name))
    for call in queries.calls("functools.partial"):
        later = call.operand(1).closed.each if len(call.value.args) > 1 else ()
        named = {queries.flow.models.named(o[1]) if o[0] == "ext" else "" for o in later}
        if len(named) == 1 and not named.isdisjoint(_TAKING):
            yield call, named.pop()


def _reversed(call: Place, parameter: str, position: int) -> tuple[str, ...]:
    """The names of the dimensions of a mesh that a call may get, if its shards come before its replicas."""
    at = position if call.method != "partial" else -1
    given, written = call.passed(parameter, at), call.argument(parameter, at)
    if given is None or call.argument("dp_mesh_dims") is not None:
        return ()
    slices = Val() if written is None or written.origin.value.op != "item" else written.origin.operand(1).closed
    named = sorted({*map(dimensions_of, given.of("mesh")), *map(dimensions_of, part_of_mesh(_UNKNOWN, slices).each)})
    return next((each for each in named if [*map(of_data_parallelism, each)] == ["shard", "replicate"]), ())


def _finding(call: Place, name: str, dimensions: tuple[str, ...]) -> Finding:
    shard, replicate = dimensions
    given = call.argument(_TAKING[name][0])
    made = calls_behind(given, _makes_mesh) if given is not None else None
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{name.rpartition('.')[2]}`{call.where} replicates along the first dimension of its mesh and shards along the"
        f" second one: here these are `{shard}` and `{replicate}`",
        help=f'make the mesh of `("{replicate}", "{shard}")`, and its sizes in that order',
        related=[Related(each.unit.path, each.at[0], "the mesh is made here") for each in (made or ())[:1]],
        context=f"{call.unit.qualname}:{shard}:{replicate}",
    )


def _makes_mesh(call: Place) -> bool:
    return bool(call.val.of("mesh")) and any(o[0] == "ext" for o in call.operand(0).val.each)


INCORRECT = [
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

def wrap(model, config):
    if config.strategy == "HYBRID_SHARD":
        mesh = init_device_mesh("cuda", (config.shards, config.replicas), mesh_dim_names=("shard", "replicate"))
    else:
        mesh = None
    return FSDP(model, sharding_strategy=ShardingStrategy[config.strategy], device_mesh=mesh)  # error: MP428
""",
    # through a function, an attribute, a list of names and a dictionary of arguments
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

NAMES = ["fsdp", "ddp"]

def build(shards, replicas):
    return init_device_mesh("cuda", (shards, replicas), mesh_dim_names=NAMES)

class Strategy:
    def __init__(self, shards, replicas):
        self.mesh = build(shards, replicas)

    def shard(self, model):
        settings = {"mesh": self.mesh, "reshard_after_forward": True}
        for layer in model.layers:
            fully_shard(layer, **settings)  # error: MP428
        fully_shard(model, **settings)
        return model
""",
    # a slice
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

def shard(model, mesh):
    return fully_shard(model, mesh=mesh)  # error: MP428

def main(model):
    mesh = init_device_mesh("cuda", (2, 2, 4, 2), mesh_dim_names=("pp", "dp_shard", "dp_replicate", "tp"))
    return shard(model, mesh["dp_shard", "dp_replicate"])
""",
    # a slice of what callers pass, a dictionary that grows, and a call that is made later
    """
from functools import partial
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

def shard(model, world, hybrid):
    names = ("dp_shard", "dp_replicate") if hybrid else ("dp_shard",)
    return fully_shard(model, mesh=world[names])  # error: MP428

def wrap(model, sizes):
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("shard", "replicate"))
    wrapped = partial(FSDP, use_orig_params=True, device_mesh=mesh)  # error: MP428
    return wrapped(model)

def offloaded(model, sizes, policy):
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("dp_shard", "dp_replicate", "tp"))
    settings = {"mesh": mesh["dp_shard", "dp_replicate"]}
    if policy is not None:
        settings["offload_policy"] = policy
    return fully_shard(model, **settings)  # error: MP428
""",
]

CORRECT = [
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, fully_shard

def wrap(model, config):
    mesh = init_device_mesh("cuda", (config.replicas, config.shards), mesh_dim_names=("replicate", "shard"))
    return FSDP(model, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)

def of_world(model, sizes):
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("pp", "dp_replicate", "dp_shard", "tp"))
    return fully_shard(model, mesh=mesh["dp_replicate", "dp_shard"])
""",
    # one dimension of the two, both made one, and one of which another is made
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

def shard(model, sizes):
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("shard", "replicate"))
    fully_shard(model.first, mesh=mesh["shard"])
    fully_shard(model.second, mesh=mesh["shard", "replicate"]._flatten("all"))
    return DistributedDataParallel(model.third, device_mesh=mesh["replicate"])

def with_context(model, sizes):
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("dp_replicate", "dp_shard", "cp"))
    mesh["dp_shard", "cp"]._flatten("dp_shard_cp")
    return fully_shard(model, mesh=mesh["dp_replicate", "dp_shard_cp"])
""",
    # names that do not say which is which, tensor parallelism, and dimensions that are named to it
    """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import DataParallelMeshDims, FullyShardedDataParallel as FSDP, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard

def shard(model, sizes, names):
    fully_shard(model.first, mesh=init_device_mesh("cuda", sizes, mesh_dim_names=("dp", "sp")))
    fully_shard(model.second, mesh=init_device_mesh("cuda", sizes, mesh_dim_names=("fsdp", "dp")))
    fully_shard(model.third, mesh=init_device_mesh("cuda", sizes, mesh_dim_names=names))
    fully_shard(model.fourth, mesh=init_device_mesh("cuda", sizes))
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("shard", "replicate"))
    dims = DataParallelMeshDims(shard="shard", replicate="replicate")
    fully_shard(model.fifth, mesh=mesh, dp_mesh_dims=dims)
    return DTensor.from_local(model.weight, mesh, [Shard(0), Replicate()])

def wrap(model, sizes):
    return FSDP(model, device_mesh=init_device_mesh("cuda", sizes, mesh_dim_names=("tp_shard", "replicate")))
""",
]
