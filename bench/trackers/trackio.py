"""Trackio: a run per row, in its own local database."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bench.trackers import PROJECT, Measured


class Trackio:
    """Starts and ends a run for each row."""

    def __init__(self, trackio: Any) -> None:
        self.trackio = trackio

    def add(self, row: Measured) -> None:
        self.trackio.init(project=PROJECT, name=row.name, config=row.settings)
        for number, step in enumerate(row.steps):
            self.trackio.log(dict(step), step=number)
        self.trackio.log(row.summary)
        self.trackio.finish()

    def close(self) -> None:
        """Each run is finished already."""


def connect(output: Path) -> Trackio:
    return Trackio(importlib.import_module("trackio"))
