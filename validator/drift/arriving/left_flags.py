"""Options that a change left out of a command of one script, while all other scripts that start the program give them.

An option with a default asks no script for anything. Where each of the others gives it, what the one that no longer
does runs is another program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.commands.launch import Launch, Launches
from validator.drift.change import Change, Side
from validator.flow.queries.outside_program import is_test

_OTHERS = 2  # scripts that all give an option


class LeftFlag(NamedTuple):
    """An option that went. `others`: the commands that give it still."""

    launch: Launch
    name: str
    others: tuple[Launch, ...]


class LeftFlags:
    """The options that a change left out; asked for with `change.analysis(LeftFlags)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[LeftFlag]:
        scripts = (row for row in self.change.settings_files if "script" in row[1].facts.extra)
        found = [row for old, new in scripts for row in self._of(old.path, new.path)]
        count = Counter(row.name for row in found)
        return [row for row in found if count[row.name] == 1]  # what goes in several scripts is meant

    def _of(self, old: str, new: str) -> Iterator[LeftFlag]:
        before, after = _launches(self.change.before, old), _launches(self.change.after, new)
        if [each.name for each in before] != [each.name for each in after]:
            return
        for was, now in zip(before, after, strict=True):
            gone, came = _flags(was) - _flags(now), _flags(now) - _flags(was)
            if len(gone) != 1 or came or _unknown(was) != _unknown(now):
                continue
            (name,) = gone
            rows = [each for each in self._all if each.name == now.name and each.path != now.path]
            others = [each for each in rows if name in _flags(each)]
            if len(others) >= _OTHERS and len(others) == len(rows):
                yield LeftFlag(now, name, tuple(others))

    @cached_property
    def _all(self) -> list[Launch]:
        found = self.change.after.project.analysis(Launches).all
        return [each for each in found if not is_test(each.path)]


def _launches(side: Side, path: str) -> list[Launch]:
    return [each for each in side.project.analysis(Launches).all if each.path == path]


def _unknown(launch: Launch) -> int:
    """How many words of a command are not known: `$@` may hold any option, before and now."""
    return sum(not each.known for each in launch.arguments)


def _flags(launch: Launch) -> frozenset[str]:
    words = (each.text.partition("=")[0] for each in launch.arguments if each.known)
    return frozenset(word for word in words if word.startswith("--"))
