"""A sweep whose one-GPU cells run side by side, one lane per GPU."""

from __future__ import annotations

import queue
import sys
import threading
import time
from dataclasses import replace
from typing import Any

from bench.configuration import Configuration
from bench.process import interrupts, supervise
from bench.sweep.sweep import Interrupted, Sweep

POLL = 0.2


class Stopped(BaseException):
    """Raised within a lane when the sweep is interrupted: its process group is killed on the way out."""


class LanedSweep(Sweep):
    """`lanes` above 1 gives each cell one GPU of its own and runs so many at a time.

    Neighbours share the host: for speeds that are compared to the percent, use one lane.
    """

    def __init__(self, *arguments: Any, lanes: int = 1, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lanes = lanes
        self.quiet = bool(options.get("quiet"))
        self.failure: OSError | None = None
        if lanes > 1:
            self.held = []  # a neighbour's memory is not what a cell has left behind
        self._stop = threading.Event()
        self._here = threading.local()

    def _job(self, configuration: Configuration) -> supervise.Job:
        job, gpu = super()._job(configuration), getattr(self._here, "gpu", None)
        own = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)}
        return replace(job, environment={**job.environment, **own})

    def run(self) -> list[dict[str, Any]]:
        """All rows in order, as `Sweep.run`. Raises `Interrupted` on Ctrl-C, after every lane has ended."""
        if self.lanes <= 1:
            return super().run()
        waiting: queue.SimpleQueue[Configuration] = queue.SimpleQueue()
        for configuration in self._waiting():
            waiting.put(configuration)
        threads = [threading.Thread(target=self._lane, args=(gpu, waiting)) for gpu in range(self.lanes)]
        for thread in threads:
            thread.start()
        try:
            # Not `join`: before Python 3.13 a signal in it makes a thread that runs count as ended (bpo-45274), and its
            # row would be missing.
            while any(thread.is_alive() for thread in threads):
                time.sleep(POLL)
        except KeyboardInterrupt:
            self._stop.set()
            for thread in threads:
                thread.join()
            raise Interrupted(self._ordered()) from None
        finally:
            self.locks.release()
        if self.failure is not None:
            raise self.failure
        self._compare()
        return self._ordered()

    def _lane(self, gpu: int, waiting: queue.SimpleQueue[Configuration]) -> None:
        self._here.gpu = gpu
        while not self._stop.is_set():
            try:
                configuration = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                for number in range(self._first(configuration), self.processes):
                    if not self._has_row(configuration):
                        self._run_process(configuration, number)
            except OSError as error:
                self.failure = error
                self._stop.set()
                return
            except Stopped:
                self._finish(configuration, status="interrupted", message=f"stopped by {interrupts.words()}")
                return
            self._tell(configuration)

    def _tell(self, configuration: Configuration) -> None:
        if not self.quiet:
            row = self.rows[configuration.content_hash()]
            done = f"[{len(self.rows)}/{len(self.configurations)}]"
            print(f"{done} {row['label']}: {row['status']}", file=sys.stderr, flush=True)

    def _show(self, phase: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise Stopped
        if self.lanes <= 1:
            self.progress.update(phase, done, total)
