"""The table of all rows, and a line on each that did not end well."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.columns import problems, table
from bench.report.rows import Row

PLACE, TITLE, TEMPLATE = 30, "Results", "results.html.jinja"


def text(rows: Sequence[Row], style: str, wide: bool) -> str:
    bullet = "- " if style == "github" else ""
    return "\n".join([table(rows, style, wide), "", *(f"{bullet}{line}" for line in problems(rows, style))])
