"""`python -m bench run`: measure one configuration, or every combination of the values given."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench import availability, described, environment
from bench.cli import FAILED, INTERRUPTED, OK, USAGE
from bench.configuration import CHOICES, Configuration, ConfigurationError, hash_inputs, parse
from bench.debug.session import PLACES, Orders, place_and_step
from bench.debug.session import run as run_in_foreground
from bench.debug.sharding import effective, notice, sharding_disabled
from bench.ending import end
from bench.launch import flags as launch
from bench.text import grid

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AXES = (
    "backend",
    "zero_stage",
    "num_gpus",
    "tp",
    "ring",
    "num_layers",
    "model",
    "attn",
    "compile",
    "packing",
    "seq_len",
)
"""Settings that take a comma-separated list; their combinations make the sweep."""
OF_RECORDED = ("max_inputs", "shuffle_inputs", "simulate_ranks", "fold_tokens")
"""Settings without a meaning for synthetic batches."""


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _wholes(text: str) -> list[int]:
    return [_whole(part.strip()) for part in text.split(",")]


def _stages(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if any(part not in ("0", "1", "2", "3") for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: ZeRO stages are 0, 1, 2 and 3")
    return [int(part) for part in parts]


def _texts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _choices(setting: str) -> Any:
    def read(text: str) -> list[str]:
        allowed, parts = CHOICES[setting], _texts(text)
        wrong = [part for part in parts if part not in allowed]
        if wrong or not parts:
            raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(allowed)}")
        return parts

    return read


def parser() -> argparse.ArgumentParser:
    """The flags of `bench run`. A comma-separated list makes one row per value and combination."""
    p = argparse.ArgumentParser(prog="python -m bench run", description=__doc__, allow_abbrev=False)
    _add_debugging(p)
    what = p.add_argument_group("what runs (lists make a sweep)")
    what.add_argument("--backend", type=_texts, help="deepspeed, fsdp2, ddp, or package.module:Class")
    what.add_argument("--zero-stage", "--zero_stage", type=_stages, help="of deepspeed; default 2")
    what.add_argument("--num-gpus", "--num_gpus", type=_wholes, help="processes; default: one per GPU, without GPUs 2")
    what.add_argument("--tp", "--tp-size", "--fsdp_tensor_parallel_size", "--ds_tensor_parallel_size", type=_wholes)
    what.add_argument("--ring", "--ring-size", "--ring_attn_size", type=_wholes)
    what.add_argument("--num-layers", "--num_layers", type=_wholes)
    what.add_argument("--model", "--pretrain", type=_texts, help="preset, config.json, directory or hub name")
    what.add_argument("--attn", type=_choices("attn"), help=", ".join(CHOICES["attn"]))
    what.add_argument("--flash-attn", dest="flash_attn", action=argparse.BooleanOptionalAction)
    what.add_argument("--compile", type=_choices("compile"), nargs="?", const=["blocks"])
    what.add_argument("--deepcompile", action="store_true", help="the same as --compile=deepcompile")
    what.add_argument("--packing", "--packing_samples", action=argparse.BooleanOptionalAction)
    what.add_argument("--seq-len", "--seq_len", type=_wholes, help="positions of a synthetic row")
    how = p.add_argument_group("how it trains")
    how.add_argument("--dtype", "--param_dtype", choices=CHOICES["dtype"])
    how.add_argument("--head", choices=CHOICES["head"])
    how.add_argument(
        "--autotune", choices=CHOICES["autotune"],
        help="what the compiler tries out: max, kernels of matrix products; coordinate, block sizes of its own ones",
    )  # fmt: skip
    how.add_argument("--loss", help="sft, ppo or module:function")
    how.add_argument("--optimizer", choices=CHOICES["optimizer"])
    how.add_argument("--lr", "--learning_rate", type=float)
    how.add_argument("--weight-decay", "--weight_decay", type=float)
    how.add_argument("--max-norm", "--max_norm", type=float)
    how.add_argument("--no-backward", dest="backward", action="store_false", default=None)
    how.add_argument("--gradient-checkpointing", "--gradient_checkpointing", action="store_true", default=None)
    how.add_argument("--cpu-offload", "--adam_offload", action="store_true", default=None)
    how.add_argument("--no-reshard", dest="reshard_after_forward", action="store_false", default=None)
    how.add_argument("--reduce-dtype", choices=CHOICES["reduce_dtype"], help="of FSDP2's gradients; default fp32")
    how.add_argument("--sequence-parallel", "--sequence_parallel", action="store_true", default=None)
    how.add_argument(
        "--async-tp", action="store_true", default=None,
        help="overlap tensor-parallel collectives of fsdp2 with products: GPUs, --sequence-parallel and --compile",
    )  # fmt: skip
    how.add_argument("--tp-plan", dest="tp_plan", choices=CHOICES["tp_plan"])
    how.add_argument("--use_hf_tp_plan", dest="tp_plan", action="store_const", const="hf")
    how.add_argument("--micro-batch-size", "--micro_train_batch_size", type=_whole,
                     help="samples per rank and forward pass; default 4, of recorded batches 1")  # fmt: skip
    how.add_argument("--train-batch-size", "--train_batch_size", type=_whole)
    data = p.add_argument_group("inputs")
    data.add_argument("--inputs", help="recorded batches, a directory or file; default: synthetic ones")
    data.add_argument("--max-inputs", type=_whole)
    data.add_argument(
        "--fold-tokens", action="store_true", default=None, help="token ids modulo the vocabulary: for tiny models"
    )
    data.add_argument("--full-length", action="store_true", default=None, help="synthetic rows without padding")
    data.add_argument("--shuffle-inputs", action="store_true", default=None)
    data.add_argument("--simulate-ranks", type=_whole, help="orders on one process, padded to the longest")
    data.add_argument("--random-seed", "--seed", type=int)
    measuring = p.add_argument_group("measuring")
    measuring.add_argument("--warmup", type=_whole)
    measuring.add_argument("--steps", type=_whole)
    measuring.add_argument("--processes", type=_whole, default=2, help="process groups per row; default 2")
    measuring.add_argument("--device", choices=CHOICES["device"])
    measuring.add_argument("--output", type=Path, default=Path("results"), help="default ./results")
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
        "--deadline", dest="deadlines", type=launch.deadline, action="append", metavar="PHASE=SECONDS", default=[],
        help="without progress a rank counts as hung: start=180, load=900, compile=1800, warmup=900, measure=900, "
        "report=600",
    )  # fmt: skip
    measuring.add_argument("--dry-run", action="store_true", help="show the rows, run none")
    measuring.add_argument("--quiet", action="store_true")
    measuring.add_argument("--trust-remote-code", action="store_true", default=None)
    launch.add(p)
    measuring.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)
    described.describe(p, *({**asdict(Configuration()), **_defaults(gpus)} for gpus in (1, 0)))
    return p


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


MOST_ROWS = 10_000
CLASS = re.compile(rf"{availability.NAMED.pattern}(?:\.[^\W\d]\w*)*")
"""`package.module:Class`. The name of the class is part of the name of a directory."""

NOT_SETTINGS = frozenset((
    *launch.NOT_SETTINGS, "output", "config", "force", "retry_failed", "skip", "check_losses", "deadlines", "dry_run",
    "quiet", "local_rank", "processes", "flash_attn", "deepcompile", "stop", "log_shapes",
))  # fmt: skip


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """What the flags say, the file's settings below them; aliases resolved."""
    given = {k: v for k, v in vars(options).items() if v is not None and k not in NOT_SETTINGS}
    if options.flash_attn is not None and "attn" not in given:
        given["attn"] = ["flash_attention_2" if options.flash_attn else "sdpa"]
    if options.deepcompile:
        given["compile"] = ["deepcompile"]
    if options.config is None:
        return given
    try:
        with options.config.open("rb") as file:
            read = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"--config {options.config}: {error.strerror}") from None
    except RecursionError:
        raise ConfigurationError(f"--config {options.config}: nested too deeply") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigurationError(f"--config {options.config}: {error}") from None
    return {**{key.replace("-", "_"): value for key, value in read.items()}, **given}


