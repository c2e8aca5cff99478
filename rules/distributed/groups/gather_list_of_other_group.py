"""A list for `all_gather` that is as long as another group.

What it does
    Reports `all_gather`, `all_gather_object`, `gather` and `all_to_all` whose list is made for the whole job
    (`dist.get_world_size()` elements) while the call works on a sub-group, or made for one group and used with another.

Why is this bad
    The list must have one entry for each rank of the group. NCCL raises or leaves entries empty,
    and the mean over them is wrong.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import LOCAL, NODE, UNKNOWN, WHOLE, Axes, axes_of
from validator.finding import Finding
from validator.flow.calls.groups import axes_in
from validator.flow.queries.base import Place, Queries
from validator.flow.values import Val
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP516", "gather-list-of-other-group", "error", "0.1.0", tokens=("all_gather", "all_to_all"))


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).collectives():
        row = call.operations[0].row
        filled = call.argument(*row.into) if row.into is not None else None
        counted = filled.val.of("counted") if filled is not None else []
        if filled is None or len(counted) != 1:
            continue
        made, certain = _spanned(filled, counted[0][1])
        group = call.argument(*row.group)
        works, sure = group.spanned if group is not None else (WHOLE, True)
        if UNKNOWN in made | works or made == works or group is not None and _is_size_of(filled, group):
            continue
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{row.name}` in `{call.unit.qualname}` fills a list made for {_named(made)}, but works on"
            f" {f'`{group.text}`' if group is not None else 'the whole job'}",
            help="make the list with `dist.get_world_size(group)` of the group that the call uses",
            context=f"{call.unit.qualname}:{row.name}",
            # on one node, for which a program may be meant, its ranks are all ranks
            severity="note" if {LOCAL, NODE} & (made | works) else "error" if sure and certain else "warning",
        )


def _is_size_of(filled: Place, group: Place) -> bool:
    """Whether a list is as long as the group is large that is asked here, whatever callers may pass for it."""
    asked = (part for part in filled.parts if part.value.op == "call" and part.method in ("size", "get_world_size"))
    return any(group.root.number in {part.unit.root(n) for n in _about(part)} for part in asked)


def _about(call: Place) -> list[int]:
    """What a call is told, and what it is called on."""
    return [*([call.receiver.number] if call.receiver is not None else []), *call.value.args[1:]]


def _spanned(place: Place, group: Val) -> tuple[Axes, bool]:
    """The axes of a group that a list was made for: known, or by the name of the parameter that it is."""
    axes = axes_in(place.flow.close(group, place.unit))
    if UNKNOWN not in axes:
        return axes, True
    names = [place.unit.code.params[o[1]][0] for o in group.of("param")]
    return (axes_of(names[0]) or axes, False) if len(names) == 1 else (axes, False)


def _named(axes: Axes) -> str:
    return "the whole job" if axes == WHOLE else f"the {' × '.join(sorted(axes))} ranks"


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
