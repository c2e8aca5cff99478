"""Signals for a job that runs in a session of its own: as a terminal or `kill` would have sent them to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

FROM_TERMINAL = ("SIGINT", "SIGQUIT", "SIGHUP", "SIGWINCH", "SIGCONT")
"""To the whole foreground group."""
TO_ONE = ("SIGTERM", "SIGUSR1", "SIGUSR2")
"""To the one process that was started."""
Handler = Callable[[int, "FrameType | None"], Any]


@contextlib.contextmanager
def forwarded(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass on what arrives meanwhile. A signal that is ignored here, as under `nohup`, stays so for both."""
    before: dict[int, Any] = {}
    handlers: dict[str, Handler] = {name: lambda number, _: _to_group(process, number) for name in FROM_TERMINAL}
    handlers |= {name: lambda number, _: _to_one(process, number) for name in TO_ONE}
    handlers["SIGTSTP"] = lambda number, _: _stop_with(process)
    for name, handler in handlers.items():
        number = getattr(signal, name)
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _to_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(OSError):  # it has just ended
        os.killpg(process.pid, number)


def _to_one(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(OSError):
        process.send_signal(number)


def _stop_with(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-Z. A group that has no shell of its own does not stop at SIGTSTP."""
    _to_group(process, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
