"""A helper that communicates over the whole job where the code around it works in sub-groups.

What it does
    Reports a function that takes no process group and issues a collective on the default group, if either a sibling
    in the same file (`reduce_scatter_fp8` beside `all_reduce_fp8`) takes a group and uses it, or a caller has left the
    ranks of some pipeline stages behind or works on one parallel dimension when it calls.

Why is this bad
    With tensor or pipeline parallelism the default group mixes ranks that hold unrelated tensors, and waits for
    stages that never call: wrong numbers, or a hang that a run without parallelism does not show.

References
    https://docs.pytorch.org/docs/stable/distributed.html#groups
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.collectives import WORLD, group_of
from validator.analysis.effects import Effects
from validator.analysis.places import is_aside
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP511", "world-in-grouped-helper", "error", "0.1.0", tokens=("torch.distributed",))

_MOVING = frozenset({
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single", "reduce_scatter",
    "reduce_scatter_tensor",
})  # fmt: skip
_GROUP = re.compile(r"(^|_)(group|pg|mesh)$")
_STAGE = re.compile(r"is_pipeline_(last|first)_stage|is_(last|first)_stage")
_SUBGROUP = re.compile(r"get_(data|tensor|context|pipeline|expert)\w*_parallel_(rank|group|world_size)\b")


class _Reason(NamedTuple):
    text: str
    related: Related


def check_project(project: Project) -> Iterator[Finding]:
    effects = project.analysis(Effects)
    for function, rows in effects.direct.items():
        if is_aside(function.path) or function.cls is not None or function.enclosing is not None:
            continue
        if (
            any(_GROUP.search(p.name) or p.kind in ("*", "**") for p in function.facts.params)
            or not function.facts.params
        ):
            continue
        moving = sorted((call.at, call) for call, row in rows.values() if row.name in _MOVING)
        groups = {group_of(row, call) for call, row in rows.values()}
        if not moving or groups != {WORLD}:
            continue
        reason = _sibling(effects, function) or _caller(project, function)
        if reason is not None:
            yield _report(function, moving[0][1], reason)


def _sibling(effects: Effects, function: Method) -> _Reason | None:
    """A function beside this one, named alike, that communicates in the group it is given."""
    words = function.name.rsplit("_", 1)
    for other in function.module.functions.values():
        if other is function or other.cls is not None or len(words) < 2 or not other.name.endswith(f"_{words[1]}"):
            continue
        params = {p.name for p in other.facts.params if _GROUP.search(p.name)}
        used = {group_of(row, call) for call, row in effects.direct.get(other, {}).values() if row.name in _MOVING}
        if params & used:
            name = sorted(params & used)[0]
            return _Reason(
                f"its sibling `{other.name}` takes `{name}`",
                Related(other.path, other.facts.name_at[0], f"`{other.name}` communicates in `{name}`"),
            )
    return None


def _caller(project: Project, function: Method) -> _Reason | None:
    for caller, call in project.types.callers.get(function, ()):
        if is_aside(caller.path):
            continue
        stage = next((g for g in call.guards if g.kind == "if" and _STAGE.search(g.text)), None)
        if stage is not None:
            return _Reason(
                f"`{caller.qualname}` calls it on some pipeline stages only",
                Related(caller.path, call.at[0], "called here"),
            )
        grouped = next((c for c in caller.facts.calls if _SUBGROUP.search(c.method)), None)
        if grouped is not None:
            return _Reason(
                f"its caller `{caller.qualname}` works with `{grouped.target}()`",
                Related(caller.path, call.at[0], "called here"),
            )
    return None


def _report(function: Method, call: Call, reason: _Reason) -> Finding:
    return RULE.finding(
        function.path,
        call.at,
        f"`{function.qualname}` has no parameter for a process group and calls `{call.method}` on the whole job,"
        f" but {reason.text}",
        help="give the function a `group` parameter, hand it to every collective and size query in it, and pass"
        " the group in use",
        related=[reason.related],
        context=f"{function.qualname}:{call.method}",
    )


INCORRECT = [
    """
import torch.distributed as dist

def all_reduce_fp8(tensor):
    dist.all_reduce(tensor)  # error: MP511

def reduce_scatter_fp8(output, parts, group):
    dist.reduce_scatter(output, parts, group=group)
""",
    """
# file: pkg/__init__.py
# file: pkg/stats.py
import torch.distributed as dist

def whiten(values, mask):
    total = (values * mask).sum()
    dist.all_reduce(total)  # error: MP511
    return values - total
# file: pkg/loss.py
from megatron.core import mpu
from pkg.stats import whiten

def advantages(values, mask):
    rank = mpu.get_data_parallel_rank()
    return whiten(values, mask), rank
""",
]

CORRECT = [
    """
import torch.distributed as dist

def all_reduce_fp8(tensor, group=None):
    dist.all_reduce(tensor, group=group)

def reduce_scatter_fp8(output, parts, group):
    dist.reduce_scatter(output, parts, group=group)
""",
    """
import torch.distributed as dist

def mean_over_job(tensor):
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()

def train(tensor):
    return mean_over_job(tensor)
""",
]
