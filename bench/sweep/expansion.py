"""From settings, single or lists, to configurations: defaults by what is there, files of settings, all combinations."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import backends
from bench.configuration import SETTINGS, Configuration, ConfigurationError, parse
from bench.debug.sharding import effective
from bench.inputs import sources
from bench.sweep import availability
from bench.terminal.parsing import nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_ROWS = 10_000
CLASS = re.compile(rf"{availability.NAMED.pattern}(?:\.[^\W\d]\w*)*")
"""`package.module:Class`. The name of the class is part of the name of a directory."""
ORDER = tuple(SETTINGS)
OF_A_SWEEP = {"processes", "output"}
"""What a file may hold besides settings of rows."""


def read_file(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, with values that they can have. Raises `ConfigurationError`."""
    try:
        with path.open("rb") as file:
            read = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"--config {path}: {error.strerror}") from None
    except RecursionError:
        raise ConfigurationError(f"--config {path}: nested too deeply") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigurationError(f"--config {path}: {error}") from None
    found = {key.replace("-", "_"): value for key, value in read.items()}
    try:
        for name in sorted(found.keys() - OF_A_SWEEP):
            if isinstance(found[name], list) and name in SETTINGS and SETTINGS[name].single:
                raise ConfigurationError(f"{name} takes one value, for all rows")
            for value in found[name] if isinstance(found[name], list) else [found[name]]:
                parse({name: value})
    except ConfigurationError as error:
        raise ConfigurationError(f"--config {path}: {error}") from None
    return found


def defaults(gpus: int) -> dict[str, Any]:
    """What is there decides: GPUs run the 8B shape with four layers, two CPU processes a tiny model."""
    if gpus:
        return {
            "backend": backends.first(), "num_gpus": gpus, "model": "llama-3.1-8b", "num_layers": 4, "dtype": "bf16",
            "attn": "auto",
        }  # fmt: skip
    return {
        "backend": backends.first(), "num_gpus": 2, "model": "llama-tiny", "dtype": "fp32", "attn": "sdpa",
        "seq_len": 256, "device": "cpu", "steps": 8, "warmup": 3,
    }  # fmt: skip


def expand(settings: dict[str, Any], gpus: int) -> list[Configuration]:
    """All combinations, each once. ZeRO stages multiply deepspeed's rows only.

    Raises `ConfigurationError` for a setting that does not exist or a file that is not there.
    """
    merged = {**_defaults_beside(settings, gpus), **settings}
    parse({name: Configuration.backend for name in merged if name not in ORDER})  # names what does not exist
    lists = {name: value if isinstance(value, list) else [value] for name, value in merged.items()}
    for name in (name for name, one in SETTINGS.items() if one.recorded):
        if any(lists.get(name, ())) and name in settings and not any(lists.get("inputs", ())):
            raise ConfigurationError(f"--{name.replace('_', '-')} is about recorded batches: give --inputs")
    if (rows := math.prod(map(len, lists.values()))) > MOST_ROWS:
        raise ConfigurationError(f"the lists make {rows} rows; at most {MOST_ROWS} are run at once")
    hashes = {text: sources.of(parse({"inputs": text}).inputs).digest(text) for text in lists.get("inputs", ()) if text}
    names = sorted(lists, key=ORDER.index)
    cells = itertools.product(*(lists[name] for name in names))
    found = [_configured(dict(zip(names, values, strict=True)), hashes) for values in cells]
    if not found:
        empty = next(name for name in names if not lists[name])
        raise ConfigurationError(f"no rows: --{empty.replace('_', '-')} lists nothing")
    return list(dict.fromkeys(found))


def _defaults_beside(settings: dict[str, Any], gpus: int) -> dict[str, Any]:
    """The defaults that hold where these settings are given."""
    found = defaults(gpus)
    if "model" in settings:
        found.pop("num_layers", None)
    elif not gpus and settings.get("inputs"):
        found["fold_tokens"] = True  # the tiny model has few tokens
    return found


def _configured(cell: dict[str, Any], hashes: Mapping[str, str]) -> Configuration:
    """The configuration of one combination; `hashes` are those of the inputs."""
    configuration = parse(cell)
    if configuration.inputs:
        path = Path(configuration.inputs)
        found = str(path.resolve()) if path.exists() else configuration.inputs
        configuration = replace(configuration, inputs=found, input_hash=hashes[configuration.inputs])
    if not backends.find(configuration.backend).stages:
        configuration = replace(configuration, zero_stage=Configuration.zero_stage)
    return effective(configuration)


def meant(backend: str) -> str:
    """What a name that is no backend may stand for: what rows call one of its variants, or the nearest name."""
    flags = backends.variants().get(backend)
    if flags is None:
        return nearest(backend, backends.names())
    words = [f"--{name.replace('_', '-')} {value}" for name, value in flags.items()]
    return f"; {backend} is {' '.join(words)}"


def check_names(configurations: Iterable[Configuration]) -> None:
    """Raises `ConfigurationError` for a backend or loss that there cannot be."""
    known = backends.names()
    for configuration in configurations:
        if configuration.backend not in known and not CLASS.fullmatch(configuration.backend):
            words = f"use {', '.join(known)} or package.module:Class{meant(configuration.backend)}"
            raise ConfigurationError(f"--backend {configuration.backend}: {words}")
        problem = availability.loss_problem(configuration.loss)
        if problem:
            raise ConfigurationError(problem)
