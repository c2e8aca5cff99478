"""Passes over all gradients that DeepSpeed 0.19.8 makes and that change nothing: none of its settings leaves them out.

Each changes one optimizer of ZeRO, in place. What is not as in that version is left as it is: the steps are then
right as before, and slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

PARTITIONS = "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition"
"""ZeRO-3's gradients by parameter, flat: a private dictionary of its optimizer."""


def norms_at_once(optimizer: Any) -> None:
    """Take gradient norms in fp32 in one read. DeepSpeed casts every gradient to fp64 first and reads that: nine times
    the bytes, for digits that the clipping does not see. Sums over tensors and ranks stay DeepSpeed's own."""
    theirs = getattr(optimizer, "get_grad_norm_direct", None)
    if theirs is None:
        return

    def norm(gradients: Sequence[torch.Tensor], params: Sequence[nn.Parameter], norm_type: float = 2) -> torch.Tensor:
        if norm_type == 2:
            real = [gradient for gradient in gradients if not getattr(gradient, "_zero_padding", False)]
            gradients = torch._foreach_norm(real, 2.0, dtype=torch.float32)
        found: torch.Tensor = theirs(gradients, params, norm_type)
        return found

    optimizer.get_grad_norm_direct = norm


def leave_overflow_to_the_norm(optimizer: Any) -> None:
    """Do not search the gradients for infinities. The norm over all ranks, which is taken right after, is not finite
    where one of them is not, and DeepSpeed then skips the step as well."""
    if getattr(optimizer, "compute_grad_norm", True) and hasattr(optimizer, "check_overflow"):
        optimizer.check_overflow = lambda partition_gradients=True: None


def keep_whole_gradients(optimizer: Any) -> None:
    """Stages 1 and 2, one rank: leave gradients where the backward pass puts them. Nobody adds to them, so they need no
    bucket to be sent from and no partition to be kept in."""
    if hasattr(optimizer, "reduce_ready_partitions_and_remove_grads") and hasattr(optimizer, "all_grad_tensors"):
        optimizer.reduce_ready_partitions_and_remove_grads = lambda param, group: None


class WholeGradients:
    """Stage 3, one rank: the partition of a gradient is the gradient itself. DeepSpeed copies it into a bucket, divides
    it by one and copies it into a buffer that is always there."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.partitions: dict[int, torch.Tensor] = getattr(optimizer, PARTITIONS, {})
        if not self.partitions or not hasattr(optimizer, "reduce_independent_p_g_buckets_and_remove_grads"):
            return
        optimizer.reduce_independent_p_g_buckets_and_remove_grads = self.keep
        optimizer.grad_partitions_flat_buffer = None
        for bucket in optimizer.ipg_buckets.values():
            bucket.buffer = None
        self.release()

    @torch.no_grad()
    def keep(self, parameter: Any) -> None:
        """Take a parameter's gradient away from it, and add it to those of earlier micro-batches."""
        gradient = parameter.grad.detach().reshape(-1).to(self.optimizer.gradient_accumulation_dtype)
        earlier = self.partitions[parameter.ds_id]
        if self.optimizer.micro_step_id == 0 or not _has_memory(earlier):
            self.partitions[parameter.ds_id] = gradient
        else:
            earlier.add_(gradient)
        parameter.grad = None

    def release(self) -> None:
        """Free all gradients. Parameters that get none have zeros, which take no memory."""
        for key, held in self.partitions.items():
            self.partitions[key] = held.new_zeros(()).expand(held.numel())


def _has_memory(flat: torch.Tensor) -> bool:
    """Whether each element has its own, so that something can be added."""
    return flat.stride() != (0,)
