"""Checkpoints from one kind to another: our own, Hugging Face safetensors, DeepSpeed's (read only).

Our own checkpoints need no conversion between backends and sizes: each reads what any other wrote. Every conversion
goes through one network in fp32 on the CPU: four bytes of memory per parameter, and as many again to write them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.checkpoints import checkpoint, resume, stored
from bench.checkpoints.stored import CheckpointError
from bench.configuration import parse_known
from bench.measure.clock import DTYPES
from bench.measure.model import ModelError, model_config
from bench.pickles import one_line

CHECKPOINT, HUGGING_FACE, DEEPSPEED = "checkpoint", "huggingface", "deepspeed"
ACTOR = "model."
"""What names of `bench.measure.model.Actor`, and of OpenRLHF's, have before those of the network inside."""

DESCRIPTION = "model"
"""The folder in a converted checkpoint that holds the model's configuration and tokenizer."""

TAG = "converted"
BESIDE = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "chat_template*",
    "generation_config.json",
)  # fmt: skip
UNLIMITED = 1 << 30


@dataclass(frozen=True)
class Source:
    """What is converted: a kind, and the directory that holds the weights themselves."""

    kind: str
    path: Path


def find_source(path: Path, tag: str | None) -> Source:
    """What `path` holds; for checkpoints `tag`, the latest, or the directory itself. Raises `CheckpointError`."""
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such directory")
    if tag is None and (path / "training.json").is_file():
        return Source(CHECKPOINT, path)
    if tag is None and (path / stored.LATEST).is_file():
        tag = stored.latest(path)
    inner = path / tag if tag else path
    if (inner / "training.json").is_file():
        return Source(CHECKPOINT, inner)
    if any(inner.glob("*model_states.pt")):
        return Source(DEEPSPEED, inner)
    if any(path.glob("*.safetensors")):
        return Source(HUGGING_FACE, path)
    if tag is not None:
        raise CheckpointError(f"{inner}: no checkpoint (neither training.json nor *model_states.pt)")
    raise CheckpointError(
        f"{path}: holds no checkpoint (training.json, latest) and no *.safetensors; is a --tag missing?"
    )


def describing(source: Source, model: str | None, num_layers: int | None) -> tuple[str, int | None]:
    """Where the configuration of the source's model is, and its number of layers where that is not as published.

    That is `model` if given, else what lies in the checkpoint or, for a run of bench, in its result directory.
    Raises `CheckpointError`.
    """
    if model is not None:
        return model, num_layers
    if (source.path / "config.json").is_file():
        return str(source.path), num_layers
    if (source.path / DESCRIPTION / "config.json").is_file():
        return str(source.path / DESCRIPTION), num_layers
    for folder in (source.path, *source.path.parents)[:4]:
        if (folder / "configuration.json").is_file():
            return _said(folder / "configuration.json", num_layers)
    raise CheckpointError(
        f"{source.path}: does not say which model it is of: give --model (config.json, name or preset)"
    )


def _said(path: Path, num_layers: int | None) -> tuple[str, int | None]:
    """The model of a run of bench, by its configuration."""
    try:
        found = parse_known(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path}: does not say which model it is of: {one_line(error)}; give --model") from None
    return found.model, num_layers or found.num_layers


def read(source: Source, model: str | None, num_layers: int | None, trust_pickle: bool) -> nn.Module:
    """The network with the source's weights, in fp32. Raises `CheckpointError` or `ModelError`, each one line."""
    if source.kind == HUGGING_FACE:
        return _read_hugging_face(source.path)
    network = _empty(*describing(source, model, num_layers))
    if source.kind == CHECKPOINT:
        checkpoint.read_record(source.path)
        known = stored.index_of(source.path)
        sizes = {name.removeprefix("model."): one.size for name, one in known.items() if name.startswith("model.")}
        names = _matched(source.path, network, sizes)
        checkpoint.read_into(source.path, {f"model.{name}": tensor for name, tensor in names.items()}, strict=True)
        return network
    values = _read_deepspeed(source.path, trust_pickle)
    for name, tensor in _matched(source.path, network, {n: value.shape for n, value in values.items()}).items():
        tensor.copy_(values[name])
    return network


def _empty(model: str, num_layers: int | None) -> nn.Module:
    from transformers import AutoModelForCausalLM

    config = model_config(model, num_layers)
    try:
        with torch.device("meta"):
            network: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    except Exception as error:  # sizes that make no model
        raise ModelError(f"--model {model}: {one_line(error)}") from None
    network = network.to_empty(device="cpu")
    network.tie_weights()
    return network.requires_grad_(False)


