"""`python -m bench doctor`: is this machine ready to measure? One line per check, with what to do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.cli import FAILED, OK
from bench.doctor import gpus, host, packages
from bench.doctor.check import FAILURE, WARNING, Check
from bench.results import environment
from bench.terminal.parsing import Parser


def parser() -> argparse.ArgumentParser:
    """The flags of `bench doctor`."""
    p = Parser(prog="bench doctor", description=__doc__)
    p.add_argument("--output", type=Path, default=Path("results"), help="where results will go; default ./results")
    p.add_argument("--no-collectives", dest="collectives", action="store_false", help="start no process group")
    p.add_argument("--json", action="store_true", help="a list of objects instead of lines")
    return p


def checks(output: Path, collectives: bool) -> Iterator[Check]:
    """All checks, as they are made."""
    found = gpus.query()
    yield from host.checks(output, bool(found))
    yield from packages.checks(bool(found))
    yield from gpus.checks(found)
    usable = len(environment.gpus())
    torch = gpus.torch_sees(len(found or []))
    yield torch
    settings = gpus.nccl_settings()
    if settings is not None:
        yield settings
    if collectives and torch.status != FAILURE:
        from bench.doctor import collectives as group

        yield from group.checks(usable)


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 ready (warnings included), 1 something will not work, 2 wrong usage."""
    options = parser().parse_args(arguments)
    made = []
    for check in checks(options.output, options.collectives):
        made.append(check)
        if not options.json:
            print(check.line(), flush=True)
    failures, warnings = (sum(check.status == status for check in made) for status in (FAILURE, WARNING))
    if options.json:
        print(json.dumps([asdict(check) for check in made], indent=1))
    else:
        print(
            f"{len(made)} checks, {failures} failure{'s' * (failures != 1)}, {warnings} warning{'s' * (warnings != 1)}"
        )
    return FAILED if failures else OK
