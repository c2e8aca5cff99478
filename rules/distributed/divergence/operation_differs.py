"""Ranks that reduce differently, or over different groups, in one collective.

What it does
    Reports `all_reduce`, `reduce` and `reduce_scatter` whose `op` differs between ranks of the group, and a collective
    on a group that is chosen by the rank where the groups to choose from share ranks: the whole job or one of its
    parts, two dimensions of a mesh, two lists of ranks that overlap. A rank that looks up its own of several disjoint
    groups is silent.

Why is this bad
    With another operation each rank computes another result, without a word. Ranks that call on different groups of
    the same processes wait for each other for ever.

References
    https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import UNKNOWN, WHOLE
from validator.domains.spmd import varying
from validator.finding import Finding
from validator.flow.queries.base import Place, Queries, apart, because
from validator.flow.values import Obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP529", "operation-differs", "warning", "0.1.0", tokens=("reduce", "gather", "broadcast", "barrier"))


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).collectives():
        yield from _operation(call)
        yield from _group(call)


def _operation(call: Place) -> Iterator[Finding]:
    row = call.operations[0].row
    how = call.argument(*row.operation) if row.operation is not None else None
    group = call.argument(*row.group) if row.group is not None else None
    axes, known = group.spanned if group is not None else (call.group, True)
    causes = apart(how.closed.v, axes) if how is not None and UNKNOWN not in axes else None
    if how is not None and causes:
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"ranks that meet in `{row.name}` in `{call.unit.qualname}` do not reduce alike: `{how.text}`"
            f" {because(causes)}",
            help="pass the same operation on every rank of the group",
            context=f"{call.unit.qualname}:{row.name}:{how.text}",
            severity="error" if known and any(c.sure for c in causes) else "warning",
        )


def _group(call: Place) -> Iterator[Finding]:
    row = call.operations[0].row
    group = call.argument(*row.group) if row.group is not None else None
    held = group.closed if group is not None else None
    causes = varying(held.v) if held is not None else None
    if group is None or held is None or not causes:
        return
    if any(_share(a, b) for a, b in _chosen(group)):
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"ranks call `{row.name}` in `{call.unit.qualname}` on different groups that share ranks: `{group.text}`"
            f" {because(causes)}",
            help="call on one group, or let each rank choose among groups that have no rank in common",
            context=f"{call.unit.qualname}:{row.name}:{group.text}",
            severity="error" if any(c.sure for c in causes) else "warning",
        )


def _chosen(group: Place) -> Iterator[tuple[Obj, Obj]]:
    """The pairs of groups between which ranks choose: on ways that meet here, or in the function that gives the group.

    What is gathered over callers, or kept in an attribute, is no choice: each use may have a group of its own.
    """
    here = group.origin
    ways = [here.operand(i) for i in range(len(here.value.args))] if here.value.op == "phi" else []
    if here.value.op == "call" and (site := here.result.sites.get(here.number)) is not None and len(site.targets) == 1:
        unit = site.targets[0].unit
        ways = [Place(here.flow, unit, number) for number in unit.code.returned if number >= 0]
        if len(ways) == 1:
            yield from _chosen(ways[0])
            return
    if varying(here.closed.v) <= frozenset().union(*(way.closed.v for way in ways)):
        return  # by what each of them is, not by which is taken
    held = [way.closed.of("group") for way in ways]
    yield from ((a, b) for i, one in enumerate(held) for other in held[i + 1 :] for a in one for b in other)


def _share(a: Obj, b: Obj) -> bool:
    """Whether two different groups surely have ranks in common."""
    if isinstance(a[2], tuple) and isinstance(b[2], tuple):
        return not set(a[2]).isdisjoint(b[2])
    if WHOLE in (a[1], b[1]):
        return bool(a[1] != b[1])
    return bool(a[1] != b[1] and UNKNOWN not in a[1] | b[1])


INCORRECT = [
    """
import torch.distributed as dist

def reduce(value):
    op = dist.ReduceOp.SUM if dist.get_rank() == 0 else dist.ReduceOp.MAX
    dist.all_reduce(value, op=op)  # error: MP529
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def reduce(value):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
    group = mesh.get_group("dp") if dist.get_rank() < 2 else mesh.get_group("tp")
    dist.all_reduce(value, group=group)  # error: MP529
""",
]

CORRECT = [
    """
import torch.distributed as dist

OPS = {"loss": dist.ReduceOp.AVG, "tokens": dist.ReduceOp.SUM}

def reduce(values):
    for name, value in values.items():
        dist.all_reduce(value, op=OPS[name])
""",
    """
import torch.distributed as dist

def reduce(value):
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    dist.all_reduce(value, group=groups[dist.get_rank() // 2])
    mine = groups[0] if dist.get_rank() < 2 else groups[1]
    dist.all_reduce(value, group=mine)
""",
    # two callers, each with a group of its own kind
    """
import torch.distributed as dist
from megatron.core import parallel_state

class Buffer:
    def __init__(self, data, group):
        self.data = data
        self.group = group

    def reduce(self):
        dist.all_reduce(self.data, group=self.group)

def prepare(dense, experts):
    lists = [[0, 1], [2, 3]]
    mine = None
    for ranks in lists:
        made = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = made
    Buffer(dense, mine).reduce()
    Buffer(experts, dist.new_group([0, 2])).reduce()
    Buffer(dense, parallel_state.get_data_parallel_group()).reduce()
""",
]
