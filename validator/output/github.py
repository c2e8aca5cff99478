"""Workflow commands of GitHub Actions: each finding becomes an annotation of the change.

https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from validator.finding import Finding
from validator.output import Report, clean


def render(report: Report) -> str:
    return "".join(_command(finding) + "\n" for finding in report.findings)


def _command(finding: Finding) -> str:
    span = finding.span
    kind = {"error": "error", "warning": "warning", "note": "notice"}[finding.severity]
    fields = {"title": f"{finding.code} {finding.name}", "file": clean(finding.path), "line": span.line}
    if span.end_line == span.line:  # GitHub refuses columns across several lines
        fields |= {"col": span.column, "endColumn": max(span.end_column, span.column)}
    else:
        fields |= {"endLine": span.end_line}
    properties = ",".join(f"{key}={_property(str(value))}" for key, value in fields.items())
    text = f"{clean(finding.message)}\n{clean(finding.help)}" if finding.help else clean(finding.message)
    return f"::{kind} {properties}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
