"""Times in training logs: seconds of a step, and rates of steps, samples and tokens, as trainers write them."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict

from bench.compare.series import Metric

SECONDS = {
    "step_time": 1.0, "time_per_step": 1.0, "iter_time": 1.0, "iter time (s)": 1.0, "timing_s/step": 1.0,
    "train_step_timing in s": 1.0, "elapsed time per iteration (s)": 1.0, "elapsed time per iteration (ms)": 1e-3,
    "step_time_ms": 1e-3,
}  # fmt: skip
"""Keys of the time of a step, and what makes it seconds: Megatron, verl, NeMo, DeepSpeed's pipeline engine."""
RATES = {
    "tps": "token", "tokens_per_second": "token", "tokens/s": "token", "tokens_per_sec": "token",
    "perf/throughput": "token", "CurrSamplesPerSec": "sample", "SamplesPerSec": "sample", "samples/sec": "sample",
    "samples_per_second": "sample", "train_samples_per_second": "sample", "steps_per_second": "step",
    "train_steps_per_second": "step",
}  # fmt: skip
"""Keys of rates per second, and of what: torchtitan, DeepSpeed, verl, transformers."""
OWN = "seconds"
"""Of our own logs: so plain a word means the time of a step in JSON lines only."""

_NUMBER = r"(?P<number>\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)"
_KEYS = "|".join(re.escape(key) for key in sorted((*SECONDS, *RATES), key=len, reverse=True))
_PAIR = re.compile(rf"(?<![\w/])(?P<key>{_KEYS})['\"]?\s*[:=]\s*['\"]?{_NUMBER}")
_JSON_PAIR = re.compile(rf"(?<![\w/])\"(?P<key>{_KEYS}|{OWN})\"\s*:\s*\"?{_NUMBER}")
_BAR_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>it/s|s/it)\b")


class Times:
    """Collects the times of one log, line by line."""

    def __init__(self) -> None:
        self._told: dict[str, list[float]] = defaultdict(list)
        self._bars: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)

    def see(self, line: str) -> None:
        """A line that is no progress bar."""
        for found in (_JSON_PAIR if line.startswith("{") else _PAIR).finditer(line):
            value, key = float(found["number"].replace(",", "")), found["key"]
            if key in RATES:
                self._add(RATES[key], 1.0 / value if value else math.inf)
            else:
                self._add("step", value * SECONDS.get(key, 1.0))

    def see_bar(self, title: str, done: int, total: int, inside: str) -> None:
        """A rendering of a progress bar; the last one at a count is the one that stays."""
        self.see(inside)
        found = _BAR_RATE.search(inside)
        value = float(found["number"]) if found else 0.0
        if found and value:
            self._bars[title, total][done] = value if found["unit"] == "s/it" else 1.0 / value

    def _add(self, what: str, seconds: float) -> None:
        if 0 < seconds < math.inf:
            self._told[what].append(seconds)

    def metrics(self, titles: set[str]) -> dict[str, Metric]:
        """Seconds of a step, a sample, a token: the median over the log, which is one process. What a line says of
        the step goes before the rate of bars; of bars count those of `titles`, else those without a title."""
        found = {what: Metric("second", [statistics.median(values)]) for what, values in self._told.items()}
        bars = [counts for (title, _), counts in self._bars.items() if title in (titles or {""})]
        if "step" not in found and bars:
            longest = max(bars, key=len)
            found["step"] = Metric("second", [statistics.median(longest.values())])
        return found
