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
    elsewhere), and the entropy of their own softmax."""

    lse: torch.Tensor
    target: torch.Tensor
    entropy: torch.Tensor


def local_scores(
    scores: torch.Tensor, targets: torch.Tensor, start: int, with_entropy: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `LocalScores` holds, of fp32 `scores` (positions, this rank's tokens)."""
    lse, target = _LseAndTarget.apply(scores, targets - start)
    if not with_entropy:
        return lse, target, torch.zeros_like(lse)
    log_probs = scores - lse[:, None]
    return lse, target, -(log_probs.exp() * log_probs).sum(-1)


LARGEST_CHUNK, LEAST_CHUNK = 1024, 64
"""Tokens: what the compiler reduces within one block of threads, and so reads once; and what fills one."""


def _chunk(tokens: int) -> int:
    """The largest size of chunks that `tokens` falls into; all of them where there is none of use."""
    for size in range(LARGEST_CHUNK, LEAST_CHUNK - 1, -1):
        if tokens % size == 0:
            return size
    return tokens


class _LseAndTarget(torch.autograd.Function):
    """(positions,) each: the log-sum-exp of fp32 scores (positions, tokens), and the score of the target, 0 where that
    is none of these tokens.

    Written for the compiler: one pass over the logits forward and one backward, which keeps none but them. A row's
    log-sum-exp is that of its chunks', so that no maximum is corrected token by token; a gather's own gradient would be
    a matrix of zeros.
    """

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = scores.shape[-1]
        lse = scores.unflatten(-1, (-1, _chunk(tokens))).logsumexp(-1).logsumexp(-1)
        ctx.save_for_backward(scores, targets, lse)
        found = scores.gather(-1, targets.clamp(0, tokens - 1)[:, None]).squeeze(-1)
        return lse, torch.where((targets >= 0) & (targets < tokens), found, 0.0)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        scores, targets, lse = ctx.saved_tensors
        grad_lse, grad_target = (grad[:, None] for grad in grads)
        hit = torch.arange(scores.shape[-1], device=scores.device) == targets[:, None]
        return (scores - lse[:, None]).exp() * grad_lse + torch.where(hit, grad_target, 0.0), None


class _Combine(torch.autograd.Function):
    """Log-probabilities and entropies over the whole vocabulary, from every rank's `LocalScores`.

    All ranks compute the same loss of them, so each keeps the gradient of its own scores and nothing is reduced.
    """

    @staticmethod
    def forward(
        ctx: Any, lse: torch.Tensor, target: torch.Tensor, entropy: torch.Tensor, group: dist.ProcessGroup
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mine = torch.stack((lse, target, entropy))
        gathered = mine.new_empty(dist.get_world_size(group), *mine.shape)
        dist.all_gather_into_tensor(gathered.flatten(0, 1), mine, group=group)
        total = gathered[:, 0].logsumexp(0)
        # The entropy of which rank's tokens it is, and that of the token then: no large numbers cancel.
        log_shares = gathered[:, 0] - total
        joined = (log_shares.exp() * (gathered[:, 2] - log_shares)).sum(0)
        ctx.save_for_backward((lse - total).exp(), entropy - (lse - total) - joined)
        return gathered[:, 1].sum(0) - total, joined

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        share, above = ctx.saved_tensors
        grad, grad_entropy = grads
        return share * (grad_entropy * above - grad), grad, share * grad_entropy, None


def combine(local: LocalScores, group: dist.ProcessGroup) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probabilities of the targets, entropies), (positions,) fp32, the same on every rank of `group`."""
    combined: tuple[torch.Tensor, torch.Tensor] = _Combine.apply(local.lse, local.target, local.entropy, group)
    return combined
