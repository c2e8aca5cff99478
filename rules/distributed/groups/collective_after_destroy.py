"""A collective after the process group was destroyed.

What it does
    Reports calls of `torch.distributed` that need the default group behind `destroy_process_group()`, on a way that
    does not come by `init_process_group` again. Silent where a branch of its own stands around the call: it may ask
    whether there is a group.

Why is this bad
    The call raises `Default process group has not been initialized`, at the very end of a job as a rule: when the
    results are to be collected.

References
    https://docs.pytorch.org/docs/stable/distributed.html#shutdown
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.process_groups import TORCH, needs_group
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP592", "collective-after-destroy", "error", "0.5.0", tokens=("destroy_process_group",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    making = queries.reaching({call.unit for call in queries.named("init_process_group")})
    for end in queries.calls(f"{TORCH}destroy_process_group"):
        group = end.argument("group", 0)
        if is_test(end.unit.path) or group is not None and not group.val.is_const(None):
            continue
        late = next(_late(queries, end, making), None)
        if late is not None:
            yield RULE.finding(
                late.unit.path,
                late.at,
                f"`{late.method}` in `{late.unit.qualname}` comes after the process group was destroyed",
                help="destroy the group when nothing needs it any more, or make it again",
                related=[Related(end.unit.path, end.at[0], "the process group is destroyed here")],
                context=f"{late.unit.qualname}:{late.method}",
            )


def _late(queries: Queries, end: Place, making: frozenset[Unit]) -> Iterator[Place]:
    """The calls behind one that destroys the group, which need it."""
    unit, control = end.unit, end.unit.control
    seen: set[int] = set()
    stack = [(end.value.block, end.number)]
    while stack:
        block, after = stack.pop()
        calls = [end.value_at(n) for n in unit.code.blocks[block].values if n > after]
        calls = [call for call in calls if call.value.op == "call"]
        again = [call for call in calls if _makes(queries, call, making)]
        left = [call for call in calls if not again or call.number < again[0].number]
        if control.deciding(block) <= control.deciding(end.value.block):
            yield from filter(needs_group, left)
        following = [each for each in unit.code.blocks[block].successors() if not again and each not in seen]
        seen.update(following)
        stack += [(each, -1) for each in following]


def _makes(queries: Queries, call: Place, making: frozenset[Unit]) -> bool:
    """Whether a call makes a process group, itself or in what it calls."""
    return call.method == "init_process_group" or not making.isdisjoint(queries.targets(call))


INCORRECT = [
    """
import torch
import torch.distributed as dist

def main(loss):
    dist.init_process_group("gloo")
    train(loss)
    dist.destroy_process_group()
    dist.all_reduce(loss)  # error: MP592
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def main(loss, rounds):
    for _ in range(rounds):
        dist.init_process_group("gloo")
        dist.all_reduce(loss)
        dist.destroy_process_group()
    if dist.is_initialized():
        dist.barrier()
""",
    """
import torch.distributed as dist

def measure(loss, group):
    dist.destroy_process_group(group)
    dist.barrier()
""",
]
