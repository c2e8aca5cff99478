"""The batches of each step and rank, and what a model takes of them."""

from __future__ import annotations

from collections.abc import Iterator

from bench.configuration import Configuration
from bench.inputs import sources
from bench.inputs.batch import Batch
from bench.inputs.packing import ModelInputs, pack_inputs, pad_inputs


class InputSource:
    """One data-parallel rank's batches, of the kind that the configuration names; iterating gives one list of
    micro-batches per optimizer step. Raises `InputError` for inputs that the model cannot take."""

    def __init__(self, configuration: Configuration, vocabulary: int, dp_rank: int) -> None:
        self.source = sources.of(configuration.inputs).open_(configuration, vocabulary, dp_rank)
        self.recorded: list[Batch] = self.source.recorded

    def micro_batches(self, accumulation: int) -> Iterator[list[Batch]]:
        """Micro-batches of this rank's steps, without end."""
        stream = iter(self.source)
        while True:
            yield [next(stream) for _ in range(accumulation)]


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
