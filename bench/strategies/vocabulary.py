"""Scores of targets from logits whose vocabulary is split over tensor-parallel ranks: no rank holds all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class VocabularyShard:
    """This rank's stretch of the vocabulary, `start` its first token, and the ranks that hold the others."""

    group: dist.ProcessGroup
    start: int


@dataclass(frozen=True)
class LocalScores:
    """(positions,) fp32 of one rank's logits: their log-sum-exp, the target's logit where this rank has it (0
    elsewhere), and the mean logit under their own softmax (for entropies)."""

    lse: torch.Tensor
    target: torch.Tensor
    mean: torch.Tensor


def local_scores(
    scores: torch.Tensor, targets: torch.Tensor, start: int, with_entropy: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `LocalScores` holds, of fp32 `scores` (positions, this rank's tokens). Comparing token numbers makes one
    pass of it under the compiler; a gather's gradient would be a matrix of its own."""
    lse = scores.logsumexp(-1)
    tokens = torch.arange(scores.shape[-1], device=scores.device)
    target = torch.where(tokens == (targets - start)[:, None], scores, 0.0).sum(-1)
    if not with_entropy:
        return lse, target, torch.zeros_like(lse)
    return lse, target, (scores.softmax(-1) * scores).sum(-1)


class _Combine(torch.autograd.Function):
    """Log-probabilities and entropies over the whole vocabulary, from every rank's `LocalScores`.

    All ranks compute the same loss of them, so each keeps the gradient of its own scores and nothing is reduced.
    """

    @staticmethod
    def forward(
        ctx: Any, lse: torch.Tensor, target: torch.Tensor, mean: torch.Tensor, group: dist.ProcessGroup
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mine = torch.stack((lse, target, mean))
        gathered = mine.new_empty(dist.get_world_size(group), *mine.shape)
        dist.all_gather_into_tensor(gathered.flatten(0, 1), mine, group=group)
        total = gathered[:, 0].logsumexp(0)
        average = ((gathered[:, 0] - total).exp() * gathered[:, 2]).sum(0)
        ctx.save_for_backward((lse - total).exp(), mean - average)
        return gathered[:, 1].sum(0) - total, total - average

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        share, above = ctx.saved_tensors
        grad, grad_entropy = grads
        return share * (grad_entropy * (1 - above) - grad), grad, -share * grad_entropy, None


def combine(local: LocalScores, group: dist.ProcessGroup) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probabilities of the targets, entropies), (positions,) fp32, the same on every rank of `group`."""
    combined: tuple[torch.Tensor, torch.Tensor] = _Combine.apply(local.lse, local.target, local.mean, group)
    return combined
