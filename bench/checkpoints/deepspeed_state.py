"""Whole parameters, gradients and optimizer states in and out of a DeepSpeed engine.

ZeRO keeps flat fp32 partitions, AutoTP keeps slices. Here one parameter at a time is gathered over both, so
that checkpoints have the names and shapes of the unwrapped model and fit every other backend and size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from bench.checkpoints import checkpoint, resume, stored
from bench.strategies import processes


def _module(model: nn.Module) -> nn.Module:
    """What an engine wraps."""
    return model.module if hasattr(model, "zero_optimization_stage") else model


def _is_partitioned(parameter: torch.Tensor) -> bool:
    """Whether ZeRO-3 holds the parameter in pieces."""
    return hasattr(parameter, "ds_id")


def _has_flat_copy(parameter: torch.Tensor) -> bool:
    """Whether ZeRO keeps an fp32 copy apart from the parameter."""
    return _is_partitioned(parameter) or hasattr(parameter, "_hp_mapping")


def _copies(engine: Any) -> dict[int, torch.Tensor]:
    """The fp32 copy of each 16-bit parameter by the parameter's identity, where ZeRO-0 keeps them unflattened."""
    outer = getattr(engine, "optimizer", None)
    low, high = getattr(outer, "fp16_groups", None), getattr(outer, "fp32_groups", None)
    if not low or not high or not isinstance(low[0], list):
        return {}
    return {id(p): q for ps, qs in zip(low, high, strict=True) for p, q in zip(ps, qs, strict=True)}


def forget_first_step(engine: Any) -> None:
    """Undo the step that ZeRO-0 in 16 bits takes with zero gradients to create its states (DeepSpeed 0.19.8).

    It leaves the moments at zero and the step count at 1, which puts Adam's bias correction one step ahead.
    """
    for state in _inner(engine).state.values():
        if "step" in state:
            state["step"] = torch.as_tensor(state["step"]).zero_()


def _slices(parameter: torch.Tensor) -> bool:
    """Whether AutoTP has left this rank a slice of the parameter."""
    return bool(getattr(parameter, "ds_is_replaced_module", False))


def _whole(parameter: Any, value: torch.Tensor) -> torch.Tensor:
    """The slices of all tensor-parallel ranks together, for a value shaped like the parameter's slice."""
    if not _slices(parameter):
        return value
    carrier = torch.nn.Parameter(value.detach().clone().view(_slice_shape(parameter)), requires_grad=False)
    parameter.gather_params([carrier])
    return carrier.data


def _slice(parameter: Any, value: torch.Tensor) -> torch.Tensor:
    """This rank's slice of a whole tensor, cut as AutoTP cut the parameter."""
    if not _slices(parameter):
        return value
    carrier = torch.nn.Parameter(value.detach().clone(), requires_grad=False)
    parameter._tp_partition([carrier])
    return carrier.data


def _slice_shape(parameter: Any) -> torch.Size:
    return getattr(parameter, "ds_shape", parameter.shape)


