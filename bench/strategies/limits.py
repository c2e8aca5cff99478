"""The table of parallelism constraints, applied to what a strategy is about to set up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.configuration import Configuration
from bench.predict.sizes import refusal


class UnsupportedError(ValueError):
    """A configuration that the table rules out. `constraint` is the id of the first constraint it breaks."""

    def __init__(self, constraint: str, message: str) -> None:
        super().__init__(f"{message} [{constraint}]")
        self.constraint = constraint


def require(config: Configuration, device: str, model: Mapping[str, Any] | None = None) -> None:
    """Raise `UnsupportedError` for a configuration that cannot work; `model` as in `sizes.quantities`."""
    refused = refusal(config, device, model)
    if refused is not None:
        constraint, message, help_ = refused
        raise UnsupportedError(constraint, f"{message}{'; ' + help_ if help_ else ''}")
