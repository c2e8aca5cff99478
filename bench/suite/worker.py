"""What one rank of a training run does: train to the last step, log each, and go on from a checkpoint."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.configuration import Configuration
from bench.measure.clock import Clock, Memory, both
from bench.measure.model import attention_context
from bench.measure.worker import Run, command, on_rank
from bench.process.heartbeat import Heartbeat
from bench.process.process_exit import end
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
        clock, self.memory = Clock(strategy.device), Memory(strategy.device)
        for number in range(first, configuration.steps):
            last = number == configuration.steps - 1
            started = time.perf_counter()
            result = self.step(both(clock, self.memory) if last else clock.phase)
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

    def results(self, log: TrainingLog) -> dict[str, Any]:
        """The run in the form of `worker.execute`; the first step of this process counts as its warm-up."""
        warm = min(self.configuration.warmup, len(self.times) - 1)
        norms = [r["grad_norm"] for r in log.records if r["grad_norm"] is not None]
        losses = [r["gpt_loss"] for r in log.records]
        found = self.report(self.times, self.memory, warm)
        return found | {"losses": losses, "grad_norms": norms, "steps": log.records}


def work(configuration: Configuration, folder: Path, number: int) -> None:
    """Train on this rank; rank 0 writes the log."""

    def trained(heartbeat: Heartbeat) -> dict[str, Any]:
        orders = Orders(**json.loads((folder / "orders.json").read_text(encoding="utf-8")))
        log = TrainingLog(folder / "steps.jsonl", Path(orders.log), writes=heartbeat.rank == 0)
        run = Training(configuration, heartbeat, folder, orders)
        run.build()
        run.begin()
        with attention_context(run.configuration.attn):
            run.train(log)
        heartbeat.beat("report")
        result = run.results(log)
        if orders.save_model:
            run.strategy.save_model(run.actor, None, orders.save_model)
        return result

    on_rank(folder, number, trained)


main = command(work)

if __name__ == "__main__":
    end(main(sys.argv[1:]))
