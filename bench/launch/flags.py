"""The flags that say where ranks run, and the engine that they name."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.cli import OK, USAGE
from bench.configuration import Configuration, ConfigurationError, parse
from bench.launch import array, deepspeed_runner, ray_cluster, slurm
from bench.launch.engine import Launcher
from bench.results import environment

if TYPE_CHECKING:
    from bench.sweep.sweep import Sweep

NAMES = ("local", "deepspeed", "slurm", "ray")
NOT_SETTINGS = ("launcher", "ranks_per_node", "slurm_options", "at_once", "submit", "cell", "ray_address", "hostfile")
MANY = 10**6


def add(p: argparse.ArgumentParser) -> None:
    """Add them to the parser of `bench run`."""
    where = p.add_argument_group("where it runs")
    where.add_argument(
        "--launcher", choices=NAMES, default="local",
        help="deepspeed: its own launcher; slurm: a job step per row within an allocation, else scripts of job arrays; "
        "ray: a running cluster",
    )  # fmt: skip
    where.add_argument("--ranks-per-node", type=int, help="of slurm; with GPUs, as many as a node has")
    where.add_argument("--slurm", dest="slurm_options", action="append", default=[], metavar="OPTION",
                       help="for sbatch, such as --slurm=--time=2:00:00")  # fmt: skip
    where.add_argument("--at-once", type=int, help="tasks of a job array that run at a time; default: what Slurm gives")
    where.add_argument("--hostfile", type=Path, help="of deepspeed: lines of a host and slots=N, reached by ssh")
    where.add_argument("--submit", action="store_true", help="give the job arrays to sbatch")
    where.add_argument("--ray-address", default="auto", help="of the cluster's head; default: the one on this machine")
    where.add_argument("--cell", type=Path, help=argparse.SUPPRESS)  # one configuration as JSON, for array tasks


def per_node(options: argparse.Namespace) -> int:
    """Ranks on each node. Raises `ConfigurationError` where nobody says it."""
    said = options.ranks_per_node or os.environ.get("SLURM_GPUS_ON_NODE") or os.environ.get("SLURM_NTASKS_PER_NODE")
    if said is None or int(said) < 1:
        raise ConfigurationError("--launcher slurm needs --ranks-per-node: with GPUs, as many as a node has")
    return int(said)


def gpus(options: argparse.Namespace) -> int:
    """GPUs that ranks can have: of this host, of the allocation, or any number where Slurm is still to be asked."""
    if options.launcher == "local" or (options.launcher == "deepspeed" and options.hostfile is None):
        return len(environment.gpus())
    if options.device == "cpu":
        return 0
    if options.launcher == "ray":
        return ray_cluster.gpus(options.ray_address)
    if options.launcher == "deepspeed":
        return _slots(options.hostfile)
    return per_node(options) * int(os.environ.get("SLURM_JOB_NUM_NODES", "0")) if slurm.inside() else MANY


def _slots(hostfile: Path) -> int:
    try:
        return sum(deepspeed_runner.slots(hostfile.read_text(encoding="utf-8")).values())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--hostfile {hostfile}: {error}") from None


def engine(options: argparse.Namespace) -> Launcher | None:
    """What starts the ranks; None for this host. Raises `ConfigurationError`."""
    if options.launcher == "slurm":
        return slurm.Slurm(per_node(options), gpus=options.device != "cpu")
    if options.launcher == "deepspeed":
        return deepspeed_runner.DeepSpeed(options.hostfile)
    if options.launcher == "ray":
        return ray_cluster.Ray(options.ray_address, gpus=options.device != "cpu")
    return None


def lanes(options: argparse.Namespace, configurations: Sequence[Configuration]) -> int:
    """Rows at a time: as many of the largest as a Ray cluster fits; elsewhere one."""
    if options.launcher != "ray":
        return 1
    largest = max(configuration.num_gpus for configuration in configurations)
    return ray_cluster.lanes(options.ray_address, "CPU" if options.device == "cpu" else "GPU", largest)


def wants_array(options: argparse.Namespace) -> bool:
    """Whether the sweep is written down for Slurm instead of run here."""
    return bool(options.launcher == "slurm" and not slurm.inside())


def _write_arrays(configurations: Sequence[Configuration], options: argparse.Namespace) -> list[Path]:
    """The scripts for what is still to be measured, submitted where that was asked for, with a line each."""
    flags = ["--processes", str(options.processes)]
    flags += [f"--deadline={phase}={seconds:.0f}" for phase, seconds in options.deadlines]
    flags += ["--force"] * options.force + ["--retry-failed"] * options.retry_failed
    flags += ["--device", options.device] if options.device else []
    flags += ["--trace"] * options.trace + (["--tracker", options.tracker] if options.tracker else [])
    request = array.Request(
        per_node(options), options.device != "cpu", options.at_once, tuple(options.slurm_options), tuple(flags)
    )
    scripts = array.write(configurations, options.output, request)
    for script in scripts:
        print(f"submitted {script} as job {array.submit(script)}" if options.submit else f"sbatch {script}")
    return scripts


def check(options: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Raises `ConfigurationError` for flags that do not go together."""
    for name, value in (("ranks-per-node", options.ranks_per_node), ("at-once", options.at_once)):
        if value is not None and not 1 <= value <= MANY:
            raise ConfigurationError(f"--{name} {value}: not a whole number from 1 to {MANY}")
    if options.launcher != "local" and "num_gpus" not in settings and options.cell is None:
        raise ConfigurationError(f"--launcher {options.launcher} needs --num-gpus: how many ranks a row has")
    if options.launcher == "slurm":
        per_node(options)
        for name, text in (("output", str(options.output)), *(("slurm", text) for text in options.slurm_options)):
            if not text.isprintable():  # a line break would make the rest of it a command of the script
                raise ConfigurationError(f"--{name}={text!r}: a line of a script cannot hold that")
    if options.launcher == "ray":
        ray_cluster.gpus(options.ray_address)
    if options.hostfile is not None:
        if options.launcher != "deepspeed":
            raise ConfigurationError("--hostfile is for --launcher deepspeed")
        said = settings.get("num_gpus", 0)
        numbers = [parse({"num_gpus": number}).num_gpus for number in (said if isinstance(said, list) else [said])]
        wanted, there = max(numbers, default=0), _slots(options.hostfile)
        if wanted > there:
            raise ConfigurationError(
                f"--hostfile {options.hostfile}: {wanted} ranks need as many slots, it has {there}"
            )
    if options.submit and options.launcher != "slurm":
        raise ConfigurationError("--submit is for --launcher slurm")


def deadline(text: str) -> tuple[str, float]:
    """`PHASE=SECONDS`. Raises argparse.ArgumentTypeError."""
    from bench.process.supervise import DEADLINES

    phase, _, seconds = text.partition("=")
    if phase not in DEADLINES or not seconds.isascii() or not seconds.isdigit() or int(seconds) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write PHASE=SECONDS, with a phase of {', '.join(DEADLINES)}")
    return phase, float(seconds)


def cell(path: Path) -> Configuration:
    """The configuration in a file of a job array. Raises `ConfigurationError`."""
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"--cell {path}: {error}") from None


def leave_to_slurm(sweep: Sweep, options: argparse.Namespace) -> int:
    """Leave what is to be measured to Slurm; show what is there."""
    from bench.results.table import render

    try:
        left = sweep.outstanding()
        _write_arrays(left, options)
    except (OSError, ConfigurationError) as error:
        print(f"bench run: {error}", file=sys.stderr)
        return USAGE
    if len(left) < len(sweep.configurations):
        print(render(list(sweep.rows.values())))
    if left:
        print(f"{len(left)} to measure; when the jobs have ended, the same command shows all rows")
    return OK
