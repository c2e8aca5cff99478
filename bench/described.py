"""What `--help` says of settings that several commands have: a line on each, with the default that would hold."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

TEXTS: Mapping[str, str] = {
    "tp": "tensor-parallel size",
    "ring": "ring-attention size: ranks that share a sequence",
    "num_layers": "cut or extend the model to this many layers; where a model is named, all of its own",
    "model": "preset, config.json, directory or hub name",
    "attn": "implementation of attention",
    "flash_attn": "FlashAttention-2, or SDPA",
    "compile": "none, blocks (each layer; the meaning of --compile alone), full, deepcompile",
    "packing": "pack samples without padding",
    "autotune": "what the compiler tries out; max: kernels of matrix products, coordinate: block sizes of its own ones",
    "dtype": "that the model computes in",
    "head": "how logits are computed; full: all at once in fp32",
    "loss": "sft, ppo or module:function",
    "optimizer": "the same of torch for all backends",
    "lr": "learning rate",
    "weight_decay": "of the optimizer",
    "max_norm": "gradients are clipped to this norm; 0: not at all",
    "backward": "the backward pass and the optimizer's step as well",
    "gradient_checkpointing": "compute activations again in the backward pass",
    "cpu_offload": "optimizer states, and with FSDP2 parameters, on the CPU",
    "reshard_after_forward": "FSDP2 gives gathered parameters back between forward and backward",
    "sequence_parallel": "split norms' activations over tp ranks",
    "async_tp": "overlap fsdp2's tensor-parallel collectives with products: GPUs, --sequence-parallel and --compile",
    "tp_plan": "whose plan of tensor parallelism",
    "micro_batch_size": "samples per rank and forward pass",
    "train_batch_size": "samples per step of all ranks; default: a micro-batch each",
    "max_inputs": "the first so many; without it all of them",
    "max_samples": "samples to train on",
    "fold_tokens": "token ids modulo the vocabulary: for tiny models",
    "shuffle_inputs": "every rank takes all inputs in its own order",
    "random_seed": "of weights, data and orders",
    "warmup": "steps at least before the measured ones; they go on until three agree",
    "steps": "measured steps of each process group",
    "device": "auto: GPUs where there are some; one for all rows, since the launcher's GPUs follow from it",
    "quiet": "no line per phase",
    "trust_remote_code": "run model code that a hub repository or directory holds: a permission, for all rows",
    "seq_len": "positions of a synthetic row",
    "max_cells": "run so many at most",
    "retry_failed": "run again what ended badly",
}
"""By the name that argparse keeps a flag under; a flag's own help stands above it."""


def describe(parser: argparse.ArgumentParser, gpus: Mapping[str, Any], cpu: Mapping[str, Any]) -> None:
    """Give flags without help the text of their setting, and all their default: `gpus` and `cpu` hold what settings
    are where nobody gives them, on machines with GPUs and without. None there means: by the model or the inputs."""
    seen: set[str] = set()
    for action in parser._actions:  # argparse has no public list of them
        if action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        alias = action.dest in seen and action.nargs == 0
        seen.add(action.dest)
        said = action.help or (_same_as(action) if alias else TEXTS.get(action.dest, ""))
        action.help = "; ".join(part for part in (said, _default(action, said, gpus, cpu)) if part)


def _same_as(action: argparse.Action) -> str:
    """For a switch that stands for a value of another flag."""
    return f"the same as --{action.dest.replace('_', '-')}={_shown(action.const)}"


def _default(action: argparse.Action, said: str, gpus: Mapping[str, Any], cpu: Mapping[str, Any]) -> str:
    switch = action.nargs == 0 and not isinstance(action, argparse.BooleanOptionalAction)
    if "default" in said or switch:
        return ""
    here, there = (_shown(values.get(action.dest, action.default)) for values in (gpus, cpu))
    if here == there or not there:
        return f"default {here}" if here else ""
    return f"default {here or 'the model’s own'}, without GPUs {there}"


def _shown(value: Any) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_shown, value))
    return str(value).replace("%", "%%")
