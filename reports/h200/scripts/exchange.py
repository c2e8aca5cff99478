"""How fast the exchanges of tensor parallelism are alone, and what products lose by being cut in two or run beside one.

    torchrun --standalone --nproc-per-node=2 exchange.py OUT.json

One shard is (4096, 4096) in bf16: half of 8,192 positions of `llama-3.1-8b`. Milliseconds, medians; the host is ahead.
Errors of the products over peer memory are ‖found − exact‖ / ‖exact‖, exact being NCCL's gather and sum in fp32.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from bench.parallel import peer_products

ROWS, HIDDEN = 4096, 4096
WIDTHS = {
    "qkv": (3072, 4096),
    "out": (4096, 2048),
    "gate": (7168, 4096),
    "gate+up": (14336, 4096),
    "down": (4096, 7168),
}
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
    return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks))


def exchanges(group: dist.ProcessGroup) -> dict[str, Callable[[], Any]]:
    shard = torch.randn(ROWS, HIDDEN, device="cuda", dtype=torch.bfloat16)
    whole = torch.randn(2 * ROWS, HIDDEN, device="cuda", dtype=torch.bfloat16)
    peers = peer_products._peers(group.group_name, "cuda")
    into = torch.empty_like(shard)

    def fetch() -> None:
        peers.outgoing((1, *shard.shape), shard)
        peers.fetch()[1]()

    return {
        "nccl all-gather": lambda: dist.all_gather_into_tensor(whole, shard, group=group),
        "nccl reduce-scatter": lambda: dist.reduce_scatter_tensor(into, whole, group=group),
        "nccl all-reduce of all rows": lambda: dist.all_reduce(whole, group=group),
        "peer memory: spread": lambda: peers.spread(shard)[1](),
        "peer memory: fetch": fetch,
        "copy on one GPU": lambda: into.copy_(shard),
    }


def products(outputs: int, inputs: int) -> dict[str, float]:
    left, weight, grad = _drawn(2 * ROWS, inputs, 1), _drawn(outputs, inputs, 2), _drawn(2 * ROWS, outputs, 3)
    out, back = torch.empty_like(grad), torch.empty_like(left)

    def halves(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        torch.mm(a[:ROWS], b, out=c[:ROWS])
        torch.mm(a[ROWS:], b, out=c[ROWS:])

    def summed() -> None:
        first = torch.mm(grad[:ROWS].t(), left[:ROWS])
        torch.addmm(first, grad[ROWS:].t(), left[ROWS:], out=first)

    return {
        "whole": milliseconds(lambda: torch.mm(left, weight.t(), out=out)),
        "halves": milliseconds(lambda: halves(left, weight.t(), out)),
        "gradient of inputs, whole": milliseconds(lambda: torch.mm(grad, weight, out=back)),
        "gradient of inputs, halves": milliseconds(lambda: halves(grad, weight, back)),
        "gradient of weights": milliseconds(lambda: torch.mm(grad.t(), left)),
        "gradient of weights, halves": milliseconds(summed),
    }


def overlapped(group: dist.ProcessGroup) -> dict[str, dict[str, float]]:
    """Each operator, the same by NCCL one after the other, and its errors."""
    return {name: (_scattering if name in ("out", "down") else _gathering)(*WIDTHS[name], group) for name in WIDTHS}


def _drawn(rows: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, device="cuda", dtype=torch.bfloat16)


def _gathering(outputs: int, inputs: int, group: dist.ProcessGroup) -> dict[str, float]:
    rank = dist.get_rank()
    everything, weight = _drawn(2 * ROWS, inputs, 1), _drawn(outputs, inputs, 2 + rank) / 64
    shard, grad = everything[rank * ROWS :][:ROWS].clone(), _drawn(2 * ROWS, outputs, 9 + rank)
    whole, part = torch.empty_like(everything), torch.empty_like(shard)

    def nccl() -> Any:
        dist.all_gather_into_tensor(whole, shard, group=group)
        return whole @ weight.t()

    def nccl_backward() -> Any:
        dist.reduce_scatter_tensor(part, grad @ weight, group=group)
        return grad.t() @ everything

    def peers() -> Any:
        return peer_products._gather(shard, [weight], group.group_name)

    def peers_backward() -> Any:
        return peer_products._gather_backward([grad], shard, [weight], group.group_name)

    of_input = grad.float() @ weight.float()
    dist.all_reduce(of_input)
    own, theirs, of_weight = peers_backward()
    errors = [
        _error(peers()[0], everything.float() @ weight.t().float()),
        _error(own.float() + theirs[0].float(), of_input[rank * ROWS :][:ROWS]),
        _error(of_weight, grad.t().float() @ everything.float()),
    ]
    return _timed(peers, nccl, peers_backward, nccl_backward, errors)


def _scattering(outputs: int, inputs: int, group: dist.ProcessGroup) -> dict[str, float]:
    rank = dist.get_rank()
    states, weight = _drawn(2 * ROWS, inputs, 1 + rank), _drawn(outputs, inputs, 3 + rank) / 64
    grads = _drawn(2 * ROWS, outputs, 9)
    grad = grads[rank * ROWS :][:ROWS].clone()
    whole, part = torch.empty_like(grads), torch.empty_like(grad)

    def nccl() -> Any:
        return dist.reduce_scatter_tensor(part, states @ weight.t(), group=group)

    def nccl_backward() -> Any:
        dist.all_gather_into_tensor(whole, grad, group=group)
        return whole @ weight, whole.t() @ states

    def peers() -> Any:
        return peer_products._scatter(states, weight, group.group_name)

    def peers_backward() -> Any:
        return peer_products._scatter_backward(grad, states, weight, group.group_name)

    exact = states.float() @ weight.t().float()
    dist.all_reduce(exact)
    own, theirs = peers()
    of_states, of_weight = peers_backward()
    errors = [
        _error(own.float() + theirs[0].float(), exact[rank * ROWS :][:ROWS]),
        _error(of_states, grads.float() @ weight.float()),
        _error(of_weight, grads.t().float() @ states.float()),
    ]
    return _timed(peers, nccl, peers_backward, nccl_backward, errors)


def _timed(peers: Any, nccl: Any, peers_backward: Any, nccl_backward: Any, errors: list[float]) -> dict[str, float]:
    return {
        "peers": milliseconds(peers), "nccl": milliseconds(nccl), "backward, peers": milliseconds(peers_backward),
        "backward, nccl": milliseconds(nccl_backward), "error": max(errors),
    }  # fmt: skip


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.float() - exact).norm() / exact.norm())


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    group = dist.group.WORLD
    assert group is not None
    settings = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "nccl": settings}
    parts: dict[str, Callable[[], Any]] = {n: partial(milliseconds, call) for n, call in exchanges(group).items()}
    parts |= {
        "products": lambda: {name: products(*width) for name, width in WIDTHS.items()},
        "overlapped": lambda: overlapped(group),
    }
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
