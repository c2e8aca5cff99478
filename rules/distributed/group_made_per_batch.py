"""A process group that is made again for every batch, or first made in the middle of one.

What it does
    Reports `new_group`, `new_subgroups` and `init_device_mesh` that run once for each batch: in a loop over a data
    loader or over steps, in a `forward` or `training_step`, or in a function called from there, with nothing that
    keeps the group (`if self._group is None`, a cache). A group that is kept and first made there is a note. Where
    only some ranks get there, MP501 and MP502 report the creation itself.

Why is this bad
    Each call is a collective of all ranks of the job, whoever is in the group, and sets up communicators that are
    never freed: steps get slower, and the job ends without memory or file handles after hours. A group made at first
    use works as long as every rank of the job reaches that use, in the same order: one stage or branch without it,
    and all others wait.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.new_group
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from validator.analysis.effects import Effects
from validator.analysis.places import is_aside
from validator.facts.model import Call, Guard
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP517", "group-made-per-batch", "warning", "0.1.0", tokens=("new_group", "new_subgroups", "device_mesh"))

_MAKERS = frozenset({"new_group", "new_subgroups", "new_subgroups_by_enumeration", "init_device_mesh"})
_KEPT = re.compile(
    r"is (not )?None|\bnot in\b|hasattr|_initialized|^(not )?(self\.)?\w*(group|mesh)\w*$", re.IGNORECASE
)
_CACHED = re.compile(r"(^|\.)(lru_cache|cache|cached_property)(\(\))?$")
_LOOP = re.compile(r"\bin\b.*(loader|batches|iterator\b|steps\b)|^while\b.*\bstep")
_PER_BATCH = frozenset({
    "forward", "backward", "training_step", "train_step", "validation_step", "eval_step", "compute_loss", "loss_fn",
    "optimizer_step",
})  # fmt: skip
_DEPTH = 3


class _Way(NamedTuple):
    """How the code of a batch gets to the creation: the place in that code, and whether the group is kept."""

    function: Method
    call: Call
    kept: bool


def check_project(project: Project) -> Iterator[Finding]:
    effects = project.analysis(Effects)
    for function, rows in effects.direct.items():
        for call, row in rows.values():
            if row.name not in _MAKERS or is_aside(function.path):
                continue
            way = _way(project, function, call, _kept(function, call.guards), _DEPTH)
            if way is not None:
                yield _report(function, call, way)


def _way(project: Project, function: Method, call: Call, kept: bool, depth: int) -> _Way | None:
    """The first code of a batch, going up from a creation through the callers."""
    guards = (*call.guards, *function.facts.guards)
    if function.name in _PER_BATCH or any(g.kind == "loop" and _LOOP.search(g.text) for g in guards):
        return _Way(function, call, kept)
    if depth == 0 or function.name in ("<module>", "__init__"):
        return None
    for caller, outer in project.types.callers.get(function, ()):
        if not is_aside(caller.path) and caller is not function:
            way = _way(project, caller, outer, kept or _kept(caller, outer.guards), depth - 1)
            if way is not None:
                return way
    return None


def _kept(function: Method, guards: Iterable[Guard]) -> bool:
    """Whether the group is made once: a test asks for it, or the function is cached."""
    if any(_CACHED.search(d) for d in function.facts.decorators):
        return True
    return any(g.kind == "if" and _KEPT.search(g.text) for g in (*guards, *function.facts.guards))


def _report(function: Method, call: Call, way: _Way) -> Finding:
    here = way.function is function
    through = "" if here else f", called in `{way.function.qualname}`"
    if way.kept:
        message = (
            f"`{call.method}` in `{function.qualname}`{through} runs at the first batch that gets there: every rank of"
            " the job must get there too, members or not"
        )
    else:
        message = (
            f"`{call.method}` in `{function.qualname}`{through} runs for every batch; groups are never freed, and all"
            " ranks of the job meet in each call"
        )
    related = [] if here else [Related(way.function.path, way.call.at[0], "the code of a batch gets there from here")]
    return RULE.finding(
        function.path,
        call.at,
        message,
        help="make the group once, on all ranks of the job, where the others are made, and keep it",
        related=related,
        context=f"{function.qualname}:{call.method}",
        severity="note" if way.kept else None,
    )


INCORRECT = [
    """
import torch.distributed as dist

class Trainer:
    def training_step(self, batch):
        group = dist.new_group([0, 1])  # error: MP517
        dist.all_reduce(batch["loss"], group=group)
""",
    """
import torch.distributed as dist

def peers(ranks):
    return dist.new_group(ranks)  # error: MP517

def train(model, loader, ranks):
    for batch in loader:
        dist.all_reduce(model(batch), group=peers(ranks))
""",
    """
import torch.distributed as dist

_GROUP = None

def peers():
    global _GROUP
    if _GROUP is None:
        _GROUP = dist.new_group([0, 1])  # error: MP517
    return _GROUP

def train(model, loader):
    for batch in loader:
        dist.all_reduce(model(batch), group=peers())
""",
]

CORRECT = [
    """
import torch.distributed as dist

class Trainer:
    def __init__(self):
        self.groups = []
        for first in range(0, dist.get_world_size(), 2):
            self.groups.append(dist.new_group([first, first + 1]))

    def training_step(self, batch):
        dist.all_reduce(batch["loss"], group=self.groups[0])
""",
    """
import torch.distributed as dist

_GROUP = None

def peers():
    global _GROUP
    if _GROUP is None:
        _GROUP = dist.new_group([0, 1])
    return _GROUP

def setup(model):
    peers()
""",
]
