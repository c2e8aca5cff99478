"""Frameworks whose launch commands can be read: one module each, found by itself.

A module has `starts(words) -> bool`, `MODELS` (the option that names the model of each role) and
`job(command, models, gpus) -> Job`, which raises `Problem`, one line, for values that cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import registry
from bench.problems import Problem
from bench.rlhf.command import Command
from bench.rlhf.job import Job
from rules.models import ModelFacts

Models = Mapping[str, ModelFacts]


def modules() -> list[Any]:
    """All frameworks."""
    return list(registry.modules(__name__, __path__).values())


def of(command: Command) -> Any:
    """The framework that a command starts. Raises `Problem` for one that is not known."""
    for module in modules():
        if module.starts(command.words):
            return module
    raise Problem(f"which framework is it? known are {', '.join(m.__name__.rpartition('.')[2] for m in modules())}")


def job(command: Command, models: Models, gpus: int | None) -> Job:
    """The job that a command starts, on `gpus` GPUs where it does not say so itself."""
    made: Job = of(command).job(command, models, gpus)
    if gpus not in (None, made.gpus):
        raise Problem(f"--gpus {gpus}: the command itself says how many each model has, {made.gpus} together")
    return made
