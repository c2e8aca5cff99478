"""The machine's format: `{"version": 1, "findings": […], "summary": {…}}`, keys and order fixed."""

from __future__ import annotations

import json
from typing import Any

from validator.finding import Finding
from validator.output import Report, whole


def render(report: Report) -> str:
    document = {
        "version": 1,
        "findings": [as_dict(finding) for finding in report.findings],
        "summary": report.summary,
    }
    return json.dumps(document, indent=2) + "\n"


def as_dict(finding: Finding) -> dict[str, Any]:
    """A finding as the JSON report holds it. Lines and columns count from 1; the end is exclusive."""
    span = finding.span
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "path": whole(finding.path),
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
        "message": whole(finding.message),
        "help": whole(finding.help),
        "fix": _fix(finding),
        "related": [
            {"path": whole(each.path), "line": each.line, "message": whole(each.message)} for each in finding.related
        ],
    }


def _fix(finding: Finding) -> dict[str, Any] | None:
    if finding.fix is None:
        return None
    edits = [{**edit.span._asdict(), "text": whole(edit.text)} for edit in finding.fix.edits]
    return {"safety": finding.fix.safety, "message": whole(finding.fix.message), "edits": edits}
