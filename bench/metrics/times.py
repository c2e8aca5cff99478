"""Seconds of a step and of its phases."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.configuration import Configuration
from bench.metrics import Metric
from bench.results.measured import PHASES, STEP, process_means, spread, step_times


def summarise(configuration: Configuration, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By phase and for the step: the mean, the mean of each process, the median of all steps and their spread."""
    steps = [step for run in runs for step in step_times(run)]
    found = {}
    for name, means in process_means(runs).items():
        values = [step[name] for step in steps]
        found[name] = {
            "mean": statistics.fmean(means), "process_means": means, "median": statistics.median(values),
            "spread": spread(values),
        }  # fmt: skip
    return found


def _milliseconds(value: float) -> str:
    return f"{value * 1e3:.1f}"


def _time(place: int, name: str, rank: float, tracked: str) -> Metric:
    return Metric(
        name, f"{name} ms", lambda row: row.seconds.get(name), _milliseconds, place, rank,
        beside=lambda row: f" ±{row.spread[name] * 100:.0f}%",
        tracked=tracked, scale=1e9, means=lambda row: row.means[name],
    )  # fmt: skip


METRICS = (
    *(_time(10 + place, phase, 6 + place, phase) for place, phase in enumerate(PHASES)),
    _time(13, STEP, 5, "latency"),
    Metric("processes", "processes", lambda row: row.processes or None, place=70, rank=18),
)
