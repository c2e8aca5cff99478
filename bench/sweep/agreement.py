"""Rows of a sweep that must train alike: same weights, same samples, another backend, kernel or compile mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench.configuration import Configuration, deciding
from bench.settings import WORK
from bench.suite.criteria import TOLERANCE, first_mismatch

SAME = (
    *(name for name in deciding(WORK) if name not in ("num_gpus", "micro_batch_size", "train_batch_size")),
    "inputs", "dp", "rows", "batch",
)  # fmt: skip
"""What decides weights and samples. What is left (backend, attention, compilation, packing, how the model is split)
must not change a loss."""


def mismatches(rows: Iterable[tuple[Configuration, Mapping[str, Any]]]) -> dict[str, str]:
    """Messages by hash for rows whose losses leave those of the first that trains the same, in its first steps."""
    references: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    found = {}
    for configuration, row in rows:
        if row["status"] != "ok":
            continue
        reference = references.setdefault(configuration.values(SAME), row)
        _, wrong = first_mismatch(
            reference["runs"][0]["losses"], row["runs"][0]["losses"], TOLERANCE[configuration.dtype]
        )
        if wrong is not None:
            step, loss, expected = wrong
            found[str(row["hash"])] = f"step {step}: loss {loss:.5f}, {reference['label']} has {expected:.5f}"
    return found
