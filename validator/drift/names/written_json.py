"""Keys in JSON that a script writes on a command line (`kwargs='{"buffer_length": 4096}'`), and that a change gave a
name which nothing in the project has, while the one of before is a parameter of a function.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import Method
from validator.drift.change import Change
from validator.facts.model import At
from validator.facts.script import Script, Word, parts
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.models.members import is_telling
from validator.source import SourceFile

Key = tuple[str, ...]


class Misnamed(NamedTuple):
    """A key that no code knows. `taker`: the function that has a parameter of the name before."""

    path: str
    at: At
    old: str
    new: str
    taker: Method


class WrittenKeys:
    """The keys that a change misnamed; asked for with `change.analysis(WrittenKeys)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Misnamed]:
        files = self.change.settings_files
        return [row for old, new in files for row in self._of(new.path, _written(old), _written(new))]

    def _of(
        self, path: str, before: dict[Key, tuple[object, At]], after: dict[Key, tuple[object, At]]
    ) -> Iterator[Misnamed]:
        """The one key of a mapping that went, and the one that came with the same value."""
        for key in sorted(after.keys() - before.keys()):
            gone = [each for each in before.keys() - after.keys() if each[:-1] == key[:-1]]
            came = [each for each in after.keys() - before.keys() if each[:-1] == key[:-1]]
            if len(gone) == len(came) == 1 and before[gone[0]][0] == after[key][0]:
                was, now = gone[0][-1], key[-1]
                taker = next(self._takers(was), None) if is_telling(was) and now.isidentifier() else None
                if taker is not None and not any(self.change.after.occurrences(now)):
                    yield Misnamed(path, after[key][1], was, now, taker)

    def _takers(self, name: str) -> Iterator[Method]:
        for row in self.change.after.occurrences(name):
            method = row.unit.method if row.unit is not None and row.kind == "parameter" else None
            if method is not None and not is_test(row.path) and not is_foreign(row.path):
                yield method


def _written(source: SourceFile) -> dict[Key, tuple[object, At]]:
    """The keys of JSON in the words of a script, under what stands before it, with their values and the place."""
    script = source.facts.extra.get("script")
    found: dict[Key, tuple[object, At]] = {}
    for word in parts(script) if isinstance(script, Script) else ():
        text = word.text if isinstance(word, Word) else ""
        name, _, value = text.partition("=") if not text.startswith("{") else ("", "", text)
        if value.startswith("{") and isinstance(word, Word):
            found |= {(name, *key): (each, word.at) for key, each in _keys(value)}
    return found


def _keys(text: str) -> list[tuple[Key, object]]:
    try:
        return list(_below(json.loads(text), ()))
    except (ValueError, RecursionError):
        return []


def _below(value: object, above: Key) -> Iterator[tuple[Key, object]]:
    for key, each in value.items() if isinstance(value, dict) else ():
        yield (*above, key), each
        yield from _below(each, (*above, key))