def _matched(path: Path, network: nn.Module, sizes: Mapping[str, torch.Size]) -> dict[str, torch.Tensor]:
    """The network's parameters by their stored names, which may be those inside an actor or a wrapper; they must have
    the sizes that are stored."""
    known = set(sizes)
    parameters = dict(network.named_parameters())
    tied = set(network.state_dict()) - set(parameters)
    for prefix in ("", ACTOR, f"module.{ACTOR}", "module."):
        wanted = {f"{prefix}{name}": parameter for name, parameter in parameters.items()}
        if set(wanted) <= known:
            extra = sorted(known - set(wanted) - {f"{prefix}{name}" for name in tied})
            if extra:
                raise CheckpointError(
                    f"{path}: {len(extra)} tensors are not of this model, the first is {extra[0]}; "
                    "is it another --model or --num-layers?"
                )
            for name, tensor in wanted.items():
                if tuple(sizes[name]) != tuple(tensor.shape):
                    told = f"{path}: {name} is {tuple(sizes[name])}, the model's is {tuple(tensor.shape)}"
                    raise CheckpointError(told)
            return wanted
    near = set(parameters) - {name.removeprefix("module.").removeprefix(ACTOR) for name in known} - known
    missing = min(near or parameters)
    raise CheckpointError(f"{path}: {len(near)} of the model's {len(parameters)} tensors are missing: {missing} is one")


def _read_hugging_face(path: Path) -> nn.Module:
    from transformers import AutoModelForCausalLM

    try:
        network, found = AutoModelForCausalLM.from_pretrained(
            str(path), dtype=torch.float32, output_loading_info=True, local_files_only=True
        )
    except Exception as error:  # of a configuration or a tensor, and whatever they lead to
        raise CheckpointError(f"{path}: {one_line(error)}") from None
    for kind in ("missing_keys", "mismatched_keys"):
        if found[kind]:
            first = sorted(map(str, found[kind]))[0]
            raise CheckpointError(f"{path}: {len(found[kind])} {kind.replace('_keys', ' tensors')}: {first}")
    return network


def _read_deepspeed(path: Path, trust_pickle: bool) -> dict[str, torch.Tensor]:
    """DeepSpeed's own files hold Python objects: reading them runs what they say."""
    if not trust_pickle:
        raise CheckpointError(f"{path}: DeepSpeed's files are pickles, which can run code: --trust-pickle reads them")
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    if any(path.glob("*optim_states.pt")):
        found: dict[str, torch.Tensor] = get_fp32_state_dict_from_zero_checkpoint(str(path.parent), path.name)
        return found
    (file,) = sorted(path.glob("*model_states.pt"))[:1]  # ZeRO-0: every data-parallel rank has it all
    held: dict[str, torch.Tensor] = torch.load(file, map_location="cpu", weights_only=False)["module"]
    return held


def write(
    network: nn.Module, target: Path, kind: str, *, dtype: str, bare: bool, beside: Path | None, tag: str = TAG
) -> Path:
    """Write the network; the directory written. `bare`: names without the actor's. `beside` holds a tokenizer.

    Raises `CheckpointError` where something is there already.
    """
    if kind == HUGGING_FACE:
        if target.exists() and any(target.iterdir()):
            raise CheckpointError(f"{target}: is not empty")
        _describe(network, target, dtype, beside)
        any_network: Any = network.to(DTYPES[dtype])
        with _onto_disk(target):
            any_network.save_pretrained(target)
        return target
    if (target / tag).exists():
        raise CheckpointError(f"{target / tag}: exists")
    prefix = "" if bare else ACTOR
    named = {f"{prefix}{name}": parameter.detach() for name, parameter in network.named_parameters()}
    training = resume.Training(named, torch.device("cpu"), seed=0)
    with _onto_disk(target):
        written = training.save(str(target), tag, None, max_num=UNLIMITED, max_mem=UNLIMITED, save_latest=True)
    # No run has been here: whoever loads it starts with random numbers of his own.
    shutil.rmtree(Path(written) / "rng")
    _describe(network, Path(written) / DESCRIPTION, "fp32", beside)
    return Path(written)


@contextmanager
def _onto_disk(target: Path) -> Iterator[None]:
    """Make of a full disk, which each library has a name of its own for, a `CheckpointError`."""
    from safetensors import SafetensorError
    from torch.distributed.checkpoint import CheckpointException

    try:
        yield
    except (SafetensorError, CheckpointException, RuntimeError) as error:
        free = shutil.disk_usage(target).free >> 20
        raise CheckpointError(f"{target}: cannot be written, {free} MiB are free: {stored.reason(error)}") from None


def _describe(network: Any, folder: Path, dtype: str, beside: Path | None) -> None:
    """The model's configuration and what else lies beside its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    network.config.dtype = DTYPES[dtype]
    network.config.save_pretrained(folder)
    if beside is None or not beside.is_dir():
        return
    for file in {file for pattern in BESIDE for file in beside.glob(pattern)}:
        shutil.copy(file, folder / file.name)


__all__ = ["CheckpointError", "ModelError", "Source", "describing", "find_source", "read", "write"]
