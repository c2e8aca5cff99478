"""Bencher Metric Format, for continuous tracking: `{row: {measure: {value, lower_value, upper_value}}}`."""

from __future__ import annotations

from collections.abc import Sequence

from bench.metrics import Metric, every
from bench.report.rows import Row
from bench.terminal.text import valid_json


def as_bmf(rows: Sequence[Row]) -> str:
    """Of each measured row every metric that is tracked: times in nanoseconds, with the least and the largest mean of a
    process as bounds where there are several; rates per second and GPU, memory in bytes."""
    return valid_json({row.label: _measures(row) for row in rows if row.seconds}, indent=1, ensure_ascii=False)


def _measures(row: Row) -> dict[str, dict[str, float]]:
    tracked = [metric for metric in every() if metric.tracked]
    return {metric.tracked: _measure(metric, float(v), row) for metric in tracked if (v := metric.value(row))}


def _measure(metric: Metric, value: float, row: Row) -> dict[str, float]:
    means = metric.means(row) if metric.means is not None else ()
    ends = [value, *means] if len(means) > 1 else []
    bounds = {"lower_value": min(ends) * metric.scale, "upper_value": max(ends) * metric.scale} if ends else {}
    return {"value": value * metric.scale, **bounds}
