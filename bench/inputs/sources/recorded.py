"""Recorded batches: files of somebody's actors. They are repeated when they run out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.configuration import Configuration, ConfigurationError, hash_inputs
from bench.inputs.files import list_inputs

if TYPE_CHECKING:
    from bench.inputs.batch import Batch

PLACE = 10


def takes(inputs: str | None) -> bool:
    return bool(inputs)


def digest(inputs: str) -> str:
    """The hash of the files, which takes the time to read all. Raises `ConfigurationError` where there are none."""
    try:
        list_inputs(Path(inputs))
    except ConfigurationError as error:
        raise ConfigurationError(f"--inputs {error}") from None
    return hash_inputs(Path(inputs))


def _split(batch: Batch, rows: int) -> Iterator[Batch]:
    """A batch in pieces of `rows` rows; what remains of it at the end is left out."""
    total = batch.sequences.shape[0]
    for start in range(0, total - rows + 1, rows):
        piece = slice(start, start + rows)
        masks = batch.attention_mask[piece], batch.action_mask[piece]
        yield replace(batch, sequences=batch.sequences[piece], attention_mask=masks[0], action_mask=masks[1])


def _order(count: int, configuration: Configuration, rank: int) -> list[int]:
    """The order in which a data-parallel rank meets the batches: another one per rank when shuffled."""
    order = list(range(count))
    if configuration.shuffle_inputs:
        random.Random(configuration.random_seed * 1_000_003 + rank).shuffle(order)
    return order


class Recorded:
    """Deals the batches of a folder or file out to data-parallel ranks. Raises `InputError` for inputs that the model
    cannot take."""

    def __init__(self, configuration: Configuration, vocabulary: int, dp_rank: int) -> None:
        self.configuration, self.vocabulary, self.dp_rank = configuration, vocabulary, dp_rank
        self.recorded = self._read()

    def _read(self) -> list[Batch]:
        from bench.inputs import conversion_cache
        from bench.problems import InputError

        configuration = self.configuration
        batches = conversion_cache.read(
            Path(configuration.inputs or ""), configuration.input_hash, configuration.max_inputs
        )
        if configuration.micro_batch_size is not None:
            batches = [piece for batch in batches for piece in _split(batch, configuration.micro_batch_size)]
        if configuration.fold_tokens:
            batches = [replace(batch, sequences=batch.sequences % self.vocabulary) for batch in batches]
        for batch in batches:
            batch.check(self.vocabulary, " (--fold-tokens)")
        if not batches:
            raise InputError(f"{configuration.inputs}: no batch has {configuration.micro_batch_size} rows")
        return batches

    def __iter__(self) -> Iterator[Batch]:
        from bench.inputs.batch import pad_to

        configuration = self.configuration
        simulated = max(configuration.simulate_ranks, 1)
        orders = [_order(len(self.recorded), configuration, self.dp_rank + peer) for peer in range(simulated)]
        step = self.dp_rank if not configuration.shuffle_inputs else 0
        stride = configuration.dp if not configuration.shuffle_inputs else 1
        while True:
            place = step % len(self.recorded)
            longest = max(self.recorded[order[place]].sequences.shape[1] for order in orders)
            batch = self.recorded[orders[0][place]]
            yield pad_to(batch, longest) if simulated > 1 else batch
            step += stride


open_ = Recorded
