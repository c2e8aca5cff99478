"""FlashAttention-4 as operators of PyTorch: what `torch.compile` holds in a graph, and what a ring merges.

The package (`flash-attn-4`, written for 4.0.0b36) compiles its kernels at their first call and finds them again in
Python. A tracer that steps into that breaks the graph in every layer, so its two passes are operators here, opaque to
the compiler, with shapes that it can work out. They take fewer key heads as they are and any strides whose last is 1.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

from bench.sweep.availability import installed

NAME = "flash_attention_4"
DISTRIBUTION = "flash-attn-4"
OPERATORS = "meshproof_flash_attention_4"
LARGEST_HEAD = 128
"""What the package has kernels for on Hopper, forward and backward."""


def fits(query: torch.Tensor) -> bool:
    """Whether the package is there and takes queries like these."""
    if query.device.type != "cuda" or query.dtype not in (torch.bfloat16, torch.float16):
        return False
    size = query.shape[-1]
    return size <= LARGEST_HEAD and size % 8 == 0 and _runs_on(query.device)


@cache
def _runs_on(device: torch.device) -> bool:
    return installed(DISTRIBUTION) and torch.cuda.get_device_capability(device) >= (9, 0)


def forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor | None, longest: int,
    scale: float, causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Output like `query`, and the log-sum-exp in fp32.

    Shapes: (batch, positions, heads, size) and a log-sum-exp of (batch, heads, positions); with `bounds`, the int32
    offsets of documents in one row and its end, (positions, heads, size) and (heads, positions). `longest` is the
    length of the longest document or more.
    """
    from flash_attn.cute.interface import _flash_attn_fwd

    output, lse, *_ = _flash_attn_fwd(
        query, key, value, softmax_scale=scale, causal=causal, return_lse=True, **_documents(bounds, longest)
    )
    return output, lse


def backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, output: torch.Tensor,
    lse: torch.Tensor, bounds: torch.Tensor | None, longest: int, scale: float, causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Gradients of query, key and value, contiguous; `output` and `lse` may be those of a softmax over more keys."""
    from flash_attn.cute.interface import _flash_attn_bwd

    empty = [_like(states) for states in (query, key, value)]
    _flash_attn_bwd(
        query, key, value, output, grad, lse, softmax_scale=scale, causal=causal,
        dq=empty[0], dk=empty[1], dv=empty[2], **_documents(bounds, longest),
    )  # fmt: skip
    return empty[0], empty[1], empty[2]


def _documents(bounds: torch.Tensor | None, longest: int) -> dict[str, Any]:
    if bounds is None:
        return {}
    return {"cu_seqlens_q": bounds, "cu_seqlens_k": bounds, "max_seqlen_q": longest, "max_seqlen_k": longest}


def _like(states: torch.Tensor) -> torch.Tensor:
    """As large as `states` and contiguous, whatever the strides of those."""
    return torch.empty(states.shape, dtype=states.dtype, device=states.device)


_STATES, _DOCUMENTS = "Tensor query, Tensor key, Tensor value", "Tensor? bounds, SymInt longest, float scale"


@torch.library.custom_op(
    f"{OPERATORS}::forward", mutates_args=(), schema=f"({_STATES}, {_DOCUMENTS}) -> (Tensor, Tensor)"
)
def _forward(query, key, value, bounds, longest, scale):  # type: ignore[no-untyped-def]
    return forward(query, key, value, bounds, longest, scale, True)


@_forward.register_fake
def _(query, key, value, bounds, longest, scale):  # type: ignore[no-untyped-def]
    *batch, positions, heads, _ = query.shape
    return _like(query), torch.empty((*batch, heads, positions), dtype=torch.float32, device=query.device)


@torch.library.custom_op(
    f"{OPERATORS}::backward", mutates_args=(),
    schema=f"(Tensor grad, {_STATES}, Tensor output, Tensor lse, {_DOCUMENTS}) -> (Tensor, Tensor, Tensor)",
)  # fmt: skip
def _backward(grad, query, key, value, output, lse, bounds, longest, scale):  # type: ignore[no-untyped-def]
    return backward(grad, query, key, value, output, lse, bounds, longest, scale, True)


@_backward.register_fake
def _(grad, query, key, value, output, lse, bounds, longest, scale):  # type: ignore[no-untyped-def]
    return _like(query), _like(key), _like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    query, key, value, bounds, ctx.longest, ctx.scale = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(query, key, value, *output, bounds)


def _differentiate(ctx: Any, grad: torch.Tensor, _: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    query, key, value, output, lse, bounds = ctx.saved_tensors
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    return (*_backward(grad, query, key, value, output, lse, bounds, ctx.longest, ctx.scale), None, None, None)


_forward.register_autograd(_differentiate, setup_context=_keep)


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor | None, longest: int,
    scale: float,
) -> torch.Tensor:  # fmt: skip
    """Causal attention with gradients; shapes as in `forward`."""
    output: torch.Tensor = _forward(query, key, value, bounds, longest, scale)[0]
    return output


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
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """The signature of transformers' attention functions; (batch, heads, positions, size) to (batch, positions, …)."""
    bounds, longest = cu_seq_lens_q, max_length_q
    if attention_mask is not None or sliding_window or softcap or s_aux is not None or dropout:
        return _by_transformers(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, cu_seq_lens_q=bounds,
            max_length_q=longest, sliding_window=sliding_window, softcap=softcap, s_aux=s_aux, **others,
        )  # fmt: skip
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    q, k, v = (states.transpose(1, 2) for states in (query, key, value))
    if bounds is None or longest is None:
        return attention(q, k, v, None, q.shape[1], scale), None
    rows = [states.flatten(0, 1) for states in (q, k, v)]
    return attention(rows[0], rows[1], rows[2], bounds, longest, scale).unflatten(0, q.shape[:2]), None


@torch.compiler.disable
def _by_transformers(*arguments: Any, **options: Any) -> tuple[torch.Tensor, None]:
    """What the operators do not take, padded rows first of all: transformers cuts the padding out and puts it back."""
    from transformers.integrations.flash_attention import flash_attention_forward

    found: tuple[torch.Tensor, None] = flash_attention_forward(*arguments, **options)
    return found


def register() -> None:
    """Make transformers call the operators where a model's attention is `flash_attention_4`."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attention_forward)
