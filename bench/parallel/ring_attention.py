"""Causal attention over a sequence that is spread over the ranks of a ring.

The layout is zig-zag: every document is cut into `2 * ring` equal chunks, and rank r holds chunks r and
`2 * ring - 1 - r` of each, so that all ranks have the same causal work. Keys and values go round the ring while the
rank works on those it has. The blocks are the kernels of `attention_blocks`, merged by log-sum-exp: on Hopper GPUs
FlashAttention-4's where it is installed, else cuDNN's. They take documents one by one, so rows of many short ones are
left to the `ring_flash_attn` package and its FlashAttention-2, where it is installed. Both are registered with
transformers under one name; nothing in transformers is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bench.parallel.attention_blocks import Block, Kernel, States, cudnn_fits, kernel_for, merge_

ATTENTION_NAME = "meshproof_ring"
LONG_DOCUMENT = 2048
"""Local positions, in the mean, from which on the blocks' kernel document by document is faster than
FlashAttention-2's over all of them at once."""
VARLEN_KERNEL = "flash_attention_2"


@dataclass(frozen=True)
class Ring:
    """The ranks that share one sequence, and this process's place among them."""

    group: dist.ProcessGroup
    rank: int
    size: int
    attn: str = "auto"
    """The kernel that was asked for; `auto` and `sdpa` leave the choice to the machine and the documents."""


_current: Ring | None = None
_used: set[str] = set()


def set_ring(group: dist.ProcessGroup | None, attn: str = "auto") -> Ring | None:
    """Make `group` the ring of this process and register the attention; None means no ring."""
    global _current
    _used.clear()
    if group is None:
        _current = None
        return None
    _current = Ring(group, dist.get_rank(group), dist.get_world_size(group), attn)
    register()
    return _current


def kernels_used() -> list[str]:
    """The kernels that the ring of this process has called since it was set."""
    return sorted(_used)


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


