"""The log of a process group: everything up to a limit, then its beginning and its end."""

from __future__ import annotations

import re
import threading
from collections import deque
from pathlib import Path
from typing import BinaryIO

LIMIT = 16 * 2**20
"""Bytes of one log. What lies beyond half of it is kept in memory, the newest half, until the group has ended."""

CHUNK = 1 << 16
MARGIN = 200  # bytes for the line that says what was left out


READ = 1 << 18
_ERROR = re.compile(r"(?:\[rank\d+\]:\s*)?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit)(?::.*)?)$")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def first_error(path: Path, limit: int = 300) -> str:
    """The line of the first exception that a log shows, of a chain the last; "" where its first bytes show none."""
    try:
        with path.open("rb") as file:
            lines = file.read(READ).decode(errors="replace").splitlines()
    except OSError:
        return ""
    found = ""
    for line in filter(None, map(str.strip, lines)):
        if found and not line.startswith(_CHAINED):
            break
        match = _ERROR.match(line)
        found = match[1] if match else ""
    return found[:limit]


class CappedLog:
    """Copies a pipe into a file from a thread of its own, so that the ranks never wait for the disk's reader.

    The first half of `limit` bytes goes to the file as it comes; of the rest, the last half is added by `close`.
    A full disk costs the log, not the run: `error` then says why.
    """

    def __init__(self, path: Path, pipe: BinaryIO, limit: int = LIMIT) -> None:
        self.path, self.pipe = path, pipe
        self.half = limit // 2 - MARGIN
        self.error: OSError | None = None
        self._tail: deque[bytes] = deque()
        self._kept = self._total = 0
        self._file = path.open("wb", buffering=0)
        self._thread = threading.Thread(target=self._copy, name=f"log {path.name}", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        written = 0
        try:
            while chunk := self.pipe.read1(CHUNK):  # type: ignore[attr-defined]
                head, rest = chunk[: self.half - written], chunk[self.half - written :]
                written += len(head)
                self._write(head)
                if rest:
                    self._keep(rest)
        except (OSError, ValueError):
            return  # closed from the other side of the thread

    def _write(self, data: bytes) -> None:
        try:
            if data and self.error is None:
                self._file.write(data)
        except OSError as error:
            self.error = error

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._total += len(data)
        self._kept += len(data)
        while self._kept - len(self._tail[0]) >= self.half:
            self._kept -= len(self._tail.popleft())

    def close(self, timeout: float = 5.0) -> None:
        """Call once the group has ended: adds the end of a long log. A process that still holds the pipe is not
        waited for beyond `timeout` seconds."""
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self.pipe.close()
        tail = b"".join(self._tail)[-self.half :]
        left_out = self._total - len(tail)
        if left_out > 0:
            self._write(f"\n[... {left_out:,} bytes left out: logs are kept to {LIMIT >> 20} MiB ...]\n".encode())
        self._write(tail)
        self._file.close()
