"""Experiment trackers, to which a sweep sends each row that it measures: one module each, found by its name.

A module `x` here has `connect(output: Path) -> Tracker`, which raises `ImportError` where its package is missing.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bench.configuration import ConfigurationError
from bench.results.measured import PHASES, STEP

PROJECT = "bench"


class Measured(NamedTuple):
    """A row as trackers take it: `steps` holds seconds by phase and the loss of each measured step of the first
    process, `summary` rates per second, bytes and seconds."""

    name: str
    settings: dict[str, Any]
    steps: Sequence[Mapping[str, float]]
    summary: dict[str, float]


class Tracker(Protocol):
    """Where measured rows go, each when it is measured."""

    def add(self, row: Measured) -> None: ...


class Runs:
    """A run per row of a library with the interface of wandb; the summary is what a run logs last."""

    def __init__(self, library: Any, **options: Any) -> None:
        self.library, self.options = library, options

    def add(self, row: Measured) -> None:
        run = self.library.init(project=PROJECT, name=row.name, config=row.settings, **self.options)
        for number, step in enumerate(row.steps):
            run.log(dict(step), step=number)
        run.log(row.summary)
        run.finish()


def names() -> list[str]:
    """The trackers there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def connect(name: str, output: Path) -> Tracker:
    """The tracker of that name. Raises `ConfigurationError` where its package is not installed."""
    try:
        tracker: Tracker = importlib.import_module(f"bench.trackers.{name}").connect(output)
    except ImportError as error:
        raise ConfigurationError(f"--tracker {name}: {error}: pip install {name}") from None
    return tracker


def measured(result: Mapping[str, Any]) -> Measured:
    """A finished `result.json`, one that has a summary."""
    summary, run = result["summary"], result["runs"][0]
    losses = run["losses"][-len(run["times"]) :]
    steps = [{**times, "loss": loss} for times, loss in zip(run["times"], losses, strict=False)]
    plain = {name: float(value) for name, value in summary.items() if isinstance(value, (int, float))}
    plain |= {f"{phase}_seconds": float(summary[phase]["mean"]) for phase in (*PHASES, STEP) if phase in summary}
    return Measured(str(result["label"]), dict(result["configuration"]), steps, plain)
