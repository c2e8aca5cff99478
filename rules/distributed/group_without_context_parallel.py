"""A reduction over the data-parallel group of tokens that context parallelism has split.

What it does
    Reports `get_data_parallel_group()` without `with_context_parallel=True` whose group is used for a collective, in a
    function that cuts its sequences by the context-parallel rank (it asks for the size or the rank of context
    parallelism, or calls a function that does).

Why is this bad
    Each context-parallel rank holds a part of every sequence. A mean, a variance or a token count over the group
    without them is computed once per part: the parts of one sequence are normalised differently.

References
    https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/core/core.parallel_state.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP512", "group-without-context-parallel", "error", "0.1.0", tokens=("get_data_parallel_group",))

_ASKS = frozenset({"get_context_parallel_world_size", "get_context_parallel_rank"})
_EXTREME = re.compile(r"\b(MAX|MIN)$")  # of a count that all context-parallel ranks share
_REDUCING = ("reduce", "whiten", "mean", "var", "norm", "sum", "aggregate")


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls("get_data_parallel_group"):
        if is_aside(function.path) or call.args:
            continue
        slicing = next((c for c in function.facts.calls if c.method in _ASKS), None)
        reducing = _reduction(function, call) if slicing is not None else None
        if slicing is None or reducing is None:
            continue
        yield RULE.finding(
            function.path,
            call.at,
            f"`{function.qualname}` splits sequences over context-parallel ranks, but `{reducing.method}`"
            " works on the"
            " data-parallel group without them",
            help="ask for `get_data_parallel_group(with_context_parallel=True)`",
            related=[
                Related(function.path, slicing.at[0], f"`{slicing.target}()` is asked here"),
                Related(function.path, reducing.at[0], f"the group goes to `{reducing.method}` here"),
            ],
            context=f"{function.qualname}:{reducing.method}",
        )


def _reduction(function: Method, group: Call) -> Call | None:
    """The call that reduces over the group: it gets the call's result directly or under a name."""
    names = {
        row.target
        for row in function.facts.assigns
        if row.kind == "call" and row.value == group.target and row.at[:2] <= group.at[:2]
    }
    for call in function.facts.calls:
        if not any(word in call.method for word in _REDUCING) or any(_EXTREME.search(a.value) for a in call.args):
            continue
        for argument in call.args:
            if argument.kind == "path" and argument.value in names and call.at[0] >= group.at[0]:
                return call
            if argument.kind == "call" and argument.at == group.at:
                return call
    return None


INCORRECT = [
    """
from megatron.core import mpu
from stats import masked_whiten

def advantages(values, mask):
    size = mpu.get_context_parallel_world_size()
    if size > 1:
        mask = mask.chunk(size)[mpu.get_context_parallel_rank()]
    group = mpu.get_data_parallel_group()  # error: MP512
    return masked_whiten(values, mask, process_group=group)
""",
]

CORRECT = [
    """
from megatron.core import mpu
from stats import masked_whiten

def advantages(values, mask):
    size = mpu.get_context_parallel_world_size()
    if size > 1:
        mask = mask.chunk(size)[mpu.get_context_parallel_rank()]
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    return masked_whiten(values, mask, process_group=group)
""",
    """
from megatron.core import mpu
from stats import masked_whiten

def advantages(values, mask):
    return masked_whiten(values, mask, process_group=mpu.get_data_parallel_group())
""",
    """
import torch.distributed as dist
from megatron.core import mpu

def schedule(count):
    cp = mpu.get_context_parallel_world_size()
    dist.all_reduce(count, op=dist.ReduceOp.MAX, group=mpu.get_data_parallel_group())
    return count * cp
""",
    """
from megatron.core import mpu

def schedule(batches):
    cp = mpu.get_context_parallel_world_size()
    return split(batches, mpu.get_data_parallel_group().rank(), cp)
""",
]
