"""Charts, which the browser draws of the numbers of `bench.report.series`."""

from __future__ import annotations

from typing import Any

from bench.report.glance import workloads
from bench.report.rows import Collection
from bench.report.series import chart_data

PLACE, TITLE, TEMPLATE = 20, "Charts", "charts.html.jinja"


def content(found: Collection) -> dict[str, Any] | None:
    data = chart_data(found, workloads(found.rows))
    return data if any(data.values()) else None
