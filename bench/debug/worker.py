"""What one rank of a run in the foreground does: as every run, with a stop at one phase of one step."""

from __future__ import annotations

import json
import sys
import tempfile
from bdb import BdbQuit
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bench.cli import OK
from bench.configuration import Configuration, stored
from bench.debug import pause
from bench.debug.session import FILE, Orders
from bench.debug.shapes import log_shapes
from bench.measure import worker
from bench.measure.clock import Phase
from bench.measure.training import StepResult, train_step
from bench.process.heartbeat import Heartbeat
from bench.process.process_exit import end


class Debugged(worker.Run):
    """A run that stops once, in `train_step`, where inputs and model are at hand."""

    def __init__(self, configuration: Configuration, heartbeat: Heartbeat, orders: Orders) -> None:
        super().__init__(configuration, heartbeat)
        self.orders = orders
        self.number = 0
        self.waiting = orders.place is not None

    def step(self, phase: Any) -> StepResult:
        self.number += 1
        if self.number != self.orders.step:
            return super().step(phase)
        if self.orders.shapes is None:
            return super().step(self._stopping(phase))
        with log_shapes(self.actor, self.orders.shapes):
            return super().step(self._stopping(phase))

    def _stopping(self, phase: Phase) -> Phase:
        @contextmanager
        def stopping(name: str) -> Iterator[None]:
            with phase(name):
                self._stop(f"before-{name}")
                yield
                self._stop(f"after-{name}")

        return stopping

    def _stop(self, place: str) -> None:
        if not self.waiting or place != self.orders.place:
            return
        self.waiting = False
        frame: Any = sys._getframe(1)
        while frame.f_code is not train_step.__code__:
            frame = frame.f_back
        pause.stop(frame)


def work(configuration: Configuration, folder: Path, number: int, orders: Orders) -> None:
    """Run on this rank. `bdb.BdbQuit` passes through where the run is left at the prompt."""
    worker.work(configuration, folder, number, lambda c, heartbeat: Debugged(c, heartbeat, orders))


def one_rank(configuration: Configuration, orders: Orders) -> NoReturn:
    """Run as one rank that a launcher has started; ends the process."""
    with tempfile.TemporaryDirectory(prefix="bench-debug-") as folder:
        try:
            work(configuration, Path(folder), 0, orders)
        except BdbQuit:
            sys.settrace(None)  # no failure: a launcher would show it at length, and start anew where it was told to
    end(OK)


def main(arguments: list[str]) -> int:
    """`python -m bench.debug.worker FOLDER NUMBER`."""
    folder = Path(arguments[0])
    orders = Orders(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    try:
        work(stored(folder), folder, int(arguments[1]), orders)
    except BdbQuit:
        sys.settrace(None)  # the folder says how the run ended
    return 0


if __name__ == "__main__":
    end(main(sys.argv[1:]))
