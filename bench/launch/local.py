"""Ranks on this host: one process directly, several through torchrun's agent."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.debug.sharding import VARIABLE
from bench.launch import elastic

ROOT = Path(__file__).resolve().parent.parent.parent


def command(processes: int, module: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs `python -m module arguments` on every rank."""
    if processes == 1:
        return [sys.executable, "-m", module, *arguments]
    return elastic.command(processes, module, arguments)


def environment(processes: int) -> dict[str, str]:
    """The environment of the ranks: this one, with the packages' folder and a fair share of the cores.

    Without the switch of sharding: the configuration says what runs, or results would bear another one's name.
    """
    left_out = ("RANK", "LOCAL_RANK", "WORLD_SIZE", VARIABLE)
    inherited = {k: v for k, v in os.environ.items() if k not in left_out}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = max((os.cpu_count() or 1) // processes, 1)
    return {
        "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", **inherited,
        "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1",
    }  # fmt: skip
