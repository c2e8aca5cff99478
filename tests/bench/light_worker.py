"""A worker without torch, with the phases of the real one, that fails where `FAULT` tells it to.

`FAULT` is "phase:fault", on rank 1; no module of bench reads it.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path

from bench.process.heartbeat import PHASES, Heartbeat, reported, write_run

FAULT = "MESHPROOF_TEST_FAULT"
STEPS = 2
GIGABYTE = 1 << 30
BEFORE = "import"
"""The phase before a rank has reported for the first time."""


def out_of_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTE, GIGABYTE))
    bytearray(2 * GIGABYTE)


def hang() -> None:
    time.sleep(600)


def exception() -> None:
    raise RuntimeError("first line of the fault\nsecond line")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segmentation_fault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def exit_0() -> None:
    os._exit(0)


def endless_output() -> None:
    while True:
        os.write(1, b"and so on\n" * 100)


def long_log() -> None:
    _print(40)


def gigabyte_log() -> None:
    _print(1024)


def _print(mebibytes: int) -> None:
    line = b"x" * 1023 + b"\n"
    for _ in range(mebibytes):
        for _ in range(16):
            os.write(1, line * 64)
    os.write(1, b"the last line\n")


def compile_error() -> None:
    """Raised from where torch.compile's errors are."""
    code = compile(
        "raise RuntimeError('a kernel cannot be built')", "site-packages/torch/_inductor/codecache.py", "exec"
    )
    exec(code)


def not_installed() -> None:
    import meshproof_missing  # type: ignore[import-not-found]  # noqa: F401


def nan() -> None:
    """Seen by rank 0 in `main`: the last loss is no number."""


def wrong_loss() -> None:
    """Seen by rank 0 in `main`: the last loss is off by a tenth."""


class Ranks:
    """A barrier over files, for ranks that know no torch."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number, self.calls = folder, number, 0
        self.rank, self.size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    def all_reduce(self) -> None:
        """Wait until every rank is here."""
        self.calls += 1
        stem = f"barrier.{self.number}.{self.calls}"
        (self.folder / f"{stem}.{self.rank}").touch()
        while any(not (self.folder / f"{stem}.{rank}").exists() for rank in range(self.size)):
            time.sleep(0.01)


def planned(rank: int) -> tuple[str, str]:
    """Phase and name of the fault of this rank."""
    phase, _, fault = os.environ.get(FAULT, "").partition(":")
    return (phase, fault) if rank == 1 else ("", "")


def result(losses: list[float]) -> dict[str, object]:
    """What `bench.measure.worker.execute` returns, with invented times."""
    times = [{"forward": 0.01, "backward": 0.02, "optimizer": 0.005} for _ in losses]
    return {
        "times": times, "warmups": times[:1], "losses": losses, "grad_norms": [1.0] * len(losses),
        "memory": {"allocated": {"forward": 1000}, "reserved": {"forward": 1000}},
        "tokens": {"real": 100.0, "positions": 128.0, "squares": 5000.0}, "parameters": 1000, "matmul_flops": 1e9,
        "effective": {
            "attention": "sdpa", "device": "cpu", "graphs": {"graphs": 0, "graph_breaks": 0},
            "attention_kernels": [], "communication_share": 0.0, "warmup_steps": 1,
        },
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    folder, number = Path(arguments[0]), int(arguments[1])
    ranks = Ranks(folder, number)
    print(f"the first line of rank {ranks.rank}", flush=True)
    where, fault = planned(ranks.rank)
    if where == BEFORE:
        globals()[fault]()
    heartbeat = Heartbeat(folder, ranks.rank)
    with reported(heartbeat):
        for phase in PHASES[:-1]:
            for step in range(STEPS):
                heartbeat.beat(phase, step, STEPS)
                if phase == where and step == STEPS - 1:
                    globals()[fault]()
                ranks.all_reduce()
        if ranks.rank == 0:
            last = {"nan": float("nan"), "wrong_loss": 0.99}.get(os.environ.get(FAULT, "").partition(":")[2], 0.9)
            write_run(folder, number, result([1.0, last]))
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
