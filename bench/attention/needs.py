"""What each attention kernel needs of the machine. No torch needed."""

from __future__ import annotations

from bench.sweep.availability import DISTRIBUTIONS, install, installed

NAMES = (
    "eager", "sdpa", "sdpa_math", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "sdpa_by_document",
    "flash_attention_2", "flash_attention_3", "flash_attention_4", "flex",
)  # fmt: skip
ON_CPU = ("eager", "sdpa", "sdpa_math", "sdpa_flash", "sdpa_by_document")
"""Kernels with a backward pass on CPUs."""
HALF_ONLY = ("sdpa_cudnn", "flash_attention_2", "flash_attention_3", "flash_attention_4")
MODULES = {"flash_attention_2": "flash_attn", **DISTRIBUTIONS}


def lacking(kernel: str, device: str, dtype: str) -> str | None:
    """Why a kernel cannot run, with the line that would change it; None where it can."""
    if device == "cpu" and kernel not in ON_CPU:
        return "needs a GPU"
    module = MODULES.get(kernel)
    if module is not None and not installed(module):
        return f"{module} is not installed: {install(module)}"
    if dtype == "fp32" and (kernel in HALF_ONLY or kernel == "sdpa_flash" and device == "cuda"):
        return "takes bf16 and fp16 only: use --dtype bf16"
    return None
