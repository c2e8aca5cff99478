"""When a suite has passed: every run finishes, its loss falls, and its losses are those of the first run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.compare.convergence import check_fall, check_first_norms, fall, first_norms
from bench.compare.losses import align
from bench.compare.series import Series

WINDOW = 0.1
"""The share of the steps at either end whose mean is taken where losses are asked to fall."""

TOLERANCE = {"fp32": 1e-4, "bf16": 0.02, "fp16": 0.02}
"""Relative, per step, of losses that must be equal: 16-bit runs start from rounded weights."""
STEPS_COMPARED = 4
"""The first shows a wrong forward pass, the others wrong gradients and updates; beyond them rounding adds up."""

NOISE_FACTOR = 2.0

LEARNING = 0.05
"""How much the falls of two losses, or the first gradient norms, may differ; noise reaches a hundredth of this."""


@dataclass(frozen=True)
class Difference:
    """Two series of losses, step by step: relative differences, and the first step beyond a threshold."""

    max_difference: float
    mean_difference: float
    first_beyond: int | None
    steps: int


def compare_losses(reference: Sequence[float], other: Sequence[float], threshold: float) -> Difference:
    """Differences relative to `reference`. A step that is missing or no number is infinitely far off."""
    steps = max(len(reference), len(other))
    differences = align(Series.of("reference", reference), Series.of("other", other), threshold).differences
    apart = [differences.get(step, math.inf) for step in range(steps)]
    beyond = next((step + 1 for step, value in enumerate(apart) if not value <= threshold), None)
    return Difference(max(apart, default=math.inf), statistics.fmean(apart) if apart else math.inf, beyond, steps)


def first_mismatch(
    reference: Sequence[float], losses: Sequence[float], tolerance: float
) -> tuple[Difference, tuple[int, float, float] | None]:
    """The differences of the first steps, and the step from 1, the loss and the expected one where they first are
    beyond `tolerance`."""
    steps = min(len(reference), len(losses), STEPS_COMPARED)
    found = compare_losses(reference[:steps], losses[:steps], tolerance)
    step = found.first_beyond
    return found, None if step is None else (step, losses[step - 1], reference[step - 1])


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
    learning: tuple[str, ...] = ()
    """What is wrong with how it learns, though every step may be within the threshold."""

    @property
    def passed(self) -> bool | None:
        """None for a run that is unsupported here."""
        return None if self.finishes is None else bool(self.finishes and self.falls and self.aligned)


def _losses(row: Mapping[str, Any]) -> list[float]:
    return [float(step["gpt_loss"]) for step in row["runs"][0]["steps"]] if row["runs"] else []


def _norms(row: Mapping[str, Any]) -> Series:
    found = {n: step.get("grad_norm") for n, step in enumerate(row["runs"][0]["steps"])}
    return Series("grad_norm", {n: float(norm) for n, norm in found.items() if norm is not None})


def _learning(reference: Mapping[str, Any], row: Mapping[str, Any], names: tuple[str, str]) -> tuple[str, ...]:
    a, b = (Series.of("loss", _losses(one)) for one in (reference, row))
    found = check_fall(fall(a, b), LEARNING, names)
    found += check_first_norms(first_norms((a, b), (_norms(reference), _norms(row))), LEARNING, names)
    return tuple(finding.message for finding in found)


def judge(rows: Mapping[str, Mapping[str, Any]], threshold: float, noise_name: str) -> tuple[list[Judgement], float]:
    """Each run against the first that finished, and the noise: the largest difference between two runs of the first
    backend whose sums are made in another order, 0 where there is no second one.

    A run is aligned within `threshold` at every step, or within twice the noise, where its loss falls as far and its
    first gradients are as large as those of the first run.
    """
    first = next((name for name, row in rows.items() if row["status"] == "ok"), None)
    if first is None:
        return [_judge_one(name, row, None, threshold) for name, row in rows.items()], 0.0
    noise = 0.0
    if noise_name in rows and rows[noise_name]["status"] == "ok":
        noise = compare_losses(_losses(rows[first]), _losses(rows[noise_name]), threshold).max_difference
    allowed = max(threshold, NOISE_FACTOR * noise) if math.isfinite(noise) else threshold
    return [_judge_one(name, row, (first, rows[first]), allowed) for name, row in rows.items()], noise


def _judge_one(
    name: str, row: Mapping[str, Any], reference: tuple[str, Mapping[str, Any]] | None, allowed: float
) -> Judgement:
    status, message = str(row["status"]), str(row["message"])
    if status == "unsupported":
        return Judgement(name, status, message, None, None, None, None, None, None)
    losses = _losses(row)
    if status != "ok" or not losses or reference is None:
        return Judgement(name, status, message, False, False, False, None, None, None)
    difference = compare_losses(_losses(reference[1]), losses, allowed)
    learning = _learning(reference[1], row, (reference[0], name))
    done = len(losses) == int(row["configuration"]["steps"])
    aligned = difference.first_beyond is None and not learning
    return Judgement(name, status, message, done, falls(losses), aligned, losses[0], losses[-1], difference, learning)
