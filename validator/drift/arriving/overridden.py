"""Keys of a mapping that a change put before another mapping, which has the last word about them now.

`{**row, "address": address}` has the address that is given here, `{"address": address, **row}` the one of `row`, be it
None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import in_head
from validator.drift.statements.drops import Drops


class Overridden(NamedTuple):
    """A key of a mapping, as it is written, whose value gives way to that of `by` since the change."""

    pair: Pair
    at: ast.expr
    key: str
    by: str
    before: str


class OverriddenKeys:
    """The keys that a change let others override; asked for with `change.analysis(OverriddenKeys)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Overridden]:
        return [
            row
            for pair, _, _, edits in self.change.analysis(Drops).edited
            for edit in edits
            if edit.old is not None and edit.new is not None
            for old, new in zip(_mappings(edit.old.node), _mappings(edit.new.node), strict=False)
            for row in _overridden(pair, old, new)
        ]


def _mappings(node: ast.stmt) -> list[ast.Dict]:
    return [each for each in in_head(node) if isinstance(each, ast.Dict) and None in each.keys]


def _overridden(pair: Pair, old: ast.Dict, new: ast.Dict) -> Iterator[Overridden]:
    """The keys that came behind a mapping that is spread, and come before it now, with the value that they had."""
    was, now = _entries(old), _entries(new)
    if was == now or sorted(was) != sorted(now) or len(set(was)) != len(was):
        return
    for place, (key, value) in enumerate(now):
        for spread in (row for row in now[place + 1 :] if not row[0]) if key else ():
            if was.index(spread) < was.index((key, value)):
                at = new.values[place]
                yield Overridden(pair, new.keys[place] or at, key, spread[1], ast.unparse(old))


def _entries(node: ast.Dict) -> list[tuple[str, str]]:
    """The keys and values of a mapping as they are written; without a key what is spread in it."""
    rows = zip(node.keys, node.values, strict=True)
    return [(ast.unparse(key) if key is not None else "", ast.unparse(value)) for key, value in rows]
