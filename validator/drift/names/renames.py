"""Names that a change replaced by another one: where a statement is what it was but for its names."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cached_property

from validator.drift.change import Change
from validator.drift.statements.differences import in_head
from validator.drift.statements.drops import Drops

_NAMING = {ast.Name: "id", ast.Attribute: "attr", ast.keyword: "arg", ast.arg: "arg"}


class Renames:
    """What the names of a file are called since a change; asked for with `change.analysis(Renames)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def _seen(self) -> dict[tuple[str, str], Counter[str]]:
        """By file and name how often each other name stands in its place."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for pair, _, _, edits in self.change.analysis(Drops).edited:
            for edit in edits:
                if edit.old is not None and edit.new is not None:
                    for old, new in exchanged(edit.old.node, edit.new.node).items():
                        found.setdefault((pair.old.path, old), Counter())[new] += 1
        return found

    def of(self, path: str, name: str) -> str:
        """The one name that stands in place of another in a file; empty where there is none, or several."""
        names = self._seen.get((path, name), Counter())
        return next(iter(names)) if len(names) == 1 else ""


def exchanged(old: ast.stmt, new: ast.stmt) -> dict[str, str]:
    """The names of a statement, each with what stands in its place in another one, if all else in both is the same."""
    before, after = list(in_head(old)), list(in_head(new))
    found: dict[str, str | None] = {}
    if len(before) != len(after):
        return {}
    for one, other in zip(before, after, strict=True):
        if type(one) is not type(other) or isinstance(one, ast.Constant) and one.value != getattr(other, "value", None):
            return {}
        field = _NAMING.get(type(one), "")
        name, now = getattr(one, field, None), getattr(other, field, None)
        if name is not None and found.setdefault(name, now) != now:
            return {}
    return {name: now for name, now in found.items() if now is not None and name != now}
