"""A text by which two places find each other, changed in one of them.

What it does
    Reports a text without spaces (a key, the name of a file, of a variable of the environment or of a registered class)
    that a change replaced in some places while it stands unchanged in others, and whose replacement stands nowhere
    else; and an attribute or key that is asked for since the change and that nothing in the project defines.

Why is this bad
    Who writes and who reads no longer mean the same: a checkpoint that is not found, a KeyError, a setting that is not
    seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.texts import Texts
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP908", "text-left-behind", "warning", stable_since="0.2.0")


def check_change(change: Change) -> Iterator[Finding]:
    for row in change.analysis(Texts).rows:
        where = f"still `{row.old}` elsewhere" if row.others else f"`{row.old}` before"
        yield RULE.finding(
            row.unit.path,
            row.at,
            f"`{row.new}` stands nowhere else in the project; it is {where}",
            help=f"write `{row.new}` in all places, or `{row.old}` here",
            related=[Related(path, line, f"`{row.old}`") for path, line in row.others[:3]],
            context=f"{row.unit.qualname}:{row.new}",
        )


INCORRECT = ()
CORRECT = ()