def _defaults(gpus: int) -> dict[str, Any]:
    """What is there decides: GPUs run the 8B shape with four layers, two CPU processes a tiny model."""
    if gpus:
        return {
            "backend": "fsdp2", "num_gpus": gpus, "model": "llama-3.1-8b", "num_layers": 4, "dtype": "bf16",
            "attn": "auto",
        }  # fmt: skip
    return {
        "backend": "fsdp2", "num_gpus": 2, "model": "llama-tiny", "dtype": "fp32", "attn": "sdpa", "seq_len": 256,
        "device": "cpu", "steps": 8, "warmup": 3,
    }  # fmt: skip


def expand(settings: dict[str, Any], gpus: int) -> list[Configuration]:
    """All combinations, each once. ZeRO stages multiply deepspeed's rows only.

    Raises `ConfigurationError` for a setting that does not exist or a file that is not there.
    """
    defaults = _defaults(gpus)
    if "model" in settings:
        defaults.pop("num_layers", None)
    elif not gpus and settings.get("inputs"):
        defaults["fold_tokens"] = True  # the tiny model has few tokens
    merged = {**defaults, **settings}
    if merged.get("inputs"):
        parse({"inputs": merged["inputs"]})
        path = Path(merged["inputs"])
        if not path.exists():
            raise ConfigurationError(f"--inputs {path}: no such file or directory")
        merged["inputs"], merged["input_hash"] = str(path.resolve()), hash_inputs(path)
    for name in OF_RECORDED:
        if settings.get(name) and not merged.get("inputs"):
            raise ConfigurationError(f"--{name.replace('_', '-')} is about recorded batches: give --inputs")
    axes = [axis for axis in AXES if axis in merged]
    lists = [merged[axis] if isinstance(merged[axis], list) else [merged[axis]] for axis in axes]
    rest = {k: v for k, v in merged.items() if k not in axes}
    if (rows := math.prod(map(len, lists))) > MOST_ROWS:
        raise ConfigurationError(f"the lists make {rows} rows; at most {MOST_ROWS} are run at once")
    found = []
    for values in itertools.product(*lists):
        cell = {**rest, **dict(zip(axes, values, strict=True))}
        configuration = parse(cell)
        if configuration.backend != "deepspeed":
            configuration = replace(configuration, zero_stage=Configuration.zero_stage)
        found.append(effective(configuration))
    if not found:
        raise ConfigurationError(f"no rows: --{axes[lists.index([])].replace('_', '-')} lists nothing")
    return list(dict.fromkeys(found))


