"""The head and its softmax with one pass over the logits, which leaves their gradient where they lay.

A compiled head reads the logits to score them and once more in the backward pass, which writes their gradient. A kernel
of `quack-kernels` (FlashAttention-4 brings it) keeps a row of logits on the chip, so that it can write softmax minus
one-hot at once. That is the gradient but for one factor per position, which is known in the backward pass only: the
matrix products take it with what else they read or write, thirty times less than the logits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

from bench.sweep.availability import installed

DISTRIBUTION = "quack-kernels"


def fits(head: nn.Module, hidden: torch.Tensor) -> bool:
    """Whether the package is there and takes a head and inputs like these."""
    if not hidden.is_cuda or hidden.dtype != torch.bfloat16 or not torch.is_grad_enabled():
        return False
    return isinstance(head, nn.Linear) and head.bias is None and _runs_on(hidden.device)


@cache
def _runs_on(device: torch.device) -> bool:
    return installed(DISTRIBUTION) and torch.cuda.get_device_capability(device) >= (9, 0)


def log_probs(head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of `targets` (positions,), in fp32; `hidden` (positions, size).

    The module is called, with another forward: sharding backends gather its weight in its hooks.
    """
    head.forward = lambda states: _LogProbs.apply(states, head.weight, targets)
    try:
        found: torch.Tensor = head(hidden)
    finally:
        del head.forward
    return found


def _losses(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The negative log-probabilities, and softmax minus one-hot in the memory of `logits`."""
    from quack.cross_entropy import cross_entropy_fwd

    losses, gradient = cross_entropy_fwd(logits, targets, return_dx=True, inplace_backward=True)
    return losses, gradient


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses, unscaled = _losses(hidden @ weight.t(), targets)
        ctx.save_for_backward(hidden, weight, unscaled)
        return -losses

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        hidden, weight, unscaled = ctx.saved_tensors
        factor = -grad[:, None]  # fp32: in 16 bits it would scale all gradients by what rounding does to it
        of_hidden = (unscaled @ weight).mul_(factor)
        scaled = torch.mul(hidden, factor, out=torch.empty_like(hidden))
        return of_hidden, unscaled.t() @ scaled, None
