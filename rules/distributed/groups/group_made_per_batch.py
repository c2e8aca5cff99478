"""A process group that is made again for every batch, or first made in the middle of one.

What it does
    Reports `new_group`, `new_subgroups` and `init_device_mesh` that run once for each batch: in a loop over a data
    loader or one that trains, in a `forward` or `training_step`, or in a function called from there, with nothing that
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

from collections.abc import Iterator
from typing import NamedTuple

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP517", "group-made-per-batch", "warning", "0.1.0", tokens=("new_group", "new_subgroups", "device_mesh"))

_MAKERS = ("new_group", "new_subgroups", "new_subgroups_by_enumeration", "init_device_mesh")
_CACHES = frozenset({"lru_cache", "cache", "cached_property"})
_ONCE = frozenset({"<module>", "__init__"})
_ASKING = frozenset({"Is", "IsNot", "In", "NotIn"})


class _Way(NamedTuple):
    """How the code of a batch gets to the creation: the place in that code, and whether the group is kept."""

    place: Place
    kept: bool


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).collectives(*_MAKERS):
        way = _way(call)
        if way is not None:
            yield _report(call, way)


def _way(call: Place) -> _Way | None:
    """The first code of a batch, going up from a creation through the callers."""
    queue, seen = [_Way(call, _kept(call))], {call.unit}
    for way in queue:
        unit = way.place.unit
        if unit.name in call.flow.models.likely["steps"] or _per_batch(way.place):
            return way
        if unit.name in _ONCE or unit.code.kind == "module":
            continue
        for place in _callers(call, unit):
            if place.unit not in seen:
                seen.add(place.unit)
                queue.append(_Way(place, way.kept or _kept(place)))
    return None


def _callers(call: Place, unit: Unit) -> Iterator[Place]:
    for caller in call.flow.callers(unit):
        sites = call.flow.result(caller).sites
        for number, site in sorted(sites.items()):
            if any(target.unit is unit for target in site.targets):
                yield Place(call.flow, caller, number)


def _per_batch(place: Place) -> bool:
    """Whether a place lies in a loop over data, or in one that trains."""
    code, models = place.unit.code, place.flow.models
    for header, loop in code.loops.items():
        blocks = set(blocks_of(code, header))
        if place.value.block not in blocks:
            continue
        over = place.value_at(loop.iterator).operand(0) if loop.iterator >= 0 else None
        if over is not None and _is_data(over):
            return True
        called = (
            place.value_at(n).method for b in blocks for n in code.blocks[b].values if code.values[n].op == "call"
        )
        if not models.likely["training"].isdisjoint(called):
            return True
    return False


def _is_data(over: Place) -> bool:
    models = over.flow.models
    made = over.closed.of("made")
    return any(models.library(o[1]).iterates == "data" for o in made) or (not made and over.hint.endswith("loader"))


def _kept(place: Place) -> bool:
    """Whether the group is made once: a test asks for it, or the function is cached."""
    method, code = place.unit.method, place.unit.code
    if method is not None and any(d.removesuffix("()").rpartition(".")[2] in _CACHES for d in method.facts.decorators):
        return True
    tests = (place.value_at(code.blocks[b].end[1]).origin for b in place.unit.control.deciding(place.value.block))
    return any(_asks(test) for test in tests)


def _asks(test: Place) -> bool:
    """Whether a test asks if something is there already."""
    value = test.value
    if value.op == "unary" and value.data == "Not":
        return _asks(test.operand(0))
    if value.op == "compare":
        return value.data in _ASKING
    return value.op in ("attr", "name", "item") or (value.op == "call" and test.method in ("hasattr", "get"))


def _report(call: Place, way: _Way) -> Finding:
    here = way.place.unit is call.unit
    name, unit = call.operations[0].name, call.unit
    through = "" if here else f", called in `{way.place.unit.qualname}`"
    if way.kept:
        message = (
            f"`{name}` in `{unit.qualname}`{through} runs at the first batch that gets there: every rank of the job"
            " must get there too, members or not"
        )
    else:
        message = (
            f"`{name}` in `{unit.qualname}`{through} runs for every batch; groups are never freed, and all ranks of"
            " the job meet in each call"
        )
    where = Related(way.place.unit.path, way.place.at[0], "the code of a batch gets there from here")
    return RULE.finding(
        unit.path,
        call.at,
        message,
        help="make the group once, on all ranks of the job, where the others are made, and keep it",
        related=[] if here else [where],
        context=f"{unit.qualname}:{name}",
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
    # what is loaded at the first batch, told by an entry
    """
import torch.distributed as dist

class Stage:
    def forward(self, batch, args):
        if not args.loaded["transformer"]:
            self.group = dist.new_group([0, 1])  # error: MP517
            args.loaded["transformer"] = True
        dist.all_reduce(batch["loss"], group=self.group)
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
