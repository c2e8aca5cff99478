"""A breakpoint for sharded models: every rank stops, one has the prompt, and all go on together.

An ordinary breakpoint on one rank leaves the others waiting for it in their next collective, until the process
group's time-out ends them. Here they wait outside any collective, for a key of the group's store, so neither that
time-out nor NCCL's watchdog counts.
"""

from __future__ import annotations

import pdb
import sys
import time
from bdb import BdbQuit
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

PATIENCE = timedelta(hours=24)
ARRIVAL = 5.0
"""Seconds that the prompt waits for the other ranks, before it says which of them are somewhere else."""

POLL = 0.1
GO, QUIT = b"go", b"quit"

_visits: Counter[str] = Counter()


class _Group:
    """The other ranks, through the store that they met at. Alone, there is nobody to wait for."""

    def __init__(self, site: str) -> None:
        import torch.distributed as dist

        self.rank, self.size = 0, 1
        if not dist.is_available() or not dist.is_initialized():
            return
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        _visits[site] += 1
        # The place is part of the key: a rank that passes another breakpoint by is not one behind ever after.
        name = f"breakpoint/{site}/{_visits[site]}"
        self.store: Any = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
        self.store.set(f"here/{self.rank}", b"1")

    def absent(self, patience: float) -> list[int]:
        """The ranks that have not stopped here within so many seconds."""
        missing = [rank for rank in range(self.size) if rank != self.rank]
        deadline = time.monotonic() + patience
        while missing:
            missing = [rank for rank in missing if not self.store.check([f"here/{rank}"])]
            if time.monotonic() > deadline:
                break
            time.sleep(POLL if missing else 0)
        return missing

    def release(self, quitting: bool) -> None:
        if self.size > 1:
            self.store.set("end", QUIT if quitting else GO)

    def wait(self, patience: timedelta) -> bool:
        """Until the others are released; whether they are to quit. Raises `TimeoutError`.

        Asking again and again keeps the store free for other threads, such as the watchdog's, and lets signals in.
        """
        deadline = time.monotonic() + patience.total_seconds()
        while not self.store.check(["end"]):
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {self.rank} has waited {patience} at a breakpoint, and nobody went on")
            time.sleep(POLL)
        return bool(self.store.get("end") == QUIT)


class _Console(pdb.Pdb):
    """The prompt. The first command that goes on, in whichever way, releases the other ranks."""

    def __init__(self, release: Callable[[bool], None]) -> None:
        super().__init__(nosigint=True)
        self._release: Callable[[bool], None] | None = release

    def start(self, frame: FrameType) -> None:
        """Stop at the next line of `frame`, or where it returns, and in no function called before that.

        It is `Bdb.set_trace` with `set_next`; nothing may be called between switching tracing on and the return.
        """
        self.reset()
        each: FrameType | None = frame
        while each is not None:
            each.f_trace = self.trace_dispatch
            self.botframe = each
            each = each.f_back
        self.set_next(frame)
        sys.settrace(self.trace_dispatch)

    def interaction(self, *arguments: Any, **named: Any) -> None:
        try:
            super().interaction(*arguments, **named)
        finally:
            release, self._release = self._release, None
            if release is not None:
                release(self.quitting)
                self._tell_of_steps()

    def _tell_of_steps(self) -> None:
        # Bdb's mark for "never again" is line -1; `n`, `s` and the like set others.
        if not self.quitting and getattr(self, "stoplineno", -1) != -1:
            self.message("this rank steps alone: the others have gone on, and wait for it in their next collective")


def breakpoint(rank: int = 0, timeout: timedelta = PATIENCE) -> None:
    """Stop every rank here: `rank` has pdb's prompt in the calling function, the others wait for it, `timeout` long.

    All ranks must call it. `c` lets all go on together. So does `n` or `s`, after which this rank steps alone and the
    others wait for it in their next collective. `q` raises `bdb.BdbQuit` on every rank. Not for compiled functions.
    """
    stop(sys._getframe(1), rank, timeout)


def stop(frame: FrameType, rank: int = 0, timeout: timedelta = PATIENCE) -> None:
    """As `breakpoint`, with the prompt in `frame`, a function further up."""
    site = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    group = _Group(site)
    if not 0 <= rank < group.size:
        raise ValueError(f"breakpoint on rank {rank}: the group has ranks 0 to {group.size - 1}")
    if group.rank != rank:
        if group.wait(timeout):
            raise BdbQuit
        return
    console = _Console(group.release)
    absent = group.absent(ARRIVAL)
    waiting = group.size - 1 - len(absent)
    others = f", {waiting} other {'rank waits' if waiting == 1 else 'ranks wait'}" if group.size > 1 else ""
    console.message(f"rank {rank} stops at {site}{others}; c: go on, q: end")
    if absent:
        console.message(f"not here: ranks {', '.join(map(str, absent))}; collectives wait for all of them")
    console.start(frame)
