"""GitLab's Code Quality report. https://docs.gitlab.com/ci/testing/code_quality/"""

from __future__ import annotations

import json
from collections import Counter

from validator.finding import Finding
from validator.output import Report, clean
from validator.output.sarif import fingerprint

_SEVERITIES = {"error": "major", "warning": "minor", "note": "info"}


def render(report: Report) -> str:
    seen: Counter[str] = Counter()
    return json.dumps([_issue(finding, report, seen) for finding in report.findings], indent=2) + "\n"


def _issue(finding: Finding, report: Report, seen: Counter[str]) -> dict[str, object]:
    span = finding.span
    return {
        "description": clean(finding.message),
        "check_name": finding.code,
        "fingerprint": fingerprint(finding, report, seen),
        "severity": _SEVERITIES[finding.severity],
        "location": {
            "path": clean(finding.path),
            "positions": {
                "begin": {"line": span.line, "column": span.column},
                "end": {"line": span.end_line, "column": span.end_column},
            },
        },
    }
