"""Ranks through the `deepspeed` launcher: on this host, or on those of a hostfile, which it reaches by ssh."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import launchers
from bench.configuration import ConfigurationError, parse
from bench.launch.engine import free_port
from bench.results import environment


@dataclass(frozen=True)
class DeepSpeed:
    """`hostfile` holds lines such as `worker-1 slots=8`; None is this host alone."""

    hostfile: Path | None = None

    def command(self, ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
        # Its own port is always 29500: two rows at a time, or another job, would meet there.
        port = free_port()
        where = [f"--num_gpus={ranks}"]
        if self.hostfile is not None:
            where = [f"--hostfile={self.hostfile}", *included(self.hostfile.read_text(encoding="utf-8"), ranks)]
        runner = [sys.executable, "-m", "deepspeed.launcher.runner", *where, f"--master_port={port}"]
        return [*runner, "--no_local_rank", "--module", module, *arguments]


def slots(text: str) -> dict[str, int]:
    """GPUs by host of a hostfile. Raises `ValueError` with the line that is none."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        host, *rest = words
        if len(rest) != 1 or not rest[0].startswith("slots=") or not rest[0][6:].isdigit():
            raise ValueError(f"{line!r}: write a host and slots=N")
        found[host] = int(rest[0][6:])
    return found


def included(text: str, ranks: int) -> list[str]:
    """The flag that takes the first `ranks` slots, host by host. Raises `ValueError` where there are fewer."""
    parts, left = [], ranks
    for host, count in slots(text).items():
        taken = min(count, left)
        if taken:
            parts.append(f"{host}:{','.join(map(str, range(taken)))}")
        left -= taken
    if left:
        raise ValueError(f"{ranks} ranks need {ranks} slots, the hostfile has {ranks - left}")
    return [f"--include={'@'.join(parts)}"]


class Where(launchers.Where):
    name = "deepspeed"
    text = "its own launcher"

    def add(self, group: Any) -> None:
        group.add_argument("--hostfile", type=Path, help="of deepspeed: lines of a host and slots=N, reached by ssh")

    def check(self, options: argparse.Namespace, settings: Mapping[str, Any]) -> None:
        if options.hostfile is None:
            return
        said = settings.get("num_gpus", 0)
        numbers = [parse({"num_gpus": number}).num_gpus for number in (said if isinstance(said, list) else [said])]
        wanted, there = max(numbers, default=0), _all_slots(options.hostfile)
        if wanted > there:
            words = f"{wanted} ranks need as many slots, it has {there}"
            raise ConfigurationError(f"--hostfile {options.hostfile}: {words}")

    def gpus(self, options: argparse.Namespace) -> int:
        if options.hostfile is None:
            return len(environment.gpus())
        return 0 if options.device == "cpu" else _all_slots(options.hostfile)

    def engine(self, options: argparse.Namespace) -> DeepSpeed:
        return DeepSpeed(options.hostfile)


def _all_slots(hostfile: Path) -> int:
    try:
        return sum(slots(hostfile.read_text(encoding="utf-8")).values())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--hostfile {hostfile}: {error}") from None


WHERE = Where()
