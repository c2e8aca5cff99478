"""Causal attention over a sequence that is spread over the ranks of a ring.

The layout is zig-zag: every document is cut into `2 * ring` equal chunks, and rank r holds chunks r and
`2 * ring - 1 - r` of each, so that all ranks have the same causal work. Keys and values go round the ring.
On CUDA with flash-attn the kernels of the `ring_flash_attn` package do the work; everywhere else the blocks of
`attention_blocks` do, merged by log-sum-exp. Both are registered with transformers under one name;
nothing in transformers is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bench.strategies.attention_blocks import Block, kernel_for, merge_

ATTENTION_NAME = "meshproof_ring"


@dataclass(frozen=True)
class Ring:
    """The ranks that share one sequence, and this process's place among them."""

    group: dist.ProcessGroup
    rank: int
    size: int


_current: Ring | None = None


def set_ring(group: dist.ProcessGroup | None) -> Ring | None:
    """Make `group` the ring of this process and register the attention; None means no ring."""
    global _current
    if group is None:
        _current = None
        return None
    _current = Ring(group, dist.get_rank(group), dist.get_world_size(group))
    register()
    return _current


def current_ring() -> Ring | None:
    return _current


def zigzag_chunks(length: int, rank: int, size: int) -> tuple[slice, slice]:
    """The two stretches of a document of `length` positions that `rank` holds.

    Raises `ValueError` where `length` is no multiple of `2 * size`: pad the document first.
    """
    if length % (2 * size):
        raise ValueError(f"a document of {length} positions does not split into 2 x {size} equal chunks")
    chunk = length // (2 * size)
    last = 2 * size - 1 - rank
    return slice(rank * chunk, (rank + 1) * chunk), slice(last * chunk, (last + 1) * chunk)


def zigzag_indices(lengths: Sequence[int], rank: int, size: int) -> torch.Tensor:
    """Positions in the packed sequence, document after document, that `rank` holds, in its order."""
    parts, start = [], 0
    for length in lengths:
        for piece in zigzag_chunks(length, rank, size):
            parts.append(torch.arange(start + piece.start, start + piece.stop))
        start += length
    return torch.cat(parts)


