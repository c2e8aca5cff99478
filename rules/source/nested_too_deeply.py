"""Code nested more deeply than Python can read it.

What it does
    Reports a file whose expressions or blocks are nested so deeply that the parser, or whatever walks its
    tree, runs out of stack.

Why is this bad
    The file may well be refused by other versions of Python, and by every tool that reads source. It is
    nearly always generated code.

References
    https://docs.python.org/3/library/exceptions.html#RecursionError
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP006", "nested-too-deeply", "error", stable_since="0.1.0")


def check_file(source: SourceFile) -> Iterator[Finding]:
    problem = source.facts.problem
    if problem is None or problem.kind != "nesting":
        return
    yield RULE.finding(
        source.path,
        (1, 1, 1, 1),
        f"not checked: {problem.message}",
        help="build the value in a loop, or leave this file out with `extend-exclude`",
    )


INCORRECT = ("# error: MP006\nx = " + "-" * 30_000 + "1\n",)

CORRECT = (
    "x = " + "(" * 50 + "1" + ")" * 50 + "\n",
    "x = " + "+".join(["1"] * 800) + "\n",
)
