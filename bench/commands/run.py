"""`python -m bench run`: measure one configuration, or every combination of the values given."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import backends, launchers, trackers
from bench.cli import FAILED, INTERRUPTED, OK, USAGE
from bench.configuration import SETTINGS, Configuration, ConfigurationError, parse
from bench.debug import sharding
from bench.debug.session import PLACES, Orders, place_and_step
from bench.debug.session import run as run_in_foreground
from bench.problems import in_one_line
from bench.process.process_exit import end
from bench.results import environment
from bench.sweep import flags as setting_flags
from bench.sweep.expansion import check_names, defaults, expand, read_file
from bench.terminal import help_texts
from bench.terminal.parsing import WIDE, Parser, whole
from bench.terminal.text import grid

if TYPE_CHECKING:
    from bench.matrix.lanes import LanedSweep


def parser() -> argparse.ArgumentParser:
    """The flags of `bench run`. A comma-separated list makes one row per value and combination."""
    p = Parser(prog="bench run", description=__doc__)
    _add_debugging(p)
    setting_flags.add(p)
    measuring = p.add_argument_group("measuring")
    measuring.add_argument("--processes", type=whole, default=None, help="process groups per row; default 2")
    measuring.add_argument("--device", choices=SETTINGS["device"].choices)
    measuring.add_argument("--output", type=Path, default=None, help="default ./results")
    measuring.add_argument("--config", type=Path, help="TOML file of settings, single or lists; flags win")
    measuring.add_argument("--force", action="store_true", help="measure again what is there already")
    measuring.add_argument("--retry-failed", action="store_true", help="measure again what ended badly")
    measuring.add_argument(
        "--no-skip", dest="skip", action="store_false",
        help="run what is strictly larger than a configuration that ran out of memory, too",
    )  # fmt: skip
    measuring.add_argument(
        "--check-losses", action="store_true",
        help="rows whose loss leaves that of the first row with the same weights and samples end as loss_mismatch",
    )  # fmt: skip
    measuring.add_argument(
        "--deadline", dest="deadlines", type=_deadline, action="append", metavar="PHASE=SECONDS", default=[],
        help="without progress a rank counts as hung: start=180, load=900, compile=1800, warmup=900, measure=900, "
        "report=600",
    )  # fmt: skip
    measuring.add_argument("--dry-run", action="store_true", help="show the rows, run none")
    measuring.add_argument("--trace", action="store_true",
                           help="each rank writes a profiler trace of a step, <row>/traces/")  # fmt: skip
    measuring.add_argument("--tracker", choices=trackers.names(), help="send each measured row there")
    measuring.add_argument("--quiet", action="store_true", help="no line per phase")
    measuring.add_argument("--wide", action="store_true", help=WIDE)
    measuring.add_argument("--trust-remote-code", action="store_true", default=None)
    launchers.add(p)
    help_texts.describe(p, *({**asdict(Configuration()), **defaults(gpus)} for gpus in (1, 0)))
    return p


def _deadline(text: str) -> tuple[str, float]:
    """`PHASE=SECONDS`. Raises argparse.ArgumentTypeError."""
    from bench.process.supervise import DEADLINES

    phase, _, seconds = text.partition("=")
    if phase not in DEADLINES or not seconds.isascii() or not seconds.isdigit() or int(seconds) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write PHASE=SECONDS, with a phase of {', '.join(DEADLINES)}")
    return phase, float(seconds)


def _cell(path: Path) -> Configuration:
    """The configuration in a file of a job array. Raises `ConfigurationError`."""
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"--cell {path}: {error}") from None


def _add_debugging(p: argparse.ArgumentParser) -> None:
    looking = p.add_argument_group("looking into one configuration; DEBUG_DISABLE_FSDP=1 runs fsdp2 without sharding")
    looking.add_argument(
        "--break", dest="stop", type=place_and_step, metavar="PLACE[:STEP]",
        help=f"stop all ranks there, rank 0 with a prompt: {', '.join(PLACES)}",
    )  # fmt: skip
    looking.add_argument(
        "--log-shapes", type=int, nargs="?", const=0, metavar="DEPTH",
        help="show what goes into and comes out of the model in that step, and of modules inside it to DEPTH",
    )  # fmt: skip


PROCESSES = 2


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """What the flags say, the file's settings below them; aliases resolved. `--processes` and `--output` of the file
    go to the options."""
    read = read_file(options.config) if options.config is not None else {}
    options.processes = options.processes or _processes(read.pop("processes", PROCESSES), options.config)
    options.output = options.output or Path(str(read.pop("output", "results")))
    read.pop("output", None)
    return {**read, **setting_flags.given(options)}


def _processes(value: Any, path: Path | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"--config {path}: processes = {value!r}: one whole number from 1 on, for all rows")
    return value


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 rows are ok or unsupported, 1 one failed or none is ok, 2 wrong usage, 130 interrupted."""
    options = parser().parse_args(arguments)
    sharding.tell("run")
    settings = _settings(options)
    if "RANK" in os.environ:
        return _one_rank(settings, options, len(environment.gpus()))
    launchers.check(options, settings)
    gpus = launchers.of(options).gpus(options)
    row = launchers.of(options).row(options)
    configurations = expand(settings, gpus) if row is None else [_cell(row)]
    check_names(configurations)
    orders = _orders(options)
    if orders is not None and len(configurations) != 1:
        raise ConfigurationError("--break and --log-shapes look into one configuration: give no lists")
    if orders is not None and not options.dry_run:
        return _look_into(configurations[0], orders, gpus)
    sweep = _prepared(configurations, options, gpus)
    return _dry_run(sweep) if options.dry_run else _sweep(sweep, options)


