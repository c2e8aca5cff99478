"""Measured memory against what `bench plan` predicts for the same configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench import backends
from bench.configuration import model_facts
from bench.predict import sizes
from bench.predict.layout import Layout
from bench.predict.memory import estimate
from bench.predict.moments import Estimate
from bench.report.rows import Row
from rules.models import ModelError


@dataclass(frozen=True)
class Prediction:
    """Bytes per GPU of one row; `error` is relative to the measured peak."""

    row: Row
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1.0

    @property
    def within(self) -> bool:
        """Whether the prediction is good to a tenth."""
        return abs(self.error) <= 0.1


def layout(row: Row) -> Layout:
    """The row's configuration as the memory model sees it, with the positions that its batches really had."""
    found = sizes.layout(row.configuration, row.positions)
    # The setting of the reduction's type came with the embedding's own group.
    return replace(found, embedding_apart="reduce_dtype" in row.settings)


def expected(row: Row) -> Estimate | None:
    """The predicted peak of one GPU, by parts; None for what the model of memory does not know: foreign backends,
    measurements without a backward pass, CPUs, unknown models."""
    c = row.configuration
    if not backends.find(c.backend).predicted or not c.backward or row.on_cpu:
        return None
    try:
        return estimate(model_facts(c.model, c.num_layers), layout(row))
    except ModelError:
        return None


def predicted(row: Row) -> float | None:
    """Bytes of the predicted peak per GPU, None where there is no prediction."""
    found = expected(row)
    return found.allocated if found else None


def memory_errors(rows: Sequence[Row]) -> list[Prediction]:
    """Every row whose peak was measured and can be predicted, worst first.

    A peak below the parameters and optimizer states, which are there all the time, is none: memory that earlier
    rows of the process had left was freed while the row was measured. Such rows are left out.
    """
    found = []
    for row in rows:
        estimated = expected(row) if row.memory else None
        if estimated and row.memory and row.memory >= estimated.parameters + estimated.optimizer:
            found.append(Prediction(row, row.memory, estimated.allocated))
    return sorted(found, key=lambda one: -abs(one.error))
