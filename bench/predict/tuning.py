"""The fastest settings of a model on a machine: one setting varied at a time, within the memory that is predicted.

A full product of all settings has thousands of rows, of which most are slow for one reason. From the first row that
fits, each setting in turn is tried with all its values and kept at the best; whoever changed sends the others round
again. It ends where a whole round improves nothing: a row that no single change makes faster. No torch needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import backends
from bench.configuration import Configuration, model_facts
from bench.predict import sizes
from bench.predict.memory import estimate
from bench.results.measured import SPEED

Change = Mapping[str, Any]
Axis = Sequence[Change]
Measure = Callable[[Configuration], Mapping[str, Any]]
"""From a configuration to its row, as `bench.results.results` writes it."""
Refuse = Callable[[Configuration], str | None]

GAIN = 0.01
"""A row must be faster by this share to take the place of another: less is within what runs differ by."""


ATTEMPTS = 5
NOT_RUN = ("too large", "ruled out")


@dataclass(frozen=True)
class Trial:
    """A row that was looked at. `status` is its own, or `too large` and `ruled out` for rows that were not run."""

    configuration: Configuration
    status: str
    predicted: float
    speed: float = 0.0
    message: str = ""


def axes(names: Sequence[str], batches: Sequence[int], on_gpu: bool) -> list[Axis]:
    """The settings that are varied, those with the largest effect first."""
    compiled: list[Change] = [{"compile": "none", "head": "chunked"}, {"compile": "blocks", "head": "compiled"}]
    found: list[Axis] = [
        [backends.variants()[name] for name in names],
        compiled,
        [{"micro_batch_size": size} for size in batches],
        [{"gradient_checkpointing": value} for value in (False, True)],
        [{"reshard_after_forward": value} for value in (True, False)],
    ]
    if on_gpu:
        found.append([{"attn": name} for name in ("auto", "sdpa", "flash_attention_2")])
        found.append([{"autotune": name} for name in ("none", "max", "coordinate")])
    return found


def predicted_bytes(configuration: Configuration) -> float:
    """Of one GPU, with what the allocator keeps in reserve: what `bench plan` prints; 0 for what it cannot count."""
    facts = model_facts(configuration.model, configuration.num_layers)
    return estimate(facts, sizes.layout(configuration)).reserved() if facts.countable else 0.0


class Search:
    """`run` is the best trial, or None where no row is both allowed and small enough; `trials` are all of them so far,
    also where `run` was interrupted."""

    def __init__(self, axes: Sequence[Axis], measure: Measure, refuse: Refuse, memory: float) -> None:
        self.axes, self.measure, self.refuse, self.memory = axes, measure, refuse, memory
        self.trials: dict[Configuration, Trial] = {}

    def run(self, start: Configuration) -> Trial | None:
        best = self._first(start)
        unchanged = 0
        while best is not None and unchanged < len(self.axes):
            for axis in self.axes:
                found = self._along(axis, best)
                unchanged = unchanged + 1 if found is best else 1
                best = found
                if unchanged >= len(self.axes):
                    break
        return best

    def _first(self, start: Configuration) -> Trial | None:
        """The first row that runs: as it is, then with one and with two settings changed. What is ruled out or too
        large costs nothing; after `ATTEMPTS` rows that failed there is something wrong that no setting mends."""
        failed = 0
        for configuration in dict.fromkeys((start, *self._changed(start, 1), *self._changed(start, 2))):
            trial = self._tried([_effective(configuration)])[0]
            if trial.status == "ok":
                return trial
            failed += trial.status not in NOT_RUN
            if failed == ATTEMPTS:
                return None
        return None

    def _changed(self, start: Configuration, settings: int) -> Iterator[Configuration]:
        for place, axis in enumerate(self.axes):
            for change in axis:
                changed = replace(start, **change)
                yield changed
                if settings > 1:
                    for other in self.axes[place + 1 :]:
                        yield from (replace(changed, **more) for more in other)

    def _along(self, axis: Axis, best: Trial) -> Trial:
        """The best of one setting's values, everything else as in `best`."""
        for trial in self._tried([_effective(replace(best.configuration, **change)) for change in axis]):
            if trial.speed > best.speed * (1 + GAIN):
                best = trial
        return best

    def _tried(self, configurations: Sequence[Configuration]) -> list[Trial]:
        wanted = list(dict.fromkeys(configurations))
        for configuration in wanted:
            if configuration not in self.trials:
                self.trials[configuration] = self._without_running(configuration) or self._measured(configuration)
        return [self.trials[configuration] for configuration in wanted]

    def _measured(self, configuration: Configuration) -> Trial:
        row = self.measure(configuration)
        speed = row.get("summary", {}).get(SPEED, 0.0)
        ended = str(row["status"])
        return Trial(
            configuration, ended, predicted_bytes(configuration), speed if ended == "ok" else 0.0,
            str(row.get("message", "")),
        )  # fmt: skip

    def _without_running(self, configuration: Configuration) -> Trial | None:
        reason = self.refuse(configuration)
        if reason is not None:
            return Trial(configuration, "ruled out", 0.0, message=reason)
        needed = predicted_bytes(configuration)
        if needed > self.memory:
            return Trial(configuration, "too large", needed, message=f"{self.memory / 1e9:.1f} GB are there")
        return None


def _effective(configuration: Configuration) -> Configuration:
    """Without what the backend does not read: rows that differ in nothing else are one row."""
    return replace(configuration, **backends.without_foreign(configuration))
