"""`python -m bench compare A B [C …]`: do runs train alike, and is one slower?

A, B, … are result directories, files of result rows, pyperf files, or training logs; everything is compared with
the first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

from bench.cli import FAILED, OK, UNDECIDED
from bench.compare import logprobs
from bench.compare.pairs import NOT_COMPARABLE, Limits, compare
from bench.compare.plot import check_target, save
from bench.compare.render import as_data, as_text, mismatch_as_json, mismatch_as_text
from bench.compare.series import Run
from bench.compare.sources import read
from bench.problems import InputError, in_one_line
from bench.terminal.parsing import Parser, share
from bench.terminal.text import MARKDOWN, valid_json

STYLES = {"text": "simple", "markdown": MARKDOWN}


def parser() -> argparse.ArgumentParser:
    """The flags of `bench compare`."""
    p = Parser(prog="bench compare", description=__doc__)
    p.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="the first one is the reference")
    p.add_argument("--deepspeed_log", "--deepspeed-log", type=Path, metavar="FILE", help="the reference, a log")
    p.add_argument("--fsdp2_log", "--fsdp2-log", type=Path, action="append", default=[], metavar="FILE",
                   help="a log to compare with it")  # fmt: skip
    p.add_argument("--reference", metavar="NAME", help="name of the reference among the runs found")
    p.add_argument("--threshold", type=share, default=0.05, help="allowed relative difference of a loss; default 0.05")
    p.add_argument("--fall-threshold", type=share, default=0.05, metavar="SHARE",
                   help="how much less, or more, a loss may fall than the reference's; default 0.05")  # fmt: skip
    p.add_argument("--grad-norm-threshold", dest="norm_threshold", type=share, metavar="SHARE",
                   help="--threshold of gradient norms; default: none, only shown")  # fmt: skip
    p.add_argument("--first-norm-threshold", type=share, default=0.05, metavar="SHARE",
                   help="of the first gradient norms, where the first losses are equal; default 0.05")  # fmt: skip
    p.add_argument("--atol", type=share, default=0.0, help="differences up to this count as none; default 0")
    p.add_argument("--max-slowdown", type=share, metavar="SHARE", help="0.1 allows 10%% more time; default: any")
    p.add_argument("--must-fall", action="store_true", help="fail where a loss does not fall")
    p.add_argument("--common-steps", dest="common_only", action="store_true",
                   help="steps that one side lacks are a note, no failure")  # fmt: skip
    p.add_argument("--rebase", action="store_true", help="count the steps of each run from its first")
    p.add_argument("--loss-key", metavar="NAME", help="the loss in logs that hold several, such as critic_loss")
    p.add_argument("--plot", type=Path, metavar="FILE", help="loss curves as PNG, SVG or PDF")
    p.add_argument("--logprobs", action="store_true",
                   help="log-probabilities of the same tokens, in two files: trainer, rollout engine. Each is JSON "
                   f"lines, an object per sequence, or a dictionary of tensors (sequences, positions); keys are "
                   f"{', '.join(logprobs.NAMES)}; what {', '.join(logprobs.MASKS)} has 0 for, such as padding, is left "
                   "out, and without a mask every number is a token's")  # fmt: skip
    p.add_argument("--kl-threshold", type=share, default=0.01, help="of --logprobs: allowed divergence; default 0.01")
    p.add_argument("--format", choices=(*STYLES, "json"), default="text")
    return p


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 alike, 1 beyond a limit or for two models, 3 undecided: only more processes can tell; 2 for paths
    or flags that cannot be used, with one line on stderr."""
    options = parser().parse_args(arguments)
    if options.logprobs:
        return _logprobs(options)
    limits = Limits(**{field.name: getattr(options, field.name) for field in fields(Limits)})
    if options.plot:
        check_target(options.plot)
    chosen, unmatched = _chosen(options)
    pairs = [compare(a, b, limits) for a, b in chosen]
    if options.plot:
        save(pairs, options.plot, options.threshold)
    if options.format == "json":
        print(valid_json(as_data(pairs, unmatched), indent=1, ensure_ascii=False))
    else:
        print(as_text(pairs, unmatched, STYLES[options.format]))
    statuses = {pair.status for pair in pairs}
    return FAILED if statuses & {"FAIL", NOT_COMPARABLE} else UNDECIDED if "undecided" in statuses else OK


