"""Whether ranks reach each other, and how fast: the checks over what `bench.doctor.bandwidth` measured."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.doctor.check import Check, failure, ok, warning
from bench.process import supervise
from bench.sweep.availability import BENCH, installed

DEADLINES = {"start": 120.0, "load": 60.0, "measure": 60.0, "end": 30.0}
SLOW = 0.7
"""Share of the median pair below which a pair is named."""

SHOWN = 6
NVLINK = 40e9
"""Bytes per second that a pair over PCIe 5.0 ×16 hardly reaches, and one over NVLink passes."""


def checks(gpus: int) -> Iterator[Check]:
    """Start a group on the GPUs, or two ranks on the CPU, and look at every pair."""
    ranks = gpus if gpus else 2
    name = "NCCL all-reduce" if gpus else "gloo all-reduce"
    if not installed("psutil"):  # by which the processes of a group are found and ended
        yield failure(name, "not tried: psutil is not installed", BENCH)
        return
    if gpus == 1:
        yield ok(name, "one GPU has nobody to talk to")
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-doctor-"))
    try:
        job = supervise.Job("bench.doctor.bandwidth", environment={} if gpus else {"CUDA_VISIBLE_DEVICES": ""})
        verdict = supervise.run_group(folder, 0, ranks, lambda *_: None, DEADLINES, job)
        if verdict.status != "ok":
            yield failure(name, f"{verdict.status}: {verdict.told}", "NCCL_DEBUG=INFO shows more" if gpus else "")
            return
        measured = json.loads((folder / "run.0.json").read_text(encoding="utf-8"))["bytes_per_second"]
        yield from judge(name, measured, bool(gpus))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judge(name: str, measured: Mapping[str, float], on_gpu: bool) -> Iterator[Check]:
    """Lines over bandwidths in bytes per second by pair (`0-1`) and `all`."""
    pairs = {pair: value for pair, value in measured.items() if pair != "all"}
    median = statistics.median(pairs.values())
    slow = {pair: value for pair, value in pairs.items() if value < SLOW * median}
    text = f"{len(pairs)} pairs, {_rate(min(pairs.values()))} to {_rate(max(pairs.values()))}"
    if len(pairs) <= SHOWN:
        text = ", ".join(f"{pair}: {_rate(value)}" for pair, value in pairs.items())
    if "all" in measured:
        text += f"; all ranks: {_rate(measured['all'])}"
    if on_gpu and median < NVLINK:
        yield warning(name, text, "that is PCIe: tensor parallelism will be slow (nvidia-smi topo -m)")
    else:
        yield ok(name, text)
    for pair, value in slow.items():
        where = "nvidia-smi topo -m shows their link; keep tensor-parallel neighbours elsewhere"
        yield warning(f"pair {pair}", f"{_rate(value)}, the median pair {_rate(median)}", where)


def _rate(value: float) -> str:
    return f"{value / 1e9:.3g} GB/s"
