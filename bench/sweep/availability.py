"""What a configuration needs of this machine, looked up without importing torch."""

from __future__ import annotations

import importlib.util
import re
import shutil
from importlib import metadata

from bench import backends
from bench.configuration import Configuration, compiles
from rules.models import ModelFacts

BENCH = "pip install 'meshproof[bench]'"
INSTALL = {
    "torch": BENCH,
    "transformers": BENCH,
    "flash_attn": "pip install --no-build-isolation 'meshproof[gpu]' on a machine with CUDA",
    "liger_kernel": "pip install liger-kernel on a machine with CUDA",
    "flash-attn-3": "build it from the folder `hopper` of FlashAttention's sources on a machine with CUDA",
    "flash-attn-4": "pip install --pre flash-attn-4, or 'flash-attn-4[cu13]' beside a torch for CUDA 13, on a machine "
    "with a Hopper or newer GPU",
}
DISTRIBUTIONS = {"flash_attention_3": "flash-attn-3", "flash_attention_4": "flash-attn-4"}
"""By attention: transformers knows these by their distributions, for all of them share module names."""
CUDA_KERNELS = ("sdpa_efficient", "sdpa_cudnn")
LOSSES = ("sft", "ppo")
NAMED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
"""`package.module:name`."""
COMPILERS = ("c++", "g++", "clang++", "cl")


def installed(name: str) -> bool:
    """Whether a module is there, or one of `DISTRIBUTIONS`."""
    if name in DISTRIBUTIONS.values():
        return any(True for _ in metadata.distributions(name=name))
    return importlib.util.find_spec(name) is not None


def install(package: str, otherwise: str = "") -> str:
    """What installs a package: `otherwise` where nothing is known of it, by default its name."""
    known = {name: how for backend in backends.every().values() for name, how in backend.needs.items()} | INSTALL
    return known.get(package) or known.get(package.replace("-", "_")) or otherwise or f"pip install {package}"


def _modules(configuration: Configuration) -> list[str]:
    needed = ["torch", "transformers", *backends.find(configuration.backend).needs]
    if configuration.attn == "flash_attention_2":
        needed.append("flash_attn")
    if configuration.attn in DISTRIBUTIONS:
        needed.append(DISTRIBUTIONS[configuration.attn])
    if configuration.head == "liger":
        needed.append("liger_kernel")
    return needed


def loss_problem(name: str) -> str | None:
    """Why there can be no such loss, as far as that is known without importing anything of the user's."""
    package = name.partition(".")[0].partition(":")[0]
    if name in LOSSES:
        return None
    if not NAMED.fullmatch(name):
        return f"--loss {name}: use {', '.join(LOSSES)} or module:function"
    if not installed(package):
        return f"--loss {name}: {package} is not found: set PYTHONPATH to the folder it lies in"
    return None


def without_plan(configuration: Configuration, facts: ModelFacts) -> str:
    """Why a model cannot be split over tensor-parallel ranks, "" where it can or nobody knows. Models whose parameters
    can be counted are shaped like Llama, for which there are plans; transformers is asked for others."""
    if configuration.tp == 1 or facts.countable or not backends.find(configuration.backend).splits_vocabulary:
        return ""
    from transformers import CONFIG_MAPPING

    kind = facts.model_type
    if kind not in CONFIG_MAPPING or getattr(CONFIG_MAPPING[kind], "base_model_tp_plan", None):
        return ""
    return f"transformers has no tensor-parallel plan for models of type {kind}: use --tp 1"


def _overlaps(configuration: Configuration) -> bool:
    """Whether there are tensor-parallel gathers before products and reductions behind them."""
    split = configuration.tp > 1 and configuration.sequence_parallel
    return backends.find(configuration.backend).overlaps_tp and split


def lacking(configuration: Configuration, gpus: int) -> str | None:
    """The first thing that is not there, with the line that would bring it; None when everything is."""
    for module in _modules(configuration):
        if not installed(module):
            return f"{module} is not installed: {install(module)}"
    package = configuration.backend.partition(":")[0].partition(".")[0]
    if ":" in configuration.backend and package and not installed(package):
        return f"{package}, of --backend {configuration.backend}, is not found: set PYTHONPATH to the folder it lies in"
    on_gpu = configuration.on_gpu(gpus)
    if configuration.device == "cuda" and not gpus:
        return "no GPU is visible: run with --device cpu"
    if on_gpu and configuration.num_gpus > gpus:
        return f"{configuration.num_gpus} GPUs are needed, {gpus} are visible: set --num-gpus {gpus}"
    if (configuration.attn.startswith("flash_attention") or configuration.attn in CUDA_KERNELS) and not on_gpu:
        return f"{configuration.attn} needs a GPU: use --attn sdpa"
    if configuration.attn == "flex" and not on_gpu:
        return "flex attention has no backward pass on a CPU: use --attn sdpa"
    if configuration.ring > 1 and not configuration.packing:
        return "ring attention here spreads packed documents over its ranks: drop --no-packing"
    if configuration.async_tp and not (on_gpu and _overlaps(configuration)):
        return "--async-tp overlaps what --backend fsdp2 --tp 2 --sequence-parallel exchange, on GPUs"
    if configuration.autotune != "none" and not compiles(configuration):
        return f"--autotune {configuration.autotune} tunes what is compiled, and nothing is: add --compile"
    if compiles(configuration) and not on_gpu and not any(map(shutil.which, COMPILERS)):
        return "torch.compile on a CPU needs a C++ compiler: install g++ or clang"
    return None
