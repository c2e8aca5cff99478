"""Python objects sent over a group that has only NCCL.

What it does
    Notes `all_gather_object`, `broadcast_object_list`, `gather_object` and `scatter_object_list` on a group that the
    project makes with `new_group(backend="nccl")` in the same class or function.

Why is this bad
    The objects are pickled, copied to the GPU and back, on whatever device is current: memory and a synchronisation for
    what gloo does on the CPU, and a failure where the device was not set first.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_object
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.collectives import group_of
from validator.analysis.effects import Effects
from validator.analysis.places import is_aside, within
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP514", "object-over-nccl", "note", "0.1.0", tokens=("_object",))

_OBJECTS = frozenset({"all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list"})


def check_project(project: Project) -> Iterator[Finding]:
    effects = project.analysis(Effects)
    for function, rows in effects.direct.items():
        if is_aside(function.path):
            continue
        for call, row in rows.values():
            group = group_of(row, call)
            line = _made_with_nccl(function, group) if row.name in _OBJECTS and group else None
            if line is not None:
                yield RULE.finding(
                    function.path,
                    call.at,
                    f"`{row.name}` in `{function.qualname}` sends Python objects over `{group}`, which has only NCCL",
                    help="make a second group with `backend='gloo'` for objects, or a group with both"
                    " (`cpu:gloo,cuda:nccl`)",
                    related=[Related(function.path, line, "the group is made here")],
                    context=f"{function.qualname}:{row.name}:{group}",
                )


def _made_with_nccl(function: Method, group: str) -> int | None:
    """The line that makes the group with NCCL alone."""
    for method in function.cls.every_method() if function.cls is not None else [function]:
        for call in method.facts.calls:
            backend = call.keyword("backend")
            alone = call.method == "new_group" and backend is not None and backend.value.strip("\"'") == "nccl"
            if alone and any(row.target == group and within(call.at, row.at) for row in method.facts.assigns):
                return call.at[0]
    return None


INCORRECT = [
    """
import torch.distributed as dist

class Engine:
    def __init__(self, ranks):
        self.group = dist.new_group(ranks, backend="nccl")

    def share(self, objects):
        dist.broadcast_object_list(objects, group=self.group)  # error: MP514
""",
]

CORRECT = [
    """
import torch.distributed as dist

class Engine:
    def __init__(self, ranks):
        self.group = dist.new_group(ranks, backend="gloo")

    def share(self, objects):
        dist.broadcast_object_list(objects, group=self.group)
""",
    """
import torch.distributed as dist

def share(objects):
    dist.broadcast_object_list(objects)
""",
]
