"""Tokens and floating-point operations per GPU and second."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.configuration import Configuration, model_facts
from bench.metrics import COUNT, SHARE, Metric, summed
from bench.predict.flops import per_token
from bench.results.measured import SPEED, rate, seconds_per_token

if TYPE_CHECKING:
    from bench.report.rows import Row


def summarise(configuration: Configuration, runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Model FLOP/s (6 per weight and token, attention causal, recomputation left out) are those of forward and
    backward, where the products are; `peak_share` divides them by the matrix product measured in the same processes.
    Neither is there for a model whose parameters are not counted."""
    gpus = configuration.num_gpus
    totals = {name: sum(run["tokens"][name] for run in runs) for name in ("real", "positions", "squares")}
    peak = statistics.median(run["matmul_flops"] for run in runs)
    found = {
        SPEED: rate(seconds_per_token(gpus, runs)) or 0.0, "padding_share": 1.0 - totals["real"] / totals["positions"],
        "matmul_flops_per_second": peak,
    }  # fmt: skip
    facts = model_facts(configuration.model, configuration.num_layers)
    if facts.countable:
        context = totals["squares"] / totals["real"] if totals["real"] else 0.0
        flops = per_token(facts, context).model * (1.0 if configuration.backward else 1.0 / 3.0)
        core = sum(step[p] for run in runs for step in run["times"] for p in ("forward", "backward") if p in step)
        achieved = flops * totals["real"] / core / gpus
        found |= {"model_flops_per_second": achieved, "peak_share": achieved / peak}
    return found


def _padded(row: Row) -> float | None:
    return None if row.tokens is None else row.tokens / (1.0 - float(row.summary["padding_share"]))


METRICS = (
    Metric("tokens", "tokens/s/GPU", lambda row: row.tokens, COUNT, 20, 1, tracked="throughput"),
    Metric("padded", "padded/s/GPU", _padded, COUNT, 22, 14),
    Metric("flops", "TFLOP/s fwd+bwd", summed("model_flops_per_second"), lambda v: f"{v / 1e12:.3g}", 30, 9),
    Metric("peak_share", "of peak", summed("peak_share"), SHARE, 31, 10),
)
