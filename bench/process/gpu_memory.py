"""Whether the GPUs were given back: a group that was killed can hold memory for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.results import environment

WAIT = 60.0
POLL = 0.5
SLACK = 512
"""MiB that a GPU may hold above what it held before: drivers keep a little."""


def used() -> list[int]:
    """MiB in use, by anyone, on every GPU that this process may use (on the others, neighbours come and go); empty
    without `nvidia-smi`."""
    told = [gpu["memory.used"].strip() for gpu in environment.gpus("memory.used")]
    return [int(text) for text in told] if all(text.isdigit() for text in told) else []


def wait_until_free(before: Sequence[int], read: Callable[[], list[int]] = used, wait: float = WAIT) -> str:
    """Wait until every GPU holds about what it held `before`; a line for the user where one does not, else ""."""
    if not before:
        return ""
    deadline = time.monotonic() + wait
    while True:
        now = read()
        full = [n for n, (old, new) in enumerate(zip(before, now, strict=False)) if new > old + SLACK]
        if not full:
            return ""
        if time.monotonic() > deadline:
            held = ", ".join(f"GPU {n} holds {now[n]} MiB, {before[n]} before the sweep" for n in full)
            return f"GPU memory was not given back within {wait:.0f} s: {held}; see nvidia-smi"
        time.sleep(POLL)
