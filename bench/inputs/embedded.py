"""Prompts and answers that need no download: small tasks, drawn from a seed, which a model can learn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

SHORTEST = 8  # a dialogue fills at least the 8th part of the length asked for

_WORDS = (
    "river", "stone", "lamp", "garden", "paper", "engine", "window", "copper", "orange", "market", "bridge", "cloud",
    "pencil", "forest", "silver", "harbor", "ladder", "candle", "planet", "needle",
)  # fmt: skip
_OPPOSITES = (("hot", "cold"), ("early", "late"), ("full", "empty"), ("loud", "quiet"), ("deep", "shallow"))


def _sum(draw: random.Random) -> tuple[str, str]:
    a, b = draw.randint(2, 99), draw.randint(2, 99)
    return f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}."


def _order(draw: random.Random) -> tuple[str, str]:
    words = draw.sample(_WORDS, 4)
    return f"Sort these words: {', '.join(words)}.", f"In order they are: {', '.join(sorted(words))}."


def _count(draw: random.Random) -> tuple[str, str]:
    word = draw.choice(_WORDS)
    return f"How many letters has the word {word}?", f"The word {word} has {len(word)} letters."


def _opposite(draw: random.Random) -> tuple[str, str]:
    one, other = draw.choice(_OPPOSITES)
    return f"What is the opposite of {one}?", f"The opposite of {one} is {other}."


def _repeat(draw: random.Random) -> tuple[str, str]:
    word, times = draw.choice(_WORDS), draw.randint(2, 6)
    return f"Write the word {word} {times} times.", " ".join([word] * times) + "."


_TASKS: tuple[Callable[[random.Random], tuple[str, str]], ...] = (_sum, _order, _count, _opposite, _repeat)


def embedded_samples(max_bytes: int, seed: int) -> Iterator[tuple[str, str]]:
    """An endless, reproducible stream of (prompt, answer), each pair at most `max_bytes` long, or one question.

    Lengths differ, as in real data: a prompt holds the turns of a dialogue before the last question.
    """
    number = 0
    while True:
        draw = random.Random(seed * 1_000_003 + number)  # sample n is the same whatever was drawn before it
        room = draw.randint(max_bytes // SHORTEST, max_bytes)
        turns: list[str] = []
        while True:
            question, answer = draw.choice(_TASKS)(draw)
            turn = f"User: {question}\nAssistant:"
            if turns and sum(map(len, turns)) + len(turn) + len(answer) + 8 > room:
                break
            turns += [turn, f" {answer}\n"]
        yield "".join(turns[:-1]), turns[-1].rstrip("\n")
        number += 1
