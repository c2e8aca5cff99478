"""Attention of one block of queries over one block of keys, with the log-sum-exp that merging needs.

Kernels with one shape convention: queries (batch, heads, q, d), keys and values (batch, key heads, k, d) with a number
of key heads that divides the heads, log-sum-exp (batch, heads, q) in fp32. Causal blocks are square.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Protocol

import torch

from bench.parallel import flash_attention_4

QUERY_BLOCK = 1024


class Block(NamedTuple):
    """Output in the dtype of the queries, log-sum-exp of the scores in fp32."""

    output: torch.Tensor
    lse: torch.Tensor


class States(NamedTuple):
    """What attention reads of a block, or the gradients of these."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


class Kernel(Protocol):
    """`backward` takes the *merged* output and log-sum-exp: then the blocks' gradients simply add up."""

    name: str

    def forward(self, states: States, causal: bool, scale: float) -> Block: ...

    def backward(self, grad: torch.Tensor, states: States, merged: Block, causal: bool, scale: float) -> States: ...


def _expanded(states: States) -> States:
    """Each key head as often as query heads share it."""
    query, key, value = states
    shared = query.shape[1] // key.shape[1]
    return states if shared == 1 else States(query, *(each.repeat_interleave(shared, dim=1) for each in (key, value)))


def _reduced(gradient: torch.Tensor, key_heads: int) -> torch.Tensor:
    """The gradient of `_expanded`, summed in the gradient's own type."""
    return gradient if gradient.shape[1] == key_heads else gradient.unflatten(1, (key_heads, -1)).sum(2)


class CpuFlash:
    """The flash kernel that scaled-dot-product attention uses on CPUs (fp32 and bf16)."""

    name = "cpu_flash"

    def forward(self, states: States, causal: bool, scale: float) -> Block:
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return Block(*flash(*_expanded(states), 0.0, causal, scale=scale))

    def backward(self, grad: torch.Tensor, states: States, merged: Block, causal: bool, scale: float) -> States:
        grad_query, *rest = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, *_expanded(states), merged.output, merged.lse, 0.0, causal, scale=scale
        )
        return States(grad_query, *(_reduced(each, states.key.shape[1]) for each in rest))


class Cudnn:
    """cuDNN's fused attention, the fastest of PyTorch's own on Hopper GPUs (bf16 and fp16). It takes any strides and
    fewer key heads as they are."""

    name = "cudnn"

    def forward(self, states: States, causal: bool, scale: float) -> Block:
        output, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
            *states, None, True, 0.0, causal, False, scale=scale
        )
        return Block(output, lse.squeeze(-1))

    def backward(self, grad: torch.Tensor, states: States, merged: Block, causal: bool, scale: float) -> States:
        lse = merged.lse.contiguous().unsqueeze(-1)
        seed, lengths = _no_seed(grad.device), (states.query.shape[2], states.key.shape[2])
        return States(
            *torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
                grad, *states, merged.output, lse, seed, seed, None, None, None, *lengths, 0.0, causal, scale=scale
            )
        )


@cache
def _no_seed(device: torch.device) -> torch.Tensor:
    """Seed and offset of a dropout that there is not: the backward pass takes them as tensors."""
    return torch.zeros((), dtype=torch.int64, device=device)


class Flash4:
    """FlashAttention-4 on Hopper and later GPUs (bf16 and fp16), faster than cuDNN's. It takes positions before heads,
    which these views are in memory already, and fewer key heads as they are."""

    name = flash_attention_4.NAME

    def forward(self, states: States, causal: bool, scale: float) -> Block:
        q, k, v = (tensor.transpose(1, 2) for tensor in states)
        output, lse = flash_attention_4.forward(q, k, v, None, 0, scale, causal)
        return Block(output.transpose(1, 2), lse)

    def backward(self, grad: torch.Tensor, states: States, merged: Block, causal: bool, scale: float) -> States:
        g, q, k, v, output = (tensor.transpose(1, 2) for tensor in (grad, *states, merged.output))
        found = flash_attention_4.backward(g, q, k, v, output, merged.lse.contiguous(), None, 0, scale, causal)
        return States(*(gradient.transpose(1, 2) for gradient in found))


