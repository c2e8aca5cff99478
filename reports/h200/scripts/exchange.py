"""How fast the exchanges of tensor parallelism are alone, and what products lose by being cut in two or run beside one.

    torchrun --standalone --nproc-per-node=2 exchange.py OUT.json

One shard is (4096, 4096) in bf16: half of 8,192 positions of `llama-3.1-8b`. Milliseconds, medians; the host is ahead.
Errors of the products over peer memory are ‖found − exact‖ / ‖exact‖, exact being NCCL's gather and sum in fp32.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _symmetric_memory as symmetric

from bench.parallel import peer_products

ROWS, HIDDEN = 4096, 4096
WIDTHS = {"qkv": (3072, 4096), "out": (4096, 2048), "gate": (7168, 4096), "gate+up": (14336, 4096), "down": (4096, 7168)}
"""(outputs, inputs) of one rank's weights, tp 2."""


def milliseconds(step: Callable[[], Any], repeat: int = 30) -> float:
    """Between events around each of several calls, behind products that keep the host ahead."""
    filler = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    dist.barrier()
    for _ in range(12):
        filler @ filler
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeat + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:], strict=False))


def exchanges(group: dist.ProcessGroup) -> dict[str, Callable[[], Any]]:
    shard = torch.randn(ROWS, HIDDEN, device="cuda", dtype=torch.bfloat16)
    whole = torch.randn(2 * ROWS, HIDDEN, device="cuda", dtype=torch.bfloat16)
    peers = peer_products._peers(group.group_name, "cuda")
    into = torch.empty_like(shard)

    def by_copy_engine() -> None:
        mine = peers.next_buffer(tuple(shard.shape), shard)
        mine.copy_(shard)
        peers.meet()
        into.copy_(peers.buffer_of(1 - peers.rank))

    def meet_only() -> None:
        peers.next_buffer(tuple(shard.shape), shard)
        peers.meet()

    def read_by_kernel() -> None:
        mine = peers.next_buffer(tuple(shard.shape), shard)
        peers.meet()
        torch.add(mine, peers.buffer_of(1 - peers.rank), out=into)

    return {
        "nccl all-gather": lambda: dist.all_gather_into_tensor(whole, shard, group=group),
        "nccl reduce-scatter": lambda: dist.reduce_scatter_tensor(into, whole, group=group),
        "nccl all-reduce of all rows": lambda: dist.all_reduce(whole, group=group),
        "symmetric memory, low contention, all-gather": lambda: _wait(
            torch.ops.symm_mem._low_contention_all_gather(shard, group.group_name)
        ),
        "peer memory: copy, meet, fetch": by_copy_engine,
        "peer memory: meet": meet_only,
        "peer memory: meet, sum of mine and theirs by a kernel": read_by_kernel,
        "copy on one GPU": lambda: into.copy_(shard),
    }


