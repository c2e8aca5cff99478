"""Which findings in the files that a change touches were there before it.

A finding is the same as before if rule, file, severity, message, context and the text of its line are. Of those that
are alike as many are old as there were before; lines may move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from validator.finding import Finding, Related, speaks_of_change

WAS_THERE = "it was there before the change, too"

Lines = Callable[[str], list[str]]
Identity = tuple[str, ...]


def marked(
    findings: list[Finding],
    is_changed: Callable[[str], bool],
    before: Callable[[frozenset[str]], Iterable[Finding]],
    lines: Lines,
    lines_before: Lines,
    notes: bool,
) -> list[Finding]:
    """The findings, those marked that were there before.

    `before` gives what the rules of some codes say of the older revision; it is asked only where there is something to
    ask. Of `notes` nobody needs to know since when they are there where none is shown.
    """
    asked = [each for each in findings if (notes or each.severity != "note") and _may_be_old(each, is_changed)]
    if not asked:
        return findings
    old = Counter(_identity(each, lines_before) for each in before(frozenset(each.code for each in asked)))
    known: set[Finding] = set()
    for each in asked:
        identity = _identity(each, lines)
        if old[identity] > 0:
            old[identity] -= 1
            known.add(each)
    return [_with_mark(each) if each in known else each for each in findings]


def is_marked(finding: Finding) -> bool:
    return any(each.message == WAS_THERE for each in finding.related)


def _may_be_old(finding: Finding, is_changed: Callable[[str], bool]) -> bool:
    return is_changed(finding.path) and not speaks_of_change(finding)


def _with_mark(finding: Finding) -> Finding:
    place = Related(finding.path, finding.span.line, WAS_THERE)
    return finding._replace(related=(*finding.related, place))


def _identity(finding: Finding, lines: Lines) -> Identity:
    texts = lines(finding.path)
    line = texts[finding.span.line - 1] if finding.span.line <= len(texts) else ""
    text = " ".join(line.split())
    return finding.code, finding.path, finding.severity, finding.message, finding.context, text