def full_parameters(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Names of the unwrapped model and whole fp32 values; a collective over all ranks."""
    from deepspeed.utils import safe_get_full_fp32_param

    copies = _copies(model)
    for name, parameter in _module(model).named_parameters():
        value = copies.get(id(parameter), parameter).detach()
        if _has_flat_copy(parameter):
            value = safe_get_full_fp32_param(parameter)
        yield name, _whole(parameter, value.float())


def full_gradients(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Copies of the whole fp32 gradients, between the last backward pass and the step; a collective over all ranks."""
    from deepspeed.utils import safe_get_full_grad

    for name, parameter in _module(model).named_parameters():
        value = safe_get_full_grad(parameter)
        if value is not None:
            yield name, _whole(parameter, value.detach().float().clone())


def set_parameter(model: nn.Module, parameter: torch.Tensor, value: torch.Tensor) -> None:
    """Write a whole tensor, the same on every rank, into the parameter and its fp32 copy."""
    import deepspeed
    from deepspeed.utils import safe_set_full_fp32_param

    with torch.no_grad():
        local = _slice(parameter, value.to(parameter.device).float())
        if _has_flat_copy(parameter):
            safe_set_full_fp32_param(parameter, local)
        copy = _copies(model).get(id(parameter))
        if copy is not None:
            copy.copy_(local)
        if _is_partitioned(parameter):
            with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
                parameter.copy_(local.view(parameter.shape))
        else:
            parameter.copy_(local)


def clip_(engine: Any, max_norm: float, tp_group: dist.ProcessGroup | None) -> torch.Tensor:
    """Clip ZeRO-0's reduced gradients in place (not at all where `max_norm` is 0); the global norm before that.

    Slices count over the tensor-parallel group, gradients that all of its ranks hold count once.
    """
    whole: list[torch.Tensor] = []
    sliced: list[torch.Tensor] = []
    for parameter in engine.module.parameters():
        gradient = parameter.grad if parameter.grad is not None else getattr(parameter, "_hp_grad", None)
        if gradient is not None:
            (sliced if _slices(parameter) else whole).append(gradient)
    squares = _sum_of_squares(sliced, engine.device)
    if tp_group is not None:
        dist.all_reduce(squares, group=tp_group)
    norm = (squares + _sum_of_squares(whole, engine.device)).sqrt()
    if max_norm > 0:
        torch._foreach_mul_(whole + sliced, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _sum_of_squares(tensors: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    if not tensors:
        return torch.zeros((), device=device)
    return torch.stack(torch._foreach_norm(tensors, 2.0, dtype=torch.float32)).square().sum()


def _flat_groups(engine: Any) -> list[list[torch.Tensor]]:
    """The fp32 tensors that the inner optimizer steps, one list for each of its groups."""
    outer = engine.optimizer
    for name in ("single_partition_of_fp32_groups", "fp32_groups_flat_partition"):
        if hasattr(outer, name):
            return [[tensor] for tensor in getattr(outer, name)]
    if hasattr(outer, "fp32_partitioned_groups_flat"):
        return [list(outer.fp32_partitioned_groups_flat)]
    return [list(group["params"]) for group in outer.param_groups]


def _inner(engine: Any) -> Optimizer:
    """PyTorch's optimizer inside ZeRO's."""
    inner: Optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    return inner


def _state_keys(engine: Any) -> list[str]:
    """Names of the per-element states, such as exp_avg; empty before the first step."""
    for state in _inner(engine).state.values():
        return sorted(k for k, v in state.items() if isinstance(v, torch.Tensor) and v.dim() > 0)
    return []


def _step_count(engine: Any) -> torch.Tensor | None:
    """The number of steps, which every parameter shares."""
    for state in _inner(engine).state.values():
        if "step" in state:
            return torch.as_tensor(state["step"], dtype=torch.float32).cpu()
    return None


def _link_states(engine: Any) -> None:
    """Make ZeRO's parameters know their optimizer states.

    ZeRO does this once, after the first group's first step, when the other groups have no states yet (0.19.8).
    """
    outer = engine.optimizer
    if hasattr(outer, "_hp_optimizer_states_linked"):
        outer._hp_optimizer_states_linked = False
    link = getattr(outer, "_lazy_init_hp_params_optimizer_state", None)
    if link is not None:
        link()


def _full_state(engine: Any, parameter: torch.Tensor, key: str) -> torch.Tensor:
    from deepspeed.utils import safe_get_full_optimizer_state

    if _has_flat_copy(parameter):
        value = safe_get_full_optimizer_state(parameter, key)
    else:
        value = _inner(engine).state[_copies(engine).get(id(parameter), parameter)][key]
    return _whole(parameter, value.float())


def _set_state(engine: Any, parameter: torch.Tensor, key: str, value: torch.Tensor) -> None:
    from deepspeed.utils import safe_set_full_optimizer_state

    local = _slice(parameter, value.to(parameter.device))
    if _has_flat_copy(parameter):
        safe_set_full_optimizer_state(parameter, local, key)
    else:
        _inner(engine).state[_copies(engine).get(id(parameter), parameter)][key].copy_(local)


def _create_state(engine: Any, keys: set[str]) -> None:
    """Give an optimizer that has not stepped its state tensors, and link ZeRO's parameters to them."""
    inner = _inner(engine)
    for tensors, group in zip(_flat_groups(engine), inner.param_groups * len(_flat_groups(engine)), strict=False):
        on_device = bool(group.get("fused") or group.get("capturable"))
        for tensor in tensors:
            state = inner.state[tensor]
            state.setdefault("step", torch.zeros((), device=tensor.device if on_device else "cpu"))
            for key in sorted(keys - {"step"}):
                state.setdefault(key, torch.zeros_like(tensor, requires_grad=False))
    _link_states(engine)


def _whole_shape(parameter: Any) -> tuple[int, ...]:
    """The shape of the parameter before AutoTP and ZeRO-3 cut it."""
    shape = getattr(parameter, "ds_shape", parameter.shape)
    return tuple(_whole(parameter, torch.empty(shape, device=parameter.device)).shape)


def _load_one(
    engine: Any, path: Path, name: str, parameter: torch.Tensor, keys: set[str], known: Collection[str]
) -> None:
    names = [n for n in (f"model.{name}", *(f"optimizer.{name}.{key}" for key in sorted(keys))) if n in known]
    shape = _whole_shape(parameter)
    read = checkpoint.read_alone(path, {n: torch.empty(shape) for n in names})
    for entry, value in read.items():
        if entry.startswith("model."):
            set_parameter(engine, parameter, value)
        else:
            _set_state(engine, parameter, entry.rpartition(".")[2], value)


def _set_step(engine: Any, path: Path, known: Collection[str]) -> None:
    name = next(n for n in sorted(known) if n.startswith("optimizer.") and n.endswith(".step"))
    value = checkpoint.read_alone(path, {name: torch.zeros(())})[name]
    for state in _inner(engine).state.values():
        state["step"] = torch.as_tensor(state["step"]).fill_(float(value))


@dataclass
class EngineTraining(resume.Training):
    """A DeepSpeed engine and what belongs to its run."""

    engine: Any = None

    def tensors(self, with_optimizer: bool) -> dict[str, torch.Tensor]:
        """In the common format; each rank keeps and writes every n-th tensor of n ranks."""
        engine, rank, world = self.engine, processes.rank(), processes.world_size()
        keys = _state_keys(engine) if with_optimizer else []
        steps = _step_count(engine) if with_optimizer else None
        if keys:
            _link_states(engine)
        found: dict[str, torch.Tensor] = {}
        parameters = dict(_module(engine).named_parameters())
        for number, (name, value) in enumerate(full_parameters(engine)):
            mine = number % world == rank
            if mine:
                found[f"model.{name}"] = value.cpu()
            for key in keys if parameters[name].requires_grad else ():
                gathered = _full_state(engine, parameters[name], key)
                if mine:
                    found[f"optimizer.{name}.{key}"] = gathered.cpu()
            if mine and steps is not None:
                found[f"optimizer.{name}.step"] = steps.clone()
        return found

    def fill(self, path: Path, with_optimizer: bool, strict: bool) -> None:
        """Tensor by tensor: no rank holds the whole model."""
        engine, known = self.engine, stored.index_of(path)
        states = [name for name in known if with_optimizer and name.startswith("optimizer.")]
        keys = {name.rpartition(".")[2] for name in states}
        if keys:
            _create_state(engine, keys)
        parameters = dict(_module(engine).named_parameters())
        missing = sorted(name for name in parameters if f"model.{name}" not in known)
        if missing and strict:
            raise checkpoint.CheckpointError(
                f"{path}: {len(missing)} parameters are missing, the first is {missing[0]}"
            )
        for name, parameter in parameters.items():
            _load_one(engine, path, name, parameter, keys - {"step"}, known)
        if "step" in keys:
            _set_step(engine, path, known)