def _wait(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ops._c10d_functional.wait_tensor(tensor)


def products() -> dict[str, dict[str, float]]:
    found = {}
    for name, (outputs, inputs) in WIDTHS.items():
        left = torch.randn(2 * ROWS, inputs, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16)
        grad = torch.randn(2 * ROWS, outputs, device="cuda", dtype=torch.bfloat16)
        out, back = torch.empty_like(grad), torch.empty_like(left)

        def halves(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
            torch.mm(a[:ROWS], b, out=c[:ROWS])
            torch.mm(a[ROWS:], b, out=c[ROWS:])

        found[name] = {
            "whole": milliseconds(lambda: torch.mm(left, weight.t(), out=out)),
            "halves": milliseconds(lambda: halves(left, weight.t(), out)),
            "gradient of inputs, whole": milliseconds(lambda: torch.mm(grad, weight, out=back)),
            "gradient of inputs, halves": milliseconds(lambda: halves(grad, weight, back)),
            "gradient of weights": milliseconds(lambda: torch.mm(grad.t(), left)),
        }
    return found


def overlapped(group: dist.ProcessGroup) -> dict[str, dict[str, float]]:
    """Each operator, with the same by NCCL one after the other, and its errors."""
    found = {}
    for name, (outputs, inputs) in WIDTHS.items():
        torch.manual_seed(dist.get_rank())
        shard = torch.randn(ROWS, inputs, device="cuda", dtype=torch.bfloat16)
        states = torch.randn(2 * ROWS, inputs, device="cuda", dtype=torch.bfloat16)
        torch.manual_seed(7)
        weight = torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) / 64
        whole = torch.empty_like(states)
        if name in ("out", "down"):
            grad = torch.randn(ROWS, outputs, device="cuda", dtype=torch.bfloat16)
            gathered = torch.empty(2 * ROWS, outputs, device="cuda", dtype=torch.bfloat16)
            part = torch.empty_like(grad)

            def sequential(x=states, w=weight, part=part) -> Any:
                return dist.reduce_scatter_tensor(part, x @ w.t(), group=group)

            def sequential_backward(g=grad, x=states, w=weight, all_=gathered) -> Any:
                dist.all_gather_into_tensor(all_, g, group=group)
                return all_ @ w, all_.t() @ x

            calls = {
                "peers": lambda x=states, w=weight: peer_products._scatter(x, w, group.group_name),
                "nccl": sequential,
                "backward, peers": lambda g=grad, x=states, w=weight: peer_products._scatter_backward(
                    g, x, w, group.group_name
                ),
                "backward, nccl": sequential_backward,
            }
            exact = states.float() @ weight.t().float()
            dist.all_reduce(exact)
            mine = exact[dist.get_rank() * ROWS :][:ROWS]
            own, theirs = calls["peers"]()
            errors = [_error(own.float() + theirs[0].float(), mine)]
        else:
            grad = torch.randn(2 * ROWS, outputs, device="cuda", dtype=torch.bfloat16)
            part = torch.empty_like(shard)

            def sequential(x=shard, w=weight, all_=whole) -> Any:
                dist.all_gather_into_tensor(all_, x, group=group)
                return all_ @ w.t()

            def sequential_backward(g=grad, x=states, w=weight, part=part) -> Any:
                dist.reduce_scatter_tensor(part, g @ w, group=group)
                return g.t() @ x

            calls = {
                "peers": lambda x=shard, w=weight: peer_products._gather(x, [w], group.group_name),
                "nccl": sequential,
                "backward, peers": lambda g=grad, x=states, w=weight: peer_products._gather_backward(
                    [g], x, [w], group.group_name
                ),
                "backward, nccl": sequential_backward,
            }
            dist.all_gather_into_tensor(whole, shard, group=group)
            gathered, product = calls["peers"]()
            errors = [_error(gathered, whole.float()), _error(product, whole.float() @ weight.t().float())]
        found[name] = {label: milliseconds(call) for label, call in calls.items()} | {"error": max(errors)}
    return found


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.float() - exact).norm() / exact.norm())


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    group = dist.group.WORLD
    assert group is not None
    symmetric.enable_symm_mem_for_group(group.group_name)
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "nccl": {k: v for k, v in os.environ.items() if k.startswith("NCCL_")}}
    parts: dict[str, Callable[[], Any]] = {name: (lambda call=call: milliseconds(call)) for name, call in exchanges(group).items()}
    parts |= {"products": products, "overlapped": lambda: overlapped(group)}
    if sys.argv[2:] == ["nccl"]:
        parts = {name: call for name, call in parts.items() if name.startswith("nccl")}
    for name, call in parts.items():
        try:
            found[name] = call()
        except Exception:
            found[name] = traceback.format_exc()[-800:]
        if dist.get_rank() == 0:
            print(name, json.dumps(found[name]), flush=True)
    if dist.get_rank() == 0:
        with open(sys.argv[1], "a") as file:
            file.write(json.dumps(found) + "\n")
    dist.barrier()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
