"""Measured peaks against predicted ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report.predicted import Prediction, memory_errors
from bench.report.rows import Collection
from bench.report.sections import Table

PLACE, TITLE, KEY = 50, "Memory, measured and predicted", "memory"


def content(found: Collection) -> list[Prediction]:
    return memory_errors(found.rows)


def table(found: Sequence[Prediction]) -> Table:
    return Table(
        ("row", "measured GB", "predicted GB", "error"),
        [
            [one.row.label, f"{one.measured / 1e9:.2f}", f"{one.predicted / 1e9:.2f}", f"{one.error:+.0%}"]
            for one in found
        ],
        "Prediction of bench plan for the positions that the batches really had. "
        f"{sum(one.within for one in found)} of {len(found)} rows lie within 10%.",
    )


def data(found: Sequence[Prediction]) -> list[dict[str, Any]]:
    return [
        {"label": one.row.label, "measured": one.measured, "predicted": one.predicted, "error": one.error}
        for one in found
    ]