def _check_names(configurations: Iterable[Configuration]) -> None:
    known = ("deepspeed", "fsdp2", "ddp")
    for configuration in configurations:
        if configuration.backend not in known and not CLASS.fullmatch(configuration.backend):
            raise ConfigurationError(
                f"--backend {configuration.backend}: use {', '.join(known)} or package.module:Class"
            )
        problem = availability.loss_problem(configuration.loss)
        if problem:
            raise ConfigurationError(problem)


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 all rows ok or unsupported, 1 a failed row, 2 wrong usage, 130 interrupted."""
    options = parser().parse_args(arguments)
    if sharding_disabled():
        print(f"bench run: {notice()}", file=sys.stderr)
    try:
        settings = _settings(options)
        if "RANK" in os.environ:
            return _one_rank(settings, options, len(environment.gpus()))
        launch.check(options, settings)
        gpus = launch.gpus(options)
        configurations = expand(settings, gpus) if options.cell is None else [launch.cell(options.cell)]
        _check_names(configurations)
        orders = _orders(options)
        if orders is None and not options.dry_run:
            options.output.mkdir(parents=True, exist_ok=True)
        elif orders is not None and len(configurations) != 1:
            raise ConfigurationError("--break and --log-shapes look into one configuration: give no lists")
    except (ConfigurationError, OSError) as error:
        print(f"bench run: {error}", file=sys.stderr)
        return USAGE
    if options.dry_run:
        return _dry_run(configurations, gpus)
    if orders is not None:
        return _look_into(configurations[0], orders, gpus)
    return _sweep(configurations, options, gpus)


def _orders(options: argparse.Namespace) -> Orders | None:
    if options.stop is None and options.log_shapes is None:
        return None
    place, step = options.stop or (None, 1)
    return Orders(place, step, options.log_shapes)


def _look_into(configuration: Configuration, orders: Orders, gpus: int) -> int:
    from bench.sweep import refusal

    refused = refusal(configuration, gpus)
    if refused is not None:
        print(f"bench run: {refused[0]}{f'; {refused[1]}' if refused[1] else ''}", file=sys.stderr)
        return USAGE
    return run_in_foreground(configuration, orders)


def _sweep(configurations: list[Configuration], options: argparse.Namespace, gpus: int) -> int:
    from bench.matrix.lanes import LanedSweep
    from bench.sweep import Interrupted
    from bench.table import render

    sweep = LanedSweep(
        configurations, options.output, processes=options.processes, force=options.force,
        retry_failed=options.retry_failed, quiet=options.quiet, skip=options.skip, deadlines=dict(options.deadlines),
        check_losses=options.check_losses, gpus=gpus, launcher=launch.engine(options),
        lanes=launch.lanes(options, configurations),
    )  # fmt: skip
    if launch.wants_array(options):
        return launch.leave_to_slurm(sweep, options)
    try:
        rows = sweep.run()
    except Interrupted as stop:
        print(render(stop.rows))
        print(f"interrupted: the same command goes on; results are in {options.output}")
        return INTERRUPTED
    except OSError as error:
        print(f"bench run: results cannot be written: {error}; the same command goes on from here", file=sys.stderr)
        return USAGE
    print(render(rows))
    print(f"results, logs: {options.output}")
    return OK if all(row["status"] in ("ok", "unsupported") for row in rows) else FAILED


def _one_rank(settings: dict[str, Any], options: argparse.Namespace, gpus: int) -> int:
    """Under torchrun or deepspeed this process is one rank of one configuration and starts none."""
    from bench import results
    from bench.table import render

    world = int(os.environ.get("WORLD_SIZE", "1"))
    configurations = expand({**settings, "num_gpus": world}, gpus)
    _check_names(configurations)
    if len(configurations) != 1:
        raise ConfigurationError("under a launcher one configuration runs at a time: give no lists")
    configuration, orders = configurations[0], _orders(options)
    if orders is not None:
        from bench.debug.worker import one_rank

        one_rank(configuration, orders)
    folder = configuration.directory(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    from bench.sweep import refusal

    refused = refusal(configuration, gpus and world)  # GPUs of other hosts are not seen from here
    if refused is None:
        from bench.worker import work

        work(configuration, folder, 0)
    if int(os.environ["RANK"]) == 0:
        verdict = {"status": "ok"}
        if refused is not None:
            verdict = {"status": "unsupported", "message": refused[0], "hint": refused[1]}
        described = environment.describe(configuration.random_seed)
        runs = results.read_runs(folder)[:1] if refused is None else []
        result = results.build_result(configuration, runs, environment=described, **verdict)
        results.write_json(folder / "result.json", result)
        if refused is None:
            results.write_suite(folder / "benchmarks.json", result)
        print(render([result]))
    end(OK)


def _dry_run(configurations: list[Configuration], gpus: int) -> int:
    """Every row with its predicted memory per GPU, or the reason why it cannot run."""
    from bench import layout
    from bench.configuration import model_facts
    from bench.memory import estimate
    from bench.sweep import refusal

    rows = []
    for c in configurations:
        refused = refusal(c, gpus)
        if refused is not None:
            rows.append([c.label(), c.content_hash(), "-", f"unsupported: {refused[0]}"])
            continue
        predicted = estimate(model_facts(c.model, c.num_layers), layout.of(c)).allocated
        rows.append([c.label(), c.content_hash(), f"{predicted / 1e9:.2f}", "would run"])
    print(grid(rows, ["configuration", "hash", "predicted GB per GPU", ""]))
    return OK
