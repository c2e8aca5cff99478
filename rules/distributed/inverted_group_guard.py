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

import re
from collections.abc import Iterator

from validator.analysis.collectives import dimension
from validator.facts.model import Guard
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP503", "inverted-group-guard", "error", "0.1.0", tokens=("is not None or",))

_GUARD = re.compile(r"(?P<group>[\w.]*group[\w.]*) is not None or (?P<rank>[\w.]*rank[\w.]*) == 0$")

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


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        seen: set[Guard] = set()
        rows = [*(c.guards for c in function.facts.calls), *(r.guards for r in function.facts.refs)]
        for guards in rows:
            for guard in guards:
                if guard not in seen:
                    seen.add(guard)
                    match = _GUARD.search(guard.text) if not guard.negated else None
                    if match and dimension(match["group"]) and dimension(match["group"]) == dimension(match["rank"]):
                        yield _finding(function.path, guard, match["group"], match["rank"], function.qualname)


def _finding(path: str, guard: Guard, group: str, rank: str, where: str) -> Finding:
    return RULE.finding(
        path,
        (guard.line, 1, guard.line, 1),
        f"in `{where}` the guard lets all ranks of `{group}` in: `{rank} == 0` is asked only where there is no group",
        help=f"write `{group} is None or {rank} == 0`",
        context=f"{where}:{group}",
    )
