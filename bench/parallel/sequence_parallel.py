"""Styles of tensor parallelism whose activations are split along the positions between the blocks of a layer.

Products that read the same input follow one gather, and row-parallel ones end in a reduce-scatter; with `overlap` these
exchanges run beside the products. All activations are plain tensors: no graph pays for wrapping DTensors, nor fails
where rows vary in length. Parameters stay DTensors, for sharding and checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import (
    all_gather_tensor,
    all_gather_tensor_autograd,
    reduce_scatter_tensor_autograd,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, RowwiseParallel
from torch.nn.functional import linear

from bench.parallel import peer_products

SEQUENCE_DIM = 1


def gather_and_project(
    states: torch.Tensor, weights: Sequence[torch.Tensor], group: dist.ProcessGroup, overlap: bool
) -> tuple[torch.Tensor, ...]:
    """(rows, positions / tp, hidden) -> (rows, positions, outputs) for each weight (outputs, hidden)."""
    if overlap:
        products = peer_products.gather_and_project(_positions_first(states), weights, group)
        return tuple(_rows_first(product, states.shape[0]) for product in products)
    whole = _rows_first(all_gather_tensor_autograd(_positions_first(states), 0, group), states.shape[0])
    return tuple(linear(whole, weight) for weight in weights)


def project_and_scatter(
    states: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup, overlap: bool
) -> torch.Tensor:
    """(rows, positions, a part of the inputs) -> (rows, positions / tp, outputs), summed over the ranks."""
    if overlap:
        return _rows_first(peer_products.project_and_scatter(_positions_first(states), weight, group), states.shape[0])
    summands = _positions_first(linear(states, weight))
    return _rows_first(reduce_scatter_tensor_autograd(summands, "sum", 0, group), states.shape[0])


def _positions_first(states: torch.Tensor) -> torch.Tensor:
    """(rows, positions, size) -> (positions · rows, size): ranks then hold stretches of the first dimension. Nothing is
    copied where there is one row."""
    return states.transpose(0, 1).flatten(0, 1)


def _rows_first(states: torch.Tensor, rows: int) -> torch.Tensor:
    """The reverse."""
    return states.unflatten(0, (-1, rows)).transpose(0, 1)


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _distribute(module: nn.Module, mesh: DeviceMesh, placement: Placement) -> None:
    for name, parameter in list(module.named_parameters(recurse=False)):
        split = distribute_tensor(parameter.detach(), mesh, [placement])
        module.register_parameter(name, nn.Parameter(split, requires_grad=parameter.requires_grad))


class Norm(ParallelStyle):
    """A norm of this rank's positions, or heads: its weight's gradient is a sum over the ranks, and marked as one."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _distribute(module, device_mesh, Replicate())
        forward = type(module).forward
        module.forward = lambda states: forward(_Plain(module), states)
        return module


class _Plain:
    """A module whose parameters are plain tensors."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return value.to_local(grad_placements=(Partial(),)) if isinstance(value, DTensor) else value


class SplitInput(ParallelStyle):
    """A module that is given all positions, in its first input, and goes on with this rank's."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        group = device_mesh.get_group()
        module.register_forward_pre_hook(lambda _, args: (_Split.apply(args[0], group), *args[1:]))
        return module


class JoinOutput(ParallelStyle):
    """A module whose output, of this rank's positions, becomes that of all."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        group = device_mesh.get_group()
        module.register_forward_hook(lambda _, __, output: _Join.apply(output, group))
        return module


def _part(states: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    size = states.shape[SEQUENCE_DIM] // dist.get_world_size(group)
    return states.narrow(SEQUENCE_DIM, dist.get_rank(group) * size, size).clone()


def _whole(states: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    return _rows_first(all_gather_tensor(_positions_first(states), 0, group), states.shape[0])


class _Split(torch.autograd.Function):
    """This rank's positions. Every rank computes the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return _part(states, group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _whole(grad, ctx.group), None


class _Join(torch.autograd.Function):
    """All ranks' positions. Every rank computes the gradient of all, the same."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return _whole(states, group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _part(grad, ctx.group), None


class Columns(ParallelStyle):
    """On a module that calls the linear layers `names` on its first input, or on `hidden_states`: their column-parallel
    products are made at once, behind one gather, and take that input's place.

    `fused`: as one product, of which the layers become slices, for a module that asks its input for its shape and for
    products that are small alone. The weights are copied together for it.
    """

    def __init__(self, *names: str, fused: bool, overlap: bool) -> None:
        super().__init__()
        self.names, self.fused, self.overlap = names, fused, overlap

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        layers = [module.get_submodule(name) for name in self.names]
        start = 0
        for number, layer in enumerate(layers):
            _distribute(layer, device_mesh, Shard(0))
            stop = start + _local(layer.weight).shape[0]
            layer.forward = _slice(start, stop) if self.fused else _pick(number)
            start = stop
        group = device_mesh.get_group()

        def project(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if args:
                return (self._products(layers, args[0], group), *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": self._products(layers, kwargs["hidden_states"], group)}

        module.register_forward_pre_hook(project, with_kwargs=True)
        return module

    def _products(
        self, layers: list[nn.Module], states: torch.Tensor, group: dist.ProcessGroup
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        weights = [_local(layer.weight) for layer in layers]
        biases = [_local(layer.bias) for layer in layers if getattr(layer, "bias", None) is not None]
        if self.fused:
            weights, biases = [torch.cat(weights)], [torch.cat(biases)] if biases else []
        products = gather_and_project(states, weights, group, self.overlap)
        if biases:
            products = tuple(product + bias for product, bias in zip(products, biases, strict=True))
        return products[0] if self.fused else products


def _slice(start: int, stop: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda fused: fused[..., start:stop]


def _pick(number: int) -> Callable[[tuple[torch.Tensor, ...]], torch.Tensor]:
    return lambda products: products[number]


class ScatteredRows(ParallelStyle):
    """A row-parallel linear layer whose sum over the ranks is split along the positions."""

    def __init__(self, overlap: bool) -> None:
        super().__init__()
        self.overlap = overlap

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if getattr(module, "bias", None) is not None:  # its gradient is a sum over ranks, which DTensor keeps track of
            return RowwiseParallel(output_layouts=Shard(SEQUENCE_DIM))._apply(module, device_mesh)
        _distribute(module, device_mesh, Shard(1))
        group = device_mesh.get_group()

        def forward(states: torch.Tensor) -> torch.Tensor:
            return project_and_scatter(states, _local(module.weight), group, self.overlap)

        module.forward = forward
        return module
