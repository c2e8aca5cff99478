"""Commands of a script that ran as arguments of another one before a change, and run by themselves since, as the `&&`
between them has lost its backslash: `python launch.py -- setup \\&\\& python train.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change
from validator.facts.model import At
from validator.facts.script import Chain, Command, Script, Word

_OPERATORS = frozenset({"&&", "||"})


class Split(NamedTuple):
    """A command that `given_to` was given before."""

    path: str
    at: At
    command: str
    given_to: str


class SplitCommands:
    """The commands that a change split; asked for with `change.analysis(SplitCommands)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Split]:
        found: list[Split] = []
        for old, new in self.change.settings_files:
            before, after = (each.facts.extra.get("script") for each in (old, new))
            if isinstance(before, Script) and isinstance(after, Script):
                found += _split(new.path, before, after)
        return found


def _split(path: str, before: Script, after: Script) -> Iterator[Split]:
    whole = {tuple(map(_spelled, each.words)) for each in before.every() if isinstance(each, Command)}
    for chain in (each for each in after.every() if isinstance(each, Chain)):
        left, right = chain.left[-1:], chain.right[:1]
        if left and right and isinstance(left[0], Command) and isinstance(right[0], Command):
            one, other = (tuple(map(_spelled, each.words)) for each in (left[0], right[0]))
            if chain.operator in _OPERATORS and (*one, f"text:{chain.operator}", *other) in whole:
                yield Split(path, right[0].at, _first(right[0]), _first(left[0]))


def _spelled(word: Word) -> str:
    return " ".join(f"{piece.kind}:{piece.value}" for piece in word.pieces)


def _first(command: Command) -> str:
    """The words by which people know a command."""
    return " ".join(word.text for word in command.words[:2])
