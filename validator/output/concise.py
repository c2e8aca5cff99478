"""One line per finding: `path:line:column: severity CODE message`, which editors can follow."""

from __future__ import annotations

from validator.finding import Finding
from validator.output import Report, clean, tally

COLORS = {"error": "31", "warning": "33", "note": "36"}


def render(report: Report) -> str:
    lines = [_line(finding, report.color) for finding in report.findings]
    return "\n".join([*lines, tally(report.summary)]) + "\n"


def _line(finding: Finding, color: bool) -> str:
    path = clean(finding.path)
    if path.startswith("::"):  # at the beginning of a line GitHub's runner takes this for a command
        path = f"./{path}"
    place = f"{path}:{finding.span.line}:{finding.span.column}"
    severity: str = finding.severity
    if color:
        place, severity = f"\x1b[1m{place}\x1b[0m", f"\x1b[{COLORS[severity]}m{severity}\x1b[0m"
    safe = finding.fix is None or finding.fix.safety == "safe"
    fixable = "" if finding.fix is None else " [fixable]" if safe else " [fixable with --unsafe-fixes]"
    return f"{place}: {severity} {finding.code} {clean(finding.message)}{fixable}"
