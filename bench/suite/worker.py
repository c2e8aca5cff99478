"""What one rank of a training run does: train to the last step, log each, and go on from a checkpoint."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.configuration import Configuration, stored
from bench.measure.clock import Clock, Memory
from bench.measure.model import attention_context
from bench.measure.worker import Run
from bench.process.ending import end
from bench.process.heartbeat import Heartbeat, reported, write_run
from bench.strategies import processes
from bench.suite.log import TrainingLog

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Orders:
    """What a run is told beside its configuration; none of it changes what is trained."""

    log: str
    save_steps: int = 0
    save_model: str | None = None


class Training(Run):
    """A run that trains `configuration.steps` steps, each on the next samples."""

    def __init__(self, configuration: Configuration, heartbeat: Heartbeat, folder: Path, orders: Orders) -> None:
        super().__init__(configuration, heartbeat)
        self.folder, self.orders = folder, orders
        self.checkpoints = str(folder / CHECKPOINTS)
        self.times: list[dict[str, float]] = []
        self.peaks: dict[str, dict[str, float]] = {}

    def resume(self) -> int:
        """The number of steps that a checkpoint in the result directory has behind it, restored; or 0."""
        if not (Path(self.checkpoints) / "latest").is_file():
            return 0
        _, state = self.strategy.load_ckpt(self.actor, self.checkpoints, optimizer=self.optimizer)
        done = int(state["step"])
        for _ in range(done):
            next(self.steps)
        return done

    def train(self, log: TrainingLog) -> None:
        """From the step after the last checkpoint to the end; the last step measures memory as well."""
        configuration, strategy = self.configuration, self.strategy
        first = self.resume()
        log.open(first)
        clock, memory = Clock(strategy.device), Memory(strategy.device)

        @contextmanager
        def both(name: str) -> Iterator[None]:
            with memory.phase(name), clock.phase(name):
                yield

        for number in range(first, configuration.steps):
            last = number == configuration.steps - 1
            started = time.perf_counter()
            result = self.step(both if last else clock.phase)
            self.times.append(clock.take())
            log.add(
                {
                    "step": number + 1, "gpt_loss": float(result.loss),
                    "grad_norm": None if result.grad_norm is None else float(result.grad_norm),
                    "lr": float(self.optimizer.param_groups[0]["lr"]), "loss_tokens": int(result.loss_tokens),
                    "seconds": round(time.perf_counter() - started, 6),
                }
            )  # fmt: skip
            self.heartbeat.beat("measure", number + 1, configuration.steps)
            if self.orders.save_steps and not last and (number + 1) % self.orders.save_steps == 0:
                strategy.save_ckpt(
                    self.actor, self.checkpoints, tag=f"step{number + 1}", max_num=1,
                    client_state={"step": number + 1}, optimizer=self.optimizer,
                )  # fmt: skip
        everywhere = [strategy.all_reduce(d, "max") for d in (memory.allocated, memory.reserved)]
        self.peaks = dict(zip(("allocated", "reserved"), everywhere, strict=True))

    def results(self, log: TrainingLog) -> dict[str, Any]:
        """The run in the form of `worker.execute`; the first step of this process counts as its warm-up."""
        warm = min(self.configuration.warmup, len(self.times) - 1)
        norms = [r["grad_norm"] for r in log.records if r["grad_norm"] is not None]
        losses = [r["gpt_loss"] for r in log.records]
        found = self.report(self.times, self.peaks, warm)
        return found | {"losses": losses, "grad_norms": norms, "steps": log.records}


def work(configuration: Configuration, folder: Path, number: int) -> None:
    """Train on this rank; rank 0 writes the log and `run.<number>.json`."""
    rank = int(os.environ.get("RANK", "0"))
    heartbeat = Heartbeat(folder, rank)
    with reported(heartbeat):
        orders = Orders(**json.loads((folder / "orders.json").read_text(encoding="utf-8")))
        log = TrainingLog(folder / "steps.jsonl", Path(orders.log), writes=rank == 0)
        run = Training(configuration, heartbeat, folder, orders)
        run.build()
        run.begin()
        with attention_context(run.configuration.attn):
            run.train(log)
        heartbeat.beat("report")
        result = run.results(log)
        if orders.save_model:
            run.strategy.save_model(run.actor, None, orders.save_model)
        if rank == 0:
            write_run(folder, number, result)
        processes.leave()


def main(arguments: list[str]) -> int:
    """`python -m bench.suite.worker FOLDER NUMBER`."""
    folder = Path(arguments[0])
    work(stored(folder), folder, int(arguments[1]))
    return 0


if __name__ == "__main__":
    end(main(sys.argv[1:]))
