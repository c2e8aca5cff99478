"""Each row's message, settings and log."""

from __future__ import annotations

from bench.report.rows import Collection, Row

PLACE, TITLE, TEMPLATE = 80, "Messages and logs", "logs.html.jinja"


def content(found: Collection) -> list[Row]:
    return found.rows
