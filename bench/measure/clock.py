"""The clock, the memory and the machine's own peak: how one rank measures itself."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
"""By their names in settings."""
STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
STEADY = 0.05
MAX_WARMUP_FACTOR = 4
LEAST_WARMUP = {"deepcompile": 7}
"""Steps by compile mode. DeepCompile compiles again at its sixth step, with what it has seen of the memory (`WARMUP` in
deepspeed/compile, DeepSpeed 0.19.8)."""


Phase = Callable[[str], AbstractContextManager[None]]


class Clock:
    """Seconds per phase of a step: device events on GPUs, where the host runs ahead; the wall clock elsewhere.

    Nothing waits for the device between phases. `take` waits once and returns the sums since it was last called.
    """

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self._marks: list[tuple[str, Any, Any]] = []

    def _now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = self._now()
        yield
        self._marks.append((name, start, self._now()))

    def take(self) -> dict[str, float]:
        """Seconds by phase; several stretches of one phase are added up."""
        if self.cuda:
            torch.cuda.synchronize()
        totals: dict[str, float] = defaultdict(float)
        for name, start, end in self._marks:
            totals[name] += start.elapsed_time(end) / 1000.0 if self.cuda else end - start
        self._marks.clear()
        return dict(totals)


class Memory:
    """Peak bytes by phase: allocated and reserved on a GPU; the process's resident set on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.peaks: dict[str, dict[str, float]] = {"allocated": {}, "reserved": {}}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        reset_peak(self.device)
        yield
        self.add({kind: {name: value} for kind, value in zip(self.peaks, peak(self.device), strict=True)})

    def add(self, peaks: Mapping[str, Mapping[str, float]]) -> None:
        """Keep the larger of each peak."""
        for kind, by_phase in peaks.items():
            for name, value in by_phase.items():
                self.peaks[kind][name] = max(value, self.peaks[kind].get(name, 0))


def both(clock: Clock, memory: Memory) -> Phase:
    """Phases of which the time and the memory are measured."""

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        with memory.phase(name), clock.phase(name):
            yield

    return phase


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif CLEAR_REFS.exists():
        CLEAR_REFS.write_text("5")


def peak(device: torch.device) -> tuple[int, int]:
    """(allocated, reserved) bytes since the last reset; on a CPU both are the peak resident set."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                resident = int(line.split()[1]) * 1024
                return resident, resident
    import resource

    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resident *= 1 if os.uname().sysname == "Darwin" else 1024
    return resident, resident


def is_steady(times: list[float]) -> bool:
    """Whether the last three step times lie within 5% of their median."""
    if len(times) < 3:
        return False
    last = times[-3:]
    middle = statistics.median(last)
    return max(abs(value - middle) for value in last) <= STEADY * middle


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix product, the median of ten: what `% of peak` refers to."""
    size = 8192 if device.type == "cuda" else 512
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    clock = Clock(device)
    times = []
    for _ in range(13):
        with clock.phase("product"):
            left @ right
        times.append(clock.take()["product"])
    return float(2 * size**3 / statistics.median(times[3:]))


def graph_report() -> dict[str, float]:
    """What torch.compile has done in this process so far: seconds, graphs, breaks, recompilations."""
    from torch._dynamo.convert_frame import FRAME_COMPILE_COUNTER

    counters = torch._dynamo.utils.counters
    metrics = torch._dynamo.utils.compilation_time_metrics.get("_compile.compile_inner", [])
    return {
        "compile_seconds": float(sum(metrics)),
        "graphs": int(counters["stats"].get("unique_graphs", 0)),
        "graph_breaks": sum(counters["graph_break"].values()),
        # Dynamo counts no recompilations, but how often it has compiled each frame.
        "recompiles": sum(times - 1 for times in FRAME_COMPILE_COUNTER.values()),
        # Of the compiler's cache on disk, which rows of a sweep share as long as it lies in one place.
        "cache_hits": int(counters["inductor"].get("fxgraph_cache_hit", 0)),
        "cache_misses": int(counters["inductor"].get("fxgraph_cache_miss", 0)),
    }
