"""What a hung job leaves: the stacks of its ranks and the dumps of their flight recorders, in one folder."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.launch import flight
from bench.process import sessions, stacks
from bench.watch import inject
from bench.watch.ranks import Hang

INJECTED = Path(inject.__file__).parent
ASK = "ask"
ANSWER = 60.0
"""Seconds that a rank may take to write its dump, beyond those until it looks: for it PyTorch imports its compiler."""
STREAMED = ("stacks.*.txt", "heartbeat.*.json", "answered.*", ".*.part", "flight.pipe*")


def environment(folder: Path, tick: float) -> dict[str, str]:
    """This process's environment with what makes every rank record, report and answer."""
    sizes = [os.environ.get(name, "") for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")]
    size = next((size for size in sizes if size.strip("0")), str(flight.ENTRIES))
    paths = [str(INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ, **flight.environment(folder), "TORCH_FR_BUFFER_SIZE": size,
        "PYTHONPATH": os.pathsep.join(paths), "MESHPROOF_WATCH": str(folder.resolve()),
        "MESHPROOF_WATCH_TICK": str(tick),
    }  # fmt: skip


def collect(folder: Path, hang: Hang, mark: str, tick: float) -> None:
    """Ask all ranks where they stand, and wait for their answers: dumps first, as a signal can wake what sleeps."""
    (folder / ASK).touch()
    answering = {int(beat["rank"]): beat for beat in hang.beats if int(beat["rank"]) not in hang.states}
    flight.ask(folder, len(answering))
    deadline = time.monotonic() + tick + ANSWER
    while time.monotonic() < deadline and any(_is_awaited(folder, rank, beat) for rank, beat in answering.items()):
        time.sleep(0.1)
    stacks.collect(folder, list(hang.beats), mark)


def _is_awaited(folder: Path, rank: int, beat: Mapping[str, Any]) -> bool:
    gone = sessions.is_here(beat) and not sessions.is_alive(int(beat["pid"]))
    answered = (folder / f"answered.{rank}").exists() and not flight.is_owed(folder, rank)
    return not gone and not answered


def tidy(folder: Path) -> bool:
    """Remove what only the watching needed, and the folder if nothing is left. Whether something is."""
    for pattern in (ASK, *STREAMED):
        for path in folder.glob(pattern):
            if not (path.name.startswith("stacks.") and path.stat().st_size):
                path.unlink(missing_ok=True)
    kept = any(folder.iterdir())
    if not kept:
        folder.rmdir()
    return kept
