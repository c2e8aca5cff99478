"""Rows of `bench attention`: joined over processes, as a table, as JSON and as a pyperf suite. No torch needed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.attention.shapes import Shape
from bench.results.results import Processes, stack_metadata, write_json, write_pyperf
from bench.terminal.text import MARKDOWN, grid

PHASES = {"forward": 1.0, "backward": 2.5}
"""Their work, in units of the forward pass's."""
HEADERS = (
    "kernel", "positions", "heads", "status", "forward ms", "backward ms", "forward TFLOP/s", "backward TFLOP/s",
    "both", "of peak", "error, or why not",
)  # fmt: skip


def ended(kernel: str, shape: Shape, status: str, message: str) -> dict[str, Any]:
    """What one process says of a shape that it did not measure."""
    return {"kernel": kernel, "shape": shape.as_dict(), "status": status, "message": message}


def joined(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row of all processes' answers: the first one that is not ok, or medians and rates over all of them."""
    bad = next((row for row in several if row["status"] != "ok"), None)
    if bad is not None:
        return bad
    first = several[0]
    flops = Shape.of(first["shape"]).flops
    seconds = {name: statistics.median(step[name] for row in several for step in row["times"]) for name in PHASES}
    rates = {name: share * flops / seconds[name] for name, share in PHASES.items()}
    both = sum(PHASES.values()) * flops / sum(seconds.values())
    peak = statistics.median(row["matmul_flops"] for row in several)
    return {
        "kernel": first["kernel"], "shape": first["shape"], "status": "ok", "seconds": seconds,
        "flops_per_second": {**rates, "both": both}, "peak_share": both / peak, "matmul_flops": peak,
        "error": max(row["error"] for row in several),
        "processes": [{"times": row["times"], "warmups": row["warmups"]} for row in several],
    }  # fmt: skip


def _cells(row: dict[str, Any]) -> list[str]:
    shape = Shape.of(row["shape"])
    head = [row["kernel"], shape.label(), str(shape.heads), row["status"]]
    if row["status"] != "ok":
        return [*head, *["-"] * (len(HEADERS) - len(head) - 1), row["message"]]
    rates = row["flops_per_second"]
    return [
        *head, *(f"{row['seconds'][name] * 1e3:.3f}" for name in PHASES),
        *(f"{rates[name] / 1e12:.3g}" for name in (*PHASES, "both")), f"{row['peak_share']:.0%}", f"{row['error']:.1e}",
    ]  # fmt: skip


def render(rows: Sequence[dict[str, Any]], markdown: bool = False) -> str:
    """Shape by shape, the fastest kernel first."""
    shapes = list(dict.fromkeys(str(row["shape"]) for row in rows))

    def place(row: dict[str, Any]) -> tuple[int, float]:
        return shapes.index(str(row["shape"])), -row.get("flops_per_second", {}).get("both", 0.0)

    style = MARKDOWN if markdown else "simple"
    table = grid([_cells(row) for row in sorted(rows, key=place)], HEADERS, style)
    return f"{table}\ncausal FLOPs: 2 x heads x size x length² per document forward, 2.5 times that backward"


def write(folder: Path, rows: Sequence[dict[str, Any]], described: dict[str, Any], asked: dict[str, str]) -> None:
    """`attention.json`, and `benchmarks.json` for pyperf where anything was measured."""
    write_json(folder / "attention.json", {"environment": described, "asked": asked, "rows": list(rows)})
    measured = [row for row in rows if row["status"] == "ok"]
    if measured:
        common = {**stack_metadata(described), **asked, "unit": "second"}
        write_pyperf(folder / "benchmarks.json", [_benchmark(row, name, common) for row in measured for name in PHASES])


def _benchmark(row: dict[str, Any], phase: str, common: dict[str, Any]) -> tuple[dict[str, Any], Processes]:
    shape = Shape.of(row["shape"])
    name = f"{row['kernel']}:{shape.label()}:{shape.heads}:{phase}"
    values = [tuple([step[phase] for step in one[kind]] for kind in ("times", "warmups")) for one in row["processes"]]
    return {**common, "name": name, "flops_per_second": row["flops_per_second"][phase]}, values  # type: ignore[return-value]
