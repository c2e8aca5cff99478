"""Reductions and gathers over all ranks, for tensors, numbers and dictionaries of them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

OPERATIONS = ("mean", "sum", "max")


def reduce_value(data: Any, op: str, device: torch.device) -> Any:
    """Reduce `data` over all ranks: the same kind of thing comes back, its device and dtype kept.

    Numbers are reduced in double precision. Raises `ValueError` for an operation other than mean, sum, max.
    """
    if op not in OPERATIONS:
        raise ValueError(f"cannot all-reduce with op={op!r}: use one of {', '.join(OPERATIONS)}")
    if isinstance(data, dict):
        return {key: reduce_value(value, op, device) for key, value in data.items()}
    is_tensor = isinstance(data, torch.Tensor)
    value = data if is_tensor else torch.tensor(float(data), dtype=torch.float64)
    if dist.is_initialized():
        value = _reduce_tensor(value, op, device)
    return value if is_tensor else value.item()


def _reduce_tensor(value: torch.Tensor, op: str, device: torch.device) -> torch.Tensor:
    moved = value.detach().to(device, copy=True)
    dist.all_reduce(moved, op=dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
    if op == "mean":
        moved = moved / dist.get_world_size()
    return moved.to(value.device, value.dtype if value.is_floating_point() else moved.dtype)


def gather_value(data: Any, device: torch.device) -> Any:
    """Concatenate `data` of all ranks along dimension 0 in rank order; numbers become one-dimensional tensors.

    Tensors must have the same shape on every rank.
    """
    if isinstance(data, dict):
        return {key: gather_value(value, device) for key, value in data.items()}
    value = data if isinstance(data, torch.Tensor) else torch.tensor([float(data)], dtype=torch.float64)
    value = value.reshape(1) if value.dim() == 0 else value
    if not dist.is_initialized():
        return value.clone()
    moved = value.detach().to(device).contiguous()
    parts = [torch.empty_like(moved) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, moved)
    return torch.cat(parts).to(value.device)
