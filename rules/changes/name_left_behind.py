"""A name that a change removed or renamed and that is still asked for.

What it does
    Compares the project before and after a change. Reports where a function, a method, an attribute, a field, a key,
    an option or a setting is still asked for under a name whose last definition the change took away: in code, in
    `getattr`, in a text that names a method to a dispatcher, in recipes and scripts.

Why is this bad
    AttributeError, KeyError or an unknown option, when the line runs; a setting that nothing reads has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.lost import Lost, Names
from validator.drift.occurrences import Occurrence
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP901", "name-left-behind", "warning", stable_since="0.2.0")

_KINDS = {
    "function": "function", "class": "class", "variable": "name", "attribute": "attribute", "key": "key",
    "field": "field", "option": "option", "setting": "setting",
}  # fmt: skip


def check_change(change: Change) -> Iterator[Finding]:
    names = change.analysis(Names)
    for lost in (*names.lost, *names.members):
        for place in lost.stale:
            yield _report(lost, place)


def _report(lost: Lost, place: Occurrence) -> Finding:
    new = f"; it is `{lost.renamed}` now" if lost.renamed else ""
    related = [Related(lost.old.path, lost.old.at[0], f"`{lost.name}` was defined here before the change")]
    if lost.new is not None:
        related = [Related(lost.new.path, lost.new.at[0], f"`{lost.renamed}`, which takes its place")]
    return RULE.finding(
        place.path,
        name_span(place),
        f"the change left nothing that defines the {_KINDS[lost.kind]} `{lost.name}`, which is still asked for{new}",
        help=f"ask for `{lost.renamed}`" if lost.renamed else "ask for what takes its place, or define it again",
        related=related,
        context=f"{place.unit.qualname if place.unit else ''}:{lost.name}",
    )


def name_span(place: Occurrence) -> tuple[int, int, int, int]:
    """The name itself at the end of an attribute; otherwise the whole place."""
    line, column, end_line, end_column = place.at
    if place.kind == "attribute":
        return (end_line, max(end_column - len(place.name), 1), end_line, end_column)
    return (line, column, end_line, end_column)


INCORRECT = ()
CORRECT = ()
