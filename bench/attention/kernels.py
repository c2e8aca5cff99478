"""The kernels by their names in `--attn`: causal attention of (1, positions, heads, size) tensors, each its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from bench.attention.shapes import Shape
from bench.parallel import flash_attention_4

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Make = Callable[[Shape, torch.device], Attend]


class UnsupportedError(ValueError):
    """A kernel that does not take a shape; the message is one line."""


def _same_document(shape: Shape, device: torch.device) -> torch.Tensor:
    """(positions, positions): True where a query may see a key. What transformers builds for packed documents."""
    document = torch.arange(shape.positions, device=device) // shape.length
    return (document[:, None] == document).tril()


def _eager(shape: Shape, device: torch.device) -> Attend:
    """Matrix products and a softmax in fp32, as transformers' eager attention."""
    hidden = ~_same_document(shape, device)
    groups, scale = shape.heads.heads // shape.heads.key_heads, shape.heads.size**-0.5

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.transpose(1, 2) for t in (query, key, value))
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = (q @ k.transpose(-1, -2) * scale).masked_fill(hidden, float("-inf"))
        return (scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype) @ v).transpose(1, 2)

    return attend


def _sdpa(backend: SDPBackend | None) -> Make:
    """PyTorch's attention, with one kernel of it or its own choice. Packed documents are a mask to it."""

    def make(shape: Shape, device: torch.device) -> Attend:
        mask = _same_document(shape, device) if shape.documents > 1 else None
        if mask is not None and backend == SDPBackend.FLASH_ATTENTION:
            raise UnsupportedError("it takes no mask, and so no packed documents")
        grouped = shape.heads.heads != shape.heads.key_heads

        def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            q, k, v = (t.transpose(1, 2) for t in (query, key, value))
            causal = mask is None
            output = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
            return output.transpose(1, 2)

        return attend if backend is None else _with_backend(attend, backend)

    return make


def _with_backend(attend: Attend, backend: SDPBackend) -> Attend:
    def attend_with(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return attend(query, key, value)

    return attend_with


def _by_document(shape: Shape, device: torch.device) -> Attend:
    """PyTorch's choice for one document after the other: what a ring does without a kernel for all of them."""
    one = _sdpa(None)(Shape(1, shape.length, shape.heads), device)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        parts = zip(*(t.split(shape.length, 1) for t in (query, key, value)), strict=True)
        return torch.cat([one(*part) for part in parts], 1)

    return attend


def _bounds(shape: Shape, device: torch.device) -> torch.Tensor:
    """Where each document begins, and the end."""
    return torch.arange(shape.documents + 1, dtype=torch.int32, device=device) * shape.length


def _flash(load: Callable[[], tuple[Any, Any]]) -> Make:
    """A package's (plain, varlen) functions, which share their parameters from version to version."""

    def make(shape: Shape, device: torch.device) -> Attend:
        plain, varlen = load()
        if shape.documents == 1:
            return lambda query, key, value: _first(plain(query, key, value, causal=True))
        bounds = _bounds(shape, device)
        options = {
            "cu_seqlens_q": bounds, "cu_seqlens_k": bounds, "max_seqlen_q": shape.length, "max_seqlen_k": shape.length,
        }  # fmt: skip
        return lambda query, key, value: _first(varlen(query[0], key[0], value[0], **options, causal=True)).unsqueeze(0)

    return make


def _first(output: Any) -> torch.Tensor:
    """Version 3 returns the log-sum-exp beside the output."""
    found: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return found


def _flash_2() -> tuple[Any, Any]:
    from flash_attn import flash_attn_func, flash_attn_varlen_func

    return flash_attn_func, flash_attn_varlen_func


def _flash_3() -> tuple[Any, Any]:
    import flash_attn_interface

    return flash_attn_interface.flash_attn_func, flash_attn_interface.flash_attn_varlen_func


def _flash_4(shape: Shape, device: torch.device) -> Attend:
    """The operators that models call, not the package's functions."""
    bounds, scale = _bounds(shape, device) if shape.documents > 1 else None, shape.heads.size**-0.5

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        states = (query, key, value) if bounds is None else (query[0], key[0], value[0])
        return flash_attention_4.attention(*states, bounds, shape.length, scale).view_as(query)

    return attend


def _flex(shape: Shape, device: torch.device) -> Attend:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    length = shape.length

    def visible(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return (query >= key) & (query // length == key // length)

    mask = create_block_mask(visible, None, None, shape.positions, shape.positions, device=device.type)
    compiled = torch.compile(flex_attention)
    grouped = shape.heads.heads != shape.heads.key_heads

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.transpose(1, 2) for t in (query, key, value))
        output: torch.Tensor = compiled(q, k, v, block_mask=mask, enable_gqa=grouped)
        return output.transpose(1, 2)

    return attend


KERNELS: dict[str, Make] = {
    "eager": _eager,
    "sdpa": _sdpa(None),
    "sdpa_math": _sdpa(SDPBackend.MATH),
    "sdpa_flash": _sdpa(SDPBackend.FLASH_ATTENTION),
    "sdpa_efficient": _sdpa(SDPBackend.EFFICIENT_ATTENTION),
    "sdpa_cudnn": _sdpa(SDPBackend.CUDNN_ATTENTION),
    "sdpa_by_document": _by_document,
    "flash_attention_2": _flash(_flash_2),
    "flash_attention_3": _flash(_flash_3),
    "flash_attention_4": _flash_4,
    "flex": _flex,
}
"""Names as in `bench.attention.needs.NAMES`, which knows without torch what each of them needs."""
