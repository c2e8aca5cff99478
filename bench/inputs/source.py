"""The batches of each step and rank, from recorded inputs or the synthetic source."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.configuration import Configuration
from bench.inputs import kept
from bench.inputs.batch import Batch, InputError, pad_to
from bench.inputs.packing import ModelInputs, pack_inputs, pad_inputs
from bench.inputs.synthetic import synthetic_batches


def _split(batch: Batch, rows: int) -> Iterator[Batch]:
    """A batch in pieces of `rows` rows; what remains of it at the end is left out."""
    total = batch.sequences.shape[0]
    for start in range(0, total - rows + 1, rows):
        piece = slice(start, start + rows)
        yield Batch(batch.sequences[piece], batch.attention_mask[piece], batch.action_mask[piece], batch.source)


def _order(count: int, configuration: Configuration, rank: int) -> list[int]:
    """The order in which a data-parallel rank meets the batches: another one per rank when shuffled."""
    order = list(range(count))
    if configuration.shuffle_inputs:
        random.Random(configuration.random_seed * 1_000_003 + rank).shuffle(order)
    return order


class InputSource:
    """Deals batches out to data-parallel ranks; iterating gives one list of micro-batches per optimizer step.

    Recorded inputs are repeated when they run out. Raises `InputError` for inputs that the model cannot take.
    """

    def __init__(self, configuration: Configuration, vocabulary: int, dp_rank: int) -> None:
        self.configuration = configuration
        self.vocabulary = vocabulary
        self.dp_rank = dp_rank
        self.recorded = self._read() if configuration.inputs else []

    def _read(self) -> list[Batch]:
        configuration = self.configuration
        batches = kept.read(Path(configuration.inputs or ""), configuration.input_hash, configuration.max_inputs)
        if configuration.micro_batch_size is not None:
            batches = [piece for batch in batches for piece in _split(batch, configuration.micro_batch_size)]
        if configuration.fold_tokens:
            batches = [replace(batch, sequences=batch.sequences % self.vocabulary) for batch in batches]
        for batch in batches:
            batch.check(self.vocabulary)
        if not batches:
            raise InputError(f"{configuration.inputs}: no batch has {configuration.micro_batch_size} rows")
        return batches

    def __len__(self) -> int:
        """Batches before they repeat; 0 for the endless synthetic source."""
        return len(self.recorded)

    def micro_batches(self, accumulation: int) -> Iterator[list[Batch]]:
        """Micro-batches of this rank's steps, without end."""
        stream = self._recorded_stream() if self.recorded else self._synthetic_stream()
        while True:
            yield [next(stream) for _ in range(accumulation)]

    def _synthetic_stream(self) -> Iterator[Batch]:
        configuration = self.configuration
        stream = synthetic_batches(
            vocabulary=self.vocabulary, rows=configuration.rows, seq_len=configuration.seq_len,
            seed=configuration.random_seed, full_length=configuration.full_length,
        )  # fmt: skip
        for number, batch in enumerate(stream):
            if number % configuration.dp == self.dp_rank:
                yield batch

    def _recorded_stream(self) -> Iterator[Batch]:
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


def to_inputs(
    batch: Batch, configuration: Configuration, *, use_actions: bool, ring_rank: int, ring_size: int
) -> ModelInputs:
    """What the model of one rank takes, packed or padded as the configuration says."""
    multiple = configuration.tp if configuration.sequence_parallel else 1
    if not configuration.packing:
        return pad_inputs(batch, use_actions=use_actions, seed=configuration.random_seed, multiple=multiple)
    bucket = 256 if configuration.compile != "none" else 1
    return pack_inputs(
        batch, use_actions=use_actions, seed=configuration.random_seed, ring_rank=ring_rank, ring_size=ring_size,
        multiple=multiple, length_bucket=bucket,
    )  # fmt: skip
