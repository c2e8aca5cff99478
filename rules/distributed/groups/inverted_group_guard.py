"""A guard that lets every rank in although it means the leader of each group.

What it does
    Reports `group is not None or group_rank == 0`. Where there is a group, the first half holds for all of its
    ranks, so the test of the rank is never asked; where there is none, the rank of nothing is tested.

Why is this bad
    The branch was to run once per group. Every rank runs it: work is done several times over, and a collective on
    the group of leaders inside is entered by ranks that are not in it.

References
    https://pytorch.org/docs/stable/distributed.html#groups
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import UNKNOWN, WHOLE, Axes, axes_of
from validator.domains.spmd import only
from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP503", "inverted-group-guard", "error", "0.1.0", tokens=("is not None or",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    ranks = queries.flow.models.ranks
    named = (*ranks["names"], *ranks["attributes"], *ranks["methods"], *ranks["stages"])
    for unit in queries.mentioning(*named):
        for block in sorted(unit.code.tests):
            _, tested, yes, no = unit.code.blocks[block].end
            asked = Place(queries.flow, unit, tested)
            group = _there(asked)
            rank = _first_of(asked, unit, no, yes) if group is not None else None
            if group is not None and rank is not None and _one_axis(group, rank):
                yield _finding(asked, group, rank)


def _there(test: Place) -> Place | None:
    """`x` of `x is not None`."""
    value = test.value
    if value.op == "compare" and value.data == "IsNot" and test.operand(1).val.is_const(None):
        return test.operand(0)
    return None


def _first_of(test: Place, unit: Unit, block: int, yes: int) -> Place | None:
    """`r` of `r == 0`, asked where the first half does not hold, with the same way where it does."""
    end = unit.code.blocks[block].end
    if end[0] == "branch" and end[2] == yes:
        last = end[1]
    elif end == ("jump", yes) and unit.code.blocks[block].values:
        last = unit.code.blocks[block].values[-1]
    else:
        return None
    compared = test.value_at(last)
    if compared.value.op == "compare" and compared.value.data == "Eq" and compared.operand(1).val.is_const(0):
        return compared.operand(0)
    return None


def _one_axis(group: Place, rank: Place) -> bool:
    """Whether a rank is counted in just this group: by what they are, else by their names."""
    return bool(_of_group(group)) and _of_group(group) == _of_rank(rank)


def _of_group(group: Place) -> Axes:
    axes, _ = group.spanned
    return axes if not axes & {UNKNOWN, *WHOLE} else frozenset()


def _of_rank(rank: Place) -> Axes:
    known = frozenset(c.axis for c in only(rank.closed.v, "rank"))
    return known if known and not known & {UNKNOWN, *WHOLE} else axes_of(rank.hint)


def _finding(test: Place, group: Place, rank: Place) -> Finding:
    _, sure = group.spanned
    where = test.unit.qualname
    return RULE.finding(
        test.unit.path,
        test.at,
        f"in `{where}` the guard lets all ranks of `{group.text}` in: `{rank.text} == 0` is asked only where there is"
        " no group",
        help=f"write `{group.text} is None or {rank.text} == 0`",
        context=f"{where}:{group.text}",
        severity="error" if sure else "warning",
    )


INCORRECT = [
    """
def evaluate(strategy, prompts):
    if strategy.ring_attn_group is not None or strategy.ring_attn_rank == 0:  # error: MP503
        return generate(prompts)
""",
]

CORRECT = [
    """
def evaluate(strategy, prompts):
    if strategy.ring_attn_group is None or strategy.ring_attn_rank == 0:
        return generate(prompts)
""",
    """
def evaluate(strategy, group, seed):
    if group is not None or strategy.world_rank == 0:
        return generate(seed)
""",
]
