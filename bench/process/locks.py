"""One sweep at a time in a result directory, several on one output: locks that end with the process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

if sys.platform != "win32":
    import fcntl
    import resource

FOLDER = ".locks"
POLL = 0.2
SPARE = 256
"""Descriptors for everything that is no lock."""


class Locks:
    """Locks by configuration hash, as files under `<output>/.locks`. The kernel frees them when their holder ends,
    killed or not; the files stay."""

    def __init__(self, output: Path) -> None:
        self.folder = output / FOLDER
        self._held: dict[str, int] = {}

    def claim(self, digest: str, label: str) -> None:
        """Take the lock of a configuration; where another sweep has it, say so and wait.

        Raises `OSError` where the folder cannot be written.
        """
        if digest in self._held or sys.platform == "win32":
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        _make_room(len(self._held) + 1)
        handle = os.open(self.folder / digest, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(handle, label)
        except BaseException:
            os.close(handle)
            raise
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}".encode(), 0)
        self._held[digest] = handle

    def release(self, digest: str | None = None) -> None:
        """Give one back, or all."""
        for name in [digest] if digest is not None else list(self._held):
            handle = self._held.pop(name, None)
            if handle is not None:
                os.close(handle)


def _make_room(locks: int) -> None:
    """Let this process hold so many: a lock is an open file, of which there may be few, by custom 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = locks + SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted * 2 if hard == resource.RLIM_INFINITY else min(wanted * 2, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _lock(handle: int, label: str) -> None:
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        if not told:
            holder = os.pread(handle, 32, 0).decode(errors="replace") or "unknown"
            print(f"{label}: another sweep (process {holder}) measures it; waiting", file=sys.stderr, flush=True)
            told = True
        time.sleep(POLL)
