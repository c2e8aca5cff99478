"""Whole weights in and out of any backend, as the safetensors directory that `from_pretrained` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bench.checkpoints.checkpoint import CheckpointError
from bench.measure.clock import DTYPES
from bench.measure.model import network_of
from bench.strategies import processes


def save_pretrained(
    model: nn.Module, weights: Iterator[tuple[str, torch.Tensor]], tokenizer: Any | None, output_dir: str, dtype: str
) -> None:
    """Write `weights` (network's names, whole tensors) with the network's configuration from rank 0.

    Every rank must iterate `weights`, because gathering them is a collective; only rank 0 keeps them.
    """
    network = network_of(model)
    kept = {}
    for name, tensor in weights:
        if processes.rank() == 0:
            kept[name] = tensor.detach().to("cpu", DTYPES[dtype], copy=True)
    if processes.rank() == 0:
        network.config.dtype = DTYPES[dtype]
        network.save_pretrained(output_dir, state_dict=kept)
        if tokenizer is not None:
            tokenizer.save_pretrained(output_dir)
    if dist.is_initialized():
        dist.barrier()


def _files(path: Path) -> list[Path]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return [path / name for name in sorted(set(names))]
    if (path / "model.safetensors").is_file():
        return [path / "model.safetensors"]
    raise CheckpointError(f"{path}: holds neither model.safetensors nor an index of such files")


def read_pretrained(path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and whole tensors of a safetensors directory, one at a time, in the same order on every rank."""
    from safetensors import safe_open

    for file in _files(Path(path)):
        with safe_open(file, framework="pt") as reader:
            for name in sorted(reader.keys()):
                yield name, reader.get_tensor(name)


def check_names(path: str, seen: set[str], expected: set[str], strict: bool) -> None:
    """Raise `CheckpointError` where `strict` and the names in the directory are not the network's."""
    missing, extra = sorted(expected - seen), sorted(seen - expected)
    if strict and (missing or extra):
        first = f"{missing[0]} is missing" if missing else f"{extra[0]} is not in the model"
        raise CheckpointError(f"{path}: {len(missing)} tensors missing, {len(extra)} unknown: {first}")
