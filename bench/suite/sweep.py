"""The runs of a suite, one after the other, each resumable and each ending as a row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.configuration import Configuration, hash_inputs
from bench.process import supervise
from bench.process.progress import Progress
from bench.suite.data import check_reachable, prepare_data, prepare_seed, vocabulary_of
from bench.suite.log import read_log, write_log
from bench.suite.settings import REORDERED, Cell, Settings
from bench.sweep.sweep import Sweep

CHECKPOINTS = "checkpoints"
STALE = ("result.json", "benchmarks.json", "run.*.json", "error.*.json", "heartbeat.*.json")


def log_path(settings: Settings, name: str) -> Path:
    """Where a run logs its steps: `deepspeed_test.log`, `fsdp2_tp2_test.log` and so on."""
    return settings.log_dir.resolve() / f"{name}_test.log"


def with_data(settings: Settings, cells: Sequence[Cell], progress: supervise.Progress) -> list[Cell]:
    """The cells with their inputs and seed checkpoint, which are made where they are not there.

    Raises `InputError`, `ConfigurationError` or `PreparationError`, each one line.
    """
    check_reachable(settings)
    vocabulary = vocabulary_of(cells[0].configuration)
    folders = {flag: prepare_data(settings, vocabulary, flag) for flag in {c.name == REORDERED for c in cells}}
    hashes = {flag: hash_inputs(folder) for flag, folder in folders.items()}
    seed = prepare_seed(cells[0].configuration, settings.output_dir, progress)
    return [
        Cell(
            cell.name,
            replace(
                cell.configuration, model=seed, inputs=str(folders[cell.name == REORDERED]),
                input_hash=hashes[cell.name == REORDERED],
            ),
        )
        for cell in cells
    ]  # fmt: skip


def write_orders(folder: Path, settings: Settings, name: str) -> None:
    """Tell the ranks what their configuration does not hold."""
    model = str(settings.output_dir.resolve() / f"{name}_model") if settings.save_model else None
    orders = {"log": str(log_path(settings, name)), "save_steps": settings.save_steps, "save_model": model}
    (folder / "orders.json").write_text(json.dumps(orders), encoding="utf-8")


class TrainingSweep(Sweep):
    """Trains each cell; a run that stopped goes on from its last checkpoint, one that ended is not run again."""

    module = "bench.suite.worker"

    def __init__(self, cells: Sequence[Cell], settings: Settings, *, force: bool = False, quiet: bool = False) -> None:
        super().__init__(
            [cell.configuration for cell in cells], settings.output_dir, processes=1, force=force,
            retry_failed=True, quiet=quiet,
        )  # fmt: skip
        self.settings = settings
        self.cells = {cell.configuration.content_hash(): cell for cell in cells}
        settings.log_dir.mkdir(parents=True, exist_ok=True)

    def _prepare(self, configuration: Configuration) -> Path:
        """A run that has left a checkpoint goes on where it is; any other starts anew."""
        folder = configuration.directory(self.output)
        if self.force or not (folder / CHECKPOINTS / "latest").is_file():
            folder = super()._prepare(configuration)
        for pattern in STALE:
            for path in folder.glob(pattern):
                path.unlink()
        write_orders(folder, self.settings, self.cells[configuration.content_hash()].name)
        return folder

    def train(self) -> dict[str, dict[str, Any]]:
        """The row of each cell by its name. Raises `Interrupted` on Ctrl-C."""
        self.run()
        return self.named()

    def named(self) -> dict[str, dict[str, Any]]:
        """The rows that are there, by name; logs that were taken away are written again from their results."""
        found = {}
        for digest, cell in self.cells.items():
            row = self.rows.get(digest)
            if row is None:
                continue
            found[cell.name] = row
            path = log_path(self.settings, cell.name)
            if row["status"] == "ok":
                steps = row["runs"][0]["steps"]
                if read_log(path) != steps:
                    write_log(path, steps)
                shutil.rmtree(cell.configuration.directory(self.output) / CHECKPOINTS, ignore_errors=True)
            elif row["status"] == "unsupported":
                path.unlink(missing_ok=True)  # an older run's log would pass for this one's
        return found


def prepared(settings: Settings, cells: Sequence[Cell], force: bool, quiet: bool) -> TrainingSweep:
    """The sweep over cells, whose data and seed checkpoint are made first. Raises as `with_data`."""
    progress = Progress([False], quiet)
    progress.begin(0, "seed checkpoint")
    try:
        return TrainingSweep(with_data(settings, cells, progress.update), settings, force=force, quiet=quiet)
    finally:
        progress.end()