def _exchange(ring: Ring, outgoing: torch.Tensor, tag: int = 0) -> tuple[torch.Tensor, list[Any]]:
    """Start sending to the next rank and receiving from the one before; wait on what is returned."""
    incoming = torch.empty_like(outgoing)
    after = dist.get_global_rank(ring.group, (ring.rank + 1) % ring.size)
    before = dist.get_global_rank(ring.group, (ring.rank - 1) % ring.size)
    operations = [
        dist.P2POp(dist.isend, outgoing, after, group=ring.group, tag=tag),
        dist.P2POp(dist.irecv, incoming, before, group=ring.group, tag=tag),
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


def _travels(ring: Ring, *states: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """The stacked states of each rank, this one's first, with the rank they come from.

    The next rank's are under way while the caller works on what it was given.
    """
    here = torch.stack(states)
    for step in range(ring.size):
        last = step == ring.size - 1
        incoming, works = (here, []) if last else _exchange(ring, here)
        yield (ring.rank - step) % ring.size, here
        _wait(works)
        here = incoming


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """Documents one after the other along the positions; a single one as it is."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def _running_dtype(tensor: torch.Tensor, ring: Ring) -> torch.dtype:
    """Of sums over the blocks. Two addends are rounded once, in whatever type; more are added up in fp32."""
    return tensor.dtype if ring.size <= 2 else torch.float32


def _block(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: slice, columns: slice) -> States:
    return States(query[:, :, rows], key[:, :, columns], value[:, :, columns])


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
        kernel: Kernel,
    ) -> torch.Tensor:
        """`lengths` are the local lengths of the documents."""
        output = lse = query.new_empty(0)
        for source, (keys, values) in _travels(ring, key, value):
            pieces = list(_pieces(lengths, source, ring.rank))
            blocks = [
                kernel.forward(_block(query, keys, values, rows, columns), causal, scale)
                for rows, columns, causal in pieces
            ]
            if source == ring.rank:
                output = _joined([block.output for block in blocks]).to(_running_dtype(query, ring))
                lse = _joined([block.lse for block in blocks])
                continue
            for (rows, _, _), block in zip(pieces, blocks, strict=True):
                merge_(output[:, :, rows], lse[:, :, rows], block)
        result = output.to(query.dtype)
        ctx.save_for_backward(query, key, value, result, lse)
        ctx.lengths, ctx.scale, ctx.ring, ctx.kernel = lengths, scale, ring, kernel
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of keys and values follow them around, one step behind, and need no step for their own rank."""
        query, key, value, result, lse = ctx.saved_tensors
        ring: Ring = ctx.ring
        grad = grads[0] if grads[0].stride(-1) == 1 else grads[0].contiguous()
        grad_query = own = travelling = query.new_empty(0)
        works: list[Any] = []
        for step, (source, (keys, values)) in enumerate(_travels(ring, key, value)):
            found = []
            for rows, columns, causal in _pieces(ctx.lengths, source, ring.rank):
                merged = Block(result[:, :, rows], lse[:, :, rows])
                states = _block(query, keys, values, rows, columns)
                piece = ctx.kernel.backward(grad[:, :, rows], states, merged, causal, ctx.scale)
                found.append((rows, columns, piece))
            if source == ring.rank:
                grad_query = _joined([piece.query for *_, piece in found]).to(_running_dtype(query, ring))
                own = torch.stack([_joined([piece[part] for *_, piece in found]) for part in (1, 2)])
                continue
            _wait(works)
            outgoing = _running_sum(travelling, step, keys, ring)
            for rows, columns, piece in found:
                grad_query[:, :, rows] += piece.query
                outgoing[0][:, :, columns] += piece.key
                outgoing[1][:, :, columns] += piece.value
            travelling, works = _exchange(ring, outgoing, tag=1)
        _wait(works)
        if ring.size > 1:
            own = own.to(torch.promote_types(own.dtype, travelling.dtype)) + travelling
        grad_key, grad_value = own.to(key.dtype)
        return grad_query.to(query.dtype), grad_key, grad_value, None, None, None, None


def _running_sum(arrived: torch.Tensor, step: int, keys: torch.Tensor, ring: Ring) -> torch.Tensor:
    """What the ranks before this one found for the keys and values in hand: nothing yet in the first step.

    The first of them has one addend, which needs no more than the kernel's own type.
    """
    if step > 1:
        return arrived.to(_running_dtype(keys, ring))
    return torch.zeros((2, *keys.shape), dtype=keys.dtype, device=keys.device)


def ring_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: Sequence[int],
    scale: float,
    ring: Ring,
    kernel: Kernel | None = None,
) -> torch.Tensor:
    """Attention of local (batch, heads, positions, head size) tensors; keys may have fewer heads than queries."""
    result: torch.Tensor = RingAttention.apply(
        query, key, value, tuple(lengths), scale, ring, kernel or kernel_for(query)
    )
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
    lengths = ring_lengths if ring_lengths is not None else (query.shape[2],)
    if cu_seq_lens_q is not None and _takes_varlen(_current.attn, query, lengths):
        longest = max_length_q or max(lengths)
        return _varlen(query, key, value, cu_seq_lens_q, longest, scale, _current.group), None
    kernel = kernel_for(query, _current.attn)
    _used.add(kernel.name)
    output = ring_attention(query, key, value, lengths, scale, _current, kernel)
    return output.transpose(1, 2).contiguous(), None


def _takes_varlen(attn: str, query: torch.Tensor, lengths: Sequence[int]) -> bool:
    """Whether the kernel that takes all documents at once is asked for, or is there and the faster one."""
    if attn not in ("auto", "sdpa", VARLEN_KERNEL) or not query.is_cuda or query.dtype == torch.float32:
        return False
    long = sum(lengths) >= LONG_DOCUMENT * len(lengths)
    if attn != VARLEN_KERNEL and long and cudnn_fits(query):
        return False
    return query.shape[0] == 1 and _flash_kernels() is not None


def _varlen(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cu_seq_lens: torch.Tensor, longest: int,
    scale: float, group: dist.ProcessGroup,
) -> torch.Tensor:  # fmt: skip
    """All documents of a packed row at once, (1, positions, heads, head size)."""
    _used.add(VARLEN_KERNEL)
    kernel = _flash_kernels()
    assert kernel is not None
    packed = (states[0].transpose(0, 1) for states in (query, key, value))
    output: torch.Tensor = kernel(*packed, cu_seq_lens, longest, softmax_scale=scale, causal=True, group=group)
    return output.unsqueeze(0)


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
