"""The one training loop: every command that trains, and every test of parity, goes through `train_step`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from bench.inputs.packing import ModelInputs
from bench.losses import LossFunction
from bench.measure.clock import Phase
from bench.strategies.base import Strategy


class StepResult(NamedTuple):
    """`loss` is Σ loss / Σ tokens over all ranks and micro-batches; `grad_norm` is None where nothing stepped."""

    loss: torch.Tensor
    grad_norm: torch.Tensor | None
    loss_tokens: torch.Tensor


def no_phase(name: str) -> AbstractContextManager[None]:
    """A clock that measures nothing."""
    return nullcontext()


def count_loss_tokens(strategy: Strategy, micro_batches: Sequence[ModelInputs]) -> torch.Tensor:
    """Tokens in the loss over all ranks that see different ones, a scalar on the strategy's device.

    Tensor-parallel ranks see the same tokens, so the sum over all ranks counts each `tp` times.
    """
    local = sum(int(inputs.loss_mask.sum()) for inputs in micro_batches)
    # Filled by the device: a copy from the host would wait for all that runs there.
    total: torch.Tensor = strategy.all_reduce(torch.full((), float(local), device=strategy.device), "sum")
    return (total / strategy.tp_size).clamp_min(1.0)


def forward_loss(actor: nn.Module, inputs: ModelInputs, loss_function: LossFunction, ring: bool) -> torch.Tensor:
    """The sum of the loss over this rank's tokens of one micro-batch."""
    output = actor(input_ids=inputs.input_ids, labels=inputs.labels, **inputs.model_kwargs(ring))
    return loss_function(output.log_probs, inputs)


def train_step(
    strategy: Strategy,
    actor: nn.Module,
    optimizer: Optimizer,
    scheduler: Any | None,
    micro_batches: Sequence[ModelInputs],
    loss_function: LossFunction,
    *,
    phase: Phase = no_phase,
    backward: bool = True,
) -> StepResult:
    """One optimizer step over `strategy.accumulated_gradient` micro-batches of this rank.

    Strategies average gradients over the ranks with different tokens and over micro-batches. A mean of means
    would weigh ranks with few tokens like ranks with many: each local sum is scaled so that the average is Σ / Σ.
    """
    counts = count_loss_tokens(strategy, micro_batches)
    ranks = strategy.dp_size * strategy.ring_size
    scale = ranks * len(micro_batches) / counts
    total = torch.zeros((), device=strategy.device)
    norm = None
    for cpu_inputs in micro_batches:
        inputs = cpu_inputs.to(strategy.device)
        with phase("forward"):
            local = forward_loss(actor, inputs, loss_function, strategy.ring_size > 1)
        total += local.detach().float()
        if backward:
            with phase("backward"):
                strategy.backward(local * scale, actor, optimizer)
            with phase("optimizer"):
                norm = strategy.optimizer_step(optimizer, actor, scheduler)
    loss = strategy.all_reduce(total, "sum") / strategy.tp_size / counts
    return StepResult(loss, norm, counts)
