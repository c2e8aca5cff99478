"""Do two runs learn alike, though their losses are still close? How far the loss falls, and the first gradients.

A threshold on losses is blind early on: where a run has taken its loss from 6.96 to 6.75, one that has learnt half as
much is 1.4% away. Rounding and the order of sums move losses too, but they neither slow the fall down nor scale the
gradients, so what is held against the threshold here is the fall itself, and the gradient norms of the first steps.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.compare.losses import Finding, mean
from bench.compare.series import Series

MIN_STEPS = 12
BLOCKS = 4
SIGMAS = 3.0
FIRST_NORMS = 5
SAME_LOSS = 0.001
"""Losses of a first step that differ by more come from other weights, other data or another loss; in bf16 those of one
model on the same data differ by 0.0002."""


@dataclass(frozen=True)
class Fall:
    """By how much the losses of two runs fall, from the first eighth of their common steps to each quarter of the later
    half. `lags` holds the difference in each quarter as a share of the reference's fall: 0.4 is two fifths missing."""

    first: float
    second: float
    lags: tuple[float, ...]
    clear: bool

    @property
    def least(self) -> float:
        """What the runs are apart in every quarter at least; 0 where quarters disagree or noise could explain it."""
        if not self.clear or min(self.lags) < 0.0 < max(self.lags):
            return 0.0
        return min(self.lags, key=abs)


def fall(first: Series, second: Series) -> Fall | None:
    """Compare how far two losses fall over the finite steps that they share.

    None for fewer than twelve steps, and where the reference's fall is not clear of the noise of its own batches:
    nothing can then be said. The first eighth is taken off both runs, so that a constant distance counts as none.
    """
    steps = [s for s in sorted(first.values.keys() & second.values.keys()) if _finite(first, second, s)]
    if len(steps) < MIN_STEPS:
        return None
    a, b = [first.values[s] for s in steps], [second.values[s] for s in steps]
    head, late = len(steps) // 8, len(steps) // 2
    falls_a, falls_b = ([mean(x[:head]) - mean(block) for block in _blocks(x[late:])] for x in (a, b))
    counts = (head, len(steps) - late)
    if min(falls_a) <= 0.0 or mean(falls_a) < SIGMAS * _noise(a, *counts):
        return None
    apart = [x - y for x, y in zip(falls_a, falls_b, strict=True)]
    least = min(map(abs, apart))
    noise = SIGMAS * _noise([y - x for x, y in zip(a, b, strict=True)], head, len(steps) // 2 // BLOCKS)
    clear = least > max(noise, _resolution(first, a) + _resolution(second, b))
    lags = tuple(x / y for x, y in zip(apart, falls_a, strict=True))
    return Fall(falls_a[-1], falls_b[-1], lags, clear)


def _finite(first: Series, second: Series, step: int) -> bool:
    return math.isfinite(first.values[step]) and math.isfinite(second.values[step])


def _blocks(values: Sequence[float]) -> list[Sequence[float]]:
    edges = [round(n * len(values) / BLOCKS) for n in range(BLOCKS + 1)]
    return [values[a:b] for a, b in pairwise(edges)]


def _noise(values: Sequence[float], *counts: int) -> float:
    """The standard error of a difference of means over `counts` steps. The spread comes from neighbouring steps, which
    a trend hardly moves."""
    variance = mean([(y - x) ** 2 for x, y in pairwise(values)]) / 2
    return math.sqrt(variance * sum(1 / count for count in counts))


def _resolution(series: Series, values: Sequence[float]) -> float:
    """Half a unit of the last digit that was printed."""
    return 0.5 * 10.0 ** (1 - series.digits) * max(map(abs, values)) if series.digits else 0.0


def check_fall(found: Fall | None, threshold: float, names: tuple[str, str]) -> list[Finding]:
    """A finding where one run learns more than `threshold` less, or more, than the reference."""
    if found is None or abs(found.least) <= threshold:
        return []
    word = "less" if found.least > 0 else "more"
    text = (
        f"the loss of {names[1]} falls {abs(found.least):.1%} {word} than that of {names[0]} at least, in each quarter "
        f"of the later half: in the last by {found.second:.4g}, not {found.first:.4g}"
    )
    return [Finding("falls-otherwise", text)]


def first_norms(
    losses: tuple[Series | None, Series | None], norms: tuple[Series | None, Series | None]
) -> float | None:
    """The median ratio, less 1, of the gradient norms of the first five common steps.

    Before anything is learnt, equal weights and data have equal gradients. None unless both runs begin at the same
    step with the same positive loss, and both have norms that are positive numbers there: a zero is what some trainers
    print between two optimizer steps.
    """
    if not all(series and series.values for series in (*losses, *norms)):
        return None
    (a, b), (one, two) = ([s.values for s in pair if s] for pair in (losses, norms))
    begin = min(a)
    if min(b) != begin or not (a[begin] > 0 and math.isfinite(b[begin])):
        return None
    printed = sum(_resolution(series, [a[begin]]) for series in losses if series)
    if abs(b[begin] - a[begin]) > SAME_LOSS * a[begin] + printed:
        return None
    steps = sorted(one.keys() & two.keys())[:FIRST_NORMS]
    ratios = [two[s] / one[s] for s in steps if 0 < one[s] < math.inf and 0 < two[s] < math.inf]
    return statistics.median(ratios) - 1.0 if ratios else None


def check_first_norms(found: float | None, threshold: float, names: tuple[str, str]) -> list[Finding]:
    """A finding where the first gradients differ though the first losses do not."""
    if found is None or abs(found) <= threshold:
        return []
    text = (
        f"the first gradient norms of {names[1]} are {found:+.1%} off those of {names[0]}, though both begin with the "
        "same loss: gradients are reduced or scaled otherwise"
    )
    return [Finding("other-gradients", text)]
