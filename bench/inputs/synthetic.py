"""Batches that need no data: lengths like those of real PPO runs, tokens from a Markov source.

The lengths are quantiles of 2,304 rows recorded in a four-GPU PPO run of an 8B model (prompt at most 1,024
tokens, response at most 1,024). A model can learn the Markov source, so losses fall as in training.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.inputs.batch import Batch
from bench.problems import InputError

PROMPT_QUANTILES = (43, 51, 56, 67, 102, 286, 505, 542, 579, 612, 659, 730, 803, 887, 1001, 1024, 1024)
RESPONSE_QUANTILES = (2, 54, 84, 123, 157, 188, 214, 256, 298, 360, 409, 463, 532, 610, 708, 1024, 1024)
RECORDED_POSITIONS = 2048
SUCCESSORS = 4  # each token is followed by one of so many others


def _draw(quantiles: tuple[int, ...], uniform: float, scale: float) -> int:
    """The length at quantile `uniform`, linear between the recorded quantiles, times `scale`."""
    place = uniform * (len(quantiles) - 1)
    below = min(int(place), len(quantiles) - 2)
    length = quantiles[below] + (quantiles[below + 1] - quantiles[below]) * (place - below)
    return max(1, round(length * scale))


class MarkovSource:
    """Token sequences in which each token has `SUCCESSORS` possible followers, the first the likeliest."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        if vocabulary < 2:
            raise InputError(f"synthetic batches need a vocabulary of at least 2 tokens, got {vocabulary}")
        self.states = min(vocabulary, 4096)
        generator = torch.Generator().manual_seed(seed)
        self.alphabet = torch.randperm(vocabulary, generator=generator)[: self.states]
        # A list: to index a tensor once per token takes the host tens of milliseconds a step, in which a GPU may wait.
        self.followers = torch.randint(self.states, (self.states, SUCCESSORS), generator=generator).tolist()
        self.weights = torch.tensor([0.7, 0.15, 0.1, 0.05])

    def sample(self, length: int, generator: torch.Generator) -> torch.Tensor:
        choices = torch.multinomial(self.weights, length, replacement=True, generator=generator).tolist()
        state = int(torch.randint(self.states, (1,), generator=generator))
        states = []
        for choice in choices:
            states.append(state)
            state = self.followers[state][choice]
        return self.alphabet[torch.tensor(states)]


def synthetic_batches(
    *, vocabulary: int, rows: int, seq_len: int, seed: int, full_length: bool = False
) -> Iterator[Batch]:
    """An endless, reproducible stream of (rows, seq_len) batches, prompts padded on the left.

    Lengths scale with `seq_len` from the recorded 2,048 positions; `full_length` fills every row instead, for
    throughput at an exact length. Raises `InputError` where `seq_len` is below 8.
    """
    if seq_len < 8:
        raise InputError(f"--seq-len must be at least 8, got {seq_len}")
    source = MarkovSource(vocabulary, seed)
    scale = seq_len / RECORDED_POSITIONS
    half = seq_len // 2
    number = 0
    while True:
        # One generator per batch: batch n is the same whatever was drawn before it.
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
        tokens = torch.zeros(rows, seq_len, dtype=torch.int64)
        attention = torch.zeros(rows, seq_len, dtype=torch.bool)
        actions = torch.zeros(rows, seq_len - half, dtype=torch.bool)
        for row in range(rows):
            first, second = torch.rand(2, generator=generator).tolist()
            prompt, response = half, seq_len - half
            if not full_length:
                prompt = min(_draw(PROMPT_QUANTILES, first, scale), half)
                response = min(_draw(RESPONSE_QUANTILES, second, scale), seq_len - half)
            tokens[row, half - prompt : half + response] = source.sample(prompt + response, generator)
            attention[row, half - prompt : half + response] = True
            actions[row, :response] = True
        yield Batch(tokens, attention, actions, f"synthetic batch {number}")
        number += 1
