"""A call that passes the number of ranks, and leaves the rank itself at its default of 0.

What it does
    Looks at functions and constructors of the project with a parameter for a rank whose default is 0. Reports calls
    that pass the number of ranks of the job or of a group to another parameter, and nothing for the rank. Silent where
    the call stands under a test of the rank, or behind one that leaves a job of one process, where arguments are
    unpacked (`**options`) or bound before (`partial`), where the function only compares its rank with something, and
    where the group of the ranks that are counted is known to be another one.

Why is this bad
    Every rank takes itself for the first of many: all of them take the first share of the data, number their samples
    alike, or write the same file. On one GPU it is right.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_rank
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import WHOLE, axes_of
from validator.finding import Finding, Related
from validator.flow.calls.groups import axes_in
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP440", "rank-left-at-default", "warning", "0.6.0", tokens=("world_size", "size"), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    names = frozenset(name for name in queries.flow.models.ranks["names"] if "local" not in name)
    for unit in queries.mentioning(*sorted(names)):
        for position, (name, _) in enumerate(unit.code.params):
            if name not in names or not queries.flow.parameters.default(unit, name).is_const(0):
                continue
            if not _is_computed_with(queries, Place(queries.flow, unit, position)):
                continue
            for caller, passed in queries.flow.calls_of(unit):
                call = Place(queries.flow, caller, passed.site)
                size = _size(call, unit, position) if not is_aside(caller.path) else None
                if size is None or _is_bound_before(call) or _is_of_one_process(call):
                    continue
                if not any(c.kind in ("rank", "member") for c in call.around()):
                    yield _report(call, unit, name, size)


def _is_bound_before(call: Place) -> bool:
    """Whether what is called got arguments before: `functools.partial(share, rank=rank)`."""
    return call.value.op == "call" and bool(call.operand(0).closed.of("partial"))


def _is_of_one_process(call: Place) -> bool:
    """Whether a test before a call leaves a job of one process: the first rank is all that there are."""
    return any(o[1] is not holds for test, holds in call.tests_before for o in test.val.of("several"))


def _is_computed_with(queries: Queries, rank: Place) -> bool:
    """Whether a parameter counts: it is added, multiplied or an index, here or where an object keeps it that gets no
    other one later."""
    if any(_counts(user, rank) for user in rank.users):
        return True
    kept = [user.value.data for user in rank.users if user.value.op == "store_attr"]
    if rank.unit.cls is None or not kept:
        return False
    writers = queries.flow.stores.writers(kept[0])
    reads = (
        place for each in queries.flow.units(rank.unit.cls.every_method()) for place in queries.values(each, "attr")
    )
    own = all(queries.flow.unit_of(each) is rank.unit for each in writers)
    return own and any(_counts(user, read) for read in reads if read.value.data == kept[0] for user in read.users)


def _counts(user: Place, rank: Place) -> bool:
    """Whether a number is a part of a sum or a product, the remainder of one, or a place."""
    value = user.value
    if value.op == "binary":
        return value.data in ("Add", "Mult", "Sub", "Mod", "FloorDiv")
    return value.op == "slice" or value.op == "item" and value.args[1] == rank.number


def _size(call: Place, unit: Unit, position: int) -> Place | None:
    """The number of ranks that a call passes to a function, of which it does not say which rank it is."""
    names = call.value.data.names if call.value.op == "call" else ("*",)
    if "*" in names or "**" in names or argument_of(call.unit, call.number, unit, position) is not None:
        return None
    wanted = axes_of(unit.code.params[position][0]) - WHOLE
    for other in range(len(unit.code.params)):
        given = argument_of(call.unit, call.number, unit, other) if other != position else None
        place = call.value_at(given) if given is not None else None
        counted = [axes_in(o[1]) for o in place.closed.of("size")] if place is not None else []
        if counted and all(not wanted or axes == wanted for axes in counted):
            return place
    return None


def _report(call: Place, unit: Unit, name: str, size: Place) -> Finding:
    called = unit.cls.name if unit.cls is not None and unit.name == "__init__" else unit.qualname
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method or called}`{call.where} gets the number of ranks, `{size.text}`, and no `{name}`, which is 0"
        " unless it is passed: every rank takes itself for the first",
        help=f"pass `{name}=` as well",
        related=[Related(unit.path, unit.code.at[0], f"`{name}` is 0 by default here")],
        context=f"{call.unit.qualname}:{called}",
    )


_LOSS = """
import torch
import torch.distributed as dist

class Loss(torch.nn.Module):
    def __init__(self, rank=0, world_size=1):
        super().__init__()
        self.rank, self.world_size = rank, world_size

    def forward(self, rows, columns):
        return rows @ columns.t(), torch.arange(len(rows)) + len(rows) * self.rank

def share(rows, size=1, rank=0):
    return rows[rank::size]

def main(rows):
    dist.init_process_group("nccl")
    loss = Loss({given})
    return loss(rows, rows), share(rows, dist.get_world_size(){rank})
"""

INCORRECT = [
    _LOSS.replace("Loss({given})", "Loss(world_size=dist.get_world_size())  # error: MP440").replace(
        "dist.get_world_size(){rank})", "dist.get_world_size())  # error: MP440"
    ),
]

CORRECT = [
    _LOSS.replace("{given}", "dist.get_rank(), dist.get_world_size()").replace("{rank}", ", rank=dist.get_rank()"),
    _LOSS.replace("{given}", "**options").replace("{rank}", ", dist.get_rank()"),
    """
import torch.distributed as dist

def describe(size, rank=0):
    if rank == 0:
        print("ranks:", size)

def table(rows, size, rank=0):
    return [rows[rank + i] for i in range(size)]

class Sampler:
    def __init__(self, length, size, rank=0):
        self.length, self.size, self.rank = length, size, rank

    def __iter__(self):
        return iter(range(0 + self.rank, self.length, self.size))

def tell(objects, size, rank=0):
    dist.broadcast_object_list(objects, src=rank)
    return objects * size

def main(rows):
    dist.init_process_group("nccl")
    sampler = Sampler(len(rows), dist.get_world_size())
    sampler.rank = dist.get_rank()
    tell(rows, dist.get_world_size())
    describe(dist.get_world_size())
    if dist.get_rank() == 0:
        print(table(rows, dist.get_world_size()))
""",
    # the rank is bound before; there is one process
    """
import functools
import torch.distributed as dist

def share(rows, size=1, rank=0):
    return rows[rank::size]

def main(rows):
    dist.init_process_group("nccl")
    mine = functools.partial(share, rank=dist.get_rank())
    return mine(rows, dist.get_world_size())

def alone(rows):
    size = dist.get_world_size()
    if size == 1:
        return share(rows, size)
    return share(rows, size, dist.get_rank())

def refused(rows):
    assert dist.get_world_size() == 1
    return share(rows, dist.get_world_size())
""",
]
