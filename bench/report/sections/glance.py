"""What a report says first; see `bench.report.glance`."""

from __future__ import annotations

from bench.report.glance import Workload, workloads
from bench.report.rows import Collection

PLACE, TITLE, TEMPLATE = 10, "At a glance", "glance.html.jinja"


def content(found: Collection) -> list[Workload]:
    return workloads(found.rows)
