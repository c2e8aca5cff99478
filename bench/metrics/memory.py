"""Peak memory of a GPU, measured and predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.configuration import Configuration
from bench.metrics import Metric
from bench.results.measured import peak_memory

if TYPE_CHECKING:
    from bench.report.rows import Row


def summarise(configuration: Configuration, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Bytes: the largest of all phases and processes."""
    return {
        "peak_memory": max(map(peak_memory, runs)),
        "peak_reserved": max(peak_memory(run, "reserved") for run in runs),
    }


def _predicted(row: Row) -> float | None:
    from bench.report.predicted import predicted

    return predicted(row)


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:.2f}"


METRICS = (
    Metric("memory", "peak GB", lambda row: row.memory, _gigabytes, 50, 2, tracked="memory"),
    Metric("predicted", "predicted GB", _predicted, _gigabytes, 51, 11, finite=False),
)
