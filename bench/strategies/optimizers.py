"""Optimizers with decay groups, and moving one from the parameters before sharding to those after it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer

OPTIMIZERS = ("adamw", "sgd")


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Two groups: matrices decay; vectors (biases, norm weights) do not. Frozen parameters are left out."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, object]] = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_optimizer(
    model: nn.Module, name: str, lr: float, betas: tuple[float, float], eps: float, weight_decay: float, fused: bool
) -> Optimizer:
    """AdamW (fused where the parameters are on a GPU) or SGD; raises `ValueError` for another name."""
    groups = decay_groups(model, weight_decay)
    if not groups:
        raise ValueError("the model has no parameter that requires a gradient: nothing to optimise")
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=fused or None)
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr)
    raise ValueError(f"unknown optimizer {name!r}: use one of {', '.join(OPTIMIZERS)}")


def names_by_parameter(model: nn.Module) -> dict[int, str]:
    """The name of each parameter by its identity: taken before sharding replaces the parameters."""
    return {id(p): name for name, p in model.named_parameters()}


def move_to_new_parameters(optimizer: Optimizer, old_names: dict[int, str], model: nn.Module) -> None:
    """Point the groups of an optimizer without state at the parameters that now have the old ones' names.

    The optimizer object stays the same, and with it every scheduler that holds it, whatever its class.
    """
    if optimizer.state:
        raise ValueError("the optimizer has stepped already: prepare the model before the first step")
    new = dict(model.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [new[old_names[id(p)]] for p in group["params"]]


def parameters_of(optimizer: Optimizer) -> Iterable[torch.Tensor]:
    return (p for group in optimizer.param_groups for p in group["params"])
