"""One report where a rule about changes and a rule about one revision see the same mistake.

They do where both stand at one line and speak of one name. An error of the newer revision alone is proved, and stays;
what the change tells of it, a new name and its fix, goes along as advice. Of two that may be wrong, the one about the
change has the better evidence: before it, nothing was wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from validator.finding import SEVERITIES, Finding, Related, speaks_of_change

_QUOTED = re.compile(r"`([^`]+)`|'([\w.-]+)'|\"([\w.-]+)\"")  # of messages, not of code
_WORD = re.compile(r"[A-Za-z_]\w*")

Renamed = tuple[str, str]  # a name before the change, and since


def told_once(findings: list[Finding]) -> list[Finding]:
    """The findings, of those about one mistake only one, with the best advice."""
    changes: dict[tuple[str, int], list[Finding]] = {}
    renamed: dict[tuple[str, int], list[Renamed]] = {}
    for each in filter(speaks_of_change, findings):
        changes.setdefault((each.path, each.span.line), []).append(each)
        for place in {(each.path, each.span.line), *((row.path, row.line) for row in each.related)}:
            renamed.setdefault(place, []).extend(_renamed(each))
    instead: dict[Finding, Finding | None] = {}
    for each in findings:
        place = each.path, each.span.line
        if speaks_of_change(each) or place not in renamed:
            continue
        same = [change for change in changes.get(place, ()) if _is_same(change, each)]
        better = next((change for change in same if _is_better(change, each)), None)
        if better is not None:
            instead[each] = None
            instead[better] = _beside(instead.get(better) or better, each)
        else:
            instead |= dict.fromkeys(same)
            instead[each] = _advised(each, same, renamed[place])
    told = (instead.get(each, each) for each in findings)
    return [each for each in told if each is not None]


def _is_same(change: Finding, other: Finding) -> bool:
    """Whether two findings of one line are about the same name; of what is no error, at the same place in it."""
    if _words(change).isdisjoint(_words(other)):
        return False
    return other.severity == "error" or change.span[:2] < other.span[2:] and other.span[:2] < change.span[2:]


def _is_better(change: Finding, other: Finding) -> bool:
    """Whether what is told of the change is to stand for the other finding."""
    return other.severity != "error" and SEVERITIES.index(change.severity) <= SEVERITIES.index(other.severity)


def _beside(change: Finding, other: Finding) -> Finding:
    place = Related(other.path, other.span.line, f"{other.code} ({other.name}) reports this, too")
    return change._replace(related=(*change.related, place))


def _advised(finding: Finding, same: Iterable[Finding], renamed: Iterable[Renamed]) -> Finding:
    """A finding with the name that the change gave to what it is about."""
    for quoted in _quoted(finding):
        new = next((new for old, new in renamed if _plain(old) == _plain(quoted)), "")
        if new:
            advice = f"write `{_spelled(new, quoted)}`: the change renamed `{quoted}`"
            fix = next((each.fix._replace(message=advice) for each in same if each.fix is not None), finding.fix)
            return finding._replace(help=advice, fix=fix)
    return finding


def _renamed(change: Finding) -> list[Renamed]:
    """The renaming that a finding tells of, as the contexts of such rules end: `where:old>new`."""
    old, _, new = change.context.rpartition(":")[2].partition(">")
    return [(old, new)] if old and new else []


def _quoted(finding: Finding) -> list[str]:
    """What the message of a finding names."""
    return [next(filter(None, match)) for match in _QUOTED.findall(finding.message)]


def _words(finding: Finding) -> set[str]:
    """The names in what the message of a finding quotes."""
    return {word for text in _quoted(finding) for word in _WORD.findall(_plain(text))}


def _plain(name: str) -> str:
    """A name as it stands in code, whether it is written as an option or not."""
    return name.lstrip("-").replace("-", "_")


def _spelled(new: str, old: str) -> str:
    """A new name as the old one is spelled: as an option, with dashes or without."""
    bare = old.lstrip("-")
    plain = _plain(new)
    return old[: len(old) - len(bare)] + (plain.replace("_", "-") if "-" in bare else plain)
