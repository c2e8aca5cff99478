"""How much of a step `bench watch` takes: `python tests/benchmarks/watch_overhead.py [--pairs N] [--backend nccl]`.

Two ranks train a small model with DDP. Jobs without anything (flight recorder off) and watched ones alternate; in each
watched one, blocks of steps with the thread at work and with the thread idle alternate too. Printed: both ratios, of
the time of a step and of its processor time, on which other programs weigh less; and the processor time of the thread
itself as a share of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BLOCKS, STEPS, WIDTH, BATCH = 100, 20, 256, 64


def rank(backend: str) -> None:
    """What each rank runs; rank 0 prints seconds per step by block, and the thread's seconds."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(backend)
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(8)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    values = torch.ones(BATCH, WIDTH, device=device)
    agent = next((hook.agent for hook in sys.meta_path if hasattr(hook, "agent")), None)
    tick = agent.tick if agent is not None else None
    blocks: list[tuple[float, float]] = []
    for block in range(BLOCKS + 2):
        if agent is not None:
            agent.tick = tick if block % 2 == 0 else lambda: None
        if block == 2:
            before, since = _spent(), time.perf_counter()
        began = time.perf_counter(), time.process_time()
        for _ in range(STEPS):
            model(values).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.barrier()
        blocks.append(((time.perf_counter() - began[0]) / STEPS, (time.process_time() - began[1]) / STEPS))
    if dist.get_rank() == 0:
        spent = 2 * (_spent() - before) / (time.perf_counter() - since)  # at work half of the time
        print(json.dumps({"blocks": blocks[2:], "spent": spent}), flush=True)
    dist.destroy_process_group()


def _spent() -> float:
    """Seconds of processor time that the thread has taken, by its own clock."""
    folder = os.environ.get("MESHPROOF_WATCH")
    return 0.0 if folder is None else float(json.loads(Path(folder, "heartbeat.0.json").read_text())["spent"])


def job(watched: bool, options: argparse.Namespace) -> dict[str, Any]:
    """The record of one job."""
    watch = [sys.executable, "-P", "-m", "bench", "watch", "--limit", str(options.limit), "--"] if watched else []
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, "--rank"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if not watched:
        environment["TORCH_FR_BUFFER_SIZE"] = "0"
    done = subprocess.run(
        [*watch, *command, "--backend", options.backend], env=environment, capture_output=True, text=True, check=False
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if done.returncode or line is None:
        raise SystemExit(f"the job failed:\n{done.stderr}")
    return dict(json.loads(line))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--limit", type=float, default=540.0, help="of bench watch; the thread looks 20 times in it")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.backend)
        return
    pairs = [(job(False, options), job(True, options)) for _ in range(options.pairs)]
    plain, watched = zip(*pairs, strict=True)
    print(f"{options.backend}, 2 ranks, {options.pairs} pairs of jobs, {BLOCKS * STEPS} steps each")
    for at, what in enumerate(("time", "processor time")):
        step = statistics.median(_medians(plain, at))
        jobs = [w / p for p, w in zip(_medians(plain, at), _medians(watched, at), strict=True)]
        print(f"{what} of a step: {step * 1e3:.2f} ms")
        print(f"  watched / plain jobs, recorder off: {_shown(jobs)}")
        print(f"  thread at work / idle, neighbouring blocks of one job: {_shown(_neighbours(watched, at))}")
    print(f"processor time of the thread: {statistics.mean(one['spent'] for one in watched):.4%} of the time")


def _medians(jobs: Sequence[Mapping[str, Any]], at: int) -> list[float]:
    return [statistics.median(block[at] for block in job["blocks"]) for job in jobs]


def _neighbours(jobs: Sequence[Mapping[str, Any]], at: int) -> list[float]:
    found = []
    for job in jobs:
        values = [block[at] for block in job["blocks"]]
        found += [with_it / without for with_it, without in zip(values[::2], values[1::2], strict=True)]
    return found


def _shown(ratios: Sequence[float]) -> str:
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    return f"{statistics.median(ratios):.4f} (± {error:.4f})"


if __name__ == "__main__":
    main()
