"""Writes the checkpoint that all runs of a suite start from: `python -m bench.suite.seed FOLDER 0`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.configuration import Configuration, stored
from bench.measure.clock import DTYPES
from bench.measure.model import build_actor
from bench.process.ending import end
from bench.process.heartbeat import Heartbeat, reported
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


def main(arguments: list[str]) -> int:
    folder, number = Path(arguments[0]), int(arguments[1])
    heartbeat = Heartbeat(folder, 0)
    with reported(heartbeat):
        heartbeat.beat("load")
        write_seed(stored(folder), folder / "checkpoint")
        (folder / f"run.{number}.json").write_text("{}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    end(main(sys.argv[1:]))
