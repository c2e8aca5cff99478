"""A list for `all_gather` that is as long as another group.

What it does
    Reports `all_gather`, `all_gather_object` and `all_to_all` whose list is made for the whole job
    (`dist.get_world_size()` elements) while the call works on a sub-group, or made for one group and used with another.

Why is this bad
    The list must have one entry for each rank of the group. NCCL raises or leaves entries empty,
    and the mean over them is wrong.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.collectives import WORLD, dimension, group_of
from validator.analysis.effects import Effects
from validator.analysis.groups import Groups
from validator.analysis.places import call_bound, is_aside
from validator.facts.model import Assign, Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP516", "gather-list-of-other-group", "error", "0.1.0", tokens=("all_gather", "all_to_all"))

_LISTED = frozenset({"all_gather", "all_gather_object", "all_to_all", "gather", "gather_object"})
_COUNT = re.compile(r"(?:range\(|\* ?)(?P<count>[\w.]+(?:\([^()]*\))?)\)?\]?$")
_SIZE = re.compile(r"(?:^|\.)get_world_size\((?:group=)?(?P<group>[\w.]*)\)$")


def check_project(project: Project) -> Iterator[Finding]:
    effects = project.analysis(Effects)
    for function, rows in effects.direct.items():
        if is_aside(function.path):
            continue
        for call, row in rows.values():
            if row.name not in _LISTED or not call.args:
                continue
            group = group_of(row, call)
            made = _made_for(project, function, call)
            if made is None or not _differ(function, group, made[0]) or _is_whole(project, function, group):
                continue
            yield RULE.finding(
                function.path,
                call.at,
                f"`{row.name}` in `{function.qualname}` fills a list made for {_named(made[0])}, but works on"
                f" {_named(group)}",
                help="make the list with `dist.get_world_size(group)` of the group that the call uses",
                related=[Related(function.path, made[1], "the list is made here")],
                context=f"{function.qualname}:{row.name}",
            )


def _is_whole(project: Project, function: Method, group: str) -> bool:
    """Whether a group is the only dimension of its mesh, and so the whole job."""
    origin = project.analysis(Groups).origin(function, group)
    return origin is not None and origin.kind == "all"


def _named(group: str) -> str:
    return f"`{group}`" if group else "the whole job"


def _made_for(project: Project, function: Method, call: Call) -> tuple[str, int] | None:
    """The group whose size the list of a call has, and the line that makes the list."""
    for argument in call.positional[:2]:
        rows = [row for row in function.facts.assigns if row.target == argument.value]
        if len(rows) != 1 or rows[0].kind != "other" or not (found := _COUNT.search(rows[0].value)):
            continue
        size = _size(project, function, found["count"])
        if size is not None:
            return size, rows[0].at[0]
    return None


def _size(project: Project, function: Method, text: str) -> str | None:
    """The group that a source text is the size of."""
    if match := _SIZE.search(text):
        return WORLD if match["group"] in ("", "None") else match["group"]
    head, _, name = text.rpartition(".")
    if head:  # an attribute: what all methods of its class bind to it
        classes = sorted(project.types.of(function, head), key=lambda cls: (cls.path, cls.qualname))
        inside = [method for cls in classes for owner in cls.mro for method in owner.every_method()]
        rows = [(m, row) for m in inside for row in m.facts.assigns if row.target == f"{m.own_object}.{name}"]
    else:
        rows = [(function, row) for row in function.facts.assigns if row.target == text]
    groups = {_counted(method, row) for method, row in rows}
    return groups.pop() if len(groups) == 1 and (head or len(rows) == 1) else None


def _counted(function: Method, row: Assign) -> str | None:
    """The group whose ranks an assignment counts; None where it counts something else."""
    made = call_bound(function, row) if row.kind == "call" and row.value.endswith(".get_world_size") else None
    if made is None:
        return None
    return made.args[0].value if made.args and made.args[0].value != "None" else WORLD


def _differ(function: Method, group: str, made: str) -> bool:
    """Whether two group texts mean different groups."""
    if group == made or {group, made} == {WORLD} or not group:
        return False
    if made == WORLD:
        return bool(dimension(group)) or any(p.name == group and p.default is None for p in function.facts.params)
    return bool(dimension(group) and dimension(made) and dimension(group) != dimension(made))


INCORRECT = [
    """
import torch
import torch.distributed as dist

def collect(tensor, tp_group):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor, group=tp_group)  # error: MP516
    return torch.cat(parts)
""",
    """
import torch.distributed as dist

def collect(value, dp_group, cp_group):
    size = dist.get_world_size(cp_group)
    values = [None] * size
    dist.all_gather_object(values, value, group=dp_group)  # error: MP516
    return values
""",
    """
import torch
import torch.distributed as dist

class Strategy:
    def setup(self, mesh):
        self.world_size = dist.get_world_size()
        self.dp_group = mesh["dp"].get_group()

    def gather(self, tensor):
        parts = [torch.zeros_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(parts, tensor, group=self.dp_group)  # error: MP516
        return torch.cat(parts)

class Trainer:
    def __init__(self, strategy: Strategy):
        self.strategy = strategy

    def losses(self, loss, sp_group):
        parts = [torch.zeros_like(loss)] * self.strategy.world_size
        dist.all_gather(parts, loss, group=sp_group)  # error: MP516
        return torch.stack(parts)
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Strategy:
    def setup(self, mesh):
        self.dp_group = mesh["dp"].get_group()
        self.world_size = dist.get_world_size(self.dp_group)

    def gather(self, tensor):
        parts = [torch.zeros_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(parts, tensor, group=self.dp_group)
        return torch.cat(parts)

class DataParallel:
    def setup(self):
        self.world_size = dist.get_world_size()
        self.dp_group = init_device_mesh("cuda", (self.world_size,), mesh_dim_names=("dp",))["dp"].get_group()

    def gather(self, tensor):
        parts = [torch.zeros_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(parts, tensor, group=self.dp_group)
        return torch.cat(parts)
""",
    """
import torch
import torch.distributed as dist

def collect(tensor, tp_group):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(tp_group))]
    dist.all_gather(parts, tensor, group=tp_group)
    return torch.cat(parts)
""",
    """
import torch.distributed as dist

def collect(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
""",
]
