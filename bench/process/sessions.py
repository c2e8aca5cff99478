"""The processes of one group: found by a mark in their environment, killed whole."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.process.heartbeat import SUPERVISOR

MARK = "MESHPROOF_GROUP"
GRACE = 5.0
POLL = 0.05
CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")


def new_mark() -> dict[str, str]:
    """Environment that all processes of a new group inherit, those in sessions of their own too.

    A launcher such as torchrun gives every rank its own session: killing the launcher's would leave them.
    """
    return {MARK: secrets.token_hex(8), SUPERVISOR: f"{os.getpid()}@{socket.gethostname()}"}


def members(mark: str) -> list[Any]:
    """The living processes (`psutil.Process`) that carry the mark."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # another user's, or gone meanwhile
    return found


def is_here(beat: Mapping[str, Any]) -> bool:
    """Whether a heartbeat comes from this host; only then its process id means something."""
    return beat.get("host") == socket.gethostname()


def _status(pid: int) -> str:
    """In psutil's words; "" for a process that is gone."""
    import psutil

    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process runs, or could: a zombie does not."""
    return _status(pid) not in ("", "zombie")


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger."""
    return _status(pid) in ("stopped", "tracing-stop")


def _send(targets: list[Any], number: int) -> None:
    import psutil

    for process in targets:
        try:
            process.send_signal(number)
        except (psutil.Error, OSError):
            continue


def kill(process: subprocess.Popen[bytes], mark: str, grace: float = GRACE) -> None:
    """Terminate every process of the group, wait `grace` seconds, kill what is left, and collect the launcher."""
    left = members(mark)
    if left:
        # The launcher ends its ranks by itself; a stopped process takes no signal but SIGCONT and SIGKILL.
        _send(left, signal.SIGTERM)
        _send(left, signal.SIGCONT)
        deadline = time.monotonic() + grace
        while left and time.monotonic() < deadline:
            time.sleep(POLL)
            process.poll()
            left = members(mark)
        deadline = time.monotonic() + grace
        while left and time.monotonic() < deadline:
            _send(left, signal.SIGKILL)
            time.sleep(POLL)
            process.poll()
            left = members(mark)
    if process.poll() is None:
        process.kill()
    process.wait()


def oom_kills(events: Path = CGROUP_EVENTS) -> int:
    """How many processes of this container the kernel has killed for want of memory; 0 where it does not say."""
    try:
        lines = events.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
