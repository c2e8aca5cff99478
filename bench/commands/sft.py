"""`python -m bench sft`: fine-tune with one backend on prompts and answers; goes on where it was stopped."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from bench import backends
from bench.cli import FAILED, INTERRUPTED, OK
from bench.debug import sharding
from bench.problems import in_one_line
from bench.process.process_exit import end
from bench.results import environment
from bench.results.table import render
from bench.suite.flags import add_training, given
from bench.suite.settings import Cell, Settings, from_environment, one_cell, settle
from bench.sweep import attempts
from bench.sweep.expansion import check_names
from bench.sweep.sweep import Interrupted, require
from bench.terminal.help_texts import told
from bench.terminal.parsing import Parser, whole


def parser() -> argparse.ArgumentParser:
    """The flags of `bench sft`; NUM_GPUS, MAX_SAMPLES, MODEL and so on in the environment stand below them."""
    p = Parser(prog="bench sft", description=__doc__)
    p.add_argument("--backend", default=backends.first(), help=f"{told('backend')}; default {backends.first()}")
    p.add_argument("--tp", "--tp-size", "--fsdp_tensor_parallel_size", type=whole, default=1)
    p.add_argument("--ring", "--ring-size", "--ring_attn_size", type=whole, default=1)
    add_training(p)
    return p


def log_beside(options: argparse.Namespace) -> dict[str, Any]:
    """The default of --log-dir: where --output-dir is given, that."""
    return {} if options.output_dir is None else {"log_dir": options.output_dir}


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 trained, 1 it failed, 2 wrong usage or a configuration that cannot run here, 130 interrupted."""
    options = parser().parse_args(arguments)
    gpus = len(environment.gpus())
    sharding.tell("sft")
    launched = {"num_gpus": int(os.environ.get("WORLD_SIZE", "1"))} if "RANK" in os.environ else {}
    settings = settle(gpus, log_beside(options), from_environment(os.environ), given(options), launched)
    cell = one_cell(settings, sharding.effective_backend(options.backend), options.tp, options.ring)
    check_names([cell.configuration])
    require(cell.configuration, gpus)
    return (_one_rank if launched else _supervised)(settings, cell, options)


def _supervised(settings: Settings, cell: Cell, options: argparse.Namespace) -> int:
    from bench.suite.sweep import log_path, prepared

    sweep = prepared(settings, [cell], options.force, options.quiet)
    try:
        rows = list(sweep.train().values())
    except Interrupted as stop:
        print(render(stop.rows))
        print("interrupted: the same command goes on from the last checkpoint (--save-steps)")
        return INTERRUPTED
    print(render(rows))
    print(f"log: {log_path(settings, cell.name)}")
    return OK if all(row["status"] == "ok" for row in rows) else FAILED


def _one_rank(settings: Settings, cell: Cell, options: argparse.Namespace) -> int:
    """Under torchrun or deepspeed this process is one rank: it trains and starts no others."""
    from bench.suite.sweep import with_data, write_orders

    configuration = with_data(settings, [cell], lambda *_: None)[0].configuration
    folder = configuration.directory(settings.output_dir.resolve())
    folder.mkdir(parents=True, exist_ok=True)
    first = int(os.environ["RANK"]) == 0
    write_orders(folder, settings, cell.name)
    from bench.suite.worker import work

    work(configuration, folder, 0)
    if first:
        print(render([attempts.keep(configuration, folder)]))
    end(OK)
