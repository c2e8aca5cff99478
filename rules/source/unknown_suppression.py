"""A suppression that no rule answers to.

What it does
    Reports a `# validator: ignore[…]` that names an unknown rule, or none at all. Codes of other tools in a
    `# noqa` are theirs.

Why is this bad
    It silences nothing. With a slip of the finger the finding comes back; without a code nobody can tell what
    was meant.

References
    https://docs.astral.sh/ruff/rules/invalid-rule-code/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.run.suppressions import Outcome

RULE = Rule("MP012", "unknown-suppression", "warning", stable_since="0.1.0")


def check_suppressions(path: str, outcomes: Iterable[Outcome]) -> Iterator[Finding]:
    for comment, _, _, unknown in outcomes:
        if comment.kind == "noqa":
            continue
        if not comment.selectors:
            message = f"suppression without a code: `{comment.kind}` silences nothing"
        elif unknown:
            message = f"suppression of an unknown rule: {', '.join(sorted(unknown))}"
        else:
            continue
        yield RULE.finding(path, comment.span, message, help="`--list-rules` lists the codes and names")


INCORRECT = (
    "x = 1  # validator: ignore[MP999] no such rule  # error: MP012\n",
    "x = 1  # validator: ignore this please  # error: MP012\n",
)

CORRECT = (
    "x = 1  # validator: ignore[MP012] a real one\n",
    "x = 1  # noqa: E501, ABC999\n",
)
