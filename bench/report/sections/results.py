"""The table of all rows, and a line on each that did not end well."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.columns import problem, table
from bench.report.rows import Row
from bench.terminal.text import plain

PLACE, TITLE, TEMPLATE = 30, "Results", "results.html.jinja"


def text(rows: Sequence[Row], style: str, wide: bool) -> str:
    bullet = "- " if style == "github" else ""
    lines = [f"{bullet}{plain(problem(row), style)}" for row in rows if row.status != "ok"]
    return "\n".join([table(rows, style, wide), "", *lines])
