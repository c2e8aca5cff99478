"""Seconds of a step and of its phases: medians over all steps of all processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.configuration import Configuration
from bench.metrics import Metric

if TYPE_CHECKING:
    from bench.report.rows import Row

PHASES = ("forward", "backward", "optimizer")


def summarise(configuration: Configuration, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By phase: the median, the median distance from it relative to it, and the mean of each process."""
    found = {}
    for phase in PHASES:
        values = [[step[phase] for step in run["times"]] for run in runs if phase in run["times"][0]]
        if values:
            flat = [v for run in values for v in run]
            middle = statistics.median(flat)
            deviation = statistics.median(abs(v - middle) for v in flat)
            found[phase] = {
                "median": middle, "spread": deviation / middle if middle else 0.0,
                "process_means": [statistics.fmean(run) for run in values],
            }  # fmt: skip
    return found


def _milliseconds(value: float) -> str:
    return f"{value * 1e3:.1f}"


def _phase(place: int, phase: str) -> Metric:
    return Metric(
        phase, f"{phase} ms", lambda row: row.seconds.get(phase), _milliseconds, 10 + place, 6 + place,
        beside=lambda row: f" ±{row.summary[phase]['spread'] * 100:.0f}%",
        tracked=phase, scale=1e9, means=lambda row: _means(row, phase),
    )  # fmt: skip


def _means(row: Row, phase: str) -> Sequence[float]:
    return [float(mean) for mean in row.summary[phase].get("process_means", ())]


def _of_steps(row: Row) -> list[float]:
    """The mean of a whole step in each process."""
    return [sum(parts) for parts in zip(*(_means(row, phase) for phase in row.seconds), strict=False)]


METRICS = (
    *(_phase(place, phase) for place, phase in enumerate(PHASES)),
    Metric(
        "step", "step ms", lambda row: sum(row.seconds.values()) or None, _milliseconds, 13, 5,
        tracked="latency", scale=1e9, means=_of_steps,
    ),
    Metric("processes", "processes", lambda row: row.processes or None, place=70, rank=18),
)  # fmt: skip
