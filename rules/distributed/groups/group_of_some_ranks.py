"""A collective on a group of a few ranks that all ranks come to.

What it does
    Reports collectives of `torch.distributed` on a group made of a literal list of ranks (`new_group([0, 1])`) where
    nothing around the call asks who the rank is, or which group it has. Silent where the job is said to have just as
    many ranks, or several groups have no others between them.

Why is this bad
    On a rank outside of the group the call does nothing: torch warns and goes on. What is read afterwards there, a sum
    or a list that was to be filled, is what stood in it before.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.new_group
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import only
from validator.finding import Finding
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.values import NONE_OBJ
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP593", "group-of-some-ranks", "warning", "0.5.0", tokens=("new_group",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    sizes = {size for call in queries.calls("torch.distributed.init_process_group") if (size := _size(call))}
    listed = {ranks for call in queries.calls("torch.distributed.new_group") if (ranks := _literal(call))}
    if len(listed) > 1:  # the ranks of all groups together may be those of the job
        sizes.add(len(set().union(*listed)))
    for call in queries.collectives():
        row = call.operations[0].row
        group = call.argument(*row.group) if row.group is not None else None
        ranks = _literal(group) if group is not None and not is_test(call.unit.path) else None
        if group is None or ranks is None or len(ranks) in sizes or _is_asked(call):
            continue
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"every rank comes to `{row.name}` in `{call.unit.qualname}`, but `{group.text}` holds the ranks"
            f" {', '.join(map(str, ranks))} alone: on the others the call does nothing",
            help="let only the ranks of the group call it, or use a group to which all of them belong",
            context=f"{call.unit.qualname}:{row.name}",
        )


def _size(call: Place) -> int:
    """How many ranks the job is said to have."""
    said = call.argument("world_size", 3)
    size = said.closed.constant() if said is not None else None
    return size if isinstance(size, int) else 0


def _literal(group: Place) -> tuple[int, ...] | None:
    """The ranks of a group, where they are written as a list of numbers; on other ways it may be the whole job's."""
    held = group.closed
    objs = held.objs - {NONE_OBJ}
    if len(objs) != 1 or only(held.p, "rank", "member"):
        return None
    (o,) = objs
    listed = o[2] if o[0] == "group" and isinstance(o[2], tuple) else ()
    return listed if len(listed) > 1 and all(isinstance(rank, int) for rank in listed) else None


def _is_asked(call: Place) -> bool:
    """Whether a test around the call may leave just the ranks of the group."""
    if only(call.under, "rank", "member", "data"):
        return True
    return any(part.closed.of("group") for test in call.tests for part in test.sources)


INCORRECT = [
    """
import torch
import torch.distributed as dist

def total(value):
    group = dist.new_group([0, 1])
    dist.all_reduce(value, group=group)  # error: MP593
    return value

dist.init_process_group("gloo")
print(total(torch.ones(1)))
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def total(value):
    group = dist.new_group([0, 1])
    if dist.get_rank() in (0, 1):
        dist.all_reduce(value, group=group)
    everybody = dist.new_group(list(range(dist.get_world_size())))
    dist.all_reduce(value, group=everybody)
    if group != dist.GroupMember.NON_GROUP_MEMBER:
        dist.all_reduce(value, group=group)
    return value

dist.init_process_group("gloo")
print(total(torch.ones(1)))
""",
    """
import torch
import torch.distributed as dist

def total(value):
    group = dist.new_group([0, 1])
    dist.all_reduce(value, group=group)
    return value

dist.init_process_group("gloo", world_size=2)
print(total(torch.ones(1)))
""",
]
