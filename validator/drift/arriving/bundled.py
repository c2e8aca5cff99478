"""Keywords of a call that a change put into a mapping under one name, for which what is called has no parameter, and
which nothing in the project asks for: they fall into its `**kwargs` as one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.interfaces.now_positional import called
from validator.drift.statements.differences import Edit, changed_calls
from validator.drift.statements.drops import Drops
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test


class Bundled(NamedTuple):
    """Keywords, by their names, that a call passes under `name` since the change."""

    pair: Pair
    edit: Edit
    call: ast.Call
    at: ast.keyword
    names: tuple[str, ...]


class BundledKeywords:
    """The keywords that a change put together; asked for with `change.analysis(BundledKeywords)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Bundled]:
        return [
            row
            for pair, _, _, edits in self.change.analysis(Drops).edited
            for edit in edits
            if not is_test(pair.new.path)
            for old, new in changed_calls(edit)
            for row in self._of(pair, edit, old, new)
        ]

    def _of(self, pair: Pair, edit: Edit, old: ast.Call, new: ast.Call) -> Iterator[Bundled]:
        left = {each.arg for each in new.keywords}
        gone = {each.arg: ast.dump(each.value) for each in old.keywords if each.arg and each.arg not in left}
        before = {each.arg for each in old.keywords}
        for each in new.keywords if gone else ():
            held = _held(each.value)
            bundled = tuple(name for name, value in gone.items() if held.get(name) == value)
            if each.arg and each.arg not in before and bundled and self._falls(pair, new, each.arg):
                yield Bundled(pair, edit, new, each, bundled)

    def _falls(self, pair: Pair, call: ast.Call, name: str) -> bool:
        """Whether all that a call may run takes a keyword into its `**` alone, and nothing has or asks for the name."""
        reached = called(self.change.after.project.analysis(Objects), pair.new, call)
        rows = (row for row in self.change.after.occurrences(name) if row.unit is not pair.new)
        swallowed = all(
            any(p.kind == "**" for p in each.params) and all(p.name != name for p in each.params) for each in reached
        )
        return bool(reached) and swallowed and not any(rows)


def _held(node: ast.expr) -> dict[str, str]:
    """The keys of a mapping that is written out, with their values."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return {each.arg: ast.dump(each.value) for each in node.keywords if each.arg}
    rows = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    constants = ((key.value, value) for key, value in rows if isinstance(key, ast.Constant))
    return {key: ast.dump(value) for key, value in constants if isinstance(key, str)}
