"""`bench run --break` and `--log-shapes`: one configuration in the foreground, whose results are not kept."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.cli import FAILED, INTERRUPTED, OK
from bench.configuration import Configuration, store
from bench.process import supervise
from bench.results.measured import PHASES

FILE = "debug.json"
PLACES = tuple(f"{when}-{phase}" for phase in PHASES for when in ("before", "after"))


@dataclass(frozen=True)
class Orders:
    """What a run in the foreground is told: where it stops, at which step from 1, and how deep shapes are shown."""

    place: str | None = None
    step: int = 1
    shapes: int | None = None


def place_and_step(text: str) -> tuple[str, int]:
    """`before-forward` or `before-forward:3`. Raises argparse.ArgumentTypeError."""
    found = re.fullmatch(r"([a-z-]+)(?::([1-9][0-9]*))?", text)
    if found is None or found[1] not in PLACES:
        raise argparse.ArgumentTypeError(f"{text!r}: use one of {', '.join(PLACES)}, and :N for step N")
    return found[1], int(found[2] or 1)


def run(configuration: Configuration, orders: Orders) -> int:
    """Run with this terminal. Exit status 0 to the end, 1 it failed, 130 left at the prompt or by Ctrl-C."""
    job = supervise.Job("bench.debug.worker", foreground=True)
    with tempfile.TemporaryDirectory(prefix="bench-debug-") as name:
        folder = Path(name)
        store(configuration, folder)
        (folder / FILE).write_text(json.dumps(asdict(orders)), encoding="utf-8")
        try:
            verdict = supervise.run_group(folder, 0, configuration.num_gpus, lambda *_: None, job=job)
        except KeyboardInterrupt:
            return INTERRUPTED
    if verdict.status == "ok":
        print(f"{configuration.label()} ran to its end; a run with a stop in it is not measured, nothing is kept")
        return OK
    if verdict.message.startswith("BdbQuit"):
        print(f"{configuration.label()} was left at the breakpoint")
        return INTERRUPTED
    print(f"bench run: {verdict.status}: {verdict.told}", file=sys.stderr)
    return FAILED
