"""The flags of `bench run` that are settings: made from the settings themselves, each of which takes a list."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.configuration import ANY_WHOLE_NUMBER, CHOICES, Configuration, kinds
from bench.parsing import choice, listed, switch, whole

GROUPS: Mapping[str, tuple[str, ...]] = {
    "what runs; every setting takes a list, such as 1,2,4, and lists make a sweep": (
        "backend", "zero_stage", "num_gpus", "tp", "ring", "num_layers", "model", "attn", "compile", "packing",
        "seq_len",
    ),
    "how it trains": (
        "dtype", "head", "autotune", "loss", "optimizer", "lr", "weight_decay", "max_norm", "backward",
        "gradient_checkpointing", "cpu_offload", "reshard_after_forward", "reduce_dtype", "sequence_parallel",
        "async_tp", "tp_plan", "micro_batch_size", "train_batch_size",
    ),
    "inputs": (
        "inputs", "max_inputs", "fold_tokens", "full_length", "shuffle_inputs", "simulate_ranks", "random_seed",
    ),
    "how long": ("warmup", "steps"),
}  # fmt: skip
ALIASES: Mapping[str, tuple[str, ...]] = {
    "tp": ("--tp-size", "--fsdp_tensor_parallel_size", "--ds_tensor_parallel_size"),
    "ring": ("--ring-size", "--ring_attn_size"), "model": ("--pretrain",), "packing": ("--packing_samples",),
    "dtype": ("--param_dtype",), "lr": ("--learning_rate",), "cpu_offload": ("--adam_offload",),
    "micro_batch_size": ("--micro_train_batch_size",), "random_seed": ("--seed",),
}  # fmt: skip
NEGATIVE = {"packing": ("--no-packing_samples",), "reshard_after_forward": ("--no-reshard",)}
HELP = {
    "backend": "deepspeed, fsdp2, ddp, or package.module:Class", "zero_stage": "of deepspeed; default 2",
    "num_gpus": "processes; default: one per GPU, without GPUs 2",
    "micro_batch_size": "samples per rank and forward pass; default 4, of recorded batches 1",
    "inputs": "recorded batches, a directory or file; default: synthetic ones",
    "simulate_ranks": "orders on one process, padded to the longest",
    "full_length": "synthetic rows without padding", "reduce_dtype": "of FSDP2's gradients; default fp32",
    "attn": ", ".join(CHOICES["attn"]),
}  # fmt: skip


def add(p: argparse.ArgumentParser) -> None:
    """A flag for each setting; None where it is not given, else a list."""
    for title, names in GROUPS.items():
        group = p.add_argument_group(title)
        for name in names:
            _add(group, name)
    group.add_argument("--flash-attn", dest="flash_attn", action=argparse.BooleanOptionalAction)
    group.add_argument("--deepcompile", action="store_true", help="the same as --compile=deepcompile")
    group.add_argument("--use_hf_tp_plan", dest="tp_plan", action="store_const", const=["hf"])


def _add(group: Any, name: str) -> None:
    flags = [f"--{name.replace('_', '-')}", *[f"--{name}"] * ("_" in name), *ALIASES.get(name, ())]
    more: dict[str, Any] = {"nargs": "?", "const": [True]} if bool in kinds()[name] else {}
    if name == "compile":
        more = {"nargs": "?", "const": ["blocks"]}
    group.add_argument(*flags, dest=name, type=listed_value(name), help=HELP.get(name), **more)
    if bool in kinds()[name] and getattr(Configuration, name):
        negative = [flag.replace("--", "--no-", 1) for flag in flags[: 1 + ("_" in name)]]
        group.add_argument(*negative, *NEGATIVE.get(name, ()), dest=name, action="store_const", const=[False])


def listed_value(name: str) -> Callable[[str], list[Any]]:
    """What reads a setting's values on a command line. It raises argparse.ArgumentTypeError."""
    allowed = kinds()[name]
    if name in CHOICES:
        return listed(choice(CHOICES[name]))
    if bool in allowed:
        return listed(switch)
    if float in allowed:
        return listed(_number)
    if int in allowed:
        return listed(_integer if name in ANY_WHOLE_NUMBER else whole)
    return _paths if name in ("inputs", "model") else _texts


def _texts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _paths(text: str) -> list[str]:
    """A comma may be part of a path that is there."""
    return [text] if Path(text).exists() else _texts(text) or [text]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
