"""Ranks as tasks of a Slurm job step: `srun` within an allocation, and what it says of tasks that failed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType

from bench.launch.exits import record
from bench.process.heartbeat import die_with_parent

FAILED_TASKS = re.compile(r"^srun: error: \S+: tasks? (?P<tasks>[\d,\-\[\]]+): (?P<what>.+?)\s*$")
EXIT_CODE = re.compile(r"Exited with exit code (\d+)")


def inside() -> bool:
    """Whether this process runs within an allocation."""
    return "SLURM_JOB_ID" in os.environ


def nodes_for(ranks: int, per_node: int) -> int:
    """Hosts that so many ranks need."""
    return -(-ranks // per_node)


@dataclass(frozen=True)
class Slurm:
    """`per_node` ranks on each host; `gpus` asks for as many GPUs there."""

    per_node: int
    gpus: bool

    def command(self, ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
        nodes = nodes_for(ranks, self.per_node)
        flags = [
            f"--ntasks={ranks}", f"--nodes={nodes}", f"--ntasks-per-node={min(self.per_node, ranks)}",
            "--kill-on-bad-exit=1", "--export=ALL", "--cpu-bind=none", "--overlap", "--unbuffered",
        ]  # fmt: skip
        if self.gpus:
            flags.append(f"--gpus-per-node={min(self.per_node, ranks)}")
        rank = [sys.executable, "-m", "bench.launch.rank", module, *arguments]
        return [sys.executable, "-m", "bench.launch.slurm", "srun", *flags, *rank]


def codes(lines: Iterable[str]) -> dict[int, int]:
    """Exit codes by task of those that `srun` says failed by themselves, below 0 for signals.

    Those that it terminates after the first failure come later, as terminated: they are left out.
    """
    found: dict[int, int] = {}
    for line in lines:
        match = FAILED_TASKS.match(line)
        if match is None or match["what"].startswith("Terminated"):
            continue
        code = _code(match["what"])
        if code is not None and (not found or code != -signal.SIGKILL):
            found |= dict.fromkeys(_tasks(match["tasks"]), code)
    return found


def _code(what: str) -> int | None:
    exited = EXIT_CODE.search(what)
    if exited:
        return int(exited[1])
    words = what.partition(" (core dumped)")[0]
    return next((-number for number in signal.valid_signals() if signal.strsignal(number) == words), None)


def _tasks(text: str) -> list[int]:
    found: list[int] = []
    for part in text.strip("[]").split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main(command: Sequence[str]) -> int:
    """Run `srun`, pass its output on, and record which tasks failed. SIGTERM ends the step."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=die_with_parent)

    def stop(number: int, frame: FrameType | None) -> None:
        process.terminate()

    signal.signal(signal.SIGTERM, stop)
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
        if line.startswith(b"srun: error:"):
            said.append(line.decode(errors="replace"))
    status = process.wait()
    record(codes(said))
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
