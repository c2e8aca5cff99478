"""Data divided over all ranks where groups of ranks must see the same data.

What it does
    Reports `DistributedSampler(dataset)` without `num_replicas`, or with the world size, in a function or class that
    works with tensor, context (ring, sequence) or pipeline parallelism, or is given an object that does.

Why is this bad
    The ranks of one such group share a sample. Given different samples, ring attention mixes sequences, tensor
    parallelism adds up unrelated activations, and an epoch is shorter than it says.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.bindings import first_name
from validator.analysis.collectives import dimension
from validator.analysis.places import is_aside, text_of, within
from validator.facts.model import Call
from validator.finding import Finding
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP531", "sampler-over-world", "error", "0.1.0", tokens=("DistributedSampler",))

_SHARED = re.compile(
    r"\b(self\.)?(ring(_attn)?_(size|group)|(tensor|context|sequence|pipeline)_(model_)?parallel_size|(tp|cp|pp|sp)_(size|group|mesh)|ulysses_\w*size)\b"
)
_WORLD = re.compile(r"(^|\.)(get_world_size|world_size|num_processes)$")


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls("DistributedSampler"):
        if is_aside(function.path) or not project.dotted(function, call.target).startswith("torch."):
            continue
        shared = (_shared(function) or _given(project, function)) if _over_world(function, call) else []
        if shared:
            named = " and ".join(f"`{each}`" for each in shared)
            yield RULE.finding(
                function.path,
                call.at,
                f"`DistributedSampler` in `{function.qualname}` divides the data over all ranks, but ranks of"
                f" {named} must share it",
                help="pass `num_replicas` and `rank` of the data-parallel dimension",
                context=f"{function.qualname}:{shared[0]}",
            )


def _over_world(function: Method, call: Call) -> bool:
    replicas = call.keyword("num_replicas") or (call.positional[1] if len(call.positional) > 1 else None)
    if replicas is None:
        return not any(a.keyword == "**" for a in call.args)
    rows = [row for row in function.facts.assigns if row.target == replicas.value]
    if any(
        _of_group(c) and within(c.at, at) for c in function.facts.calls for at in (replicas.at, *(r.at for r in rows))
    ):
        return False
    return all(_WORLD.search(value) for value in [row.value for row in rows] or [replicas.value])


def _of_group(call: Call) -> bool:
    """`get_world_size(group)`, which is not of all ranks."""
    return call.method == "get_world_size" and bool(call.args) and call.args[0].value != "None"


def _shared(function: Method) -> list[str]:
    """The sizes or groups of parallelism that the function, or the constructor of its class, works with."""
    texts = [text_of(function)]
    if function.cls is not None and (init := function.cls.find("__init__")) is not None:
        texts.append(text_of(init))
    found: dict[str, str] = {}  # one name of each dimension
    for match in (match for text in texts for match in _SHARED.finditer(text)):
        found.setdefault(dimension(match[0]), match[0].removeprefix("self."))
    return list(found.values())


def _given(project: Project, function: Method) -> list[str]:
    """The sizes or groups that the objects of its parameters have: attributes, properties, methods."""
    found: dict[str, str] = {}
    for parameter in function.facts.params:
        for cls in project.types.of(function, parameter.name):
            for name in _members(cls):
                if _SHARED.fullmatch(name):
                    found.setdefault(dimension(name), f"{parameter.name}.{name}")
    return list(found.values())


def _members(cls: ClassDef) -> Iterator[str]:
    for owner in cls.mro:
        yield from (name for name, _ in owner.facts.attributes)
        for method in owner.every_method():
            own = f"{first_name(method)}."
            yield method.name
            yield from (row.target.removeprefix(own) for row in method.facts.assigns if row.target.startswith(own))


INCORRECT = [
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
