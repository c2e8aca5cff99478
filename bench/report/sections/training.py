"""Training runs whose logs belong to no row: how far their losses fell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.compare.series import Run
from bench.report.rows import Collection
from bench.report.sections import Table

PLACE, TITLE, KEY = 35, "Training runs", "training"


def content(found: Collection) -> list[Run]:
    return [run for run in found.curves if run.loss]


def table(runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        values = run.loss.values if run.loss else {}
        ends = [f"{values[step]:.5g}" for step in (min(values), max(values))]
        rows.append([run.name, str(len(values)), *ends])
    return Table(("run", "steps", "first loss", "last loss"), rows)


def data(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """JSON has no NaN: such a loss is null."""
    return [
        {"run": run.name, "losses": {s: v if math.isfinite(v) else None for s, v in sorted(run.loss.values.items())}}
        for run in runs
        if run.loss
    ]
