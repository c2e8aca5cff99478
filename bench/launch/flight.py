"""NCCL's flight recorder: what each rank had enqueued and not completed, dumped when a group hangs.

Names of the variables: PyTorch, "Flight Recorder for Debugging Stuck Jobs" (tutorial) and `torch.distributed`'s
documentation of 2.11. Those of before 2.9, `TORCH_NCCL_TRACE_BUFFER_SIZE` and `TORCH_NCCL_DEBUG_INFO_TEMP_FILE`, make
each rank warn.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

PREFIX = "flight."
ENTRIES = 2000
WAIT = 3.0


def environment(folder: Path) -> dict[str, str]:
    """Variables that make every rank record its collectives and dump them to `flight.<rank>` when it is asked to."""
    prefix = str(folder.resolve() / PREFIX)
    return {
        "TORCH_FR_BUFFER_SIZE": str(ENTRIES), "TORCH_FR_DUMP_TEMP_FILE": prefix, "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{prefix}pipe",
    }  # fmt: skip


def ask(folder: Path, ranks: int) -> list[Path]:
    """Ask every rank that has a recorder for its dump; the files that came within `WAIT` seconds.

    A recorder listens on the named pipe `<prefix>pipe<rank>.pipe`; without NCCL there is none, and nothing to wait for.
    """
    asked = [path for path in folder.glob(f"{PREFIX}pipe*.pipe") if _poke(path)]
    expected = len(asked)
    deadline = time.monotonic() + WAIT
    while expected and time.monotonic() < deadline and len(dumps(folder)) < min(expected, ranks):
        time.sleep(0.1)
    return dumps(folder)


def is_owed(folder: Path, rank: int) -> bool:
    """Whether a rank whose recorder has been asked has not left its dump yet. For one with stacks PyTorch imports its
    compiler first, which takes many seconds in a program that has not used it."""
    return (folder / f"{PREFIX}pipe{rank}.pipe").exists() and not (folder / f"{PREFIX}{rank}").exists()


def dumps(folder: Path) -> list[Path]:
    """The flight-recorder files in a result directory, by rank."""
    found = [p for p in folder.glob(f"{PREFIX}*") if p.name[len(PREFIX) :].isdigit()]
    return sorted(found, key=lambda path: int(path.name[len(PREFIX) :]))


def _poke(pipe: Path) -> bool:
    try:
        handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False  # nobody listens
    try:
        os.write(handle, b"1\n")
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
