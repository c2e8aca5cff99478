"""A small training job for `bench watch`: the median of its steps, or a rank that hangs on its GPU.

    torchrun --standalone --nproc-per-node=N watched.py OUT.json [--hang-at STEP] [--width 2048] [--steps 400]

The steps are short (a few ms), so that what a watcher takes shows. At `--hang-at` the last rank gives its GPU work that
has no end and waits for it, as where a kernel or a collective hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

FOREVER = 10**14


def wait_for_the_gpu() -> None:
    torch.cuda._sleep(FOREVER)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--hang-at", type=int)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    layers = [nn.Linear(options.width, options.width) for _ in range(16)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs = torch.randn(1024, options.width, device="cuda")
    times = []
    for step in range(options.steps):
        started = time.perf_counter()
        if step == options.hang_at and dist.get_rank() == dist.get_world_size() - 1:
            wait_for_the_gpu()
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    steady = times[50:]
    if dist.get_rank() == 0:
        with open(options.out, "a") as file:
            median, mean = 1e3 * statistics.median(steady), 1e3 * statistics.fmean(steady)
            file.write(json.dumps({"median_ms": median, "mean_ms": mean, "steps": len(steady)}) + "\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
