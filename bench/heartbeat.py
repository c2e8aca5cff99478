"""What one rank is doing, written where its supervisor looks: phases, progress and the first error."""

from __future__ import annotations

import json
import os
import time
import traceback
from pathlib import Path
from typing import Any

PHASES = ("start", "load", "warmup", "measure", "report")


def _write(path: Path, value: dict[str, Any]) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)


class Heartbeat:
    """The phase of a rank and its progress in it, as `heartbeat.<rank>.json` in `folder`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"heartbeat.{rank}.json"
        self.error_path = folder / f"error.{rank}.json"
        self.rank = rank
        self.phase = "start"
        self.subject = ""
        """What the rank works on, for the message of an error: an input's name."""
        self.beat("start")

    def beat(self, phase: str, done: int = 0, total: int = 0) -> None:
        self.phase = phase
        _write(self.path, {"phase": phase, "done": done, "total": total, "time": time.time(), "pid": os.getpid()})

    def fail(self, error: BaseException) -> None:
        """Record the error that ends this rank; the supervisor takes the earliest of all ranks."""
        text = str(error).strip().splitlines() or [type(error).__name__]
        message = f"{self.subject}: {text[0]}" if self.subject else text[0]
        _write(
            self.error_path,
            {
                "rank": self.rank, "phase": self.phase, "time": time.time(), "type": type(error).__name__,
                "message": message, "traceback": traceback.format_exc()[-20_000:],
            },
        )  # fmt: skip


def read_all(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Heartbeats or errors of all ranks in `folder`; half-written or foreign files are skipped."""
    found = []
    for path in sorted(folder.glob(f"{kind}.*.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return found
