"""Ctrl-C and SIGTERM, which some imports swallow: an extension module that is interrupted while it is loaded breaks, or
goes on as if nothing had been."""

from __future__ import annotations

import signal
import threading

STOPPED = threading.Event()
"""Set when this process was told to stop."""
_received: list[int] = []
"""The signal by which it was told, last."""


def _interrupt(number: int, frame: object) -> None:
    _received[:] = [number]
    STOPPED.set()
    raise KeyboardInterrupt


def _by_signal() -> int:
    return _received[0] if _received else signal.SIGINT


def status() -> int:
    """The exit status of a process that was told to stop, as shells give it: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + _by_signal()


def words() -> str:
    """What stopped this process."""
    return "Ctrl-C" if _by_signal() == signal.SIGINT else signal.Signals(_by_signal()).name


def listen() -> None:
    """Let SIGTERM end this process as Ctrl-C does, with what it has started; to be called by the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return
    STOPPED.clear()
    _received.clear()
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as under nohup
        signal.signal(signal.SIGINT, _interrupt)


def check() -> None:
    """Raise `KeyboardInterrupt` in the main thread where it was told to stop and something has swallowed that."""
    if STOPPED.is_set() and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
