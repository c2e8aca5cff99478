"""Whether two names, of whatever spelling, say the same: `train_cfg.lmms_eval_limit` and `LIMIT`."""

from __future__ import annotations

from collections.abc import Sequence


def likeness(one: str, other: str) -> int:
    """How many words two names have in common where one begins or ends as the other is; else 0. Of a dotted name the
    last link counts, and what stands before it as far as the other name has it, too."""
    pairs = ((left, right) for left in _readings(one) for right in _readings(other))
    return max((_shared(left, right) for left, right in pairs), default=0)


def _readings(name: str) -> list[tuple[str, ...]]:
    links = [words(link) for link in name.split(".")]
    return [tuple(word for link in links[start:] for word in link) for start in range(len(links))]


def words(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case and without the `s` of a plural."""
    spaced = ""
    for before, letter in zip(f" {name}", name, strict=False):
        spaced += " " if letter.isupper() and before.islower() else ""
        spaced += letter if letter.isalnum() else " "
    return tuple(map(singular, spaced.lower().split()))


def singular(word: str) -> str:
    """A word of a name without the `s` of a plural."""
    return word[:-1] if len(word) > len("gas") and word.endswith("s") and not word.endswith("ss") else word


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    few, many = sorted((tuple(one), tuple(other)), key=len)
    return len(few) if few and few in (many[: len(few)], many[-len(few) :]) else 0