def _orders(options: argparse.Namespace) -> Orders | None:
    if options.stop is None and options.log_shapes is None:
        return None
    place, step = options.stop or (None, 1)
    return Orders(place, step, options.log_shapes)


def _look_into(configuration: Configuration, orders: Orders, gpus: int) -> int:
    from bench.sweep.sweep import require

    require(configuration, gpus)
    return run_in_foreground(configuration, orders)


def _prepared(configurations: list[Configuration], options: argparse.Namespace, gpus: int) -> LanedSweep:
    from bench.matrix.lanes import LanedSweep

    where = launchers.of(options)
    return LanedSweep(
        configurations, options.output, processes=options.processes, force=options.force,
        retry_failed=options.retry_failed, quiet=options.quiet or options.dry_run, skip=options.skip,
        deadlines=dict(options.deadlines), check_losses=options.check_losses, gpus=gpus,
        launcher=where.engine(options), lanes=where.lanes(options, configurations), trace=options.trace,
        tracker=_tracker(options),
    )  # fmt: skip


def _tracker(options: argparse.Namespace) -> trackers.Tracker | None:
    """What gets the rows; a sweep that only looks, or that is left to Slurm's tasks, sends none itself."""
    if options.tracker is None or options.dry_run or launchers.of(options).leaves(options):
        return None
    return trackers.connect(options.tracker, options.output)


def _sweep(sweep: LanedSweep, options: argparse.Namespace) -> int:
    from bench.results.table import render
    from bench.sweep.sweep import Interrupted

    if launchers.of(options).leaves(options):
        return _left(sweep, options)
    try:
        rows = sweep.run()
    except Interrupted as stop:
        print("\n".join([render(stop.rows, options.wide), *sweep.resumed()]))
        print(f"interrupted: the same command goes on; results are in {options.output}")
        return INTERRUPTED
    except OSError as error:
        print(f"bench run: results cannot be written: {error}; the same command goes on from here", file=sys.stderr)
        return USAGE
    print("\n".join([render(rows, options.wide), *sweep.resumed()]))
    print(f"results, logs: {options.output}")
    statuses = {row["status"] for row in rows}
    return OK if "ok" in statuses <= {"ok", "unsupported"} else FAILED


def _left(sweep: LanedSweep, options: argparse.Namespace) -> int:
    """Leave what is to be measured to another program; show what is there."""
    from bench.results.table import render

    left = sweep.outstanding()
    launchers.of(options).leave(sweep, options)
    if len(left) < len(sweep.configurations):
        print(render(list(sweep.rows.values())))
    if left:
        print(f"{len(left)} to measure; when the jobs have ended, the same command shows all rows")
    return OK


def _one_rank(settings: dict[str, Any], options: argparse.Namespace, gpus: int) -> int:
    """Under torchrun or deepspeed this process is one rank of one configuration and starts none."""
    from bench.results.table import render
    from bench.sweep import attempts

    world = int(os.environ.get("WORLD_SIZE", "1"))
    configurations = expand({**settings, "num_gpus": world}, gpus)
    check_names(configurations)
    if len(configurations) != 1:
        raise ConfigurationError("under a launcher one configuration runs at a time: give no lists")
    configuration, orders = configurations[0], _orders(options)
    if orders is not None:
        from bench.debug.worker import one_rank

        one_rank(configuration, orders)
    folder = configuration.directory(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    from bench.sweep.sweep import refusal

    refused = refusal(configuration, gpus and world)  # GPUs of other hosts are not seen from here
    if refused is None:
        from bench.measure.worker import work

        work(configuration, folder, 0)
    if int(os.environ["RANK"]) == 0:
        verdict = {} if refused is None else {"status": "unsupported", "message": refused[0], "hint": refused[1]}
        print(render([attempts.keep(configuration, folder, **verdict)]))
    end(OK if refused is None else FAILED)


def _dry_run(sweep: LanedSweep) -> int:
    """Every row, whether it would run, and its predicted memory per GPU; of CPUs, where the interpreter and its
    libraries weigh as much as a small model, there is no prediction."""
    from bench.configuration import model_facts
    from bench.predict import sizes
    from bench.predict.memory import estimate

    rows = []
    for c in sweep.configurations:
        words = sweep.foreseen(c)
        predicted = "-"
        if not words.startswith("unsupported") and c.on_gpu(sweep.gpus) and backends.find(c.backend).predicted:
            facts = model_facts(c.model, c.num_layers)
            predicted = f"{estimate(facts, sizes.layout(c)).allocated / 1e9:.2f}" if facts.countable else "-"
        rows.append([sweep.label(c), c.content_hash(), predicted, words])
    print(grid(rows, ["configuration", "hash", "predicted GB per GPU", ""]))
    return OK
