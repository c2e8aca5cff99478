"""Seconds of a step and of its phases.

The one definition, of tables, pages, `compare` and `tune`: a step is its forward, backward and optimizer, each as long
as on the slowest rank; a process's time is the mean of its measured steps, a row's the mean of its processes. Means add
up: the phases are the step, and the tokens of a step over its time are the rate, also where batches differ.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.configuration import Configuration
from bench.metrics import Metric

PHASES = ("forward", "backward", "optimizer")
STEP = "step"


def step_times(run: Mapping[str, Any]) -> list[dict[str, float]]:
    """Seconds of each measured step of a process: of its phases, and of the whole."""
    return [
        {**{phase: step[phase] for phase in PHASES if phase in step}, STEP: sum(step.get(p, 0.0) for p in PHASES)}
        for step in run["times"]
    ]


def process_means(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """By phase, and for the whole step: the mean of each process."""
    found: dict[str, list[float]] = {}
    for run in runs:
        steps = step_times(run)
        for name in steps[0]:
            found.setdefault(name, []).append(statistics.fmean(step[name] for step in steps))
    return found


def spread(values: Sequence[float]) -> float:
    """The median distance from the median, relative to it."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values) / middle if middle else 0.0


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
