"""When a suite has passed: every run finishes, its loss falls, and its losses are those of the first run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.compare.losses import align
from bench.compare.series import Series

WINDOW = 0.1
"""The share of the steps at either end whose mean is taken where losses are asked to fall."""

NOISE_FACTOR = 2.0


@dataclass(frozen=True)
class Difference:
    """Two series of losses, step by step: relative differences, and the first step beyond a threshold."""

    maximum: float
    mean: float
    first_beyond: int | None
    steps: int


def compare_losses(reference: Sequence[float], other: Sequence[float], threshold: float) -> Difference:
    """Differences relative to `reference`. A step that is missing or no number is infinitely far off."""
    steps = max(len(reference), len(other))
    differences = align(Series.of("reference", reference), Series.of("other", other), threshold).differences
    apart = [differences.get(step, math.inf) for step in range(steps)]
    beyond = next((step + 1 for step, value in enumerate(apart) if not value <= threshold), None)
    return Difference(max(apart, default=math.inf), statistics.fmean(apart) if apart else math.inf, beyond, steps)


def falls(losses: Sequence[float]) -> bool:
    """Whether the mean of the last tenth of the steps is below that of the first tenth."""
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        return False
    window = max(round(len(losses) * WINDOW), 1)
    return statistics.fmean(losses[-window:]) < statistics.fmean(losses[:window])


@dataclass(frozen=True)
class Judgement:
    """One run against the criteria; None where a criterion does not apply, because the run cannot be made here."""

    name: str
    status: str
    message: str
    finishes: bool | None
    falls: bool | None
    aligned: bool | None
    first_loss: float | None
    last_loss: float | None
    difference: Difference | None

    @property
    def passed(self) -> bool | None:
        """None for a run that is unsupported here."""
        return None if self.finishes is None else bool(self.finishes and self.falls and self.aligned)


def _losses(row: Mapping[str, Any]) -> list[float]:
    return [float(step["gpt_loss"]) for step in row["runs"][0]["steps"]] if row["runs"] else []


def judge(rows: Mapping[str, Mapping[str, Any]], threshold: float, noise_name: str) -> tuple[list[Judgement], float]:
    """Each run against the first that finished, and the noise: the largest difference between two runs of the first
    backend whose sums are made in another order, 0 where there is no second one.

    A run is aligned within `threshold` at every step, or within twice the noise.
    """
    reference = next((_losses(row) for row in rows.values() if row["status"] == "ok"), [])
    noise = 0.0
    if noise_name in rows and rows[noise_name]["status"] == "ok":
        noise = compare_losses(reference, _losses(rows[noise_name]), threshold).maximum
    allowed = max(threshold, NOISE_FACTOR * noise) if math.isfinite(noise) else threshold
    return [_judge_one(name, row, reference, allowed) for name, row in rows.items()], noise


def _judge_one(name: str, row: Mapping[str, Any], reference: Sequence[float], allowed: float) -> Judgement:
    status, message = str(row["status"]), str(row["message"])
    if status == "unsupported":
        return Judgement(name, status, message, None, None, None, None, None, None)
    losses = _losses(row)
    if status != "ok" or not losses:
        return Judgement(name, status, message, False, False, False, None, None, None)
    difference = compare_losses(reference, losses, allowed)
    done = len(losses) == int(row["configuration"]["steps"])
    aligned = difference.first_beyond is None
    return Judgement(name, status, message, done, falls(losses), aligned, losses[0], losses[-1], difference)
