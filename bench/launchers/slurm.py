"""Slurm: a job step per row within an allocation, else scripts of job arrays."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.configuration import ConfigurationError
from bench.launch import array, slurm
from bench.launchers import Where

if TYPE_CHECKING:
    from bench.sweep.sweep import Sweep

MANY = 10**6


class Slurm(Where):
    name = "slurm"
    text = "a job step per row within an allocation, else scripts of job arrays"

    def add(self, group: Any) -> None:
        group.add_argument("--ranks-per-node", type=int, help="of slurm; with GPUs, as many as a node has")
        group.add_argument("--slurm", dest="slurm_options", action="append", default=[], metavar="OPTION",
                           help="for sbatch, such as --slurm=--time=2:00:00")  # fmt: skip
        group.add_argument(
            "--at-once", type=int, help="tasks of a job array that run at a time; default: what Slurm gives"
        )
        group.add_argument("--submit", action="store_true", help="give the job arrays to sbatch")
        group.add_argument("--cell", type=Path, help=argparse.SUPPRESS)  # one configuration as JSON, for array tasks

    def check(self, options: argparse.Namespace, settings: Mapping[str, Any]) -> None:
        for name, value in (("ranks-per-node", options.ranks_per_node), ("at-once", options.at_once)):
            if value is not None and not 1 <= value <= MANY:
                raise ConfigurationError(f"--{name} {value}: not a whole number from 1 to {MANY}")
        per_node(options)
        for name, text in (("output", str(options.output)), *(("slurm", text) for text in options.slurm_options)):
            if not text.isprintable():  # a line break would make the rest of it a command of the script
                raise ConfigurationError(f"--{name}={text!r}: a line of a script cannot hold that")

    def gpus(self, options: argparse.Namespace) -> int:
        """Those of the allocation, or any number where Slurm is still to be asked."""
        if options.device == "cpu":
            return 0
        return per_node(options) * int(os.environ.get("SLURM_JOB_NUM_NODES", "0")) if slurm.inside() else MANY

    def engine(self, options: argparse.Namespace) -> slurm.Slurm:
        return slurm.Slurm(per_node(options), gpus=options.device != "cpu")

    def row(self, options: argparse.Namespace) -> Path | None:
        cell: Path | None = options.cell
        return cell

    def leaves(self, options: argparse.Namespace) -> bool:
        return not slurm.inside()

    def leave(self, sweep: Sweep, options: argparse.Namespace) -> None:
        """The scripts for what is still to be measured, submitted where that was asked for, with a line each."""
        flags = ["--launcher", self.name, "--ranks-per-node", str(per_node(options))]
        flags += ["--output", str(options.output.resolve()), "--processes", str(options.processes)]
        flags += [f"--deadline={phase}={seconds:.0f}" for phase, seconds in options.deadlines]
        flags += ["--force"] * options.force + ["--retry-failed"] * options.retry_failed
        flags += ["--device", options.device] if options.device else []
        flags += ["--trace"] * options.trace + (["--tracker", options.tracker] if options.tracker else [])
        request = array.Request(
            per_node(options), options.device != "cpu", options.at_once, tuple(options.slurm_options), tuple(flags)
        )
        for script in array.write(sweep.outstanding(), options.output, request):
            print(f"submitted {script} as job {array.submit(str(script))}" if options.submit else f"sbatch {script}")


def per_node(options: argparse.Namespace) -> int:
    """Ranks on each node. Raises `ConfigurationError` where nobody says it."""
    said = options.ranks_per_node or os.environ.get("SLURM_GPUS_ON_NODE") or os.environ.get("SLURM_NTASKS_PER_NODE")
    if said is None or int(said) < 1:
        raise ConfigurationError("--launcher slurm needs --ranks-per-node: with GPUs, as many as a node has")
    return int(said)


WHERE = Slurm()
