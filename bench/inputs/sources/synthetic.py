"""Batches that need no data: every rank's part of one endless stream, which depends on settings alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.configuration import Configuration

if TYPE_CHECKING:
    from bench.inputs.batch import Batch

PLACE = 20


def takes(inputs: str | None) -> bool:
    return not inputs


def digest(inputs: str) -> None:
    return None


class Synthetic:
    """Deals the stream out to data-parallel ranks."""

    def __init__(self, configuration: Configuration, vocabulary: int, dp_rank: int) -> None:
        self.configuration, self.vocabulary, self.dp_rank = configuration, vocabulary, dp_rank
        self.recorded: list[Batch] = []

    def __iter__(self) -> Iterator[Batch]:
        from bench.inputs.synthetic import synthetic_batches

        c = self.configuration
        stream = synthetic_batches(
            vocabulary=self.vocabulary, rows=c.rows, seq_len=c.seq_len, seed=c.random_seed, full_length=c.full_length
        )
        return (batch for number, batch in enumerate(stream) if number % c.dp == self.dp_rank)


open_ = Synthetic
