"""The first and the last loss, and after how many steps: rows that warmed up longer trained longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.configuration import Configuration
from bench.metrics import Metric


def summarise(configuration: Configuration, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of the first process."""
    losses = runs[0]["losses"]
    return {"first_loss": losses[0], "last_loss": losses[-1]}


_shown = "{:.4f}".format

METRICS = (
    Metric("first_loss", "first loss", lambda row: row.losses[0] if row.losses else None, _shown, 60, 16, finite=False),
    Metric("last_loss", "last loss", lambda row: row.losses[-1] if row.losses else None, _shown, 61, 4, finite=False),
    Metric("loss_steps", "after steps", lambda row: len(row.losses) or None, place=62, rank=4.1),
)
