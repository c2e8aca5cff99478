"""Data divided over all ranks where groups of ranks must see the same data.

What it does
    Reports `DistributedSampler(dataset)` without `num_replicas`, or with the world size, and a sampler of one's own that
    takes every n-th element for n the world size, in a function or class that works with tensor, context (ring,
    sequence) or pipeline parallelism, or is given an object that does.

Why is this bad
    The ranks of one such group share a sample. Given different samples, ring attention mixes sequences, tensor
    parallelism adds up unrelated activations, and an epoch is shorter than it says.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside
from validator.domains.axes import axes_of
from validator.finding import Finding
from validator.flow.program import Unit
from validator.flow.queries import Place, Queries
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule("MP531", "sampler-over-world", "error", "0.1.0", tokens=("Sampler",))

_SHARING = frozenset({"tp", "cp", "pp"})  # the axes along which ranks hold parts of one sample's work
_OF_AXIS = re.compile(r"(size|group|mesh|degree)$")
_WORLD = frozenset({"world_size", "num_processes", "get_world_size"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for place in queries.calls("torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"):
        replicas = place.argument("num_replicas", 1)
        whole = _is_world(replicas) if replicas is not None else "**" not in place.value.data.names
        if whole:
            yield from _report(place, "`DistributedSampler`", queries)
    for place in queries.instructions("item"):
        cls, key = place.unit.cls, place.operand(1)
        if cls is None or key.value.op != "slice" or not any(b.endswith("Sampler") for b in cls.external_bases):
            continue
        first = key.operand(0).varies("rank")
        if any(c.axis == "world" for c in first) and _is_world(key.operand(2)):
            yield from _report(place, f"`{place.text}`", queries)


def _report(place: Place, what: str, queries: Queries) -> Iterator[Finding]:
    if is_aside(place.unit.path):
        return
    shared = _shared(place.unit, queries)
    if shared:
        named = " and ".join(f"`{each}`" for each in shared)
        yield RULE.finding(
            place.unit.path,
            place.at,
            f"{what} in `{place.unit.qualname}` divides the data over all ranks, but ranks of {named} must share it",
            help="pass `num_replicas` and `rank` of the data-parallel dimension",
            context=f"{place.unit.qualname}:{shared[0]}",
        )


def _is_world(place: Place) -> bool:
    """Whether a number is that of all ranks, on every way to it."""
    place = place.root
    value = place.value
    if value.op == "phi":
        return all(_is_world(place._replace(number=n)) for n in value.args if n != place.number)
    if value.op == "call":
        group = place.argument("group", 0)
        return place.method in _WORLD and (group is None or group.val.is_const(None))
    name = value.data[1] if value.op == "param" else value.data if value.op in ("attr", "name") else ""
    return name in _WORLD


def _shared(unit: Unit, queries: Queries) -> list[str]:
    """The sizes, groups or meshes of parallelism that a function, or the constructor of its class, works with, and those
    of the objects that it gets; one name of each axis."""
    units = [unit]
    if unit.cls is not None and (init := unit.cls.find("__init__")) is not None:
        made = queries.flow.unit_of(init)
        units += [made] if made is not None else []
    found: dict[str, str] = {}
    for each in units:
        for number, value in enumerate(each.code.values):
            if value.op in ("attr", "name", "store_attr", "param"):
                _add(found, str(value.data[1] if value.op == "param" else value.data), "")
            for o in queries.flow.result(each).vals[number].of("mesh"):
                for dimension in o[1] or ():
                    for axis in axes_of(dimension) & _SHARING:
                        found.setdefault(axis, dimension)
    for position, (parameter, _) in enumerate(unit.code.params):
        if position == 0 and unit.has_receiver:
            continue
        for cls in _classes(unit, position, queries):
            for name in _members(cls):
                _add(found, name, f"{parameter}.")
    return list(found.values())


def _add(found: dict[str, str], name: str, owner: str) -> None:
    if _OF_AXIS.search(name):
        for axis in axes_of(name) & _SHARING:
            found.setdefault(axis, f"{owner}{name}")


def _classes(unit: Unit, position: int, queries: Queries) -> list[ClassDef]:
    """The classes of the objects that a parameter gets, or is annotated with."""
    values = (v for v in enumerate(unit.code.values) if v[1].op == "param" and v[1].data[0] == position)
    places = [Place(queries.flow, unit, number) for number, _ in values]
    return list(dict.fromkeys(o[1] for p in places for o in p.closed.objs if o[0] in ("inst", "self")))


def _members(cls: ClassDef) -> Iterator[str]:
    for owner in cls.mro:
        yield from (name for name, _ in owner.facts.attributes)
        yield from owner.instance_attributes
        yield from owner.methods


INCORRECT = [
    """
import torch
import torch.distributed as dist
from torch.utils.data import Sampler

class Sharded(Sampler):
    def __init__(self, dataset, mesh):
        self.dataset = dataset
        self.tp_group = mesh.get_group("tp")
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def __iter__(self):
        order = list(range(len(self.dataset)))
        return iter(order[self.rank :: self.world_size])  # error: MP531
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, ring_attn_size):
        self.ring_attn_size = ring_attn_size

    def sampler(self, dataset):
        return DistributedSampler(dataset, num_replicas=dist.get_world_size())  # error: MP531
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, ring_size, tp_size):
        self.ring_size = ring_size
        self.tp_size = tp_size

    def sampler(self, dataset):
        return DistributedSampler(dataset)  # error: MP531
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, mesh):
        self.mesh = mesh

    @property
    def ring_group(self):
        return self.mesh["ring"].get_group()

def loader(dataset, strategy):
    return DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank())  # error: MP531

def main(mesh, dataset):
    return loader(dataset, Strategy(mesh))
""",
    """
from dataclasses import dataclass

import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

@dataclass
class State:
    dp_size: int
    tp_size: int

def loader(dataset, state: State):
    return DistributedSampler(dataset, dist.get_world_size(), dist.get_rank(), seed=state.dp_size)  # error: MP531
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, ring_attn_size, dp_group):
        self.ring_attn_size = ring_attn_size
        self.dp_group = dp_group

    def sampler(self, dataset):
        world_size = dist.get_world_size(self.dp_group)
        return DistributedSampler(dataset, num_replicas=world_size, rank=dist.get_rank(self.dp_group))
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, ring_attn_size):
        self.ring_attn_size = ring_attn_size

    def sampler(self, dataset):
        dp = dist.get_world_size() // self.ring_attn_size
        return DistributedSampler(dataset, num_replicas=dp, rank=dist.get_rank() // self.ring_attn_size)
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Trainer:
    def sampler(self, dataset):
        world_size = dist.get_world_size()
        if self.ulysses_sequence_parallel_size > 1:
            world_size = self.mesh.size(0)
        return DistributedSampler(dataset, num_replicas=world_size)
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

def sampler(dataset):
    return DistributedSampler(dataset, num_replicas=dist.get_world_size())
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, tp_size):
        self.tp_size = tp_size
        self.dp = dist.get_world_size() // tp_size

class Replicas:
    def setup(self):
        self.size = dist.get_world_size()

def loader(dataset, strategy):
    rank = dist.get_rank() // strategy.tp_size
    return DistributedSampler(dataset, num_replicas=strategy.dp, rank=rank)

def plain_loader(dataset, strategy):
    return DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank())

def main(dataset):
    return loader(dataset, Strategy(2)), plain_loader(dataset, Replicas())
""",
]
