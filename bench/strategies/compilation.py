"""Where `torch.compile` is applied: to each layer, before sharding wraps it, or to the whole."""

from __future__ import annotations

import torch
from torch import nn

from bench.measure.model import layers_of, network_of


def set_autotuning(what: str) -> None:
    """What Inductor tries out while it compiles, for everything that this process compiles: nothing (`none`), the
    kernels of matrix products (`max`), the block sizes of the kernels it writes itself (`coordinate`)."""
    from torch._inductor import config

    config.max_autotune = what == "max"
    config.coordinate_descent_tuning = what == "coordinate"


def compile_blocks(model: nn.Module, inside_hooks: bool = False) -> int:
    """Compile every decoder layer and the norm behind them in place; returns the number of layers.

    `inside_hooks` compiles what runs between a module's hooks and leaves the hooks themselves alone: ZeRO-3's gather
    and release parameters, which no graph can hold.

    All layers run one code object, so the recompile limit must not be below their number: a layer that differs in a
    guarded value (its index, say) would otherwise fall back to eager without a word.
    """
    network = network_of(model)
    layers = layers_of(network)
    norm = getattr(network.base_model, "norm", None)
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, 2 * len(layers) + 8)
    for module in [*layers, *([norm] if isinstance(norm, nn.Module) else [])]:
        if inside_hooks:
            module.forward = torch.compile(module.forward)
        else:
            module.compile()
    return len(layers)


def apply_compile(model: nn.Module, mode: str) -> None:
    """`blocks` and `full`; other modes leave the model as it is."""
    if mode == "blocks":
        compile_blocks(model)
    elif mode == "full":
        model.compile()
