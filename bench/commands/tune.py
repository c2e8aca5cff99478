"""`python -m bench tune`: search the fastest settings of a model on these GPUs, within the memory that is predicted."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import backends
from bench.cli import FAILED, INTERRUPTED, OK
from bench.commands.plan import memory_size
from bench.configuration import Configuration, model_facts, parse
from bench.predict.tuning import NOT_RUN, Search, Trial, axes
from bench.problems import in_one_line
from bench.results import environment
from bench.sweep.expansion import defaults as run_defaults
from bench.sweep.flags import add_one, given
from bench.terminal.parsing import Parser, choice, listed, whole
from bench.terminal.text import grid

BATCHES = (1, 2, 4, 8)
SHOWN = 8
"""Rows that were not run."""


TRIED = sorted(
    (name for backend in backends.every().values() for name in backend.tried),
    key=lambda name: name != run_defaults(1)["backend"],
)
"""Those that are tried, what `bench run` takes first."""


def parser() -> argparse.ArgumentParser:
    """The flags of `bench tune`."""
    p = Parser(prog="bench tune", description=__doc__)
    add_one(p, "model", help="preset, config.json, directory or hub name; default: as in bench run")
    p.add_argument("--gpus", "--num-gpus", dest="num_gpus", type=whole, help="processes; default: one per GPU, or 2")
    add_one(p, "num_layers", help="of the model, fewer than it has: rows take less time")
    add_one(p, "seq_len")
    add_one(p, "tp", "ring", default=1, help="size, which is not varied; default 1")
    add_one(p, "dtype", help="default: bf16, without a GPU fp32")
    p.add_argument("--backends", type=listed(choice(tuple(backends.variants()))), default=TRIED,
                   help=f"default {','.join(TRIED)}")  # fmt: skip
    p.add_argument("--micro-batch-sizes", type=listed(whole), default=list(BATCHES), help="default 1,2,4,8")
    p.add_argument("--memory", type=memory_size, help="of one GPU, such as 80GB; default: what the smallest one has")
    p.add_argument("--steps", type=whole, default=5, help="timed steps of a row; default 5")
    p.add_argument(
        "--output", type=Path, default=Path("results"), help="default ./results; rows there are not run again"
    )
    p.add_argument("--quiet", action="store_true", help="no progress, the table alone")
    return p


def _start(options: argparse.Namespace, gpus: int) -> Configuration:
    """Raises `ConfigurationError` for settings that cannot be."""
    settings = run_defaults(gpus)
    if options.model is not None:
        settings.pop("num_layers", None)
    settings |= given(options)
    return parse({
        **settings, **backends.variants()[options.backends[0]], "full_length": True, "warmup": 2,
        "micro_batch_size": options.micro_batch_sizes[0],
    })  # fmt: skip


def _cells(trial: Trial) -> list[str]:
    c = trial.configuration
    parts = [c.label(), f"batch {c.micro_batch_size}"] + ["checkpointing"] * c.gradient_checkpointing
    parts += ["no reshard"] * (not c.reshard_after_forward) + [f"autotune {c.autotune}"] * (c.autotune != "none")
    told = trial.predicted and (c.device != "cpu" or trial.status in NOT_RUN)  # it is a model of GPUs
    return [
        ", ".join(parts), trial.status, f"{trial.speed:,.0f}" if trial.speed else "-",
        f"{trial.predicted / 1e9:.1f}" if told else "-", trial.message,
    ]  # fmt: skip


def command_of(configuration: Configuration) -> str:
    """The line that measures it: `bench run` with every setting that is not its default."""
    words = ["python", "-m", "bench", "run"]
    names = {"reshard_after_forward": "--no-reshard", "packing": "--no-packing", "backward": "--no-backward"}
    default = asdict(Configuration())
    given: dict[str, Any] = {k: v for k, v in asdict(configuration).items() if v != default[k]}
    # What `bench run` has another default for on some machine is always said.
    for name in ("backend", "num_gpus", "model", "dtype", "attn", "seq_len", "warmup", "steps", "num_layers"):
        if (value := getattr(configuration, name)) is not None:
            given[name] = value
    for name, value in given.items():
        if value is False:
            words.append(names[name])
        else:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 with a best row, 1 where none ran, 2 wrong usage, 130 interrupted."""
    from bench.sweep.sweep import Interrupted, Sweep, refusal

    options = parser().parse_args(arguments)
    gpus = environment.gpus()
    start = _start(options, len(gpus))
    model_facts(start.model, start.num_layers)
    options.output.mkdir(parents=True, exist_ok=True)

    def measure(configuration: Configuration) -> dict[str, Any]:
        sweep = Sweep([configuration], options.output, processes=1, quiet=options.quiet, gpus=len(gpus))
        return sweep.run()[0]

    def refuse(configuration: Configuration) -> str | None:
        refused = refusal(configuration, len(gpus))
        return refused[0] if refused else None

    varied = axes(options.backends, options.micro_batch_sizes, bool(gpus))
    memory = options.memory or environment.gpu_bytes() or float("inf")  # without GPUs no bound but what is asked for
    search = Search(varied, measure, refuse, memory)
    try:
        best = search.run(start)
    except Interrupted:
        print(_table(search))
        print("interrupted: the same command goes on from here" + _fastest_so_far(search))
        return INTERRUPTED
    return _show(search, best)


def _table(search: Search) -> str:
    """The fastest first; of those that were not run the first few."""
    trials = search.trials.values()
    ran = sorted((trial for trial in trials if trial.status not in NOT_RUN), key=lambda trial: -trial.speed)
    left = [trial for trial in trials if trial.status in NOT_RUN]
    more = f"\nand {len(left) - SHOWN} more that were left out" if len(left) > SHOWN else ""
    shown = [*ran, *left[:SHOWN]]
    on_cpu = any(trial.configuration.device == "cpu" for trial in shown)
    headers = ("configuration", "status", f"tokens/s/{'rank' if on_cpu else 'GPU'}", "predicted GB", "")
    return grid([_cells(trial) for trial in shown], headers) + more


def _fastest_so_far(search: Search) -> str:
    measured = [trial for trial in search.trials.values() if trial.speed]
    if not measured:
        return ""
    return f". The fastest so far:\n{command_of(max(measured, key=lambda trial: trial.speed).configuration)}"


def _show(search: Search, best: Trial | None) -> int:
    print(_table(search))
    if best is None:
        here = "give --memory, smaller --micro-batch-sizes, more --gpus or fewer --num-layers"
        without = "no GPU is visible here: tune where they are, or give fewer --num-layers or --model llama-tiny"
        print(f"no row ran: {here if environment.gpus() else without}")
        return FAILED
    ran = sum(trial.status not in NOT_RUN for trial in search.trials.values())
    left = len(search.trials) - ran
    print(f"{ran} rows run, one process each, {left} left out. The fastest of these:\n{command_of(best.configuration)}")
    return OK
