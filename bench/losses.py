"""Losses as sums over the tokens of one rank; the training loop divides by the tokens of all ranks."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import NamedTuple

import torch

from bench.inputs.packing import ModelInputs

LossFunction = Callable[[torch.Tensor, ModelInputs], torch.Tensor]
CLIP = 0.2


class Loss(NamedTuple):
    """`function(log_probs, inputs)` gives the sum over the rank's tokens where `inputs.loss_mask` is set.

    `use_actions`: the mask covers actions only, not every real token.
    """

    function: LossFunction
    use_actions: bool


def sft(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
    """Cross-entropy of every real token."""
    return -(log_probs * inputs.loss_mask).sum()


def ppo(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
    """The clipped policy loss of actions, the old policy being the present one, as in the first epoch."""
    ratio = (log_probs - log_probs.detach()).exp()
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    gain = torch.minimum(ratio * inputs.advantages, clipped * inputs.advantages)
    return -(gain * inputs.loss_mask).sum()


OURS = {"sft": Loss(sft, use_actions=False), "ppo": Loss(ppo, use_actions=True)}


def find_loss(name: str) -> Loss:
    """`sft`, `ppo`, or `module:function` of the user; raises `ValueError` for anything else."""
    if name in OURS:
        return OURS[name]
    module, _, function = name.partition(":")
    if not function:
        raise ValueError(f"--loss {name}: use sft, ppo or module:function")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--loss {name}: {error}") from None
    if not callable(found):
        raise ValueError(f"--loss {name}: {function} is not a function")

    @functools.wraps(found)
    def checked(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
        total = found(log_probs, inputs)
        if not isinstance(total, torch.Tensor) or total.ndim:
            got = f"shape {tuple(total.shape)}" if isinstance(total, torch.Tensor) else type(total).__name__
            raise ValueError(f"--loss {name} gave {got}: it should give the sum over the tokens, a tensor of shape ()")
        return total

    return Loss(checked, use_actions=True)
