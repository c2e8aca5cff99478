"""Weights & Biases: a run per row. WANDB_MODE=offline and the like hold as they do elsewhere."""

from __future__ import annotations

import importlib
from pathlib import Path

from bench.trackers import Runs


def connect(output: Path) -> Runs:
    return Runs(importlib.import_module("wandb"), dir=str(output), reinit=True)