class CudaFlash:
    """PyTorch's own flash kernel on GPUs (bf16 and fp16), where the flash-attn package is absent."""

    name = "sdpa_flash"

    def forward(self, states: States, causal: bool, scale: float) -> Block:
        output, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(*states, 0.0, causal, False, scale=scale)
        return Block(output, lse)

    def backward(self, grad: torch.Tensor, states: States, merged: Block, causal: bool, scale: float) -> States:
        empty = torch.empty((2,), dtype=torch.uint64, device=grad.device)
        lse, lengths = merged.lse.contiguous(), (states.query.shape[2], states.key.shape[2])
        return States(
            *torch.ops.aten._scaled_dot_product_flash_attention_backward(
                grad, *states, merged.output, lse, None, None, *lengths, 0.0, causal, empty, empty[:0], scale=scale
            )
        )


class Plain:
    """Matrix products over blocks of queries: any device and dtype, no kernel needed; slow and exact."""

    name = "plain"

    def forward(self, states: States, causal: bool, scale: float) -> Block:
        query, key, value = _expanded(states)
        outputs, lses = [], []
        for start in range(0, query.shape[2], QUERY_BLOCK):
            scores = _scores(query, key, start, causal, scale)
            lse = scores.logsumexp(-1)
            outputs.append((scores - lse.unsqueeze(-1)).exp() @ value.float())
            lses.append(lse)
        return Block(torch.cat(outputs, 2).to(query.dtype), torch.cat(lses, 2))

    def backward(self, grad: torch.Tensor, states: States, merged: Block, causal: bool, scale: float) -> States:
        query, key, value = _expanded(states)
        grad_key = torch.zeros_like(key, dtype=torch.float32)
        grad_value = torch.zeros_like(value, dtype=torch.float32)
        grad_query = torch.empty_like(query, dtype=torch.float32)
        delta = (grad.float() * merged.output.float()).sum(-1, keepdim=True)
        for start in range(0, query.shape[2], QUERY_BLOCK):
            rows = slice(start, start + QUERY_BLOCK)
            scores = _scores(query, key, start, causal, scale)
            weights = (scores - merged.lse[:, :, rows, None]).exp()
            grad_rows = grad[:, :, rows].float()
            grad_value += weights.transpose(-1, -2) @ grad_rows
            grad_scores = weights * (grad_rows @ value.float().transpose(-1, -2) - delta[:, :, rows]) * scale
            grad_query[:, :, rows] = grad_scores @ key.float()
            grad_key += grad_scores.transpose(-1, -2) @ query[:, :, rows].float()
        return States(grad_query, *(_reduced(each, states.key.shape[1]) for each in (grad_key, grad_value)))


def _scores(query: torch.Tensor, key: torch.Tensor, start: int, causal: bool, scale: float) -> torch.Tensor:
    rows = query[:, :, start : start + QUERY_BLOCK].float()
    scores = rows @ key.float().transpose(-1, -2) * scale
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril(start)
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores


def cudnn_fits(query: torch.Tensor) -> bool:
    """Whether cuDNN's attention takes queries like these, on a GPU where it is the fastest: Hopper and later."""
    if query.device.type != "cuda" or query.dtype not in (torch.bfloat16, torch.float16):
        return False
    size = query.shape[-1]
    return size <= 128 and size % 8 == 0 and torch.cuda.get_device_capability(query.device) >= (9, 0)


def kernel_for(query: torch.Tensor, attn: str = "auto") -> Kernel:
    """The kernel that `attn` names, or the fastest one that knows the device, dtype and head size of `query`."""
    if attn == "eager":
        return Plain()
    left_open = attn in ("auto", "sdpa")
    if attn == flash_attention_4.NAME or left_open and flash_attention_4.fits(query):
        return Flash4()
    if query.device.type == "cpu" and query.dtype in (torch.float32, torch.bfloat16):
        return CpuFlash()
    if attn == "sdpa_cudnn" or left_open and cudnn_fits(query):
        return Cudnn()
    if query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16):
        return CudaFlash()
    return Plain()


def _merge_(output: torch.Tensor, lse: torch.Tensor, more: torch.Tensor, more_lse: torch.Tensor) -> None:
    joined = torch.logaddexp(lse, more_lse)
    first, second = (lse - joined).exp().unsqueeze(-1), (more_lse - joined).exp().unsqueeze(-1)
    output.copy_(output.float() * first + more.float() * second)
    lse.copy_(joined)


@cache
def _merge_on(device_type: str) -> Any:
    """On GPUs one pass over memory instead of eight, compiled once for documents of any length."""
    return torch.compile(_merge_, dynamic=True) if device_type == "cuda" else _merge_


def merge_(output: torch.Tensor, lse: torch.Tensor, block: Block) -> None:
    """Fold `block` into the running `output` and the fp32 `lse` (the same rows) in place: one softmax over both."""
    _merge_on(output.device.type)(output, lse, block.output, block.lse)
