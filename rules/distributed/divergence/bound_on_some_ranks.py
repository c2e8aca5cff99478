"""A name that some ranks alone bind, and that all of them read.

What it does
    Reports a local name that is bound under a test of the rank alone (`if rank == 0:`), in every place that binds it,
    and that the function reads behind it where no test tells ranks apart. A warning where another test stands around
    the place that reads it, for that may come true on those ranks only.

Why is this bad
    UnboundLocalError on all other ranks, while the first one goes on and waits for them in the next collective.

References
    https://docs.python.org/3/library/exceptions.html#UnboundLocalError
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import NONE, only
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP544", "bound-on-some-ranks", "error", "1.0", tokens=("rank", "is_main", "is_master"))

# By comparison how the first number may stand to the second one: less, equal, greater.
_SIGNS = {
    "Lt": frozenset({-1}), "LtE": frozenset({-1, 0}), "Eq": frozenset({0}), "NotEq": frozenset({-1, 1}),
    "GtE": frozenset({0, 1}), "Gt": frozenset({1}),
}  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    ranks = queries.flow.models.ranks
    for unit in queries.mentioning(*ranks["names"], *ranks["attributes"], *ranks["methods"]):
        if is_aside(unit.path) or unit.code.kind != "function":
            continue
        for number, value in enumerate(unit.code.values):
            if value.op == "undefined":
                yield from _findings(Place(queries.flow, unit, number))


def _findings(unbound: Place) -> Iterator[Finding]:
    """The first place that reads a name on ranks that have not bound it."""
    merged = _merged(unbound)
    asked = _tests_of_rank(unbound, merged)
    if not asked:
        return
    reads = (user for phi in merged for user in phi.users if user.value.op != "phi" and user not in merged)
    for read in sorted(reads, key=lambda place: place.at):
        tests = [test for test in read.tests_inside if test.value.op != "more"]  # how often a loop goes round is none
        raises = read.unit.code.blocks[read.value.block].end[0] == "raise"  # whose ways there nobody asks for
        if raises or read.is_tried or read.under != NONE or any(map(_speaks_of_ranks, tests)):
            continue
        name = unbound.value.data
        yield RULE.finding(
            read.unit.path,
            read.at,
            f"`{name}` in `{read.unit.qualname}` is bound under `{asked[0].text}` alone, and read here on all ranks",
            help=f"read `{name}` under the same test, or give it a value on the other ranks",
            related=[Related(read.unit.path, asked[0].at[0], "some ranks alone go this way")],
            context=f"{read.unit.qualname}:{name}",
            severity="warning" if tests else None,
        )
        return


def _merged(unbound: Place) -> dict[Place, None]:
    """The places at which ways meet of which one has not bound the name."""
    found: dict[Place, None] = {}
    queue = [unbound]
    for place in queue:
        for user in place.users:
            if user.value.op == "phi" and user.value.data == unbound.value.data and user not in found:
                found[user] = None
                queue.append(user)
    return found


def _tests_of_rank(unbound: Place, merged: dict[Place, None]) -> list[Place]:
    """The tests of the rank under which a name is bound; none where it is bound elsewhere, too."""
    unit, control = unbound.unit, unbound.unit.control
    numbers = {phi.number for phi in merged} | {unbound.number}
    found: list[Place] = []
    held: list[Place] = []
    for phi in merged:
        here = control.deciding(phi.value.block)
        preds = unit.code.blocks[phi.value.block].preds
        for (block, _), number in zip(preds, phi.value.args, strict=True):
            if number in numbers:
                continue
            branches = sorted(control.deciding(block) - here)
            tests = [unbound.value_at(unit.code.blocks[branch].end[1]) for branch in branches]
            told = [test for test in tests if _tells_ranks(test)]
            if not told:
                return []
            found += told
            ways = ((unit.code.blocks[branch].end, way) for branch, way in control.settled(block))
            held += [unbound.value_at(end[1]) for end, way in ways if end[2] == way]
    return found if not _are_all_cases(held) else []


def _are_all_cases(tests: list[Place]) -> bool:
    """Whether one of some tests is true whatever the two numbers are that they compare: `a < b`, `a == b`, `a > b`."""
    found: dict[tuple[str, str], set[int]] = {}
    for test in tests:
        if test.value.op == "compare" and test.value.data in _SIGNS:
            one, other = test.operand(0).text, test.operand(1).text
            found.setdefault((one, other), set()).update(_SIGNS[test.value.data])
            found.setdefault((other, one), set()).update(-sign for sign in _SIGNS[test.value.data])
    return {-1, 0, 1} in found.values()


def _tells_ranks(test: Place) -> bool:
    """Whether a test is known to come out otherwise on some ranks; whether something is there says too little."""
    if test.value.op == "compare" and test.value.data in ("Is", "IsNot"):
        return False
    if any(part.value.op == "next" for part in test.parts):
        return False  # of some round of a loop, which may be another one on each rank
    return any(cause.sure and not cause.some for cause in only(test.varies("rank", "member"), "rank", "member"))


def _speaks_of_ranks(test: Place) -> bool:
    """Whether a test may tell ranks apart, by what it names."""
    return any(part in word for word in test.words for part in ("rank", "main", "master"))


_CHAIN = """
import torch.distributed as dist

def part(rows, first):
    rank = dist.get_rank()
    if rank < first:
        start = 0
    elif rank == first:
        start = 1
    elif rank {op} first:
        start = 2
    return rows[start:]{mark}
"""

INCORRECT = (
    """
import torch
import torch.distributed as dist

def train(model, loader, folder, every):
    rank = dist.get_rank()
    if rank == 0:
        checkpoints = f"{folder}/checkpoints"
        writer = open(f"{folder}/log.txt", "a")
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % every == 0:
            torch.save(model.state_dict(), f"{checkpoints}/{step}.pt")  # error: MP544
    writer.close()  # error: MP544
""",
    # not in all cases
    _CHAIN.format(op="> 1 +", mark="  # error: MP544"),
)

CORRECT = (
    # read where it is bound; bound on the other ranks, too; ranks that do not bind it leave; asked for before
    """
import torch
import torch.distributed as dist

def train(model, loader, folder, every):
    rank = dist.get_rank()
    is_main = rank == 0
    if is_main:
        checkpoints = f"{folder}/checkpoints"
    path = None
    if rank == 0:
        path = f"{folder}/last.pt"
    for step, batch in enumerate(loader):
        model(batch).backward()
        if step % every == 0 and dist.get_rank() == 0:
            torch.save(model.state_dict(), f"{checkpoints}/{step}.pt")
    return path
""",
    """
import torch.distributed as dist


def first(rows):
    if dist.get_rank() == 0:
        found = rows[0]
    else:
        return None
    return found


def own_part(rows):
    for i, row in enumerate(rows):
        if i % dist.get_world_size() != dist.get_rank():
            continue
        last = row
    return last


def gathered(rows, size):
    if dist.get_rank() == 0:
        parts = [None] * size
    else:
        parts = None
    dist.gather_object(rows, parts)
    return parts
""",
    # in all cases
    _CHAIN.format(op=">", mark=""),
)
