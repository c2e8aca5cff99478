"""A file that is listed and cannot be read.

What it does
    Reports a source file that may not be opened, or a symbolic link that leads back to itself.

Why is this bad
    What was not read was not checked, and whatever imports it was checked without it.

References
    https://docs.python.org/3/library/exceptions.html#os-exceptions
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP007", "unreadable-file", "error", stable_since="0.1.0")


def check_file(source: SourceFile) -> Iterator[Finding]:
    problem = source.facts.problem
    if problem is None or problem.kind != "unreadable":
        return
    yield RULE.finding(
        source.path,
        (1, 1, 1, 1),
        f"not read: {problem.message}",
        help="mend its permissions or the link, or leave it out with `extend-exclude`",
    )


INCORRECT = ("# file: loop.py link=loop.py error=MP007\n",)

CORRECT = (
    "# file: here.py\nx = 1\n# file: there.py link=here.py\n",
    "# file: there.py link=nowhere.py\n",
)
