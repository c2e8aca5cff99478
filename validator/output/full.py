"""For people: each finding with its lines of source, a caret below the place, help and related places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from validator.finding import Finding
from validator.output import Report, clean, tally
from validator.output.concise import COLORS

_WIDEST = 160  # columns of source shown; a longer line is cut around the place


def render(report: Report) -> str:
    blocks = [_block(finding, report) for finding in report.findings]
    counts: Counter[str] = Counter(finding.fix.safety for finding in report.findings if finding.fix is not None)
    ways = (("safe", "--fix"), ("unsafe", "--fix --unsafe-fixes"))
    hint = "".join(f"; {counts[safety]} fixable with {way}" for safety, way in ways if counts[safety])
    return "\n".join([*blocks, tally(report.summary) + hint]) + "\n"


def _block(finding: Finding, report: Report) -> str:
    paint = _painted if report.color else _plain
    head = f"{finding.severity}[{finding.code}]"
    lines = [f"{paint(head, COLORS[finding.severity])}: {paint(clean(finding.message), '1')}"]
    last = len(str(finding.span.line + 1))
    margin = " " * last
    place = f"{clean(finding.path)}:{finding.span.line}:{finding.span.column}"
    lines.append(f"{margin}{paint('-->', '34')} {place} ({finding.name})")
    lines += _excerpt(finding, report.lines(finding.path), last, paint)
    for each in finding.related:
        lines.append(f"{margin} {paint('=', '34')} see {clean(each.path)}:{each.line}: {clean(each.message)}")
    if finding.help and (finding.fix is None or finding.fix.message != finding.help):  # the fix says it by itself
        lines.append(f"{margin} {paint('=', '34')} help: {clean(finding.help)}")
    if finding.fix is not None:
        lines.append(f"{margin} {paint('=', '34')} {finding.fix.safety} fix: {clean(finding.fix.message)}")
    return "\n".join(lines) + "\n"


def _plain(text: str, style: str) -> str:
    return text


def _painted(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def _excerpt(finding: Finding, source: list[str], width: int, paint: Callable[[str, str], str]) -> list[str]:
    """The line of the finding and the one before it, and carets below what is meant."""
    number = finding.span.line
    if not 0 < number <= len(source):
        return []
    lines = [f"{'':{width}} |"]
    if number > 1 and source[number - 2].strip():
        lines.append(f"{number - 1:>{width}} | {_cut(source[number - 2], 1)[0]}")
    text, before, marked = _marked(finding, source[number - 1])
    lines.append(f"{number:>{width}} | {text}".rstrip())
    caret = paint("^" * max(marked, 1), COLORS[finding.severity])
    lines.append(f"{'':{width}} | {' ' * before}{caret}")
    return lines


def _cut(line: str, column: int) -> tuple[str, int]:
    """A line short enough to show, and how many of its characters were left out at its beginning."""
    if len(line) <= _WIDEST:
        return _expanded(line), 0
    start = max(0, column - 1 - _WIDEST // 2)
    return _expanded(line[start : start + _WIDEST]), start


def _expanded(text: str) -> str:
    """Tabs as four spaces, everything else that a terminal would obey as an escape."""
    return clean(text.replace("\t", "    "))


def _marked(finding: Finding, line: str) -> tuple[str, int, int]:
    """The line shown, the columns before the place and the columns of the place."""
    span = finding.span
    text, start = _cut(line, span.column)
    stop = span.end_column - 1 if span.end_line == span.line else len(line)
    first = max(span.column - 1, start)
    shown = line[start : start + _WIDEST] if start or len(line) > _WIDEST else line
    before = _width(_expanded(shown[: first - start]))
    marked = _width(_expanded(shown[first - start : max(stop - start, 0)]).rstrip())
    return text, before, min(marked, max(_width(text) - before, 1))


def _width(text: str) -> int:
    """Columns on a terminal: wide characters take two, marks that combine none."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)
