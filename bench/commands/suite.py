"""`python -m bench suite`: train with every backend from one checkpoint on the same data, and compare the losses."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench.cli import FAILED, INTERRUPTED, OK, USAGE
from bench.debug import sharding
from bench.problems import in_one_line
from bench.results import environment, results
from bench.suite.criteria import judge
from bench.suite.flags import add_training, given
from bench.suite.settings import REORDERED, Settings, cells, from_environment, settle
from bench.suite.show import as_json, render
from bench.terminal.parsing import Parser, listed, share, whole

THRESHOLD = 0.05


def parser() -> argparse.ArgumentParser:
    """The flags of `bench suite`; NUM_GPUS, MAX_SAMPLES, MODEL and so on in the environment stand below them."""
    p = Parser(prog="bench suite", description=__doc__,
        epilog="Environment: NUM_GPUS MAX_SAMPLES MODEL DATASET OUTPUT_DIR LOG_DIR TP_SIZE RING_SIZE "
        "SKIP_DEEPSPEED SKIP_FSDP2 SKIP_TP SKIP_RING (the last two leave out the combined run as well).",
    )  # fmt: skip
    runs = p.add_argument_group("runs")
    runs.add_argument(
        "--tp-size", "--tp", "--fsdp_tensor_parallel_size", dest="tp_sizes", type=listed(whole),
        help="default 2; a list makes more runs",
    )  # fmt: skip
    runs.add_argument(
        "--ring-size", "--ring", "--ring_attn_size", dest="ring_sizes", type=listed(whole), help="default 2; likewise"
    )
    for name in ("deepspeed", "fsdp2", "tp", "ring"):
        help = f"no run of {name}" if name not in ("tp", "ring") else f"no run with --{name}, alone or combined"
        runs.add_argument(f"--skip-{name}", action="store_true", default=None, help=help)
    runs.add_argument(
        "--reorder", action="store_true", default=None,
        help="run deepspeed twice, with sums in another order: the noise that no backend can be below",
    )  # fmt: skip
    runs.add_argument("--threshold", type=share, default=THRESHOLD, help="relative, per step; default 0.05")
    add_training(p)
    return p


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 all criteria hold (runs that are unsupported here aside), 1 one does not, 2 wrong usage, 130."""
    options = parser().parse_args(arguments)
    sharding.tell("suite", compares=True)
    os.environ.pop("RANK", None)  # of a pod or an old shell: a suite starts its own ranks and waits for none
    settings = settle(len(environment.gpus()), from_environment(os.environ), given(options))
    planned = cells(settings)
    return _train(settings, planned, options)


def _train(settings: Settings, planned: list[Any], options: argparse.Namespace) -> int:
    from bench.suite.sweep import prepared
    from bench.sweep.sweep import Interrupted

    sweep = prepared(settings, planned, options.force, options.quiet)
    try:
        rows = sweep.train()
    except OSError as error:
        print(f"bench suite: results cannot be written: {error}; the same command goes on from here", file=sys.stderr)
        return USAGE
    except Interrupted:
        _conclude(sweep.named(), settings, options.threshold)
        print("interrupted: the same command goes on; what is finished is kept")
        return INTERRUPTED
    return OK if _conclude(rows, settings, options.threshold) else FAILED


def _conclude(rows: Mapping[str, Mapping[str, Any]], settings: Settings, threshold: float) -> bool:
    """Print and write the criteria; whether all of them hold, and at least one run was made."""
    judged, noise = judge(rows, threshold, REORDERED)
    print(render(judged, rows, threshold, noise, REORDERED in rows))
    results.write_json(settings.output_dir / "suite.json", as_json(judged, rows, threshold, noise))
    print(f"logs: {settings.log_dir}; results: {settings.output_dir}")
    made = [one.passed for one in judged if one.passed is not None]
    return bool(made) and all(made)
