"""Faults for `faults.py`: `--loss planted:loss` makes one rank fail in the phase that the row's plan names.

`PLANTED` holds JSON: {"<seq_len>": [phase, fault]}. The sequence length stands for the row, because that is what a
sweep varies; the last rank fails. Importing this module in a worker of bench is what arms it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch

from bench.configuration import FILE, stored
from bench.inputs.packing import ModelInputs
from bench.process.heartbeat import Heartbeat

VARIABLE = "PLANTED"
MESSAGE = "a fault that was planted"
BLOCK = 1 << 32
SPARE = 1 << 30

_now = {"phase": "start"}


def out_of_memory() -> None:
    """Fill the GPU until its allocator gives up; on a CPU, up to a limit of address space."""
    held = []
    if not torch.cuda.is_available():
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + SPARE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    while True:
        held.append(torch.ones(BLOCK, dtype=torch.uint8, device=device))


def hang() -> None:
    time.sleep(600)


def exception() -> None:
    raise RuntimeError(MESSAGE)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def exit_0() -> None:
    os._exit(0)


def endless_output() -> None:
    while True:
        os.write(1, b"and so on\n" * 100)


def nan() -> None:
    """Done by `loss`."""


def _plan() -> tuple[str, str]:
    """Phase and fault of the row that this worker runs. Its folder is among the arguments of the process: the first on
    GPUs, behind those of the process that forks the ranks on CPUs."""
    folders = (Path(argument) for argument in sys.argv[1:])
    folder = next((folder for folder in folders if (folder / FILE).is_file()), None)
    if VARIABLE not in os.environ or folder is None:
        return "", ""
    phase, fault = json.loads(os.environ[VARIABLE]).get(str(stored(folder).seq_len), ("", ""))
    return phase, fault


def _fails() -> bool:
    return int(os.environ.get("RANK", "0")) == int(os.environ.get("WORLD_SIZE", "1")) - 1


def _arm(planned: str, fault: str) -> None:
    """Let the fault happen at the first heartbeat of its phase; `start` has had its own already."""
    plain = Heartbeat.beat

    def beat(self: Heartbeat, phase: str, done: int = 0, total: int = 0) -> None:
        plain(self, phase, done, total)
        _now["phase"] = phase
        if phase == planned and _fails():
            globals()[fault]()

    Heartbeat.beat = beat  # type: ignore[method-assign]
    if planned == "start" and _fails():
        globals()[fault]()


PHASE, FAULT = _plan()
if FAULT:
    _arm(PHASE, FAULT)


def loss(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
    """Cross-entropy, or no number from the planned phase on."""
    value = -(log_probs * inputs.loss_mask).sum()
    return value * float("nan") if FAULT == "nan" and _now["phase"] == PHASE else value
