"""A file that is not valid Python.

What it does
    Reports a file that the parser refuses, at the place where it gave up. The other rules say nothing of it.

Why is this bad
    On a cluster the error shows when the module is first imported: after the job has left the queue, and
    for a module that only one role imports (a critic, an evaluation worker) on some of the ranks only,
    while the rest wait for them.

References
    https://docs.python.org/3/reference/grammar.html
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP001", "syntax-error", "error", stable_since="0.1.0")


def check_file(source: SourceFile) -> Iterator[Finding]:
    problem = source.facts.problem
    if problem is None or problem.kind != "syntax":
        return
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    line = min(max(problem.line, 1), len(source.lines))
    yield RULE.finding(
        source.path,
        (line, problem.column, line, problem.column + 1),
        f"syntax error: {problem.message}",
        help=f"read with the grammar of Python {running}; check newer syntax with a newer Python",
    )


INCORRECT = (
    "def prepare(self, model:  # error: MP001\n    return model\n",
    "x = 1\nfor rank in range(8)  # error: MP001\n    print(rank)\n",
)

CORRECT = (
    "def prepare(self, model):\n    return model\n",
    "# def broken(:\ntext = '''\nfor rank in range(8)\n'''\n",
)
