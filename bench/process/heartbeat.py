"""What one rank is doing, written where its supervisor looks: phases, progress, stacks on demand, the first error."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.process import files

PHASES = ("start", "load", "compile", "warmup", "measure", "report", "end")
"""In order. A rank in `end` has nothing left to do; one that is gone without it has failed."""

SUPERVISOR = "MESHPROOF_SUPERVISOR"
"""Environment variable with `<process id>@<host>` of who watches this rank; absent under the user's own launcher."""

PR_SET_PDEATHSIG = 1
STACK_SIGNAL = getattr(signal, "SIGUSR1", None)


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Ask Linux to send this process a signal when its parent is gone, even killed; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)


def _follow_supervisor() -> None:
    """End with the launcher, whatever state this process is in, and at once where the supervisor is gone already."""
    pid, _, host = os.environ.get(SUPERVISOR, "").partition("@")
    if not pid:
        return
    die_with_parent(signal.SIGKILL)
    if host != socket.gethostname():
        return  # over there its launcher looks after this rank
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        os._exit(1)
    except PermissionError:
        pass  # somebody is there


def slurm_step() -> str:
    """The job step that this process is a task of, as `scancel` takes it; "" outside of Slurm."""
    job, step = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_ID")
    return f"{job}.{step}" if job and step and "SLURM_PROCID" in os.environ else ""


class Heartbeat:
    """The phase of a rank and its progress in it, as `heartbeat.<rank>.json` in `folder`.

    On SIGUSR1 the rank writes the stacks of all its threads to `stacks.<rank>.txt`: from a signal handler in C, so
    also where Python waits inside a collective.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"heartbeat.{rank}.json"
        self.error_path = folder / f"error.{rank}.json"
        self.rank = rank
        self.phase = "start"
        self.subject = ""
        """What the rank works on, for the message of an error: an input's name."""
        self.place = {"host": socket.gethostname(), "step": slurm_step()}
        _follow_supervisor()
        if STACK_SIGNAL is not None:
            self._stacks = (folder / f"stacks.{rank}.txt").open("w", encoding="utf-8")
            faulthandler.register(STACK_SIGNAL, file=self._stacks, all_threads=True)
        self.beat("start")

    def beat(self, phase: str, done: int = 0, total: int = 0) -> None:
        self.phase = phase
        told = {"rank": self.rank, "phase": phase, "done": done, "total": total, "time": time.time()}
        files.write(self.path, json.dumps({**told, "pid": os.getpid(), **self.place}))

    def fail(self, error: BaseException) -> None:
        """Record the error that ends this rank; the supervisor takes the earliest of all ranks."""
        text = str(error).strip().splitlines() or [type(error).__name__]
        message = f"{self.subject}: {text[0]}" if self.subject else text[0]
        told = {
            "rank": self.rank, "phase": self.phase, "time": time.time(), "type": type(error).__name__,
            "message": message, "traceback": traceback.format_exc()[-20_000:],
        }  # fmt: skip
        files.write(self.error_path, json.dumps(told))


@contextmanager
def reported(heartbeat: Heartbeat) -> Iterator[None]:
    """Record the error that ends this rank, or that it has ended well."""
    try:
        yield
    except BaseException as error:
        heartbeat.fail(error)
        raise
    heartbeat.beat("end")


def write_run(folder: Path, number: int, result: dict[str, Any]) -> None:
    """Leave a process's result for the supervisor, with the moment at which it ended, in seconds since 1970."""
    files.write(folder / f"run.{number}.json", json.dumps({**result, "ended": time.time()}))


def read_all(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Heartbeats or errors of all ranks in `folder`; half-written or foreign files are skipped."""
    found = map(files.read_json, sorted(folder.glob(f"{kind}.*.json")))
    return [value for value in found if isinstance(value, dict)]
