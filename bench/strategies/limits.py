"""The table of parallelism constraints, applied to what a strategy is about to set up."""

from __future__ import annotations

from typing import Any

from bench.configuration import Configuration
from bench.predict.sizes import refusal
from rules.models import from_config


class UnsupportedError(ValueError):
    """A configuration that the table rules out. `constraint` is the id of the first constraint it breaks."""

    def __init__(self, constraint: str, message: str) -> None:
        super().__init__(f"{message} [{constraint}]")
        self.constraint = constraint


def require(config: Configuration, device: str, model: Any = None) -> None:
    """Raise `UnsupportedError` for a configuration that cannot work; `model` is its transformers configuration."""
    refused = refusal(config, device, from_config(model.to_dict()).quantities() if model is not None else None)
    if refused is not None:
        constraint, message, help_ = refused
        raise UnsupportedError(constraint, f"{message}{'; ' + help_ if help_ else ''}")
