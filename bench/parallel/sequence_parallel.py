"""Styles of tensor parallelism whose activations are split along the positions between the blocks of a layer.

Products that read the same input are one product behind one gather, and row-parallel ones end in a reduce-scatter. All
activations are plain tensors: the compiler then sees a gather beside a product and a product beside a reduction, which
it can overlap, and no graph pays for wrapping DTensors. Parameters stay DTensors, for sharding and checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd, reduce_scatter_tensor_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, RowwiseParallel
from torch.nn.functional import linear

SEQUENCE_DIM = 1


def gather_and_project(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, group: dist.ProcessGroup
) -> torch.Tensor:
    """(rows, positions / tp, hidden) -> (rows, positions, outputs). One row goes without its first dimension: gathered
    along the second one, the parts would have to be copied together."""
    if states.shape[0] == 1:
        return linear(all_gather_tensor_autograd(states.squeeze(0), 0, group), weight, bias).unsqueeze(0)
    return linear(all_gather_tensor_autograd(states, SEQUENCE_DIM, group), weight, bias)


def project_and_scatter(states: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """(rows, positions, a part of the inputs) -> (rows, positions / tp, outputs), summed over the ranks."""
    if states.shape[0] == 1:
        return reduce_scatter_tensor_autograd(linear(states.squeeze(0), weight), "sum", 0, group).unsqueeze(0)
    return reduce_scatter_tensor_autograd(linear(states, weight), "sum", SEQUENCE_DIM, group)


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _distribute(module: nn.Module, mesh: DeviceMesh, placement: Placement) -> None:
    for name, parameter in list(module.named_parameters(recurse=False)):
        split = distribute_tensor(parameter.detach(), mesh, [placement])
        module.register_parameter(name, nn.Parameter(split, requires_grad=parameter.requires_grad))


def _slice(start: int, stop: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda fused: fused[..., start:stop]


class FusedColumns(ParallelStyle):
    """On a module that calls the linear layers `names` on its first input, or on `hidden_states`: they become slices of
    one column-parallel product, which that input is replaced by."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        layers = [module.get_submodule(name) for name in self.names]
        group, start = device_mesh.get_group(), 0
        for layer in layers:
            _distribute(layer, device_mesh, Shard(0))
            stop = start + _local(layer.weight).shape[0]
            layer.forward = _slice(start, stop)
            start = stop

        def project(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if args:
                return (_fused(layers, args[0], group), *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": _fused(layers, kwargs["hidden_states"], group)}

        module.register_forward_pre_hook(project, with_kwargs=True)
        return module


def _fused(layers: list[nn.Module], states: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """All layers' outputs beside each other. Their weights are copied together: a small part of the product's work."""
    weight = torch.cat([_local(layer.weight) for layer in layers])
    biased = getattr(layers[0], "bias", None) is not None
    bias = torch.cat([_local(layer.bias) for layer in layers]) if biased else None
    return gather_and_project(states, weight, bias, group)


class ScatteredRows(ParallelStyle):
    """A row-parallel linear layer whose sum over the ranks is split along the positions."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if getattr(module, "bias", None) is not None:  # its gradient is a sum over ranks, which DTensor keeps track of
            return RowwiseParallel(output_layouts=Shard(SEQUENCE_DIM))._apply(module, device_mesh)
        _distribute(module, device_mesh, Shard(1))
        group = device_mesh.get_group()

        def forward(states: torch.Tensor) -> torch.Tensor:
            return project_and_scatter(states, _local(module.weight), group)

        module.forward = forward
        return module
