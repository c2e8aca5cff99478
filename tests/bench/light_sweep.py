"""A sweep of torch-free workers: `python -m tests.bench.light_sweep OUTPUT PHASE:FAULT COUNT [elastic]`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.configuration import Configuration
from bench.matrix.lanes import LanedSweep
from bench.process import supervise
from bench.sweep.sweep import Sweep
from tests.bench.light_worker import FAULT

TINY = Configuration(backend="ddp", num_gpus=2, device="cpu", dtype="fp32", seq_len=8)
Choose = Callable[[Configuration], str]
"""The fault of a configuration, as "phase:fault"; "" for none."""


def job(fault: str, elastic: bool = False) -> supervise.Job:
    return supervise.Job("tests.bench.light_worker", {FAULT: fault}, fork=not elastic)


class LightSweep(Sweep):
    """One configuration after the other, each with the fault that `choose` gives it."""

    def __init__(self, *arguments: Any, choose: Choose, elastic: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.choose, self.elastic = choose, elastic
        self.started: list[Configuration] = []

    def _job(self, configuration: Configuration) -> supervise.Job:
        self.started.append(configuration)
        return job(self.choose(configuration), self.elastic)


class LanedLightSweep(LanedSweep):
    """Several at a time."""

    def __init__(self, *arguments: Any, choose: Choose, elastic: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.choose, self.elastic = choose, elastic

    def _job(self, configuration: Configuration) -> supervise.Job:
        return job(self.choose(configuration), self.elastic)


def main(arguments: list[str]) -> int:
    from dataclasses import replace

    output, fault, count, *rest = arguments
    configurations = [replace(TINY, random_seed=number) for number in range(int(count))]
    sweep = LightSweep(
        configurations, Path(output), processes=1, quiet=True, choose=lambda _: fault, elastic=bool(rest)
    )
    print(",".join(row["status"] for row in sweep.run()), len(sweep.started))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
