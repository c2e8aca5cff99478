"""The kernel behind `--attn auto`: the fastest one that this machine, the head size, the type and the layout allow."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from bench.configuration import Configuration, model_facts
from bench.results import environment
from rules.models import ModelError

PACKED = ("flash_attention_4", "flash_attention_3", "flash_attention_2", "sdpa")
"""Fastest first where rows hold several documents, or padding: PyTorch's attention takes a dense mask there."""
WHOLE = ("flash_attention_4", "sdpa")
"""Where every row is one document of the same length: PyTorch's choice, cuDNN on Hopper, is faster than
FlashAttention-2, once it has planned for that length, on the host and anew for each other one: 130 ms on an H200."""
LEAST_CAPABILITY = {"flash_attention_4": 9.0, "flash_attention_3": 9.0, "flash_attention_2": 8.0}
LARGEST_HEAD = {"flash_attention_4": 128, "flash_attention_3": 256, "flash_attention_2": 256}


def candidates(configuration: Configuration, capability: float | None, head_size: int) -> list[str]:
    """Kernels for a GPU of that compute capability, fastest first; None is a CPU. A ring chooses for itself."""
    if capability is None or configuration.dtype == "fp32" or configuration.ring > 1:
        return ["sdpa"]
    alike = configuration.full_length and not configuration.inputs
    whole = alike and (configuration.rows == 1 or not configuration.packing)
    return [
        kernel
        for kernel in (WHOLE if whole else PACKED)
        if capability >= LEAST_CAPABILITY.get(kernel, 0.0) and head_size <= LARGEST_HEAD.get(kernel, head_size)
    ]


def resolve(configuration: Configuration) -> Configuration:
    """The configuration with a kernel in place of `auto`: the first candidate that nothing speaks against here."""
    if configuration.attn != "auto":
        return configuration
    gpus = len(environment.gpus()) if configuration.device != "cpu" else 0
    capability = environment.compute_capability() if gpus else None
    for kernel in candidates(configuration, capability, _head_size(configuration)):
        chosen = replace(configuration, attn=kernel)
        if kernel == "sdpa" or _runs(chosen, gpus):
            return chosen
    return replace(configuration, attn="sdpa")


def _head_size(configuration: Configuration) -> int:
    try:
        return int(model_facts(configuration.model, configuration.num_layers).quantities().get("head_dim") or 0)
    except ModelError:
        return 0  # the row ends with that; the kernel does not matter


@cache
def _runs(configuration: Configuration, gpus: int) -> bool:
    from bench.sweep.sweep import refusal  # it asks for the choice, too

    return refusal(configuration, max(gpus, configuration.num_gpus)) is None
