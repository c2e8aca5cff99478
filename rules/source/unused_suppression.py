"""A comment that silences nothing.

What it does
    Reports a `# validator: ignore[…]` whose rule has nothing to say there any more. Rules that are switched
    off are not held against it, nor are rules about the whole project when only single files are checked.
    `# noqa` is never reported: other tools share it.

Why is this bad
    The comment hides the next true finding on that line, and tells the reader of a defect that is gone.

References
    https://docs.astral.sh/ruff/rules/unused-noqa/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.finding import Edit, Finding, Fix, Span
from validator.rule import Rule
from validator.run.suppressions import Outcome

RULE = Rule("MP010", "unused-suppression", "warning", stable_since="0.1.0", fix="safe")


def check_suppressions(path: str, outcomes: Iterable[Outcome]) -> Iterator[Finding]:
    for comment, used, disabled, unknown in outcomes:
        if comment.kind == "noqa":
            continue
        idle = [each for each in comment.selectors if each not in used | disabled | unknown]
        if not idle:
            continue
        fix = None
        if len(idle) == len(comment.selectors):
            fix = Fix("safe", "remove the comment", (Edit(Span(*comment.removal), ""),))
        yield RULE.finding(
            path,
            comment.span,
            f"unused suppression: {', '.join(idle)} reports nothing here",
            help="remove it",
            fix=fix,
        )


INCORRECT = (
    "x = 1  # validator: ignore[MP010] nothing to hide  # error: MP010\n",
    "# validator: ignore-file[MP010] a whole file of nothing  # error: MP010\nx = 1\n",
)

CORRECT = (
    "x = 1  # validator: ignore[MP001] a rule that is switched off in this example\n",
    "x = 1  # noqa: MP010\n",
)
