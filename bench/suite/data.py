"""What all runs of a suite share on disk: the batches, and the checkpoint that they start from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.configuration import Configuration, ConfigurationError, has_weights, seed_folder, store
from bench.problems import Problem
from bench.process import supervise
from bench.process.locks import Locks
from bench.suite.settings import Settings

READY = "ready.json"
WAIT = 1800.0
FILE_ROWS = 4096


class PreparationError(Problem):
    """Data or a seed checkpoint that could not be made; the message is one line."""

    status = 1


def _identity(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The directory that `make` fills: by one process, where several suites share an output, and by the first rank
    alone where a launcher has started several."""
    if int(os.environ.get("RANK", "0")) == 0:
        locks = Locks(folder.parent)
        locks.claim(folder.name, folder.name)
        try:
            _fill(folder, make)
        finally:
            locks.release()
        return folder
    deadline = time.monotonic() + WAIT
    while not (folder / READY).is_file():
        if time.monotonic() > deadline:
            raise PreparationError(f"{folder}: rank 0 did not make it within {WAIT:.0f} s; see its output")
        time.sleep(0.2)
    return folder


def _fill(folder: Path, make: Callable[[Path], None]) -> None:
    """Make it beside its place and move it there; nothing where it is there already."""
    if (folder / READY).is_file():
        return
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    make(part)
    (part / READY).write_text("{}", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)


def prepare_data(settings: Settings, vocabulary: int, reordered: bool = False) -> Path:
    """A directory of batch files. Step n of every run holds the same samples, however they are dealt out.

    `reordered` moves the samples of each step on by a micro-batch: other ranks then hold them, and sums over ranks
    are made in another order. Raises `InputError` for data that cannot be used.
    """
    from bench.inputs.batch import Batch
    from bench.inputs.captured import write_batch
    from bench.inputs.dataset import find_tokenizer, read_samples, tokenize
    from bench.problems import InputError

    path = Path(settings.dataset)
    stamp = [path.stat().st_mtime_ns, path.stat().st_size] if path.is_file() else []
    identity = {
        "dataset": str(path.resolve()) if path.exists() else settings.dataset, "stamp": stamp,
        "keys": [settings.input_key, settings.output_key], "tokenizer": [settings.tokenizer, settings.model],
        "max_len": settings.seq_len, "samples": settings.max_samples, "batch": settings.batch,
        "seed": settings.random_seed, "shift": settings.rows if reordered else 0,
    }  # fmt: skip

    def make(folder: Path) -> None:
        tokenizer = find_tokenizer(settings.tokenizer, settings.model)
        samples = read_samples(
            settings.dataset, max_len=settings.seq_len, seed=settings.random_seed,
            input_key=settings.input_key, output_key=settings.output_key,
        )  # fmt: skip
        batch = tokenize(samples, tokenizer, settings.seq_len, settings.max_samples)
        batch.check(vocabulary, ": use a --model with more tokens, or a --tokenizer with fewer (byte has 257)")
        steps = batch.sequences.shape[0] // settings.batch
        if steps < settings.steps:
            raise InputError(
                f"{settings.dataset}: {batch.sequences.shape[0]} samples fit --max-len {settings.seq_len} and make "
                f"{steps} steps of {settings.batch}; --max-samples {settings.max_samples} asks for {settings.steps}"
            )
        if reordered:
            order = _moved_on(steps, settings.batch, settings.rows)
            batch = Batch(batch.sequences[order], batch.attention_mask[order], batch.action_mask[order], batch.source)
        rows = max(FILE_ROWS // settings.batch, 1) * settings.batch
        for number, start in enumerate(range(0, steps * settings.batch, rows)):
            piece = slice(start, min(start + rows, steps * settings.batch))
            part = Batch(batch.sequences[piece], batch.attention_mask[piece], batch.action_mask[piece])
            write_batch(part, folder / f"samples{number:05d}.safetensors")

    return once(settings.output_dir.resolve() / f"data-{_identity(identity)}", make)


def _moved_on(steps: int, batch: int, micro: int) -> list[int]:
    order = []
    for start in range(0, steps * batch, batch):
        step = list(range(start, start + batch))
        order += step[-micro:] + step[:-micro]
    return order


def check_reachable(settings: Settings) -> None:
    """Raises `InputError`, at once, for what is named on a hub and can neither be found here nor had from there."""
    from bench import hub
    from bench.problems import InputError

    named = [
        ("model", settings.model, "config.json", "a preset such as llama-3.1-8b, or a directory"),
        ("tokenizer", settings.tokenizer, "tokenizer_config.json", "--tokenizer byte, or a directory"),
        ("dataset", settings.dataset, "", "--dataset embedded, or a file"),
    ]
    for flag, name, file, instead in named:
        if reason := hub.missing(name, file):
            raise InputError(f"--{flag} {name}: {reason}; use {instead}")


def needs_seed(model: str, num_layers: int | None) -> bool:
    """Whether a model has no weights of its own, or not with this number of layers."""
    return num_layers is not None or not has_weights(model)


def prepare_seed(configuration: Configuration, output: Path, progress: supervise.Progress) -> str:
    """The checkpoint that every run starts from: the model's own, or one that is written here from the seed.

    Raises `PreparationError` where it cannot be written.
    """
    if not needs_seed(configuration.model, configuration.num_layers):
        return configuration.model
    values = {
        "model": configuration.model, "layers": configuration.num_layers, "seed": configuration.random_seed,
        "dtype": configuration.dtype, "device": configuration.device,
    }  # fmt: skip

    def make(folder: Path) -> None:
        work = folder / "made"
        work.mkdir()
        store(configuration, work)
        verdict = supervise.run_group(work, 0, 1, progress, job=supervise.Job("bench.suite.seed"))
        if verdict.status != "ok":
            kept = output.resolve() / "seed.log.txt"
            shutil.copy(work / "log.0.txt", kept)
            raise PreparationError(f"the seed checkpoint could not be made: {verdict.message}; log: {kept}")
        for file in (work / "checkpoint").iterdir():
            file.replace(folder / file.name)
        shutil.rmtree(work)

    return str(once(output.resolve() / seed_folder(configuration.model, _identity(values)), make))


def vocabulary_of(configuration: Configuration) -> int:
    """The number of token ids that the model takes. Raises `ConfigurationError` for a model that is not known."""
    from bench.configuration import model_facts
    from rules.models import ModelError

    try:
        return model_facts(configuration.model, configuration.num_layers).vocab
    except ModelError as error:
        raise ConfigurationError(f"--model {configuration.model}: {error}") from None
