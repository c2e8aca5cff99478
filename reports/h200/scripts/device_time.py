"""Where a step's device time goes: milliseconds by kernel, by phase, and without any kernel, after a warm-up.

    torchrun --standalone --nproc-per-node=2 device_time.py CELLS.jsonl OUT.jsonl

Each line of CELLS holds the settings of a `bench.configuration.Configuration`. The profiler makes the host slower, so
the time without a kernel is at most what it says; `milliseconds` are medians of steps without it, `each` holds them
all. `power` is of whole steps one after the other for a few seconds, on one GPU.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
from many import forget
from power import metered
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from bench.configuration import model_facts, parse
from bench.measure.clock import graph_report, matmul_peak
from bench.measure.model import attention_context
from bench.measure.training import no_phase
from bench.measure.worker import Run
from bench.predict.flops import per_token
from bench.process.heartbeat import Heartbeat
from bench.strategies import processes


def busy(events: Any) -> float:
    """Milliseconds in which at least one kernel ran."""
    spans = sorted((e.time_range.start, e.time_range.end) for e in events if e.device_type == DeviceType.CUDA)
    total, until = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total / 1e3


STEPS = 3
"""Profiled at once; the last of them is shown, in which the GPU is as warm as in training."""
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
KINDS = {"products": ("nvjet", "gemm", "xmma"), "attention": ("flash", "sdpa"), "network": ("nccl", "symmetric_memory")}
LONG_GAP = 15.0


def by_phase(run: Run) -> dict[str, dict[str, Any]]:
    """Of the last of several steps, by phase: milliseconds of kernels by kind, and those in which none ran."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(STEPS):
            run.step(record_function)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(trace))
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "X"]
    launched = {
        e["args"]["correlation"]: e["ts"] for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }  # fmt: skip
    device = sorted((e for e in events if e.get("cat") in DEVICE), key=lambda e: e["ts"])
    shown = {}
    for phase in ("forward", "backward", "optimizer"):
        span = max((e for e in events if e.get("cat") == "user_annotation" and e["name"] == phase), key=_start)
        until = span["ts"] + span["dur"]
        mine = [e for e in device if span["ts"] <= launched.get(e["args"].get("correlation"), -1) <= until]
        shown[phase] = _spent(mine) | {"host": span["dur"] / 1e3, "before": (mine[0]["ts"] - span["ts"]) / 1e3}
    return shown


def _start(event: dict[str, Any]) -> float:
    return float(event["ts"])


def _spent(events: list[dict[str, Any]]) -> dict[str, Any]:
    spent = dict.fromkeys([*KINDS, "other", "idle"], 0.0)
    gaps, until, last = [], events[0]["ts"], ""
    for event in events:
        lowered = event["name"].lower()
        kind = next((kind for kind, words in KINDS.items() if any(word in lowered for word in words)), "other")
        spent[kind] += event["dur"] / 1e3
        idle = event["ts"] - until
        if idle > 0:
            spent["idle"] += idle / 1e3
        if idle > LONG_GAP:
            gaps.append((round(idle / 1e3, 3), last[:40], event["name"][:40]))
        until, last = max(until, event["ts"] + event["dur"]), event["name"]
    return spent | {"span": (until - events[0]["ts"]) / 1e3, "gaps": sorted(gaps, reverse=True)[:12]}


def kernels(run: Run) -> dict[str, float]:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        run.step(no_phase)
        torch.cuda.synchronize()
    times = {event.key[:110]: event.self_device_time_total / 1e3 for event in recorded.key_averages()}
    host = {event.key[:90]: event.self_cpu_time_total / 1e3 for event in recorded.key_averages()}
    print("host", sorted(host.items(), key=lambda pair: -pair[1])[:25], flush=True)
    times["busy"] = busy(recorded.events())
    return dict(sorted(((k, v) for k, v in times.items() if v > 0.3), key=lambda pair: -pair[1])[:30])


def measured(line: str, world: int, heartbeat: Heartbeat) -> dict[str, Any]:
    configuration = parse({**json.loads(line), "num_gpus": world})
    run = Run(configuration, heartbeat)
    run.build()
    with attention_context(configuration.attn):
        run.warm_up()
        times = run.measure()
        power = metered(lambda: run.step(no_phase)) if world == 1 else None
        shown, phase_shown = kernels(run), by_phase(run)
    phases = {name: statistics.median(t[name] for t in times) for name in times[0]}
    seconds = phases["forward"] + phases["backward"]
    facts = model_facts(configuration.model, configuration.num_layers)
    counted = run.counts[-1]  # the ranks of a ring and of a tensor-parallel group count the same batch
    tokens = counted["real"] * configuration.dp
    flops = per_token(facts, counted["squares"] / counted["real"]).model * tokens
    return {
        "settings": json.loads(line), "milliseconds": {k: 1e3 * v for k, v in phases.items()},
        "each": {name: [1e3 * t[name] for t in times] for name in phases},
        "tflops_per_gpu": flops / seconds / world / 1e12, "tokens_per_second": tokens / seconds / world,
        "attention": run.attention(),
        "peak": matmul_peak(run.strategy.device, torch.bfloat16) / 1e12,
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9, "losses": run.losses, "kernels": shown,
        "power": power, "phases": phase_shown, "graphs": graph_report(),
    }  # fmt: skip


def main(cells: Path, target: Path) -> None:
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    heartbeat = Heartbeat(Path(tempfile.mkdtemp()), rank)
    for line in filter(None, cells.read_text().splitlines()):
        torch.cuda.reset_peak_memory_stats()
        try:
            row = measured(line, world, heartbeat)
        except Exception as error:
            traceback.print_exc()
            row = {"settings": json.loads(line), "error": f"{type(error).__name__}: {error}"[:600]}
        forget()
        if rank == 0:
            with target.open("a") as file:
                file.write(json.dumps(row) + "\n")
            brief = {k: v for k, v in row.items() if k not in ("kernels", "losses")}
            print(json.dumps(brief), flush=True)
            for name, spent in list(row.get("kernels", {}).items())[:14]:
                print(f"   {spent:8.2f} ms  {name}", flush=True)
    processes.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
