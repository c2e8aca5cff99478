"""Times whole processes and their memory, in turns, and keeps the values as pyperf benchmarks."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil
import pyperf

Clock = Literal["wall", "cpu"]
ACCEPTED = (0, 1)  # a checker that reports something exits with 1


class Failed(Exception):
    """A measured command did not do its work; the text says which and what it printed."""


@dataclass(frozen=True)
class Command:
    """A process to time. `before` runs untimed ahead of each start; `own_clock`: the process prints the
    seconds that count as its last line of output (it leaves out what is not to be measured)."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None
    own_clock: bool = False
    cwd: Path | None = None

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.cwd,
            env={**os.environ, **self.environment},
        )

    def seconds(self, clock: Clock) -> float:
        """Run once; the wall time, or the processor time with that of its children. Raises `Failed`."""
        self.before()
        began = _now(clock)
        process = self.start()
        output, _ = process.communicate()
        took = _now(clock) - began
        self._check(process, output)
        return float(output.split()[-1]) if self.own_clock else took

    def peak_memory(self) -> int:
        """Run once; the largest sum of memory over the process and its children, in bytes.

        Shared pages are counted once (proportional set size) where the system tells; sampled every 5 ms.
        """
        self.before()
        process = self.start()
        watched, peak = psutil.Process(process.pid), 0
        while process.poll() is None:
            peak = max(peak, _memory(watched))
            time.sleep(0.005)
        output = process.stdout.read() if process.stdout else ""
        self._check(process, output)
        return peak

    def _check(self, process: subprocess.Popen[str], output: str) -> None:
        if process.returncode not in ACCEPTED:
            raise Failed(f"{self.name}: {' '.join(self.arguments)}: status {process.returncode}\n{output[-2000:]}")


def _now(clock: Clock) -> float:
    if clock == "wall":
        return time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of the processes that have ended
    return used.ru_utime + used.ru_stime


def _memory(process: psutil.Process) -> int:
    total = 0
    try:
        for each in (process, *process.children(recursive=True)):
            told = each.memory_full_info()
            total += getattr(told, "pss", told.rss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return total  # it ended while we looked
    return total


def in_turns(commands: Iterable[Command], rounds: int, clock: Clock, warmups: int = 1) -> dict[str, pyperf.Benchmark]:
    """Time every command `rounds` times, one of each per round, so that a busy spell hits all alike."""
    commands = list(commands)
    warm: dict[str, list[float]] = {each.name: [] for each in commands}
    values: dict[str, list[float]] = {each.name: [] for each in commands}
    for index in range(warmups + rounds):
        for each in commands:
            (warm if index < warmups else values)[each.name].append(each.seconds(clock))
    return {name: benchmark(name, found, warm[name]) for name, found in values.items()}


def benchmark(name: str, values: list[float], warmups: list[float]) -> pyperf.Benchmark:
    """A pyperf benchmark of one value per process."""
    metadata = {"name": name, "unit": "second", "loops": 1}
    first = [(1, value) for value in warmups] or None
    runs = [
        pyperf.Run([value], warmups=None if index else first, metadata=metadata) for index, value in enumerate(values)
    ]
    return pyperf.Benchmark(runs)


def median(bench: pyperf.Benchmark) -> float:
    return statistics.median(bench.get_values())