def _logprobs(options: argparse.Namespace) -> int:
    """Exit status 0 within --kl-threshold, 1 beyond it or where a token has no probability on one side, 2."""
    if len(options.paths) != 2:
        raise InputError("--logprobs takes two files: the trainer's and the rollout engine's")
    first, second = options.paths
    found = logprobs.compare(logprobs.read(first), logprobs.read(second), (str(first), str(second)))
    told = logprobs.findings(found, options.kl_threshold)
    as_json = options.format == "json"
    print(mismatch_as_json(found, told) if as_json else mismatch_as_text(found, told, STYLES[options.format]))
    return FAILED if any(fails for fails, _ in told) else OK


BY_SETTINGS = attrgetter("identity")
Chosen = tuple[list[tuple[Run, Run]], list[str]]
"""Pairs of a reference and a run, and lines on the runs that are in none."""


def _chosen(options: argparse.Namespace) -> Chosen:
    """What is compared with what: all runs with the first, or two sweeps row by row."""
    named = [options.deepspeed_log] if options.deepspeed_log else []
    paths: list[Path] = [*named, *options.paths, *options.fsdp2_log]
    if not paths:
        raise InputError("name a reference and what to compare with it")
    groups = [read(path, options.loss_key) for path in paths]
    several = len(groups) == 2 and options.reference is None and any(len(group) > 1 for group in groups)
    if several and (all(len(group) > 1 for group in groups) or _matched(groups[0], groups[1], BY_SETTINGS)):
        return _row_by_row(groups[0], groups[1], paths[0], paths[1])
    runs = _told_apart(groups, paths)
    if len(runs) < 2:
        raise InputError(f"{paths[0]} holds one run, {runs[0].name}: name another to compare with it")
    first = _reference(runs, options.reference)
    return [(first, run) for run in runs if run is not first], []


def _told_apart(groups: list[list[Run]], paths: list[Path]) -> list[Run]:
    """All runs; those of one name carry the name of their path too."""
    names = [run.name for group in groups for run in group]
    for group, path in zip(groups, paths, strict=True):
        for run in group:
            if names.count(run.name) > 1:
                run.name = f"{run.name} ({path})"
    return [run for group in groups for run in group]


def _reference(runs: list[Run], name: str | None) -> Run:
    if name is None:
        return runs[0]
    found = [run for run in runs if run.name == name]
    if not found:
        raise InputError(f"--reference {name}: there are {', '.join(run.name for run in runs)}")
    return found[0]


def _row_by_row(before: list[Run], after: list[Run], first_path: Path, second_path: Path) -> Chosen:
    """Rows of two sweeps that belong together: of the same settings, else of the same name, one setting against
    another; where there are none, those of the same settings but for the backend."""
    pairs = _matched(before, after, BY_SETTINGS)
    paired = {id(run) for pair in pairs for run in pair}
    left, right = ([run for run in group if id(run) not in paired] for group in (before, after))
    pairs += _matched(left, right, lambda run: run.name)
    pairs = pairs or _matched(before, after, _but_for_backend)
    if not pairs:
        raise InputError("the two sweeps have no configuration in common; give --reference to compare all with one")
    paired = {id(run) for pair in pairs for run in pair}
    alone = [
        f"{run.name}, only in {path}"
        for group, path in ((before, first_path), (after, second_path))
        for run in group
        if id(run) not in paired
    ]
    for first, second in pairs:
        second.name, first.name = f"{second.name} (second)", f"{first.name} (first)"
    return pairs, alone


def _matched(before: list[Run], after: list[Run], key: Callable[[Run], object]) -> list[tuple[Run, Run]]:
    """Runs of equal keys; none at all where a key is that of several runs of one sweep, and so tells none apart."""
    rows, others = [key(run) for run in before], [key(run) for run in after]
    if any(group.count(row) > 1 for group in (rows, others) for row in group):
        return []
    return [(run, after[others.index(row)]) for run, row in zip(before, rows, strict=True) if row in others]


def _but_for_backend(run: Run) -> object:
    return {name: value for name, value in run.identity.items() if name not in ("backend", "zero_stage")}
