"""How a launcher tells its supervisor which ranks failed, and by what: the ranks themselves cannot say who killed
them. Used without torch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from bench.process import files

VARIABLE = "MESHPROOF_EXITS"
"""Environment variable with the file's path."""


def record(codes: Mapping[int, int]) -> None:
    """Write the exit code of each failed rank (below 0: a signal), where a supervisor asks for it."""
    path = os.environ.get(VARIABLE)
    if path is not None:
        files.write(Path(path), json.dumps({str(rank): code for rank, code in codes.items()}))


def read(path: Path) -> dict[int, int]:
    """Exit codes by rank; empty where the launcher left none."""
    return {int(rank): int(code) for rank, code in (files.read_json(path) or {}).items()}
