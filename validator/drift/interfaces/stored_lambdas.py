"""Functions without a name that are stored as a method of an object, and of which a change renamed a parameter, while
calls of that method still pass the old name: `optimizer.load = lambda state, device=None: …`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.names.occurrences import Occurrence
from validator.drift.names.places import owner_at
from validator.drift.statements.differences import Edit
from validator.drift.statements.drops import Drops
from validator.facts.model import At
from validator.flow.queries.outside_program import is_test


class Renamed(NamedTuple):
    """A keyword that a call of a stored function passes, `call`, and that the function takes as `now`."""

    pair: Pair
    function: ast.Lambda
    method: str
    now: str
    call: Occurrence
    at: At


class StoredLambdas:
    """The calls that such a change left behind; asked for with `change.analysis(StoredLambdas)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Renamed]:
        return [
            row
            for pair, _, _, edits in self.change.analysis(Drops).edited
            for edit in edits
            if not is_test(pair.new.path)
            for row in self._of(pair, edit)
        ]

    def _of(self, pair: Pair, edit: Edit) -> Iterator[Renamed]:
        old, new = (_stored(each.node) if each is not None else None for each in edit)
        if old is None or new is None or old[0] != new[0] or new[1].args.kwarg is not None:
            return
        was, now = (_names(each[1]) for each in (old, new))
        other = [(a, b) for a, b in zip(was, now, strict=False) if a != b]
        if len(was) != len(now) or len(other) != 1 or other[0][0] in now:
            return
        rows = [row for row in self.change.after.occurrences(other[0][0]) if row.kind == "keyword"]
        calls = [(row, at) for row in rows if not is_test(row.path) and (at := _called(row, new[0])) is not None]
        near = [each for each in calls if each[0].path == pair.new.path]  # who stores it there, calls it there
        for row, at in near or calls:
            yield Renamed(pair, new[1], new[0], other[0][1], row, at)


def _stored(node: ast.stmt) -> tuple[str, ast.Lambda] | None:
    """The attribute that a statement stores a function under."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and isinstance(node.value, ast.Lambda):
        return target.attr, node.value
    return None


def _names(function: ast.Lambda) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _called(row: Occurrence, method: str) -> At | None:
    """The place of the call with a keyword, if it is of a method of an object."""
    call = owner_at(row)
    if row.unit is None or call < 0:
        return None
    values = row.unit.code.values
    callee = values[values[call].args[0]]
    return row.unit.at(values[call].at) if callee.op == "attr" and callee.data == method else None
