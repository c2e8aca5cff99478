"""Results as the table at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.configuration import model_name
from bench.terminal.fitting import screen

HEADERS = (
    "configuration", "model", "layers", "status", "forward ms", "backward ms", "optimizer ms", "tokens/s/GPU",
    "padded/s/GPU", "TFLOP/s", "of peak", "network", "casts ms", "peak GB", "loss (steps)",
)  # fmt: skip


def _milliseconds(summary: dict[str, Any], phase: str) -> str:
    entry = summary.get(phase)
    return f"{entry['median'] * 1e3:.1f} ±{entry['spread'] * 100:.0f}%" if entry else "-"


def _losses(result: dict[str, Any]) -> str:
    """First → last, and after how many steps: rows that warmed up longer trained longer."""
    summary, runs = result["summary"], result.get("runs") or [{}]
    steps = len(runs[0].get("losses", ()))
    return f"{summary['first_loss']:.4f} → {summary['last_loss']:.4f}" + f" ({steps})" * bool(steps)


def row(result: dict[str, Any]) -> list[str]:
    """One line; for a row that measured nothing, the status and dashes."""
    model, layers = result["configuration"]["model"], result["configuration"]["num_layers"]
    head = [result["label"], model_name(model), "all" if layers is None else str(layers), result["status"]]
    summary = result.get("summary")
    if not summary:
        return [*head, *["-"] * (len(HEADERS) - len(head))]
    return [
        *head, *(_milliseconds(summary, phase) for phase in ("forward", "backward", "optimizer")),
        f"{summary['real_tokens_per_second']:,.0f}", f"{summary['padded_tokens_per_second']:,.0f}",
        f"{summary['model_flops_per_second'] / 1e12:.3g}", f"{summary['peak_share']:.0%}",
        f"{summary['effective']['communication_share']:.0%}",
        f"{summary['effective'].get('cast_seconds', 0.0) * 1e3:.1f}",
        f"{summary['peak_memory'] / 1e9:.2f}", _losses(result),
    ]  # fmt: skip


def _remarks(result: dict[str, Any]) -> list[str]:
    """What one has to know of times that were measured: what compiling took, and whether they had settled."""
    effective = (result.get("summary") or {}).get("effective", {})
    graphs, found = effective.get("graphs", {}), []
    if graphs.get("graphs"):
        found.append(
            f"compiled in {graphs['compile_seconds']:.1f} s: {graphs['graphs']} graphs, {graphs['graph_breaks']} "
            f"breaks, {graphs['recompiles']} recompilations"
        )
    if effective.get("steady") is False:
        found.append(f"step times were not steady after {effective['warmup_steps']} steps of warm-up")
    return [f"{result['label']}: {remark}" for remark in found]


def problem(result: dict[str, Any]) -> str:
    """A line on a row that did not end well: why, what to change, and where its log is."""
    hint = f" ({result['hint']})" if result["hint"] else ""
    kept = f"; its measurement of {result['kept']} is kept" if result.get("kept") else ""
    log = f"; log: {result['log']}" if result["log"] else ""
    return f"{result['label']}: {result['status']}: {result['message']}{hint}{kept}{log}"


ORDER = (
    "configuration", "status", "tokens/s/GPU", "peak GB", "loss (steps)", "backward ms", "forward ms", "optimizer ms",
    "model", "layers", "TFLOP/s", "of peak", "network", "padded/s/GPU", "casts ms",
)  # fmt: skip
"""The headers, the most important first."""


def render(results: Sequence[dict[str, Any]], wide: bool = False) -> str:
    """The table, and below it a line per row that was compiled, that never became steady, or that did not end well,
    with what to change."""
    text = screen([row(r) for r in results], HEADERS, ORDER, wide)
    notes = []
    for result in results:
        notes += _remarks(result)
        if result["status"] != "ok":
            notes.append(problem(result))
    return "\n".join([text, *([""] if notes else []), *notes])
