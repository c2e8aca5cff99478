"""Time, throughput and memory of a row.

The one definition, of tables, pages, `compare` and `tune`: a step is its forward, backward and optimizer, each as long
as on the slowest rank; a process's time is the mean of its measured steps, a row's the mean of its processes. Means add
up: the phases are the step, and the tokens of a step over its time are the rate, also where batches differ.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

SPEED = "real_tokens_per_second_with_optimizer"
"""The key of the rate in a summary. It is of whole steps, as in every result since the first; older ones also hold a
rate without the optimizer, which nothing shows."""
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


def seconds_per_token(gpus: int, runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """What a real token takes one GPU in each process: the time of all measured steps over all their tokens. The rate
    of a row is one over the mean of these, so that rows and processes are compared by one number."""
    return [gpus * sum(step[STEP] for step in step_times(run)) / max(run["tokens"]["real"], 1.0) for run in runs]


def peak_memory(run: Mapping[str, Any], kind: str = "allocated") -> float:
    """Bytes of the rank that needs most, in the phase that takes most."""
    return float(max(run["memory"][kind].values()))


def rate(per_token: Sequence[float]) -> float | None:
    """Tokens per second and GPU; None where nothing was measured."""
    return 1.0 / statistics.fmean(per_token) if per_token else None
