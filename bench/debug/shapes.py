"""What goes into and comes out of forward passes: types, shapes and shards, by rank."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

ITEMS = 8
"""Values of one collection that are shown; the number of the others is."""


def log_shapes(module: nn.Module, depth: int = 0, write: Callable[[str], None] | None = None) -> ExitStack:
    """Write a line before and one after each forward pass of `module`, and of the modules inside it to `depth`.

    Lines begin with the rank and go to standard error unless `write` takes them. Nothing is communicated, and no
    value is read from a device. Put it on after the model is wrapped; `close()` or the end of a `with` takes it off.
    """
    put = write or _to_stderr
    hooks = ExitStack()
    for name, part in module.named_modules():
        if name and name.count(".") + 1 > depth:
            continue
        label = f"{name} {type(part).__name__}".strip()
        hooks.callback(part.register_forward_pre_hook(_before(label, put), with_kwargs=True).remove)
        hooks.callback(part.register_forward_hook(_after(label, put)).remove)
    return hooks


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _tag() -> str:
    import torch.distributed as dist

    joined = dist.is_available() and dist.is_initialized()
    return f"[rank {dist.get_rank() if joined else os.environ.get('RANK', '0')}]"


def _before(label: str, put: Callable[[str], None]) -> Callable[[Any, Any, Any], None]:
    def hook(module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        put(f"{_tag()} before {label}: {_items(_named(module, arguments, named).items())}")

    return hook


def _after(label: str, put: Callable[[str], None]) -> Callable[[Any, Any, Any], None]:
    def hook(module: Any, arguments: Any, output: Any) -> None:
        put(f"{_tag()} after {label}: {shape_of(output)}")

    return hook


def _named(module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names that the forward function gives them, where it can be asked."""
    try:
        bound = inspect.signature(module.forward).bind_partial(*arguments, **named)
    except (TypeError, ValueError):
        return {**{str(place): value for place, value in enumerate(arguments)}, **named}
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        found |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return found


def shape_of(value: Any) -> str:
    """A value for people: type and shape of tensors, `whole (4, 8) Shard(0), here (2, 8)` of distributed ones."""
    import torch
    from torch.distributed.tensor import DTensor

    if isinstance(value, DTensor):
        placements = " ".join(str(placement) for placement in value.placements)
        here = tuple(value.to_local().shape)
        return f"{_kind(value)} whole {tuple(value.shape)} {placements}, here {here}"
    if isinstance(value, torch.Tensor):
        return f"{_kind(value)} {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{type(value).__name__}({_items(value.items())})"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}({_items(zip(value._fields, value, strict=True))})"
    if isinstance(value, (list, tuple)):
        return f"[{_items((str(place), item) for place, item in enumerate(value))}]"
    return repr(value) if isinstance(value, (bool, int, float, str)) else type(value).__name__


def _kind(tensor: Any) -> str:
    device = "" if tensor.device.type == "cpu" else f" {tensor.device}"
    return f"{str(tensor.dtype).removeprefix('torch.')}{device}"


def _items(items: Iterable[tuple[Any, Any]]) -> str:
    shown = [f"{name}={shape_of(value)}" for name, value in items if value is not None]
    rest = len(shown) - ITEMS
    return ", ".join(shown[:ITEMS]) + (f", and {rest} more" if rest > 0 else "")
