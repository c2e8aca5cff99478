"""A suppression that does not say why.

What it does
    Reports a `# validator: ignore[…]` (also `ignore-block`, `ignore-file`) without a text behind the bracket.
    `# noqa: CODE` needs none.

Why is this bad
    A finding that was judged wrong and one that was in the way look the same a month later.

References
    https://docs.astral.sh/ruff/linter/#error-suppression
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.run.suppressions import Outcome

RULE = Rule("MP011", "suppression-without-reason", "warning", stable_since="0.1.0")


def check_suppressions(path: str, outcomes: Iterable[Outcome]) -> Iterator[Finding]:
    for comment, *_ in outcomes:
        if comment.kind != "noqa" and comment.selectors and not comment.reason:
            codes = ", ".join(comment.selectors)
            yield RULE.finding(
                path,
                comment.span,
                f"suppression of {codes} without a reason",
                help=f"write why behind the bracket: `# validator: {comment.kind}[{codes}] the reason`",
            )


INCORRECT = (
    "x = 1  # validator: ignore[MP001]  # error: MP011\n",
    "def f():  # validator: ignore-block[MP001]  # error: MP011\n    return 1\n",
)

CORRECT = (
    "x = 1  # validator: ignore[MP001] checked by hand\n",
    "x = 1  # noqa: MP001\n",
)
