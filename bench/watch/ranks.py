"""Which ranks of a watched job move, by what they report of themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.process import sessions
from bench.process.heartbeat import read_all

GAP = 5.0
"""Seconds between two looks, beyond those asked for, after which this machine, or this process, has slept."""
START = 120.0
"""Seconds in which ranks should have reported."""
END = 60.0
"""Seconds that an interpreter may take, at least, from the end of its program to its own."""
STALE = 5.0
"""Seconds without a word from a rank's thread, beyond those between two looks, after which its Python does not run."""


@dataclass(frozen=True)
class Hang:
    """Ranks that have stood still for too long. `seconds`: the longest; `beats`: what the living ones reported last;
    `ended`: ranks whose process is gone; `absent`: those that have never reported; `states`: what keeps ranks from
    answering."""

    seconds: float
    still: tuple[int, ...]
    beats: tuple[Mapping[str, Any], ...]
    ended: tuple[int, ...]
    absent: tuple[int, ...]
    states: Mapping[int, str]

    def moving(self) -> tuple[int, ...]:
        """Living ranks that go on."""
        return tuple(rank for rank in ranks_of(self.beats) if rank not in self.still)


def ranks_of(beats: Sequence[Mapping[str, Any]]) -> list[int]:
    return sorted(int(beat["rank"]) for beat in beats)


class Watcher:
    """Looks at the reports in `folder` every `tick` seconds; a rank that stands still for `limit` seconds hangs."""

    def __init__(self, folder: Path, limit: float, tick: float) -> None:
        self.folder, self.limit, self.tick = folder, limit, tick
        self.started = self.looked = self.resumed = time.time()
        self.heard = False

    def look(self) -> Hang | None:
        """The hang, where there is one."""
        now = time.time()
        if now - self.looked < self.tick:
            return None
        if now - self.looked > self.tick + GAP:
            self.resumed = now  # nothing moved while nothing ran
        self.looked = now
        beats = read_all(self.folder, "heartbeat")
        self.heard = self.heard or bool(beats)
        living = [beat for beat in beats if not sessions.is_here(beat) or sessions.is_alive(int(beat["pid"]))]
        silent = {int(beat["rank"]): now - max(float(beat["time"]), self.resumed) for beat in living}
        if not any(silent[int(beat["rank"])] > self._limit(beat) for beat in living):
            return None
        still = tuple(sorted(rank for rank, seconds in silent.items() if seconds > self.limit / 2))
        ended = tuple(sorted({*ranks_of(beats)} - silent.keys()))
        absent = sorted({*range(max(int(beat["world"]) for beat in beats))} - {*ranks_of(beats)})
        return Hang(max(silent.values()), still, tuple(living), ended, tuple(absent), self._states(living, now))

    def _limit(self, beat: Mapping[str, Any]) -> float:
        return self.limit if beat["phase"] != "end" else max(self.limit, END)

    def is_deaf(self) -> bool:
        """Whether no rank has reported for as long as one may stand still, and as programs take to start."""
        return not self.heard and time.time() - max(self.started, self.resumed) > max(self.limit, START)

    def _states(self, living: Sequence[Mapping[str, Any]], now: float) -> dict[int, str]:
        """What keeps ranks from answering at all."""
        states = {}
        for beat in living:
            rank, pid = int(beat["rank"]), int(beat["pid"])
            if sessions.is_here(beat) and sessions.is_stopped(pid):
                states[rank] = "its process is stopped, by a signal or a debugger"
            elif beat["phase"] == "end":
                states[rank] = "its program has ended, and its interpreter takes long to"
            elif now - float(beat["seen"]) > min(self.tick + STALE, self.limit / 2):
                states[rank] = "its Python does not run: a call in C holds the interpreter's lock"
        return states
