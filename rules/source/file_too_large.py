"""A file too large to be source that a person wrote.

What it does
    Reports a file above ten megabytes instead of reading it.

Why is this bad
    Parsing takes about twenty times the size of a file in memory, and so does importing it on every rank.
    Data in the form of Python code belongs in a data file.

References
    https://docs.python.org/3/library/ast.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP005", "file-too-large", "warning", stable_since="0.1.0")


def check_file(source: SourceFile) -> Iterator[Finding]:
    problem = source.facts.problem
    if problem is None or problem.kind != "size":
        return
    yield RULE.finding(
        source.path,
        (1, 1, 1, 1),
        f"not read: {problem.message}",
        help="keep the data in a data file, or leave this file out with `extend-exclude`",
    )


INCORRECT = ("# file: table.py size=52428800\n# error: MP005\n",)

CORRECT = (
    "# file: table.py size=100\nx = 1\n#",
    "table = [0] * 60_000_000\n",
)
