"""What became of a cell: one class for each, from its row and the reference's losses."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.suite.criteria import TOLERANCE, first_mismatch

CLASSES = {
    "ok": "ok", "oom": "out of memory", "hang": "hang", "compile_error": "compile error", "crash": "crash",
    "unsupported": "unsupported", "nan": "wrong loss", "interrupted": "interrupted",
    "loss_mismatch": "wrong loss", "skipped": "out of memory",
}  # fmt: skip
SLOW_STEP = 10
WORKS = ("ok", "graph breaks", "slow path")


@dataclass(frozen=True)
class Outcome:
    """`kind` is ok, slow path, graph breaks, compile error, unsupported, out of memory, hang, wrong loss or crash."""

    kind: str
    detail: str
    loss_difference: float | None = None


def classify(row: Mapping[str, Any], reference: Sequence[float] | None) -> Outcome:
    """The outcome of a row; its losses are held against `reference` where there is one."""
    kind = CLASSES[str(row["status"])]
    if kind != "ok":
        return Outcome(kind, str(row["message"]))
    difference = None
    if reference is not None:
        tolerance = TOLERANCE[row["configuration"]["dtype"]]
        compared, wrong = first_mismatch(reference, row["runs"][0]["losses"], tolerance)
        difference = compared.max_difference
        if wrong is not None:
            detail = f"step {wrong[0]}: {wrong[1]:.5f}, eager in fp32: {wrong[2]:.5f}"
            return Outcome("wrong loss", detail, difference)
    slow = _slow_path(row) or _slow_steps(row)
    if slow:
        return Outcome("slow path", slow, difference)
    breaks = int(row["summary"]["effective"]["graphs"]["graph_breaks"])
    return Outcome("graph breaks", f"{breaks} graph breaks", difference) if breaks else Outcome("ok", "", difference)


def _slow_steps(row: Mapping[str, Any]) -> str:
    """Whether some timed steps took far longer than the rest, as those do that compile for another length."""
    steps = [sum(step.values()) for step in row["runs"][0]["times"]]
    usual = statistics.median(steps)
    late = sum(step > SLOW_STEP * usual for step in steps)
    return f"{late} of {len(steps)} timed steps took over {SLOW_STEP} times the median: still compiling" if late else ""


def _slow_path(row: Mapping[str, Any]) -> str:
    """Why a cell did not run what it asked for; empty where it did. CPUs have no kernels to choose from."""
    effective, asked = row["summary"]["effective"], row["configuration"]
    kernels = set(effective["attention_kernels"])
    if not str(effective["device"]).startswith("cuda"):
        return ""
    if asked["attn"].startswith("flash_attention") and "flash" not in kernels:
        return f"no flash kernel ran, but {', '.join(sorted(kernels)) or 'plain matrix products'}"
    if asked["attn"] == "sdpa" and not kernels:
        return "scaled-dot-product attention ran as plain matrix products"
    if asked["compile"] != "none" and not effective["graphs"]["graphs"]:
        return "nothing was compiled"
    return ""
