"""A process group that each rank makes of ranks of its own, where all must make all groups.

What it does
    Reports `new_group(ranks)` where the list is another one on each rank (`range(first, first + size)` with `first`
    computed from the rank, or the one list of several in which the rank is), and all ranks come there; a warning
    where only the name of a function says that it gives the rank. Silent with `use_local_synchronization=True`, with
    which the members alone make their group, where the list is the whole job's, and where it has one rank: nobody
    else reads the keys of a group of one member.

Why is this bad
    `new_group` is a collective of the whole job: every rank must call it for every group, in the same order, also for
    those to which it does not belong. Groups that are made at the same time share one name, so their members read each
    other's keys in the store: the first collective hangs, or runs between the wrong ranks.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.new_group
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import NONE, Causes, only
from validator.finding import Finding
from validator.flow.queries.base import Place, Queries
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP558", "own-group-only", "error", "1.0", tokens=("new_group",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).collectives("new_group"):
        ranks = call.argument("ranks", 0)
        local = call.argument("use_local_synchronization", 4)
        if ranks is None or local is not None and not local.closed.is_const(False):
            continue
        causes = _differs(ranks)
        if causes:
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"each rank makes a group of its own here{call.where}: `{ranks.text}` differs between ranks",
                help="make the groups of all ranks in one order on every rank and keep the own one, or pass "
                "`use_local_synchronization=True`",
                context=f"{call.unit.qualname}:{ranks.text}",
                severity="error" if any(cause.sure for cause in causes) else "warning",
            )


def _differs(ranks: Place) -> Causes:
    """Why a list is another one on each rank, on all ways; nothing where it is not."""
    value = ranks.closed
    lists = value.of("tuple")
    if lists and all(len(o[1]) == 1 for o in lists):
        return NONE
    return frozenset(cause for cause in only(value.v | value.n, "rank", "member") if not cause.some)


INCORRECT = [
    """
import torch.distributed as dist

def make(size):
    rank = dist.get_rank()
    first = rank // size * size
    return dist.new_group(list(range(first, first + size)))  # error: MP558

class Mesh:
    def __init__(self, size):
        self.rank = dist.get_rank()
        rows = [list(range(i, i + size)) for i in range(0, dist.get_world_size(), size)]
        self.row = dist.new_group(ranks=rows[self.rank // size])  # error: MP558
        world = range(dist.get_world_size())
        self.column = dist.new_group([r for r in world if r % size == self.rank % size])  # error: MP558
""",
    # the list that has the rank; a rank of a library, and of a module that nobody knows
    """
import torch.distributed as dist
from classy_vision.generic.distributed_util import get_rank
from elsewhere import utils

def chosen(groups):
    own = None
    for ranks in groups:
        if dist.get_rank() in ranks:
            own = ranks
    return dist.new_group(own)  # error: MP558

def of_node(size):
    first = get_rank() // size * size
    return dist.new_group(list(range(first, first + size)))  # error: MP558

def of_other_node(size):
    first = utils.get_rank() // size * size
    return dist.new_group(list(range(first, first + size)))  # error: MP558
""",
]

CORRECT = [
    # a group of each rank alone
    """
import torch.distributed as dist

def alone(known, ranks=None):
    if ranks is None:
        ranks = [dist.get_rank()]
    if tuple(ranks) not in known:
        known[tuple(ranks)] = dist.new_group(ranks=ranks)
    return known[tuple(ranks)]
""",
    """
import torch.distributed as dist

def make(size):
    rank, found = dist.get_rank(), None
    for first in range(0, dist.get_world_size(), size):
        ranks = list(range(first, first + size))
        group = dist.new_group(ranks)
        if rank in ranks:
            found = group
    return found, dist.new_group(list(range(dist.get_world_size())))

def keep(groups):
    own, kept = None, None
    for ranks in groups:
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            own, kept = ranks, group
    return own, kept, dist.new_group(groups[0])
""",
    """
import torch.distributed as dist

def make(size):
    first = dist.get_rank() // size * size
    return dist.new_group(list(range(first, first + size)), use_local_synchronization=True)
""",
]
