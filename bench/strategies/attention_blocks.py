"""Attention of one block of queries over one block of keys, with the log-sum-exp that merging needs.

Three kernels with one shape convention: queries (batch, heads, q, d), keys and values (batch, heads, k, d),
log-sum-exp (batch, heads, q) in fp32. Causal blocks are square.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

QUERY_BLOCK = 1024


class Block(NamedTuple):
    """Output in the dtype of the queries, log-sum-exp of the scores in fp32."""

    output: torch.Tensor
    lse: torch.Tensor


class Gradients(NamedTuple):
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


class Kernel(Protocol):
    """`backward` takes the *merged* output and log-sum-exp: then the blocks' gradients simply add up."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, scale: float
    ) -> Block: ...

    def backward(
        self, grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        merged: Block, causal: bool, scale: float,
    ) -> Gradients: ...  # fmt: skip


class CpuFlash:
    """The flash kernel that scaled-dot-product attention uses on CPUs (fp32 and bf16)."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, scale: float) -> Block:
        return Block(
            *torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, scale=scale)
        )

    def backward(
        self, grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        merged: Block, causal: bool, scale: float,
    ) -> Gradients:  # fmt: skip
        return Gradients(
            *torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad, query, key, value, merged.output, merged.lse, 0.0, causal, scale=scale
            )
        )


class CudaFlash:
    """PyTorch's own flash kernel on GPUs (bf16 and fp16), where the flash-attn package is absent."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, scale: float) -> Block:
        output, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, 0.0, causal, False, scale=scale
        )
        return Block(output, lse)

    def backward(
        self, grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        merged: Block, causal: bool, scale: float,
    ) -> Gradients:  # fmt: skip
        empty = torch.empty((2,), dtype=torch.uint64, device=query.device)
        return Gradients(
            *torch.ops.aten._scaled_dot_product_flash_attention_backward(
                grad, query, key, value, merged.output, merged.lse, None, None, query.shape[2], key.shape[2],
                0.0, causal, empty, empty[:0], scale=scale,
            )
        )  # fmt: skip


class Plain:
    """Matrix products over blocks of queries: any device and dtype, no kernel needed; slow and exact."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, scale: float) -> Block:
        outputs, lses = [], []
        for start in range(0, query.shape[2], QUERY_BLOCK):
            scores = _scores(query, key, start, causal, scale)
            lse = scores.logsumexp(-1)
            outputs.append((scores - lse.unsqueeze(-1)).exp() @ value.float())
            lses.append(lse)
        return Block(torch.cat(outputs, 2).to(query.dtype), torch.cat(lses, 2))

    def backward(
        self, grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        merged: Block, causal: bool, scale: float,
    ) -> Gradients:  # fmt: skip
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
        return Gradients(grad_query, grad_key, grad_value)


def _scores(query: torch.Tensor, key: torch.Tensor, start: int, causal: bool, scale: float) -> torch.Tensor:
    rows = query[:, :, start : start + QUERY_BLOCK].float()
    scores = rows @ key.float().transpose(-1, -2) * scale
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril(start)
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores


def kernel_for(query: torch.Tensor) -> Kernel:
    """The fastest kernel that knows the device and dtype of `query`."""
    if query.device.type == "cpu" and query.dtype in (torch.float32, torch.bfloat16):
        return CpuFlash()
    if query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16):
        return CudaFlash()
    return Plain()


def merge_(output: torch.Tensor, lse: torch.Tensor, block: Block) -> None:
    """Fold `block` into the running fp32 `output` and `lse` (the same rows) in place."""
    new_lse = torch.logaddexp(lse, block.lse)
    output.mul_((lse - new_lse).exp().unsqueeze(-1))
    output.add_(block.output.float() * (block.lse - new_lse).exp().unsqueeze(-1))
    lse.copy_(new_lse)
