"""A merge that was never finished.

What it does
    Reports the first conflict marker (`<<<<<<<`, `=======`, `>>>>>>>`) of a file that does not
    parse because of it.

Why is this bad
    The file cannot be imported, and whichever side is picked in haste was not reviewed.

References
    https://git-scm.com/docs/git-merge#_how_conflicts_are_presented
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP002", "merge-conflict-marker", "error", stable_since="0.1.0", tokens=("<<<<<<<",))


def check_file(source: SourceFile) -> Iterator[Finding]:
    problem = source.facts.problem
    if problem is None or problem.kind != "conflict":
        return
    yield RULE.finding(
        source.path,
        (problem.line, 1, problem.line, 8),
        "merge-conflict marker: the file was committed or left in the middle of a merge",
        help="keep one of the two sides, or both, and delete the three marker lines",
    )


INCORRECT = (
    """\
ZERO_STAGE = 3
<<<<<<< HEAD  # error: MP002
MICRO_BATCH = 4
=======
MICRO_BATCH = 8
>>>>>>> feature
""",
)

CORRECT = (
    '''\
HELP = """
<<<<<<< HEAD
ours
=======
theirs
>>>>>>> feature
"""
''',
    "x = 1\n# <<<<<<< a comment about markers\n# >>>>>>>\n",
)
