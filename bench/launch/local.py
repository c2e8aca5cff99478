"""Ranks on this host: one process directly, several through torchrun's agent."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
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
    threads = max((os.cpu_count() or 1) // processes, 1)
    return {
        "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", **inherited,
        "PYTHONPATH": search_path(), "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1",
    }  # fmt: skip


def search_path() -> str:
    """PYTHONPATH of processes that import this package: as it is, and a checkout before it, as `python -m` has it.

    Where the package is installed, Python finds it by itself: its folder holds other packages, too, which would come
    before those that PYTHONPATH names, and before the standard library.
    """
    inherited = os.environ.get("PYTHONPATH", "")
    given = inherited.split(os.pathsep) if inherited else []
    libraries = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("purelib")]
    installed = any(os.path.realpath(entry) == os.path.realpath(ROOT) for entry in (*given, *libraries))
    return os.pathsep.join(given if installed else [str(ROOT), *given])
