"""TensorBoard: event files in `<output>/tensorboard/<row>`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.trackers import Measured


class TensorBoard:
    """Writes scalars by step, the summary as hyperparameter metrics."""

    def __init__(self, writer: Any, folder: Path) -> None:
        self.writer, self.folder = writer, folder

    def add(self, row: Measured) -> None:
        with self.writer(str(self.folder / row.name.replace("/", "_"))) as events:
            for number, step in enumerate(row.steps):
                for name, value in step.items():
                    events.add_scalar(name, value, number)
            plain = {name: value for name, value in row.settings.items() if value is not None}
            events.add_hparams(plain, row.summary, run_name=".")


def connect(output: Path) -> TensorBoard:
    from torch.utils.tensorboard import SummaryWriter

    return TensorBoard(SummaryWriter, output / "tensorboard")
