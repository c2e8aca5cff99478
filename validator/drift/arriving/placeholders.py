"""Texts that values are filled into, of which a change exchanged two parts and not the values: `"-l %s -c %s" % values`
that is `"-c %s -l %s" % values` now.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, in_head
from validator.drift.statements.drops import Drops, differences

_PLACE = re.compile(r"%[sdif]|\{\}")


class Refilled(NamedTuple):
    """A text in which the value after `before` stands after `now` since the change."""

    pair: Pair
    edit: Edit
    at: ast.Constant
    before: str
    now: str


class Placeholders:
    """The values that a change let fall into another's place; asked for with `change.analysis(Placeholders)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Refilled]:
        return [
            row
            for pair, _, _, edits in self.change.analysis(Drops).edited
            for edit in edits
            if edit.old is not None and edit.new is not None
            for row in _refilled(pair, edit)
        ]


def _refilled(pair: Pair, edit: Edit) -> Iterator[Refilled]:
    changed = differences(edit)
    old, new = changed[0] if len(changed) == 1 else (None, None)
    if not isinstance(old, ast.Constant) or not isinstance(new, ast.Constant) or not _is_filled(edit, new):
        return
    if isinstance(old.value, str) and isinstance(new.value, str):
        was, now = _before_places(old.value), _before_places(new.value)
        other = [(a, b) for a, b in zip(was, now, strict=False) if a != b]
        if len(was) == len(now) and other and sorted(was) == sorted(now) and all(map(str.strip, other[0])):
            yield Refilled(pair, edit, new, *other[0])


def _is_filled(edit: Edit, text: ast.Constant) -> bool:
    """Whether values are filled into a text right where it stands."""
    assert edit.new is not None
    for each in in_head(edit.new.node):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) and each.left is text:
            return True
        if isinstance(each, ast.Attribute) and each.attr == "format" and each.value is text:
            return True
    return False


def _before_places(text: str) -> list[str]:
    """The last word before each place that is filled."""
    return [(part.split() or [""])[-1] for part in _PLACE.split(text)[:-1]]
