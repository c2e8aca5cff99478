"""A file that holds NUL bytes.

What it does
    Reports the first NUL byte of a file.

Why is this bad
    Python refuses to import the file. NUL bytes are what a full disk or a broken network file system leaves
    behind after a crash, so the file has most likely lost text too.

References
    https://docs.python.org/3/library/functions.html#compile
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP004", "nul-bytes", "error", stable_since="0.1.0")


def check_file(source: SourceFile) -> Iterator[Finding]:
    problem = source.facts.problem
    if problem is None or problem.kind != "nul":
        return
    yield RULE.finding(
        source.path,
        (problem.line, 1, problem.line, 2),
        "NUL byte: the file is damaged, or it is no text at all",
        help="restore the file from version control",
    )


INCORRECT = ("x = 1\ny = '\0'  # error: MP004\n",)

CORRECT = (
    "y = '\\0'\n",
    "y = b'\\x00'\n",
)
