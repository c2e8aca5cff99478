"""A result that a change gave another shape, and a place that takes it apart as before.

What it does
    Compares what functions give back before and after a change: how many values, which keys, whether it is a
    coroutine, a property or a method. Reports places that unpack, index, await or call it as it was; and calls in
    changed code that no longer await a coroutine.

Why is this bad
    ValueError, KeyError or TypeError when the line runs; a coroutine that nobody awaits does nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.results import Results
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP903", "result-left-behind", "error", stable_since="0.2.0")


def check_change(change: Change) -> Iterator[Finding]:
    for row in change.analysis(Results).reckoned:
        new = row.new
        shown = f"{new.cls.name}.{new.name}" if new.cls is not None else new.name
        yield RULE.finding(
            row.unit.path,
            row.at,
            f"`{row.unit.qualname}` {row.text}: `{shown}`",
            help="take the result as it is now, or give back what was given before",
            related=[Related(new.path, new.facts.name_at[0], f"`{shown}` as it is now")],
            context=f"{row.unit.qualname}:{shown}",
            severity="error" if row.sure else "warning",
        )


INCORRECT = ()
CORRECT = ()
