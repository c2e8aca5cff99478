"""Is one configuration slower than another? Tested over processes.

Steps of one process share its memory layout, its autotuned kernels and its neighbours: as samples they are not
independent, and pooled they call noise significant. The mean of a process is one sample, and the mean of these is what
every table shows: what is said here to be faster is faster there.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

CONFIDENCE = 0.95
MOST = 200
"""Processes; what needs more is as good as undecidable."""


@dataclass(frozen=True)
class Change:
    """`ratio` is the mean of the second over the mean of the first; `low` and `high` bound it with 95% confidence,
    None where a side has fewer than two processes. `deciding` is the number of processes on each side that would make
    a difference of this size significant; None where that cannot be said, or where it is."""

    metric: str
    unit: str
    first: float
    second: float
    processes: tuple[int, int]
    ratio: float
    low: float | None
    high: float | None
    deciding: int | None = None
    apart: str = ""
    """Why the times of the two prove no order even where they differ, such as when they were measured."""

    @property
    def significant(self) -> bool | None:
        """Whether the interval leaves out 1; None where nothing could be tested."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= 1.0 <= self.high

    @property
    def doubt(self) -> str:
        """Why the order of the two is not decided, and what would decide it; "" where it is."""
        if self.significant:
            return f"undecided: {self.apart}" if self.apart else ""
        if self.low is None or self.high is None:
            return "undecided: one process proves no order"
        enough = (
            f"{self.deciding} processes each would" if self.deciding else "more processes, on a quieter machine, may"
        )
        return f"undecided ({self.low:.2f} to {self.high:.2f} times): {enough} decide"


def change(metric: str, unit: str, first: Sequence[float], second: Sequence[float]) -> Change:
    """Welch's t-test on the ratio of means: processes of two configurations may differ in spread, and times differ by
    factors, so the spread of each side is that relative to its mean. Values must be positive.

    Raises `ValueError` for an empty or not positive sample.
    """
    if not first or not second or min(*first, *second) <= 0 or not all(map(math.isfinite, (*first, *second))):
        raise ValueError(f"{metric}: means must be positive numbers")
    means = statistics.fmean(first), statistics.fmean(second)
    a, b = ([value / mean for value in side] for side, mean in zip((first, second), means, strict=True))
    difference = math.log(means[1] / means[0])
    low, high = _interval(a, b, difference)
    found = Change(metric, unit, *means, (len(a), len(b)), means[1] / means[0], low, high)
    return found if found.significant is not False else replace(found, deciding=_deciding(a, b, difference))


def _deciding(a: list[float], b: list[float], difference: float) -> int | None:
    """Processes on each side for which an interval of this spread around this difference leaves out 0; at most
    `MOST`."""
    from scipy import stats

    spread = statistics.variance(a) + statistics.variance(b)
    for count in range(max(len(a), len(b)) + 1, MOST + 1):
        reach = float(stats.t.ppf((1.0 + CONFIDENCE) / 2.0, 2 * count - 2)) * math.sqrt(spread / count)
        if reach < abs(difference):
            return count
    return None


def _interval(a: list[float], b: list[float], difference: float) -> tuple[float | None, float | None]:
    """Welch's interval around the logarithm of a ratio, as a ratio; `a` and `b` are relative to their means, whose
    logarithms spread as they do, to first order."""
    if min(len(a), len(b)) < 2:
        return None, None
    if statistics.variance(a) + statistics.variance(b) == 0.0:
        return math.exp(difference), math.exp(difference)
    from scipy import stats

    interval = stats.ttest_ind(a, b, equal_var=False).confidence_interval(CONFIDENCE)
    reach = float(interval.high - interval.low) / 2.0
    return _exp(difference - reach), _exp(difference + reach)


def _exp(value: float) -> float:
    """Two noisy processes can bound a ratio by more than a float holds."""
    return math.inf if value > 700 else math.exp(value)
