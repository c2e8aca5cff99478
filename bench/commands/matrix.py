"""`python -m bench matrix`: which combinations of attention, compilation, packing and backend work, and how fast."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import backends
from bench.cli import FAILED, INTERRUPTED, OK
from bench.configuration import Configuration, ConfigurationError, parse
from bench.debug import sharding
from bench.inputs import sources
from bench.matrix import cells, show
from bench.matrix.cells import AXES, MAX_CELLS, Cell, Refused
from bench.matrix.classify import WORKS, classify
from bench.matrix.lanes import LanedSweep
from bench.problems import in_one_line
from bench.results import environment, results
from bench.sweep import availability
from bench.sweep.expansion import meant
from bench.sweep.flags import add_one, given
from bench.sweep.sweep import Interrupted, refusal
from bench.terminal import help_texts
from bench.terminal.parsing import WIDE, Parser, whole

ON_GPU = {"model": "llama-3.1-8b", "num_layers": 2, "dtype": "bf16", "seq_len": 2048, "steps": 10, "warmup": 5}
ON_CPU = {"model": "llama-tiny", "num_layers": 2, "dtype": "fp32", "seq_len": 64, "steps": 3, "warmup": 1}
"""What cells share where the flags do not say it."""


def parser() -> argparse.ArgumentParser:
    """The flags of `bench matrix`."""
    p = Parser(prog="bench matrix", description=__doc__)
    p.add_argument("--full", action="store_true", help="backends, ZeRO stages, attention, compile modes, layers")
    p.add_argument("--strength", type=int, choices=(1, 2, 3), default=2, help="of --full: cover pairs or triples")
    p.add_argument("--max-cells", type=whole, default=MAX_CELLS, help="run so many at most")
    p.add_argument("--backend", default=Configuration.backend,
                   help=f"of the eight rows; default {Configuration.backend}, which on one process is "
                   "plain")  # fmt: skip
    p.add_argument("--compile-mode", choices=("blocks", "full"), default="blocks", help="of the eight rows")
    add_one(p, "model")
    add_one(p, "num_layers", help="of the eight rows; --full takes 2 and 4")
    add_one(p, "dtype", choices=("bf16", "fp32"))
    add_one(p, "seq_len")
    p.add_argument("--inputs", type=Path, help="recorded batches instead of synthetic ones")
    add_one(p, "max_inputs", "fold_tokens", "steps", "warmup", "device")
    p.add_argument("--processes", type=whole, default=1, help="of each cell; two and more test which is faster")
    p.add_argument("--lanes", type=whole, help="cells side by side; default: one per GPU")
    p.add_argument("--output", type=Path, default=Path("results/matrix"), help="default ./results/matrix")
    p.add_argument("--force", action="store_true", help="run again what is there already")
    p.add_argument("--retry-failed", action="store_true", help="run again what ended badly")
    p.add_argument("--dry-run", action="store_true", help="show the cells, run none")
    p.add_argument("--quiet", action="store_true", help="no line per phase")
    p.add_argument("--wide", action="store_true", help=WIDE)
    p.add_argument("--diff", nargs=2, type=Path, metavar=("OLD", "NEW"), help="compare two matrices, run nothing")
    help_texts.describe(p, ON_GPU, ON_CPU)
    return p


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 every cell that can run works, 1 one does not (of --diff: no longer) or none can, 2 wrong usage,
    130 interrupted."""
    options = parser().parse_args(arguments)
    sharding.tell("matrix", compares=True)
    if options.diff:
        return _diff(*options.diff)
    gpus = len(environment.gpus())
    base = _base(options, gpus)
    chosen, never = _chosen(options, base, gpus)
    if not options.dry_run:
        options.output.mkdir(parents=True, exist_ok=True)
    else:
        for cell in chosen:
            refused = refusal(cell.configuration, gpus)
            print(cell.name if refused is None else f"{cell.name}: unsupported: {refused[0]}")
        return OK
    return _run(options, chosen, never, gpus)


