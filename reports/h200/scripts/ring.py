"""Ring attention alone: errors against one GPU, and times of forward and backward beside the ideal.

    torchrun --standalone --nproc-per-node=2 ring.py OUT.json [--lengths 32768,65536]

Causal, bf16, 32 heads, 8 key heads, head size 128. The ideal is what one GPU takes with cuDNN's kernel for the whole
sequence, divided by the ranks. Errors are ‖found − exact‖ / ‖exact‖ of output and gradients, exact being fp32
attention by matrix products over 4,096 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from bench.measure.clock import Clock
from bench.parallel import ring_attention as rings
from bench.parallel.attention_blocks import CudaFlash, Cudnn, Flash4, Plain
from bench.sweep.availability import installed

HEADS, KEY_HEADS, SIZE = 32, 8, 128
SCALE = SIZE**-0.5


def states(length: int, seed: int) -> list[torch.Tensor]:
    """Query, key, value and the output's gradient in the layout that transformers hands over, alike on all ranks."""
    generator = torch.Generator("cuda").manual_seed(seed)
    shapes = [(1, length, heads, SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS, HEADS)]
    made = [torch.randn(s, generator=generator, device="cuda", dtype=torch.bfloat16) for s in shapes]
    return [tensor.transpose(1, 2) for tensor in made]


def share(tensors: list[torch.Tensor], ring: rings.Ring) -> list[torch.Tensor]:
    held = rings.zigzag_indices([tensors[0].shape[2]], ring.rank, ring.size).cuda()
    return [t.transpose(1, 2)[:, held].transpose(1, 2) for t in tensors]


def both(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [t.detach().requires_grad_() for t in inputs[:3]]
    output = function(*leaves)
    output.backward(inputs[3])
    return [output.detach(), *(leaf.grad for leaf in leaves)]


def errors(ring: rings.Ring, kernel: Any) -> list[float]:
    whole = states(4096, 7)
    alone = rings.Ring(ring.group, 0, 1)
    wide = [t.float() for t in whole]
    exact = share(both(lambda q, k, v: rings.ring_attention(q, k, v, [4096], SCALE, alone, Plain()), wide), ring)
    mine = share(whole, ring)
    found = both(lambda q, k, v: rings.ring_attention(q, k, v, [4096 // ring.size], SCALE, ring, kernel), mine)
    return [float((a.float() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]


def milliseconds(step: Callable[[Any], None], device: torch.device) -> dict[str, float]:
    clock, times = Clock(device), []
    for _ in range(14):
        step(clock.phase)
        times.append(clock.take())
    return {name: 1e3 * statistics.median(t[name] for t in times[4:]) for name in times[0]}


def timed(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], device: torch.device) -> dict[str, float]:
    leaves = [t.detach().requires_grad_() for t in inputs[:3]]

    def step(phase: Any) -> None:
        with phase("forward"):
            output = function(*leaves)
        with phase("backward"):
            output.backward(inputs[3])
        for leaf in leaves:
            leaf.grad = None

    return milliseconds(step, device)


def varlen(ring: rings.Ring, length: int) -> Callable[..., torch.Tensor]:
    bounds = torch.tensor([0, length], dtype=torch.int32, device="cuda")

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return rings._varlen(q, k, v, bounds, length, SCALE, ring.group).transpose(1, 2)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--lengths", default="32768,65536")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    ring = rings.set_ring(dist.group.WORLD)
    assert ring is not None
    kernels: dict[str, Any] = {"cudnn": Cudnn(), "sdpa_flash": CudaFlash()}
    if installed("flash-attn-4"):
        kernels["flash_attention_4"] = Flash4()
    found: dict[str, Any] = {"ranks": ring.size, "gpu": torch.cuda.get_device_name(), "errors": {}, "times": {}}
    for name, kernel in kernels.items():
        found["errors"][name] = errors(ring, kernel)
    print(ring.rank, found["errors"], flush=True)
    for length in map(int, options.lengths.split(",")):
        whole = states(length, 1)
        alone = timed(
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
            whole, device,
        )  # fmt: skip
        mine, local = share(whole, ring), length // ring.size
        del whole
        calls = {
            name: (lambda q, k, v, kernel=kernel, n=local: rings.ring_attention(q, k, v, [n], SCALE, ring, kernel))
            for name, kernel in kernels.items()
        }
        if rings._flash_kernels() is not None:
            calls["flash_attention_2"] = varlen(ring, local)
        row: dict[str, Any] = {"one GPU": alone}
        for name, call in calls.items():
            dist.barrier()
            mine_times = timed(call, mine, device)
            slowest = torch.tensor(list(mine_times.values()), device=device)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            row[name] = dict(zip(mine_times, slowest.tolist(), strict=True))
            row[name]["share of ideal"] = sum(alone.values()) / ring.size / sum(slowest.tolist())
        found["times"][length] = row
        if ring.rank == 0:
            print(length, json.dumps(row), flush=True)
    if ring.rank == 0:
        with open(options.out, "w") as file:
            json.dump(found, file, indent=1)
    dist.barrier()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
