"""Matrix products beside the exchange of their inputs or outputs, over memory that the GPUs of a host share.

Rows of a matrix are spread over the ranks of a group. A product of all rows begins with this rank's own, while copy
engines bring the others'; a product whose results are summed over the ranks begins with the other ranks' rows, which
are fetched while this rank's own are computed. What arrives is added by whoever reads the sum. No multicast is used,
and no multiprocessor but for the products: a kernel that copies or waits would have to find room beside one.

The compiler sees each as one operator. Elsewhere than on GPUs a group's own collectives do the exchange.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

OPERATORS = "meshproof_peer_products"
BUFFERS = 4
"""Used in turn. An operator takes two at most, and meets the other ranks once all its predecessor's work is done: a
buffer that comes round again is no longer read by anybody."""
FLAGS = 512
"""Bytes behind them, in which ranks tell each other how often they have met."""
Wait = Callable[[], None]


class Peers:
    """The ranks of a group. What is exchanged with the others is in the order of `others`, first dimension."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.others = [(self.rank + step) % self.size for step in range(1, self.size)]

    def place(self, owner: int, wanted: int) -> int:
        """Where rank `wanted` is in the order of rank `owner`."""
        return (wanted - owner - 1) % self.size

    def spread(self, shard: torch.Tensor) -> tuple[torch.Tensor, Wait]:
        """Begin to give all others a contiguous tensor; what they give, to be read after waiting, in this operator."""
        found = [torch.empty_like(shard) for _ in range(self.size)]
        dist.all_gather(found, shard, group=self.group)
        return torch.stack([found[other] for other in self.others]), lambda: None

    def outgoing(self, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """Memory for what each of the others will fetch, (ranks - 1, ...)."""
        self._mine = torch.empty(shape, dtype=like.dtype, device=like.device)
        return self._mine

    def fetch(self) -> tuple[torch.Tensor, Wait]:
        """Begin to fetch what the others have written for this rank into theirs, to be read after waiting."""
        found = [torch.empty_like(self._mine) for _ in range(self.size)]
        dist.all_gather(found, self._mine, group=self.group)
        return torch.stack([found[other][self.place(other, self.rank)] for other in self.others]), lambda: None


class GpuPeers(Peers):
    """Over symmetric memory, on a stream of its own. Ranks meet by numbers that the GPU's front end writes into the
    others' memory and waits for in its own."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self.stream = torch.cuda.Stream(priority=-1)
        self.bytes, self.turn, self.met = 0, 0, 0
        self._views: dict[Any, list[torch.Tensor]] = {}
        self._memories: list[torch.Tensor] = []
        """The last is in use; an operator that had to take larger ones may still read from the others."""

    def spread(self, shard: torch.Tensor) -> tuple[torch.Tensor, Wait]:
        buffers = self._next((self.size - 1, *shard.shape), shard)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for other in self.others:
                buffers[other][self.place(other, self.rank)].copy_(shard)
            self._meet()
        return buffers[self.rank], self._wait()

    def outgoing(self, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        self._parts = self._next(shape, like)
        return self._parts[self.rank]

    def fetch(self) -> tuple[torch.Tensor, Wait]:
        found = torch.empty_like(self._parts[self.rank])
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self._meet()
            for arriving, other in zip(found, self.others, strict=True):
                arriving.copy_(self._parts[other][self.place(other, self.rank)])
        return found, self._wait()

    def _wait(self) -> Wait:
        event = self.stream.record_event()
        return lambda: torch.cuda.current_stream().wait_event(event)

    def _next(self, shape: tuple[int, ...], like: torch.Tensor) -> list[torch.Tensor]:
        """The next buffer of every rank; all ask for the same shape."""
        size = math.prod(shape) * like.element_size()
        if size > self.bytes:
            self._grow(size)
        self.turn = (self.turn + 1) % BUFFERS
        key = (self.turn, shape, like.dtype)
        if key not in self._views:
            offset = self.turn * self.bytes // like.element_size()
            self._views[key] = [self._handle.get_buffer(r, shape, like.dtype, offset) for r in range(self.size)]
        return self._views[key]

    def _grow(self, size: int) -> None:
        from torch.distributed import _symmetric_memory as symmetric

        torch.cuda.synchronize()
        dist.barrier(self.group)
        self.bytes, self.met = -(-size // FLAGS) * FLAGS, 0
        device = torch.device("cuda", torch.cuda.current_device())
        memory = symmetric.empty(BUFFERS * self.bytes + FLAGS, dtype=torch.uint8, device=device).zero_()
        self._memories.append(memory)
        self._handle = symmetric.rendezvous(memory, self.group.group_name)
        behind = BUFFERS * self.bytes // 4
        self._flags = [
            self._handle.get_buffer(rank, (self.size,), torch.int32, behind).data_ptr() for rank in range(self.size)
        ]
        self._views.clear()
        torch.cuda.synchronize()
        dist.barrier(self.group)
        torch.cuda.synchronize()

    def _meet(self) -> None:
        """What follows on the current stream follows what came before it on all ranks."""
        self.met = (self.met + 1) & 0xFFFFFFFF
        stream, driver = torch.cuda.current_stream().cuda_stream, _driver()
        reached = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        for other in self.others:
            _check(driver.cuStreamWriteValue32(stream, self._flags[other] + 4 * self.rank, self.met, 0))
        for other in self.others:
            _check(driver.cuStreamWaitValue32(stream, self._flags[self.rank] + 4 * other, self.met, reached))


@cache
def _driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")  # only machines with GPUs have it


def _check(result: tuple[Any, ...]) -> None:
    if int(result[0]) != 0:
        raise RuntimeError(f"ranks cannot meet on their GPUs: {result[0]}")


@cache
def _peers(name: str, device_type: str) -> Peers:
    group = dist.distributed_c10d._resolve_process_group(name)
    return GpuPeers(group) if device_type == "cuda" else Peers(group)


def _rows(tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    part = tensor.shape[0] // size
    return tensor[rank * part : (rank + 1) * part]


def _multiply(out: torch.Tensor, lefts: Sequence[torch.Tensor], rights: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of the products, into `out`."""
    torch.mm(lefts[0], rights[0], out=out)
    for left, right in zip(lefts[1:], rights[1:], strict=True):
        torch.addmm(out, left, right, out=out)
    return out


def _others_first(
    peers: Peers, lefts: Sequence[torch.Tensor], rights: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, Wait]:
    """This rank's rows of the sum of `lefts` times `rights`: this rank's summand (rows, columns) and the others'
    (ranks - 1, rows, columns), to be waited for."""
    rows, columns = lefts[0].shape[0] // peers.size, rights[0].shape[1]
    parts = peers.outgoing((peers.size - 1, rows, columns), lefts[0])
    for part, other in zip(parts, peers.others, strict=True):
        _multiply(part, [_rows(left, other, peers.size) for left in lefts], rights)
    theirs, wait = peers.fetch()
    own = _multiply(lefts[0].new_empty(rows, columns), [_rows(left, peers.rank, peers.size) for left in lefts], rights)
    return own, theirs, wait


_LIBRARY = torch.library.Library(OPERATORS, "DEF")
"""The operators; they last as long as this does."""


def _operator(schema: str, function: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    name = schema.split("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{OPERATORS}::{name}", shapes, lib=_LIBRARY)
    return getattr(getattr(torch.ops, OPERATORS), name).default


def _gathered(shard: torch.Tensor, weights: list[torch.Tensor], group: str) -> list[torch.Tensor]:
    peers, shard = _peers(group, shard.device.type), shard.contiguous()
    products = [shard.new_empty(shard.shape[0] * peers.size, weight.shape[0]) for weight in weights]
    theirs, wait = peers.spread(shard)
    for weight, product in zip(weights, products, strict=True):
        torch.mm(shard, weight.t(), out=_rows(product, peers.rank, peers.size))
    wait()
    for arrived, other in zip(theirs, peers.others, strict=True):
        for weight, product in zip(weights, products, strict=True):
            torch.mm(arrived, weight.t(), out=_rows(product, other, peers.size))
    return products


def _gathered_shapes(shard: torch.Tensor, weights: list[torch.Tensor], group: str) -> list[torch.Tensor]:
    rows = shard.shape[0] * _size(group)
    return [shard.new_empty(rows, weight.shape[0]) for weight in weights]


def _gathered_backward(
    grads: list[torch.Tensor], shard: torch.Tensor, weights: list[torch.Tensor], group: str
) -> list[torch.Tensor]:
    """The others' rows are brought again: it costs nothing beside the products, and keeping them would take memory."""
    peers, shard = _peers(group, shard.device.type), shard.contiguous()
    theirs, wait = peers.spread(shard)
    own, summands, wait_for_summands = _others_first(peers, grads, weights)
    of_weights = [torch.mm(_rows(grad, peers.rank, peers.size).t(), shard) for grad in grads]
    wait()
    for grad, of_weight in zip(grads, of_weights, strict=True):
        for arrived, other in zip(theirs, peers.others, strict=True):
            torch.addmm(of_weight, _rows(grad, other, peers.size).t(), arrived, out=of_weight)
    wait_for_summands()
    return [own, summands, *of_weights]


def _gathered_backward_shapes(
    grads: list[torch.Tensor], shard: torch.Tensor, weights: list[torch.Tensor], group: str
) -> list[torch.Tensor]:
    summands = shard.new_empty(_size(group) - 1, *shard.shape)
    return [shard.new_empty(shard.shape), summands, *(weight.new_empty(weight.shape) for weight in weights)]


def _scattered(states: torch.Tensor, weight: torch.Tensor, group: str) -> list[torch.Tensor]:
    own, summands, wait = _others_first(_peers(group, states.device.type), [states], [weight.t()])
    wait()
    return [own, summands]


def _scattered_shapes(states: torch.Tensor, weight: torch.Tensor, group: str) -> list[torch.Tensor]:
    size = _size(group)
    rows = states.shape[0] // size
    return [states.new_empty(rows, weight.shape[0]), states.new_empty(size - 1, rows, weight.shape[0])]


def _scattered_backward(
    grad: torch.Tensor, states: torch.Tensor, weight: torch.Tensor, group: str
) -> list[torch.Tensor]:
    peers, grad = _peers(group, grad.device.type), grad.contiguous()
    of_states = torch.empty_like(states, memory_format=torch.contiguous_format)
    theirs, wait = peers.spread(grad)
    torch.mm(grad, weight, out=_rows(of_states, peers.rank, peers.size))
    of_weight = torch.mm(grad.t(), _rows(states, peers.rank, peers.size))
    wait()
    for arrived, other in zip(theirs, peers.others, strict=True):
        torch.mm(arrived, weight, out=_rows(of_states, other, peers.size))
        torch.addmm(of_weight, arrived.t(), _rows(states, other, peers.size), out=of_weight)
    return [of_states, of_weight]


def _scattered_backward_shapes(
    grad: torch.Tensor, states: torch.Tensor, weight: torch.Tensor, group: str
) -> list[torch.Tensor]:
    return [states.new_empty(states.shape), weight.new_empty(weight.shape)]


def _size(group: str) -> int:
    return dist.get_world_size(dist.distributed_c10d._resolve_process_group(group))


_gather = _operator("gather(Tensor shard, Tensor[] weights, str group) -> Tensor[]", _gathered, _gathered_shapes)
_gather_backward = _operator(
    "gather_backward(Tensor[] grads, Tensor shard, Tensor[] weights, str group) -> Tensor[]",
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
        ctx.group = group
        ctx.save_for_backward(shard, *weights)
        return tuple(_gather(shard, list(weights), group))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        shard, *weights = ctx.saved_tensors
        own, summands, *of_weights = _gather_backward(list(grads), shard, weights, ctx.group)
        return (None, own + summands.sum(0), *of_weights)


class _ProjectAndScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: str, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        own, summands = _scatter(states, weight, group)
        ctx.group = group
        ctx.save_for_backward(states, weight)
        return own + summands.sum(0)

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