def _diff(old: Path, new: Path) -> int:
    lines, worse = show.differences(show.read(old), show.read(new))
    print("\n".join(lines) or "no difference")
    return FAILED if worse else OK


def _base(options: argparse.Namespace, gpus: int) -> Configuration:
    """What all cells share: a one-process run on the GPU, or a tiny one on the CPU."""
    on_gpu = gpus and options.device != "cpu"
    values: dict[str, Any] = dict(ON_GPU if on_gpu else ON_CPU)
    values["device"] = "auto" if on_gpu else "cpu"
    values |= given(options) | {"inputs": None}
    if options.inputs is not None:
        digest = sources.of(str(options.inputs)).digest(str(options.inputs))
        values |= {"inputs": str(options.inputs.resolve()), "input_hash": digest}
    if options.backend not in backends.names():
        raise ConfigurationError(
            f"--backend {options.backend}: use {', '.join(backends.names())}{meant(options.backend)}"
        )
    return parse(values)


def _chosen(options: argparse.Namespace, base: Configuration, gpus: int) -> tuple[list[Cell], list[Refused]]:
    if not options.full:
        return cells.eight(base, options.compile_mode), []

    there = [one for one in backends.every().values() if all(map(availability.installed, one.needs))]
    axes = {**AXES, "backend": tuple(name for one in there for name in one.variants())}

    def measured(cell: Cell) -> bool:
        old = None if options.force else results.read_result(cell.configuration.directory(options.output))
        return old is not None and old["status"] != "interrupted"

    possible, refused = cells.product(base, axes, lambda one: refusal(one, gpus))
    chosen = cells.cover(possible, options.strength, options.max_cells, measured)
    return chosen, cells.never(possible, refused, options.strength)


def _run(options: argparse.Namespace, chosen: list[Cell], never: list[Refused], gpus: int) -> int:
    references = [cells.reference(cell.configuration) for cell in chosen]
    configurations = list(dict.fromkeys([*references, *(cell.configuration for cell in chosen)]))
    lanes = options.lanes or max(gpus if options.device != "cpu" else 1, 1)
    sweep = LanedSweep(
        configurations, options.output, processes=options.processes, force=options.force,
        retry_failed=options.retry_failed, quiet=options.quiet, lanes=min(lanes, max(gpus, 1)),
    )  # fmt: skip
    interrupted = False
    try:
        rows = sweep.run()
    except Interrupted as stop:
        rows, interrupted = stop.rows, True
    entries = _conclude(options, chosen, never, {row["hash"]: row for row in rows})
    print("\n".join([show.table(entries, options.wide), *sweep.resumed()]))
    print(f"matrix, logs and results: {options.output}")
    if interrupted:
        print("interrupted: the same command goes on")
        return INTERRUPTED
    classes = {one["class"] for one in entries}
    return OK if classes & {*WORKS} and classes <= {*WORKS, "unsupported"} else FAILED


def _conclude(
    options: argparse.Namespace, chosen: list[Cell], never: list[Refused], rows: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Classify the cells that have a row and write `matrix.json`, `matrix.md` and the logs."""
    entries, kept, default = [], [], None
    for cell in chosen:
        row = rows.get(cell.configuration.content_hash())
        if row is None:
            continue
        held = rows.get(cells.reference(cell.configuration).content_hash())
        losses = held["runs"][0]["losses"] if held is not None and held["status"] == "ok" else None
        outcome = classify(row, losses)
        entries.append(show.entry(cell, row, outcome, default))
        if default is None and "summary" in row:
            default = entries[-1]
        kept.append(row)
    show.copy_logs(entries, kept, options.output)
    kind = f"{'full' if options.full else 'eight rows'}"
    written = show.document(kind, entries, never, environment.describe(Configuration()))
    results.write_json(options.output / "matrix.json", written)
    (options.output / "matrix.md").write_text(show.markdown(written), encoding="utf-8")
    return entries
