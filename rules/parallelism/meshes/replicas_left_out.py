"""Parameters sharded over the shards of a mesh alone, whose replicas train on data of their own.

What it does
    Follows the mesh that `fully_shard` or `FullyShardedDataParallel` gets. Reports a part of a mesh that has the
    dimensions called a shard (`shard`, `fsdp`), where the mesh has one called a replica (`replicate`, `dp_replicate`),
    too, which the program never names again, while a `DistributedSampler` deals its data out among all ranks. Rests on
    the names. Silent where anything takes the groups of a mesh, replicates a model, or reduces gradients by hand, and
    where there is one replica.

Why is this bad
    Gradients are reduced within one group of shards. Each replica goes its own way with its part of the data, and the
    checkpoint is that of one of them.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import WHOLE, of_data_parallelism
from validator.finding import Finding, Related
from validator.flow.calls.groups import axes_in
from validator.flow.calls.meshes import dimensions_of
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.samplers import DEALING
from validator.flow.values import BOTTOM, Val
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP436",
    "replicas-left-out",
    "warning",
    "1.0",
    tokens=("fully_shard", "FullyShardedDataParallel"),
    solves=True,
)

_TAKING = {
    "torch.distributed.fsdp.FullyShardedDataParallel": ("device_mesh", 15),
    "torch.distributed.fsdp.fully_shard": ("mesh", -1),
}
_MAKING = "torch.distributed.device_mesh.init_device_mesh"
# What may reduce gradients over the dimension in another way.
_OTHERWISE = ("get_group", "get_all_groups", "replicate", "DistributedDataParallel", "DDP", "_flatten", "_unflatten")


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    meshes = [each for each in queries.calls(_MAKING) if not is_aside(each.unit.path)]
    sampler = next(filter(_deals_to_all, queries.calls(*DEALING)), None) if len(meshes) == 1 else None
    if sampler is None or any(queries.named(*_OTHERWISE)) or _reduces_gradients(queries):
        return
    if not any(queries.named_anywhere("backward")):
        return  # what nobody trains stays alike
    for name, which in _TAKING.items():
        for call in queries.calls(name):
            chosen = is_aside(call.unit.path) or any(t.value.op != "more" for t, _ in call.settled_tests)
            left = None if chosen else _left_out(queries, meshes[0], call.passed(*which))
            if left is not None:
                yield _finding(call, meshes[0], sampler, left)
                return


def _deals_to_all(sampler: Place) -> bool:
    """Whether a sampler surely deals data out among all ranks."""
    ranks = sampler.passed("num_replicas", 1)
    if ranks is None or is_aside(sampler.unit.path):
        return False
    whole = bool(ranks.each) and all(o[0] == "size" and axes_in(o[1]) == WHOLE for o in ranks.each)
    return whole or ranks == BOTTOM or ranks.is_const(None)


def _reduces_gradients(queries: Queries) -> bool:
    units = queries.mentioning("grad", "parameters", "to_local")
    return any(any("reduce" in o.name for o in call.operations) for unit in units for call in queries.calls_in(unit))


def _left_out(queries: Queries, made: Place, given: Val | None) -> str | None:
    """The dimension of replicas that a mesh has and a part of it, of shards alone, has not; None where something else
    in the program speaks of it, or there is but one."""
    parts = given.each if given is not None else ()
    names = {name for part in parts for name in dimensions_of(part)}
    owned = {name for mesh in made.closed.each for name in dimensions_of(mesh)}
    if len(parts) != 1 or {*map(of_data_parallelism, names)} != {"shard"} or not names < owned:
        return None
    left = [name for name in sorted(owned - names) if of_data_parallelism(name) == "replicate"]
    if len(left) != 1 or not {*map(of_data_parallelism, owned)} <= {"shard", "replicate"}:
        return None
    spoken = (place for unit in queries.mentioning(left[0]) for place in queries.values(unit, "const", "attr", "name"))
    own = set(made.parts)
    return left[0] if all(place in own for place in spoken if place.value.data == left[0]) else None


def _finding(call: Place, made: Place, sampler: Place, left: str) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}`{call.where} reduces gradients within one group of shards, and nothing does over `{left}`:"
        " each replica trains on its part of the data by itself",
        help=f"give it the mesh with both dimensions, `{left}` first",
        related=[
            Related(made.unit.path, made.at[0], f"the mesh with its dimension `{left}` is made here"),
            Related(sampler.unit.path, sampler.at[0], "data is dealt out among all ranks here"),
        ],
        context=f"{call.unit.qualname}:{left}",
    )


_PROGRAM = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

def setup(ranks, shards):
    return init_device_mesh("cuda", (ranks // shards, shards), mesh_dim_names=("replicate", "shard"))

class Run:
    def __init__(self, net, data, ranks, shards):
        self.mesh = setup(ranks, shards)
        options = {"mesh": {mesh}, "reshard_after_forward": True}
        for layer in net.layers:
            fully_shard(layer, **options){mark}
        self.model = fully_shard(net, **options)
        self.loader = DataLoader(data, 4, sampler=DistributedSampler(data{shares}))

    def step(self, batch):
        self.model(batch).mean().backward()

Run(torch.nn.Linear(4, 4), [], 16, 8)
"""


def _program(mesh: str, mark: str = "", shares: str = "") -> str:
    return _PROGRAM.replace("{mesh}", mesh).replace("{mark}", mark).replace("{shares}", shares)


INCORRECT = [_program('self.mesh["shard"]', "  # error: MP436")]

CORRECT = [
    _program("self.mesh"),
    _program('self.mesh["replicate", "shard"]'),
    _program('self.mesh["shard"]').replace(".backward()", ""),
    _program('self.mesh["shard"] if ranks == shards else self.mesh'),
    # all replicas see the same data, or something else is done along the dimension
    _program('self.mesh["shard"]', "", ", num_replicas=shards, rank=self.mesh.get_local_rank(1)"),
    _program('self.mesh["shard"]', "\n        average(net, self.mesh.get_group(0))"),
    _program('self.mesh["shard"]', '\n        average(net, self.mesh["replicate"])'),
]
