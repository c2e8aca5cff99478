"""Rows of a sweep that must train alike: same weights, same samples, another backend, kernel or compile mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench.configuration import Configuration, deciding
from bench.matrix.classify import STEPS_COMPARED, TOLERANCE
from bench.settings import WORK
from bench.suite.criteria import compare_losses

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
        reference = references.setdefault(tuple(getattr(configuration, name) for name in SAME), row)
        message = _difference(reference, row, TOLERANCE[configuration.dtype])
        if message:
            found[str(row["hash"])] = message
    return found


def _difference(reference: Mapping[str, Any], row: Mapping[str, Any], tolerance: float) -> str:
    expected, losses = reference["runs"][0]["losses"], row["runs"][0]["losses"]
    steps = min(len(expected), len(losses), STEPS_COMPARED)
    compared = compare_losses(expected[:steps], losses[:steps], tolerance)
    if compared.first_beyond is None:
        return ""
    step = compared.first_beyond
    return f"step {step}: loss {losses[step - 1]:.5f}, {reference['label']} has {expected[step - 1]:.5f}"
