"""All-reduce over every pair of ranks and over all: `python -m bench.doctor.bandwidth FOLDER 0` is one rank.

The bandwidth is that of the bus, bytes × 2(n - 1)/n per second, which does not depend on how many take part.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench.process.heartbeat import Heartbeat, reported, write_run
from bench.process.process_exit import end

GPU_BYTES, CPU_BYTES = 256 * 2**20, 8 * 2**20
WARM, REPEATS = 3, 10


def measure(group: Any, ranks: int, device: torch.device) -> float:
    """Bytes per second of the bus in `group`, to which this rank belongs."""
    size = GPU_BYTES if device.type == "cuda" else CPU_BYTES
    tensor = torch.ones(size // 4, device=device)
    for _ in range(WARM):
        dist.all_reduce(tensor, group=group)
    _wait(device)
    started = time.perf_counter()
    for _ in range(REPEATS):
        dist.all_reduce(tensor, group=group)
    _wait(device)
    seconds = (time.perf_counter() - started) / REPEATS
    return size * 2 * (ranks - 1) / ranks / seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def everywhere(heartbeat: Heartbeat, device: torch.device) -> dict[str, float]:
    """Bandwidths by names such as `0-3` and `all`, the slowest rank's. Pairs come one after the other."""
    world, rank = dist.get_world_size(), dist.get_rank()
    groups = [*itertools.combinations(range(world), 2), *([tuple(range(world))] if world > 2 else [])]
    found = {}
    for done, ranks in enumerate(groups):
        group = dist.new_group(list(ranks))
        mine = measure(group, len(ranks), device) if rank in ranks else float("inf")
        slowest = torch.tensor(mine, device=device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MIN)
        found["-".join(map(str, ranks)) if len(ranks) == 2 else "all"] = float(slowest)
        dist.destroy_process_group(group)
        heartbeat.beat("measure", done + 1, len(groups))
    return found


def main(arguments: list[str]) -> int:
    folder, number = Path(arguments[0]), int(arguments[1])
    heartbeat = Heartbeat(folder, int(os.environ["RANK"]))
    with reported(heartbeat):
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        heartbeat.beat("load")
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        found = everywhere(heartbeat, device)
        if dist.get_rank() == 0:
            write_run(folder, number, {"bytes_per_second": found})
        dist.barrier()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    end(main(sys.argv[1:]))
