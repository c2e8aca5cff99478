"""One sweep at a time in a result directory, several on one output: locks that end with the process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

if sys.platform != "win32":
    import fcntl

FOLDER = ".locks"
POLL = 0.2


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
        handle = os.open(self.folder / digest, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(handle, label)
        except BaseException:
            os.close(handle)
            raise
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}".encode(), 0)
        self._held[digest] = handle

    def release(self) -> None:
        """Give all back."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()


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
