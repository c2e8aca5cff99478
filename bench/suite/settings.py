"""What a suite trains: its settings, from flags and environment variables, and the configurations they stand for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench import backends
from bench.configuration import SETTINGS, Configuration, ConfigurationError, parse
from bench.sweep.availability import installed
from bench.terminal.parsing import listed, whole

MAX_GPUS = 8
ANSWERS = "bench.losses:sft"
"""The loss of the answers' tokens: a loss named by its module covers actions only."""


class Cell(NamedTuple):
    """One training run: its name, which its log bears, and its configuration without the data."""

    name: str
    configuration: Configuration


@dataclass(frozen=True)
class Settings(Configuration):
    """A suite: what its runs have in common, of `seq_len` tokens to a sample; lists of sizes make a run each."""

    num_gpus: int = 2
    micro_batch_size: int | None = 1
    dtype: str = "fp32"
    seq_len: int = 128
    lr: float = 1e-3
    loss: str = ANSWERS
    warmup: int = 1
    max_samples: int = 100
    dataset: str = "embedded"
    tokenizer: str = "auto"
    input_key: str | None = None
    output_key: str | None = None
    tp_sizes: tuple[int, ...] = (2,)
    ring_sizes: tuple[int, ...] = (2,)
    skip_deepspeed: bool = False
    skip_fsdp2: bool = False
    skip_tp: bool = False
    skip_ring: bool = False
    reorder: bool = False
    output_dir: Path = Path("checkpoint/suite")
    log_dir: Path = Path("logs")
    save_steps: int = 0
    save_model: bool = False


ENVIRONMENT: Mapping[str, str] = {
    "NUM_GPUS": "num_gpus", "MAX_SAMPLES": "max_samples", "MODEL": "model", "DATASET": "dataset",
    "OUTPUT_DIR": "output_dir", "LOG_DIR": "log_dir", "TP_SIZE": "tp_sizes", "RING_SIZE": "ring_sizes",
    "SKIP_DEEPSPEED": "skip_deepspeed", "SKIP_FSDP2": "skip_fsdp2", "SKIP_TP": "skip_tp", "SKIP_RING": "skip_ring",
}  # fmt: skip
"""Variables of the old shell scripts and the settings that they give."""


def _read(text: str, setting: str, name: str) -> Any:
    if setting.startswith("skip_"):
        return text.lower() not in ("", "0", "false", "no")
    try:
        if setting in ("tp_sizes", "ring_sizes"):
            return tuple(listed(whole)(text))
        if setting in ("num_gpus", "max_samples"):
            return whole(text)
    except argparse.ArgumentTypeError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    return Path(text) if setting.endswith("_dir") else text


def from_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    """The settings that variables of the old scripts give; empty ones count as unset."""
    return {
        setting: _read(variables[name], setting, name)
        for name, setting in ENVIRONMENT.items()
        if variables.get(name)
    }  # fmt: skip


def defaults(gpus: int) -> dict[str, Any]:
    """The 8B shape with four layers where there are GPUs; a tiny model on two CPU processes where there are none.
    Neither needs a network: weights come from the seed, samples are the embedded ones."""
    if not gpus:
        return {"device": "cpu"}
    return {
        "num_gpus": min(gpus, MAX_GPUS), "max_samples": 1000, "model": "llama-3.1-8b", "num_layers": 4,
        "seq_len": 2048, "dtype": "bf16", "lr": 1e-4,
        "attn": "flash_attention_2" if installed("flash_attn") else "sdpa",
    }  # fmt: skip


PRETRAINED = {"num_layers": None, "lr": 1e-5}
"""Defaults on GPUs for a model that is named: all of its layers, and what does not spoil its weights."""


def settle(gpus: int, *layers: Mapping[str, Any]) -> Settings:
    """Settings from the machine's defaults and the given ones, later ones first. Raises `ConfigurationError`."""
    given: dict[str, Any] = {}
    for layer in layers:
        given |= layer
    merged = {**defaults(gpus), **(PRETRAINED if gpus and "model" in given else {}), **given}
    known = {field.name for field in fields(Settings)}
    settings = Settings(**{name: value for name, value in merged.items() if name in known})
    steps = settings.max_samples // settings.batch
    if steps < 2:
        raise ConfigurationError(
            f"{settings.max_samples} samples make {steps} steps of {settings.batch}: "
            f"at least 2 are needed (--max-samples {2 * settings.batch})"
        )
    return replace(settings, train_batch_size=settings.batch, steps=steps)


def configuration(settings: Settings, **changes: Any) -> Configuration:
    """One configuration of the suite, without its data. Raises `ConfigurationError` for unknown values."""
    shared = {name: getattr(settings, name) for name in SETTINGS}
    return parse({**shared, "backend": backends.first(), "zero_stage": Configuration.zero_stage, **changes})


REORDERED = "deepspeed_reordered"


def cells(settings: Settings) -> list[Cell]:
    """The runs of the suite; the first is what the others are compared with.

    A combined run stands where neither tensor parallelism nor the ring is left out, with the first size of each.
    """
    found = []
    if not settings.skip_deepspeed:
        deepspeed = configuration(settings, backend="deepspeed", zero_stage=settings.zero_stage)
        found += [Cell(name, deepspeed) for name in ("deepspeed", *[REORDERED] * settings.reorder)]
    sizes = [(1, 1)] * (not settings.skip_fsdp2)
    sizes += [(tp, 1) for tp in settings.tp_sizes if not settings.skip_tp]
    sizes += [(1, ring) for ring in settings.ring_sizes if not settings.skip_ring]
    if not settings.skip_tp and not settings.skip_ring:
        sizes.append((settings.tp_sizes[0], settings.ring_sizes[0]))
    for tp, ring in dict.fromkeys(sizes):
        name = "fsdp2" + f"_tp{tp}" * (tp > 1) + f"_ring{ring}" * (ring > 1)
        found.append(Cell(name, configuration(settings, tp=tp, ring=ring)))
    if not found:
        raise ConfigurationError("everything is skipped: nothing to train")
    return found


def one_cell(settings: Settings, backend: str, tp: int, ring: int) -> Cell:
    """The run of `bench sft`: one configuration."""
    stage = {"zero_stage": settings.zero_stage} if backends.find(backend).stages else {}
    made = configuration(settings, backend=backend, tp=tp, ring=ring, **stage)
    name = backend.rpartition(":")[2] + f"_tp{tp}" * (tp > 1) + f"_ring{ring}" * (ring > 1)
    return Cell(name, made)
