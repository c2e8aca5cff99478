"""Weights & Biases: a run per row. WANDB_MODE=offline and the like hold as they do elsewhere."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bench.trackers import PROJECT, Measured


class Wandb:
    """Starts and ends a run for each row."""

    def __init__(self, wandb: Any, folder: Path) -> None:
        self.wandb, self.folder = wandb, folder

    def add(self, row: Measured) -> None:
        run = self.wandb.init(project=PROJECT, name=row.name, config=row.settings, dir=str(self.folder), reinit=True)
        for number, step in enumerate(row.steps):
            run.log(dict(step), step=number)
        run.summary.update(row.summary)
        run.finish()

    def close(self) -> None:
        """Each run is finished already."""


def connect(output: Path) -> Wandb:
    return Wandb(importlib.import_module("wandb"), output)
