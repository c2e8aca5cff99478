"""How many findings each rule has, most first: `--statistics`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from validator.finding import Finding
from validator.output import tally


def render(findings: list[Finding], summary: dict[str, Any], as_json: bool) -> str:
    counts = Counter((finding.code, finding.name, finding.severity) for finding in findings)
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    if as_json:
        import json

        table = [{"code": c, "name": n, "severity": s, "count": count} for (c, n, s), count in rows]
        return json.dumps({"version": 1, "statistics": table, "summary": summary}, indent=2) + "\n"
    width = len(str(rows[0][1])) if rows else 0
    lines = [f"{count:>{width}}  {code}  {severity:<7}  {name}" for (code, name, severity), count in rows]
    return "\n".join([*lines, tally(summary)]) + "\n"
