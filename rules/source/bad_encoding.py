"""A file whose bytes are not text in the encoding it declares.

What it does
    Reports bytes that cannot be decoded by the declared encoding (UTF-8 where none is declared), and a coding
    comment that names no encoding.

Why is this bad
    Python refuses to import such a file.

References
    https://peps.python.org/pep-0263/
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP003", "bad-encoding", "error", stable_since="0.1.0")


def check_file(source: SourceFile) -> Iterator[Finding]:
    problem = source.facts.problem
    if problem is None or problem.kind != "encoding":
        return
    yield RULE.finding(
        source.path,
        (problem.line, 1, problem.line, 2),
        f"cannot be decoded: {problem.message}",
        help="save the file as UTF-8, or declare its encoding in a comment on the first line",
    )


INCORRECT = (
    "# coding: ascii\nname = 'é'  # error: MP003\n",
    "# coding: no-such-codec  # error: MP003\nx = 1\n",
)

CORRECT = (
    "name = 'é'\n",
    "# coding: utf-8\nname = 'é'\n",
)
