"""Tokens and floating-point operations per GPU and second."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.configuration import Configuration, model_facts
from bench.metrics import Metric, count, share, summed
from bench.predict.flops import per_token


def summarise(configuration: Configuration, runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Rates are over all tokens and seconds of all processes, of forward and backward; `_with_optimizer` adds the
    optimizer. FLOP/s are model FLOP/s (6 per weight and token, attention causal, recomputation left out); `peak_share`
    divides them by the matrix product measured in the same processes."""
    gpus = configuration.num_gpus
    core = sum(step[p] for run in runs for step in run["times"] for p in ("forward", "backward") if p in step)
    optimizer = sum(step.get("optimizer", 0.0) for run in runs for step in run["times"])
    totals = {name: sum(run["tokens"][name] for run in runs) for name in ("real", "positions", "squares")}
    context = totals["squares"] / totals["real"] if totals["real"] else 0.0
    facts = model_facts(configuration.model, configuration.num_layers)
    flops = per_token(facts, context).model * (1.0 if configuration.backward else 1.0 / 3.0)
    achieved = flops * totals["real"] / core / gpus
    peak = statistics.median(run["matmul_flops"] for run in runs)
    return {
        "real_tokens_per_second": totals["real"] / core / gpus,
        "padded_tokens_per_second": totals["positions"] / core / gpus,
        "real_tokens_per_second_with_optimizer": totals["real"] / (core + optimizer) / gpus,
        "padding_share": 1.0 - totals["real"] / totals["positions"],
        "model_flops_per_second": achieved, "matmul_flops_per_second": peak, "peak_share": achieved / peak,
    }  # fmt: skip


METRICS = (
    Metric("tokens", "tokens/s/GPU", summed("real_tokens_per_second"), count, 20, 1, tracked="throughput"),
    Metric("with_optimizer", "with optimizer", summed("real_tokens_per_second_with_optimizer"), count, 21, 12),
    Metric("padded", "padded/s/GPU", summed("padded_tokens_per_second"), count, 22, 14),
    Metric("flops", "TFLOP/s", summed("model_flops_per_second"), lambda v: f"{v / 1e12:.3g}", 30, 9),
    Metric("peak_share", "of peak", summed("peak_share"), share, 31, 10),
)
