"""One rank that Slurm has started: `python -m bench.launch.rank MODULE FOLDER NUMBER`.

Ranks meet over a file: rank 0 writes its address into the result directory, which all hosts share.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.launch.engine import free_port
from bench.process import files
from bench.process.process_exit import end

SECONDS = 300.0
POLL = 0.1


def described(environment: Mapping[str, str]) -> dict[str, str]:
    """RANK and so on from Slurm's variables. Raises `KeyError` outside of `srun`."""
    node, tasks = int(environment["SLURM_NODEID"]), tasks_per_node(environment["SLURM_STEP_TASKS_PER_NODE"])
    return {
        "RANK": environment["SLURM_PROCID"], "WORLD_SIZE": str(sum(tasks)),
        "LOCAL_RANK": environment["SLURM_LOCALID"], "LOCAL_WORLD_SIZE": str(tasks[node]), "GROUP_RANK": str(node),
    }  # fmt: skip


def tasks_per_node(text: str) -> list[int]:
    """Slurm's short form written out: `8(x2),4` is 8, 8, 4."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise ValueError(f"{text!r} is no list of tasks per node")
        found += [int(match[1])] * int(match[2] or 1)
    return found


def meet(folder: Path, number: str, rank: int, hosts: int) -> tuple[str, int]:
    """Address and port of rank 0. Raises `TimeoutError`."""
    path = folder / f"rendezvous.{number}.json"
    if rank == 0:
        host = "127.0.0.1" if hosts == 1 else socket.gethostname()
        files.write(path, json.dumps([host, free_port()]))
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            host, port = json.loads(path.read_text(encoding="utf-8"))
            return str(host), int(port)
        except OSError:
            time.sleep(POLL)
    raise TimeoutError(f"rank {rank} waited {SECONDS:.0f} s for {path}: do all hosts share this folder?")


def main(arguments: Sequence[str]) -> int:
    """Set the environment and run the module on this rank."""
    module, folder, number = arguments[:3]
    os.environ |= described(os.environ)
    hosts = len(tasks_per_node(os.environ["SLURM_STEP_TASKS_PER_NODE"]))
    host, port = meet(Path(folder), number, int(os.environ["RANK"]), hosts)
    os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
    return int(importlib.import_module(module).main(list(arguments[1:])))


if __name__ == "__main__":
    status = 1
    try:
        status = main(sys.argv[1:])
    except Exception:
        traceback.print_exc()
    end(status)
