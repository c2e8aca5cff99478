"""What limits a GPU while it works: watts, clock and the driver's reasons for the clock, read through NVML."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pynvml
import torch

INTERVAL = 0.02
REASONS = {
    0x4: "power limit", 0x8: "slowdown", 0x20: "thermal, software", 0x40: "thermal, hardware", 0x80: "power brake",
}  # fmt: skip
FLOPS_PER_CLOCK = 4096 * 132
"""Dense bf16 of the 132 multiprocessors of an H200 in one clock: 989 TFLOP/s at the 1,830 MHz of its data sheet."""


class Meter:
    """Reads the GPU that PyTorch computes on from a thread between `start` and `stop`."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        # NVML counts all GPUs of the host, CUDA those in CUDA_VISIBLE_DEVICES.
        self.gpu = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda._get_nvml_device_index(torch.cuda.current_device()))
        self.limit = pynvml.nvmlDeviceGetEnforcedPowerLimit(self.gpu) / 1e3

    def start(self) -> None:
        self._clocks: list[int] = []
        self._reasons: Counter[str] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._joules, self._since = self._energy(), time.perf_counter()
        self._thread.start()

    def _energy(self) -> float:
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(self.gpu)) / 1e3

    def _read(self) -> None:
        while not self._over.wait(INTERVAL):
            self._clocks.append(pynvml.nvmlDeviceGetClockInfo(self.gpu, pynvml.NVML_CLOCK_SM))
            found = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.gpu)
            self._reasons.update([name for bit, name in REASONS.items() if found & bit] or ["none"])

    def stop(self) -> dict[str, Any]:
        """Mean watts, median clock in MHz, how often each reason held, and the bf16 peak at that clock in TFLOP/s."""
        seconds, joules = time.perf_counter() - self._since, self._energy() - self._joules
        self._over.set()
        self._thread.join()
        clock = statistics.median(self._clocks or [0])
        read = max(1, len(self._clocks))
        return {
            "watts": round(joules / seconds, 1), "limit": self.limit, "mhz": clock,
            "peak_at_clock": round(FLOPS_PER_CLOCK * clock / 1e6, 1),
            "reasons": {name: round(count / read, 3) for name, count in self._reasons.items()},
        }  # fmt: skip


def metered(work: Callable[[], Any], seconds: float = 4.0) -> dict[str, Any]:
    """`work` again and again for about `seconds`, the host ahead of the GPU by one: its mean time, watts and clock."""
    work()
    torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    torch.cuda.synchronize()
    count = max(3, round(seconds / (time.perf_counter() - started)))
    meter = Meter()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    meter.start()
    start.record()
    before = torch.cuda.Event()
    before.record()
    for _ in range(count):
        after = torch.cuda.Event()
        work()
        after.record()
        before.synchronize()
        before = after
    end.record()
    end.synchronize()
    return {"milliseconds": start.elapsed_time(end) / count, "times": count, **meter.stop()}
