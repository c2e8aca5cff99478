"""Python objects sent over a group that has only NCCL.

What it does
    Notes `all_gather_object`, `broadcast_object_list`, `gather_object` and `scatter_object_list` on a group that was
    made with `new_group(backend="nccl")`, wherever that was.

Why is this bad
    The objects are pickled, copied to the GPU and back, on whatever device is current: memory and a synchronisation for
    what gloo does on the CPU, and a failure where the device was not set first.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_object
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.queries.base import Queries
from validator.flow.values import NONE_OBJ
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP514", "object-over-nccl", "note", "0.1.0", tokens=("_object",))


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).collectives():
        row = call.operations[0].row
        group = call.argument(*row.group) if row.objects and row.group is not None else None
        groups = group.closed.objs - {NONE_OBJ} if group is not None else frozenset()
        if group is None or not groups or not all(o[0] == "group" and o[3] == "nccl" for o in groups):
            continue
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{row.name}` in `{call.unit.qualname}` sends Python objects over `{group.text}`, which has only NCCL",
            help="make a second group with `backend='gloo'` for objects, or a group with both (`cpu:gloo,cuda:nccl`)",
            context=f"{call.unit.qualname}:{row.name}:{group.text}",
        )


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
