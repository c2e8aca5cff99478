"""What one rank of a replay runs: every recorded input once, in order, each measured by itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.configuration import Configuration
from bench.inputs.packing import ModelInputs
from bench.losses import Loss
from bench.measure.clock import Clock, Memory, both
from bench.measure.model import attention_context
from bench.measure.worker import Run, command, on_rank
from bench.process.heartbeat import Heartbeat
from bench.process.process_exit import end
from bench.replay import records
from bench.strategies import processes

Show = Callable[[records.Record], None]


def show_nothing(record: records.Record) -> None:
    """For ranks whose supervisor reads the file of results."""


class Replay(Run):
    """A run whose steps take one recorded input per data-parallel rank, and no input twice.

    Shuffled ranks each meet all inputs in an order of their own. Otherwise the inputs are dealt out; a rank that
    gets none in the last step computes an old one, because its peers wait for it, and learns nothing from it.
    """

    def __init__(self, configuration: Configuration, heartbeat: Heartbeat, path: Path, show: Show) -> None:
        super().__init__(configuration, heartbeat)
        self.path, self.show = path, show
        self.times: list[dict[str, float]] = []
        self.memory = Memory(self.strategy.device)
        self.current: dict[str, float] = {}
        self.done = 0
        self.loss = Loss(self._counted(self.loss.function), self.loss.use_actions)

    def _counted(self, function: Any) -> Any:
        def counted(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
            value: torch.Tensor = function(log_probs, inputs)
            # Read when the step is over: numbers would wait for the device.
            self._loss_sum, self._loss_tokens = value.detach(), inputs.loss_mask.sum()
            return value

        return counted

    def build(self) -> None:
        """As every run, and the names of the inputs; rank 0 starts the file of results."""
        super().build()
        self.names = [Path(batch.source).name for batch in self.source.recorded]
        self.places = {batch.source: place for place, batch in enumerate(self.source.recorded)}
        if processes.rank() == 0:
            self.path.write_text("", encoding="utf-8")

    def next_inputs(self) -> list[ModelInputs]:
        """This rank's next input; its loss mask is empty where the rank has none left."""
        configuration, strategy = self.configuration, self.strategy
        (batch,) = next(self.steps)
        own = configuration.shuffle_inputs or self.done * configuration.dp + strategy.dp_rank < len(self.names)
        self.heartbeat.subject = Path(batch.source).name
        self.current = {
            "dp_rank": strategy.dp_rank, "index": self.places[batch.source] if own else -1,
            "rows": batch.sequences.shape[0], "length": batch.sequences.shape[1],
        }  # fmt: skip
        inputs = self.inputs_of(batch)
        if not own:
            inputs = replace(
                inputs, loss_mask=torch.zeros_like(inputs.loss_mask), real_tokens=0, positions=0, sum_squared_lengths=0
            )
        self.current |= {"real_tokens": inputs.real_tokens, "positions": inputs.positions}
        return [inputs]

    def replay(self) -> None:
        """All inputs. Ranks exchange what they measured after each step, outside its clock."""
        configuration, strategy = self.configuration, self.strategy
        clock = Clock(strategy.device)
        for number in range(configuration.steps):
            memory = Memory(strategy.device)
            started = time.perf_counter()
            self.step(both(clock, memory))
            self.times.append(clock.take())
            self.current["seconds"] = time.perf_counter() - started
            self.done = number + 1
            self._tell(memory)
            self.heartbeat.beat("measure", self.done, configuration.steps)
        self.heartbeat.subject = ""

    def _tell(self, memory: Memory) -> None:
        copies = self.configuration.tp
        self.current |= {"loss_sum": float(self._loss_sum) / copies, "loss_tokens": float(self._loss_tokens) / copies}
        self.current["peak_memory"] = max(memory.peaks["allocated"].values())
        self.memory.add(memory.peaks)
        rows = self.strategy.all_gather(records.to_row(self.current | self.times[-1]))
        if processes.rank() == 0:
            found = records.merge(rows, self.done, self.names)
            records.append(self.path, found)
            for record in found:
                self.show(record)


def work(configuration: Configuration, folder: Path, number: int, show: Show = show_nothing) -> None:
    """Replay on this rank; rank 0 writes `inputs.jsonl` as it goes and shows it."""

    def replayed(heartbeat: Heartbeat) -> dict[str, Any]:
        run = Replay(configuration, heartbeat, folder / records.FILE, show)
        run.build()
        run.begin()
        with attention_context(run.configuration.attn):
            run.replay()
        heartbeat.beat("report")
        return run.report(run.times, run.memory, min(configuration.warmup, configuration.steps - 1))

    on_rank(folder, number, replayed)


main = command(work)

if __name__ == "__main__":
    end(main(sys.argv[1:]))
