"""fp32 copies of 16-bit parameters: the optimizer's side of mixed precision without sharding."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from bench.strategies.optimizers import names_by_parameter


class MasterWeights:
    """Copies every trained parameter, casts the model to `dtype`, and points the optimizer at the copies."""

    def __init__(self, model: nn.Module, optimizer: Optimizer | None, dtype: torch.dtype) -> None:
        old = names_by_parameter(model)
        self.masters = {
            name: p.detach().float().clone().requires_grad_() for name, p in model.named_parameters() if p.requires_grad
        }
        for parameter in model.parameters():
            # Not `model.to`: it would round the buffers, and with them the rotary frequencies that positions hang on.
            parameter.data = parameter.data.to(dtype)
        self.pairs = [(p, self.masters[name]) for name, p in model.named_parameters() if name in self.masters]
        if optimizer is not None:
            for group in optimizer.param_groups:
                group["params"] = [self.masters[old[id(p)]] for p in group["params"]]

    @torch.no_grad()
    def collect(self) -> None:
        """Add the model's gradients to the copies' in fp32 and clear the model's."""
        for parameter, master in self.pairs:
            if parameter.grad is not None:
                _add(master, parameter.grad)
            parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Write the copies' values into the model."""
        torch._foreach_copy_([p for p, _ in self.pairs], [m for _, m in self.pairs])


def _add(master: torch.Tensor, gradient: torch.Tensor) -> None:
    """Add a gradient in 16 bits to the one in fp32."""
    if gradient.is_sparse:
        master.grad = torch.zeros_like(master) if master.grad is None else master.grad
        # Not `coalesce`, which waits for the device to say how many rows there are.
        master.grad.index_add_(0, gradient._indices()[0], gradient._values().float())
    elif master.grad is None:
        master.grad = torch.empty_like(master)
        torch._foreach_copy_([master.grad], [gradient])  # twice as fast on an H200 as `gradient.float()`
    else:
        master.grad.add_(gradient)