def _exchange(ring: Ring, outgoing: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
    """Start sending to the next rank and receiving from the one before; wait on what is returned."""
    incoming = torch.empty_like(outgoing)
    after = dist.get_global_rank(ring.group, (ring.rank + 1) % ring.size)
    before = dist.get_global_rank(ring.group, (ring.rank - 1) % ring.size)
    operations = [
        dist.P2POp(dist.isend, outgoing, after, group=ring.group),
        dist.P2POp(dist.irecv, incoming, before, group=ring.group),
    ]
    return incoming, dist.batch_isend_irecv(operations)


def _wait(works: list[Any]) -> None:
    for work in works:
        work.wait()


def _pieces(lengths: Sequence[int], source: int, rank: int) -> Iterator[tuple[slice, slice, bool]]:
    """For each local document: query rows, key rows and causality of this rank against `source`'s keys.

    Own keys are a causal square, because both chunks keep their order. Keys from an earlier rank: their
    front chunk precedes all our rows. From a later rank: all of them precede our back chunk only.
    """
    start = 0
    for length in lengths:
        whole, half = slice(start, start + length), start + length // 2
        if source == rank:
            yield whole, whole, True
        elif source < rank:
            yield whole, slice(start, half), False
        else:
            yield slice(half, start + length), whole, False
        start += length


class RingAttention(torch.autograd.Function):
    """Forward and backward of the ring. Local shapes: (batch, heads, local positions, head size)."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        lengths: tuple[int, ...],
        scale: float,
        ring: Ring,
    ) -> torch.Tensor:
        """`lengths` are the local lengths of the documents; heads of keys and queries are equal in number."""
        kernel = kernel_for(query)
        output = torch.zeros_like(query, dtype=torch.float32)
        lse = torch.full(query.shape[:3], float("-inf"), dtype=torch.float32, device=query.device)
        travelling = torch.stack((key, value)).contiguous()
        for step in range(ring.size):
            last = step == ring.size - 1
            incoming, works = (travelling, []) if last else _exchange(ring, travelling)
            source = (ring.rank - step) % ring.size
            for rows, columns, causal in _pieces(lengths, source, ring.rank):
                k, v = travelling[0][:, :, columns], travelling[1][:, :, columns]
                block = kernel.forward(query[:, :, rows], k, v, causal, scale)
                merge_(output[:, :, rows], lse[:, :, rows], block)
            _wait(works)
            travelling = incoming
        result = output.to(query.dtype)
        ctx.save_for_backward(query, key, value, result, lse)
        ctx.lengths, ctx.scale, ctx.ring = lengths, scale, ring
        return result

    @staticmethod
    def backward(
        ctx: Any, *grads: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, None, None, None]:
        """Gradients of keys and values travel with them and are home again after a whole round."""
        query, key, value, result, lse = ctx.saved_tensors
        ring, grad = ctx.ring, grads[0].contiguous()
        kernel = kernel_for(query)
        grad_query = torch.zeros_like(query, dtype=torch.float32)
        travelling = torch.stack((key, value)).contiguous()
        grad_travelling = torch.zeros_like(travelling, dtype=torch.float32)
        for step in range(ring.size):
            last = step == ring.size - 1
            incoming, works = (travelling, []) if last else _exchange(ring, travelling)
            source = (ring.rank - step) % ring.size
            for rows, columns, causal in _pieces(ctx.lengths, source, ring.rank):
                k, v = travelling[0][:, :, columns], travelling[1][:, :, columns]
                merged = Block(result[:, :, rows].contiguous(), lse[:, :, rows].contiguous())
                piece = kernel.backward(grad[:, :, rows], query[:, :, rows], k, v, merged, causal, ctx.scale)
                grad_query[:, :, rows] += piece.query
                grad_travelling[0][:, :, columns] += piece.key
                grad_travelling[1][:, :, columns] += piece.value
            _wait(works)
            travelling = incoming
            if ring.size > 1:
                grad_travelling, works = _exchange(ring, grad_travelling)
                _wait(works)
        grad_key, grad_value = grad_travelling.to(key.dtype)
        return grad_query.to(query.dtype), grad_key, grad_value, None, None, None


def _repeat_heads(states: torch.Tensor, times: int) -> torch.Tensor:
    return states if times == 1 else states.repeat_interleave(times, dim=1)


def ring_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: Sequence[int], scale: float, ring: Ring
) -> torch.Tensor:
    """Attention of local (batch, heads, positions, head size) tensors; fewer key heads are repeated."""
    groups = query.shape[1] // key.shape[1]
    repeated = _repeat_heads(key, groups), _repeat_heads(value, groups)
    result: torch.Tensor = RingAttention.apply(query.contiguous(), *repeated, tuple(lengths), scale, ring)
    return result


def _flash_kernels() -> Any | None:
    """`ring_flash_attn`'s zig-zag kernel, or None where it or flash-attn is not installed."""
    try:
        import flash_attn  # noqa: F401
        import transformers.modeling_flash_attention_utils as flash_utils
    except ImportError:
        return None
    # Version 0.1.8 imports this name, which transformers 5.4 removed, for an adapter that is not used here.
    if not hasattr(flash_utils, "is_flash_attn_greater_or_equal_2_10"):
        flash_utils.is_flash_attn_greater_or_equal_2_10 = lambda: True
    try:
        from ring_flash_attn import zigzag_ring_flash_attn_varlen_func
    except ImportError:
        return None
    return zigzag_ring_flash_attn_varlen_func


def has_flash_kernels() -> bool:
    """Whether the fast CUDA kernels can be used; they are right in bf16 and fp16 only."""
    return torch.cuda.is_available() and _flash_kernels() is not None


def _attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    ring_lengths: tuple[int, ...] | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """The signature of transformers' attention functions; returns (batch, positions, heads, head size)."""
    if _current is None:
        raise RuntimeError("ring attention was called before setup_ring_attn")
    if attention_mask is not None or dropout or sliding_window or softcap:
        raise ValueError("ring attention is causal over packed documents: no mask, dropout, window or soft cap")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    local = query.shape[2]
    lengths = ring_lengths if ring_lengths is not None else (local,)
    kernel = _flash_kernels() if query.is_cuda and query.dtype != torch.float32 else None
    if kernel is not None and cu_seq_lens_q is not None:
        if query.shape[0] != 1:
            raise ValueError("the zig-zag kernels take packed documents: a batch of one row")
        packed = (states[0].transpose(0, 1) for states in (query, key, value))
        output = kernel(
            *packed, cu_seq_lens_q, max_length_q or max(lengths), softmax_scale=scale, causal=True,
            group=_current.group,
        )  # fmt: skip
        return output.unsqueeze(0), None
    output = ring_attention(query, key, value, lengths, scale, _current)
    return output.transpose(1, 2).contiguous(), None


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """Causality and document bounds are the kernel's business: transformers is to build no mask."""
    return


def register() -> None:
    """Make the attention known to transformers as `ATTENTION_NAME` (again and again does no harm)."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    # The compiler cannot trace messages between ranks: a compiled layer breaks its graph here, and only here.
    AttentionInterface.register(ATTENTION_NAME, torch.compiler.disable(_attention_forward))
    AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)
