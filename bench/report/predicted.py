"""Measured memory against what `bench plan` predicts for the same configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.configuration import model_facts
from bench.memory import Layout, estimate
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
    c = row.configuration
    return Layout(
        backend=c.backend, zero_stage=c.zero_stage, dp=c.dp, tp=c.tp, ring=c.ring, micro_batch_size=1,
        seq_len=round(row.positions) if row.positions else c.rows * c.seq_len,
        grad_accum=max(c.batch // (c.rows * c.dp), 1), dtype=c.dtype, compiled=c.compile != "none",
        eager_attention=c.attn == "eager", checkpointing=c.gradient_checkpointing,
        sequence_parallel=c.sequence_parallel, reshard=c.reshard_after_forward, offload_optimizer=c.cpu_offload,
    )  # fmt: skip


def predicted(row: Row) -> float | None:
    """Bytes of the predicted peak per GPU; None for what the model of memory does not know: foreign backends,
    measurements without a backward pass, CPUs, unknown models."""
    c = row.configuration
    on_cpu = c.device == "cpu" or str(row.effective.get("device", "")).startswith("cpu")
    if c.backend not in ("deepspeed", "fsdp2", "ddp") or not c.backward or on_cpu:
        return None
    try:
        return estimate(model_facts(c.model, c.num_layers), layout(row)).allocated
    except ModelError:
        return None


def memory_errors(rows: Sequence[Row]) -> list[Prediction]:
    """Every row whose peak was measured and can be predicted, worst first."""
    found = []
    for row in rows:
        if row.memory and (expected := predicted(row)):
            found.append(Prediction(row, row.memory, expected))
    return sorted(found, key=lambda one: -abs(one.error))
