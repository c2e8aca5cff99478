"""What other rules say since a change of files that it left as they were: a caller that no longer fits."""

from __future__ import annotations

import re
from collections.abc import Callable

from validator.finding import Finding, Related, speaks_of_change

MADE_SO = "the change made it so: before it, nothing was wrong"
_LINE = re.compile(r":\d+")  # of a place that a message names: what stands above it may have moved it


def marked(
    findings: list[Finding], is_changed: Callable[[str], bool], before: Callable[[frozenset[str]], list[Finding]]
) -> list[Finding]:
    """The findings, those marked that lie in unchanged files and were not there before.

    `before` gives what the rules of some codes say of the older revision; it is asked only where there are such. What
    only one file makes is not to be among the findings in unchanged files.
    """
    asked = [each for each in findings if _may_be_new(each, is_changed)]
    known = {_identity(each) for each in before(frozenset(each.code for each in asked))} if asked else set()
    new = {each for each in asked if _identity(each) not in known}
    return [_with_mark(each, is_changed) if each in new else each for each in findings]


def is_marked(finding: Finding) -> bool:
    return any(each.message == MADE_SO for each in finding.related)


def _may_be_new(finding: Finding, is_changed: Callable[[str], bool]) -> bool:
    return finding.severity != "note" and not is_changed(finding.path) and not speaks_of_change(finding)


def _with_mark(finding: Finding, is_changed: Callable[[str], bool]) -> Finding:
    changed = ((each.path, each.line) for each in finding.related if is_changed(each.path))
    path, line = next(changed, (finding.path, finding.span.line))
    return finding._replace(related=(*finding.related, Related(path, line, MADE_SO)))


def _identity(finding: Finding) -> tuple[str, str, str, str]:
    return finding.code, finding.path, finding.context, _LINE.sub("", finding.message)
