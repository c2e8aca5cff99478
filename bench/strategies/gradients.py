"""Whole values of sharded parameters; gradient norms and clipping that are right over several meshes at once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor


def to_local_if_dtensor(tensor: torch.Tensor) -> torch.Tensor:
    """The local shard of a DTensor (it shares memory); any other tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All shards together; a collective for DTensors."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def fill(parameter: torch.Tensor, value: torch.Tensor) -> None:
    """Copy a whole tensor, the same on every rank, into a parameter that may be a shard of one."""
    if not isinstance(parameter, DTensor):
        parameter.copy_(value)
        return
    cast = value.to(parameter.device, parameter.dtype)
    # No rank sends: each cuts its shard out of the copy that it has read itself.
    shard = distribute_tensor(cast, parameter.device_mesh, parameter.placements, src_data_rank=None)
    parameter.to_local().copy_(shard.to_local())


def _summed(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient without pending sums: a partial DTensor has no norm before it is reduced."""
    if isinstance(gradient, DTensor) and any(isinstance(p, Partial) for p in gradient.placements):
        placements = [Replicate() if isinstance(p, Partial) else p for p in gradient.placements]
        return gradient.redistribute(placements=placements)
    return gradient


def _sharding_groups(gradient: torch.Tensor) -> tuple[dist.ProcessGroup, ...]:
    """The process groups over which the elements of this gradient are spread."""
    if not isinstance(gradient, DTensor):
        return ()
    mesh = gradient.device_mesh
    return tuple(
        mesh.get_group(dim)
        for dim, placement in enumerate(gradient.placements)
        if not placement.is_replicate() and mesh.size(dim) > 1
    )


def get_grad_norm(parameters: Iterable[torch.Tensor]) -> torch.Tensor:
    """The 2-norm over all gradients of all shards, as an fp32 scalar that is equal on every rank.

    Each element counts once: shards are summed over the groups they are spread over, replicas are not.
    This is a collective: every rank must call it with the same parameters.
    """
    gradients = [_summed(p.grad) for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    by_groups: dict[tuple[dist.ProcessGroup, ...], list[torch.Tensor]] = defaultdict(list)
    for gradient in gradients:
        by_groups[_sharding_groups(gradient)].append(to_local_if_dtensor(gradient).detach())
    squares = []
    for groups, locals_ in by_groups.items():
        total = torch.stack(torch._foreach_norm(locals_, 2.0, dtype=torch.float32)).square().sum()
        for group in groups:
            dist.all_reduce(total, group=group)
        squares.append(total)
    return torch.stack(squares).sum().sqrt()


def clip_grad_by_total_norm_(parameters: Iterable[torch.Tensor], max_norm: float, total_norm: torch.Tensor) -> None:
    """Scale every gradient in place by `max_norm / total_norm` where that is below 1; no host sync."""
    locals_ = [to_local_if_dtensor(p.grad) for p in parameters if p.grad is not None]
    if locals_:
        scale = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(locals_, scale.to(locals_[0].device))


class LossScaler:
    """Dynamic loss scale for fp16, driven by the global gradient norm.

    The norm is not finite on every rank as soon as one gradient of one rank is not, so ranks agree on
    skipping a step without a collective of their own. Usage: multiply the loss by `scale`, divide the
    gradients with `unscale_`, then ask `update(norm)` whether to step.
    """

    def __init__(self, initial: float = 2.0**16, growth_interval: int = 2000) -> None:
        self.scale = initial
        self.growth_interval = growth_interval
        self.good_steps = 0

    def unscale_(self, parameters: Iterable[torch.Tensor]) -> None:
        locals_ = [to_local_if_dtensor(p.grad) for p in parameters if p.grad is not None]
        if locals_:
            torch._foreach_mul_(locals_, 1.0 / self.scale)

    def update(self, norm: float) -> bool:
        """True when the step may be taken; the scale is halved otherwise, and doubled after many good steps."""
        if not math.isfinite(norm):
            self.scale, self.good_steps = max(self.scale / 2.0, 1.0), 0
            return False
        self.good_steps += 1
        if self.good_steps % self.growth_interval == 0:
            self.scale *= 2.0
        return True

    def state_dict(self) -> dict[str, float]:
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.scale, self.good_steps = float(state["scale"]), int(state["good_steps"])
