"""What the profiled step showed: the share of collectives, and what casting parameters and gradients took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.metrics import SHARE, Metric

if TYPE_CHECKING:
    from bench.report.rows import Row


def _casts(row: Row) -> float | None:
    seconds = row.effective.get("cast_seconds")
    return None if seconds is None else float(seconds)


METRICS = (
    Metric("network", "network", lambda row: row.effective.get("communication_share"), SHARE, 40, 13),
    Metric("casts", "casts ms", _casts, lambda value: f"{value * 1e3:.1f}", 41, 15),
)
