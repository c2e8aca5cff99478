"""Bencher Metric Format, for continuous tracking: `{row: {measure: {value, lower_value, upper_value}}}`."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.rows import Row
from bench.terminal.text import valid_json

Metric = dict[str, float]


def as_bmf(rows: Sequence[Row]) -> str:
    """Of each measured row: `latency` of a step and of its phases in nanoseconds, with the least and the largest mean
    of a process as bounds; `throughput` in real tokens per second and GPU; `memory` in bytes per GPU."""
    return valid_json({row.label: _measures(row) for row in rows if row.seconds}, indent=1, ensure_ascii=False)


def _measures(row: Row) -> dict[str, Metric]:
    found = {phase: _latency(row.seconds[phase], row.means.get(phase, [])) for phase in row.seconds}
    by_phase = [row.means[phase] for phase in row.seconds if phase in row.means]
    processes = [sum(parts) for parts in zip(*by_phase, strict=False)]
    found["latency"] = _latency(sum(row.seconds.values()), processes)
    if row.tokens:
        found["throughput"] = {"value": row.tokens}
    if row.memory:
        found["memory"] = {"value": row.memory}
    return found


def _latency(seconds: float, means: Sequence[float]) -> Metric:
    """Nanoseconds; bounds where there are several processes, and never within the value."""
    bounds = {"lower_value": min([seconds, *means]) * 1e9, "upper_value": max([seconds, *means]) * 1e9}
    return {"value": seconds * 1e9, **(bounds if len(means) > 1 else {})}
