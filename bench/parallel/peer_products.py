"""Matrix products beside the exchange of their inputs or outputs, over memory that the GPUs of a host share.

Rows of a matrix are spread over the ranks of a group. A product of all rows begins with this rank's own, while copy
engines fetch the others'; a product whose results are summed over the ranks begins with the other ranks' rows, which
are fetched while this rank's own are computed. What arrives is added by whoever reads the sum. No multicast is used and,
but for the products, no multiprocessor.

The compiler sees each as one operator. Elsewhere than on GPUs a group's own collectives do the exchange.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

OPERATORS = "meshproof_peer_products"


class Peers:
    """The buffers of a group: each rank writes its own, and reads the others' once all have met.

    There are two, used in turn: who meets for the second has read what it wanted of the first, which can then be
    written anew.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def next_buffer(self, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """What this rank may write, all ranks asking for the same shape."""
        self._mine = torch.empty(shape, dtype=like.dtype, device=like.device)
        return self._mine

    def meet(self) -> None:
        """From here on all ranks' buffers are written, for what follows beside the products."""
        self._all = [torch.empty_like(self._mine) for _ in range(self.size)]
        dist.all_gather(self._all, self._mine, group=self.group)

    def buffer_of(self, rank: int) -> torch.Tensor:
        return self._all[rank]

    def beside(self) -> AbstractContextManager[None]:
        """Within it, what is begun runs beside the products, after all that was begun before."""
        return nullcontext()

    def mark(self) -> Callable[[], None]:
        """Of what was begun beside the products so far: a function that makes the products wait for it."""
        return lambda: None

    def others(self) -> list[int]:
        return [(self.rank + step) % self.size for step in range(1, self.size)]


class GpuPeers(Peers):
    """Over symmetric memory, on a stream of its own. Ranks meet by values that the GPU's front end writes and waits for:
    a kernel that waits would have to find room beside a product first."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self.stream = torch.cuda.Stream(priority=-1)
        self.bytes, self.half, self.met = 0, 0, 0
        self._views: dict[Any, list[torch.Tensor]] = {}

    def _grow(self, size: int) -> None:
        from torch.distributed import _symmetric_memory as symmetric

        torch.cuda.synchronize()
        dist.barrier(self.group)
        self.bytes, self.met = -(-size // 512) * 512, 0
        symmetric.enable_symm_mem_for_group(self.group.group_name)
        device = torch.device("cuda", torch.cuda.current_device())
        self._memory = symmetric.empty(2 * self.bytes + 512, dtype=torch.uint8, device=device)
        self._memory.zero_()
        self._handle = symmetric.rendezvous(self._memory, self.group.group_name)
        self._flags = [
            self._handle.get_buffer(rank, (self.size,), torch.int32, 2 * self.bytes // 4).data_ptr()
            for rank in range(self.size)
        ]
        self._views.clear()
        torch.cuda.synchronize()
        dist.barrier(self.group)
        torch.cuda.synchronize()

    def next_buffer(self, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        size = math.prod(shape) * like.element_size()
        if size > self.bytes:
            self._grow(size)
        self.half = 1 - self.half
        key = (self.half, shape, like.dtype)
        if key not in self._views:
            offset = self.half * self.bytes // like.element_size()
            self._views[key] = [self._handle.get_buffer(r, shape, like.dtype, offset) for r in range(self.size)]
        self._all = self._views[key]
        return self._all[self.rank]

    def meet(self) -> None:
        if os.environ.get("PEERS_MEET") == "kernel":
            self._handle.barrier(channel=0)
            return
        self.met = (self.met + 1) & 0xFFFFFFFF
        stream, driver = torch.cuda.current_stream().cuda_stream, _driver()
        for other in self.others():
            _check(driver.cuStreamWriteValue32(stream, self._flags[other] + 4 * self.rank, self.met, 0))
        for other in self.others():
            reached = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
            _check(driver.cuStreamWaitValue32(stream, self._flags[self.rank] + 4 * other, self.met, reached))

    def beside(self) -> AbstractContextManager[None]:
        self.stream.wait_stream(torch.cuda.current_stream())
        context: AbstractContextManager[None] = torch.cuda.stream(self.stream)
        return context

    def mark(self) -> Callable[[], None]:
        event = self.stream.record_event()
        return lambda: torch.cuda.current_stream().wait_event(event)


@cache
def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _check(result: tuple[Any, ...]) -> None:
    if int(result[0]) != 0:
        raise RuntimeError(f"ranks cannot meet on their GPUs: {result[0]}")


@cache
def _peers(name: str, device_type: str) -> Peers:
    group = dist.distributed_c10d._resolve_process_group(name)  # type: ignore[arg-type]
    return GpuPeers(group) if device_type == "cuda" else Peers(group)


def _rows(tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    part = tensor.shape[0] // size
    return tensor[rank * part : (rank + 1) * part]


def _multiply(out: torch.Tensor, lefts: Sequence[torch.Tensor], rights: Sequence[torch.Tensor]) -> None:
    """The sum of the products, into `out`."""
    torch.mm(lefts[0], rights[0], out=out)
    for left, right in zip(lefts[1:], rights[1:], strict=True):
        torch.addmm(out, left, right, out=out)


def _gather_times(
    peers: Peers, shard: torch.Tensor, rights: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """All ranks' rows, and their products with each of `rights`."""
    shard = shard.contiguous()
    rows = shard.shape[0] * peers.size
    gathered = shard.new_empty(rows, shard.shape[1])
    products = [shard.new_empty(rows, right.shape[1]) for right in rights]
    mine, arrived = peers.next_buffer(tuple(shard.shape), shard), {}
    with peers.beside():
        mine.copy_(shard)
        peers.meet()
        for other in peers.others():
            _rows(gathered, other, peers.size).copy_(peers.buffer_of(other))
            arrived[other] = peers.mark()
        _rows(gathered, peers.rank, peers.size).copy_(shard)
        all_arrived = peers.mark()
    for right, product in zip(rights, products, strict=True):
        torch.mm(shard, right, out=_rows(product, peers.rank, peers.size))
    for other in peers.others():
        arrived[other]()
        for right, product in zip(rights, products, strict=True):
            torch.mm(_rows(gathered, other, peers.size), right, out=_rows(product, other, peers.size))
    all_arrived()
    return gathered, products


def _times_scatter(
    peers: Peers, lefts: Sequence[torch.Tensor], rights: Sequence[torch.Tensor],
    meanwhile: Callable[[], list[torch.Tensor]] = list,
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:  # fmt: skip
    """This rank's rows of the sum of `lefts` times `rights`: this rank's summand (rows, columns) and the others'
    (ranks - 1, rows, columns), and what `meanwhile` gives."""
    rows, columns = lefts[0].shape[0] // peers.size, rights[0].shape[1]
    own = lefts[0].new_empty(rows, columns)
    theirs = lefts[0].new_empty(peers.size - 1, rows, columns)
    # Each other rank reads one part, the one whose number is the steps from this rank to it.
    parts = peers.next_buffer(tuple(theirs.shape), own)
    for part, other in zip(parts, peers.others(), strict=True):
        _multiply(part, [_rows(left, other, peers.size) for left in lefts], rights)
    with peers.beside():
        peers.meet()
        for step, arriving in enumerate(theirs):
            arriving.copy_(peers.buffer_of((peers.rank - step - 1) % peers.size)[step])
        arrived = peers.mark()
    _multiply(own, [_rows(left, peers.rank, peers.size) for left in lefts], rights)
    others = meanwhile()
    arrived()
    return own, theirs, others


_LIBRARY = torch.library.Library(OPERATORS, "DEF")
"""The operators; they last as long as this does."""


def _operator(schema: str, function: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    name = schema.split("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{OPERATORS}::{name}", shapes, lib=_LIBRARY)
    return getattr(getattr(torch.ops, OPERATORS), name).default


def _gathered(shard: torch.Tensor, weights: list[torch.Tensor], group: str) -> list[torch.Tensor]:
    gathered, products = _gather_times(_peers(group, shard.device.type), shard, [weight.t() for weight in weights])
    return [gathered, *products]


def _gathered_shapes(shard: torch.Tensor, weights: list[torch.Tensor], group: str) -> list[torch.Tensor]:
    rows = shard.shape[0] * _size(group)
    return [shard.new_empty(rows, columns) for columns in (shard.shape[1], *(weight.shape[0] for weight in weights))]


def _gathered_backward(
    grads: list[torch.Tensor], gathered: torch.Tensor, weights: list[torch.Tensor], group: str
) -> list[torch.Tensor]:
    peers = _peers(group, gathered.device.type)

    def of_weights() -> list[torch.Tensor]:
        return [torch.mm(grad.t(), gathered) for grad in grads]

    own, theirs, of_weight = _times_scatter(peers, grads, weights, of_weights)
    return [own, theirs, *of_weight]


def _gathered_backward_shapes(
    grads: list[torch.Tensor], gathered: torch.Tensor, weights: list[torch.Tensor], group: str
) -> list[torch.Tensor]:
    return [*_scattered_shapes(gathered, weights[0].t(), group), *(weight.new_empty(weight.shape) for weight in weights)]


def _scattered(states: torch.Tensor, weight: torch.Tensor, group: str) -> list[torch.Tensor]:
    own, theirs, _ = _times_scatter(_peers(group, states.device.type), [states], [weight.t()])
    return [own, theirs]


def _scattered_shapes(states: torch.Tensor, weight: torch.Tensor, group: str) -> list[torch.Tensor]:
    size = _size(group)
    rows = states.shape[0] // size
    return [states.new_empty(rows, weight.shape[0]), states.new_empty(size - 1, rows, weight.shape[0])]


def _scattered_backward(
    grad: torch.Tensor, states: torch.Tensor, weight: torch.Tensor, group: str
) -> list[torch.Tensor]:
    gathered, products = _gather_times(_peers(group, grad.device.type), grad, [weight])
    return [products[0], torch.mm(gathered.t(), states)]


def _scattered_backward_shapes(
    grad: torch.Tensor, states: torch.Tensor, weight: torch.Tensor, group: str
) -> list[torch.Tensor]:
    return [states.new_empty(states.shape), weight.new_empty(weight.shape)]


def _size(group: str) -> int:
    return dist.get_world_size(dist.distributed_c10d._resolve_process_group(group))  # type: ignore[arg-type]


_gather = _operator("gather(Tensor shard, Tensor[] weights, str group) -> Tensor[]", _gathered, _gathered_shapes)
_gather_backward = _operator(
    "gather_backward(Tensor[] grads, Tensor gathered, Tensor[] weights, str group) -> Tensor[]",
    _gathered_backward, _gathered_backward_shapes,
)  # fmt: skip
_scatter = _operator("scatter(Tensor states, Tensor weight, str group) -> Tensor[]", _scattered, _scattered_shapes)
_scatter_backward = _operator(
    "scatter_backward(Tensor grad, Tensor states, Tensor weight, str group) -> Tensor[]",
    _scattered_backward, _scattered_backward_shapes,
)  # fmt: skip


class _GatherAndProject(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: str, shard: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gathered, *products = _gather(shard, list(weights), group)
        ctx.group = group
        ctx.save_for_backward(gathered, *weights)
        return tuple(products)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gathered, *weights = ctx.saved_tensors
        own, theirs, *of_weights = _gather_backward(list(grads), gathered, weights, ctx.group)
        return (None, own + theirs.sum(0), *of_weights)


class _ProjectAndScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: str, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        own, theirs = _scatter(states, weight, group)
        ctx.group = group
        ctx.save_for_backward(states, weight)
        return own + theirs.sum(0)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        of_states, of_weight = _scatter_backward(grad, states, weight, ctx.group)
        return None, of_states, of_weight


def gather_and_project(
    shard: torch.Tensor, weights: Sequence[torch.Tensor], group: dist.ProcessGroup
) -> tuple[torch.Tensor, ...]:
    """This rank's rows (rows / ranks, inputs) -> all rows times each weight (outputs, inputs): (rows, outputs)."""
    products: tuple[torch.Tensor, ...] = _GatherAndProject.apply(group.group_name, shard, *weights)
    return products


def project_and_scatter(states: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """All rows of a part of the inputs (rows, inputs / ranks) -> this rank's rows of the sum over the ranks of their
    products with the weight (outputs, inputs / ranks): (rows / ranks, outputs)."""
    result: torch.Tensor = _ProjectAndScatter.apply(group.group_name, states, weight)
    return result
