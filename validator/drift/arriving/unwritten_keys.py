"""Keys that a change took out of the only dictionaries that had them, while they are still read with another default.

`batch.meta_info.get("do_sample", True)` is True always, once nobody writes `{"do_sample": False}` any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.names.occurrences import Occurrence
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test

_WRITING = frozenset({"key", "keyword"})
_ELSEWHERE = frozenset({"setting", "option", "attribute", "field"})  # these are asked for as attributes
_CONSTANT = (bool, int, float, str, type(None))


class Unwritten(NamedTuple):
    """A key of which `pair` gave a constant `before`; `read`: where it is asked for, with the `default` left to it."""

    pair: Pair
    key: str
    before: object
    read: Occurrence
    default: object


class UnwrittenKeys:
    """Asked for with `change.analysis(UnwrittenKeys)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Unwritten]:
        found: list[Unwritten] = []
        for pair in self.change.pairs:
            if is_test(pair.new.path) or is_foreign(pair.new.path):
                continue
            old, new = (dict(_constants(unit)) for unit in pair)
            for key in sorted(old.keys() - new.keys()):
                found += self._left(pair, key, old[key])
        return found

    def _left(self, pair: Pair, key: str, before: object) -> Iterator[Unwritten]:
        """The reads of a key that nothing writes any more."""
        rows = [row for row in self.change.after.occurrences(key) if not is_test(row.path)]
        reads = [row for row in rows if row.role == "tries" and row.kind == "key" and row.unit is not None]
        reading = {row.unit for row in reads}
        attribute = any(row.role == "asks" and row.kind == "attribute" for row in rows)
        writing = _WRITING if attribute else _WRITING | _ELSEWHERE
        if any(row.role == "defines" and row.kind in writing and row.unit not in reading for row in rows):
            return
        for row in reads:
            default = _default(row)
            if default is not None and default[0] != before:
                yield Unwritten(pair, key, before, row, default[0])
                return


def _constants(unit: Unit) -> Iterator[tuple[str, object]]:
    """The keys of dictionaries that a unit gives constants, with these."""
    values = unit.code.values
    for value in values:
        pairs = zip(value.args[::2], value.args[1::2], strict=True) if value.op == "dict" else ()
        stored = [value.args[1:3]] if value.op == "store_item" else []
        for key, given in (*pairs, *stored):
            name = values[key].data if key >= 0 and values[key].op == "const" else None
            if isinstance(name, str) and values[given].op == "const" and isinstance(values[given].data, _CONSTANT):
                yield name, values[given].data


def _default(row: Occurrence) -> tuple[object] | None:
    """The constant that `.get(key, default)` gives where there is no such key."""
    assert row.unit is not None
    values = row.unit.code.values
    for user in row.unit.users.get(row.number, ()):
        value = values[user]
        if value.op == "call" and values[value.args[0]].data == "get" and not any(value.data.names):
            if len(value.args) == 2:
                return (None,)
            given = values[value.args[2]]
            if len(value.args) == 3 and given.op == "const" and isinstance(given.data, _CONSTANT):
                return (given.data,)
    return None
