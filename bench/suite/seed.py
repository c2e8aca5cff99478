"""Writes the checkpoint that all runs of a suite start from: `python -m bench.suite.seed FOLDER 0`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.configuration import Configuration
from bench.measure.clock import DTYPES
from bench.measure.model import build_actor
from bench.measure.worker import command, on_rank
from bench.process.heartbeat import Heartbeat
from bench.process.process_exit import end
from bench.strategies import processes


def write_seed(configuration: Configuration, folder: Path) -> None:
    """A Hugging Face directory of the model that `configuration` names, rounded to its dtype."""
    dtype = DTYPES[configuration.dtype]
    actor = build_actor(
        model=configuration.model, num_layers=configuration.num_layers, attn="sdpa",
        device=processes.pick_device(configuration.device), dtype=dtype, seed=configuration.random_seed,
        trust_remote_code=configuration.trust_remote_code,
    )  # fmt: skip
    network = actor.model.to(dtype)
    network.config.dtype = dtype
    network.save_pretrained(folder)


def work(configuration: Configuration, folder: Path, number: int) -> None:
    def written(heartbeat: Heartbeat) -> dict[str, Any]:
        heartbeat.beat("load")
        write_seed(configuration, folder / "checkpoint")
        return {}

    on_rank(folder, number, written)


main = command(work)

if __name__ == "__main__":
    end(main(sys.argv[1:]))
