"""Dotted texts (`"pkg.models:Actor.act"`) that led to a function or class before a change, and lead nowhere now."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.analysis.named import Named
from validator.definitions import ClassDef, Method
from validator.drift.change import Change
from validator.drift.names.occurrences import Occurrence
from validator.drift.names.removed import Lost, Names, given_by_library
from validator.flow.queries.outside_program import is_foreign, is_test


class Targets:
    """The functions, methods and classes that a change took away, with the texts that still lead to them."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.names: Names = change.analysis(Names)

    @cached_property
    def lost(self) -> list[Lost]:
        found = []
        for symbol in self._gone():
            old = self._definition(symbol)
            if old is None:
                continue
            renamed = self.names.renamed(old)
            rows = self.change.after.occurrences(symbol.name)
            stale = [row for row in rows if self._led_to(row, symbol, renamed is not None)]
            if stale:
                now = renamed.name if renamed is not None else ""
                found.append(Lost(symbol.name, old.kind, old, now, renamed, tuple(stale)))
        return found

    def _gone(self) -> Iterator[Method | ClassDef]:
        """What changed modules define no longer."""
        for old, new in self.change.modules:
            if old is None or is_test(old.path) or is_foreign(old.path):
                continue
            for before, after in ((old.functions, new and new.functions), (old.classes, new and new.classes)):
                kept = after or {}
                yield from (each for name, each in before.items() if name not in kept and "<" not in name)

    def _led_to(self, row: Occurrence, symbol: Method | ClassDef, renamed: bool) -> bool:
        """Whether a text led to what is gone and leads to nothing else now."""
        if row.kind != "target" or is_test(row.path) or is_foreign(row.path):
            return False
        path = row.link.replace(":", ".")
        if self.change.before.project.analysis(Named).of(path) is not symbol:
            return False
        owner = self.change.after.project.analysis(Named).of(path.rpartition(".")[0])
        if isinstance(owner, ClassDef):
            return owner.find(symbol.name) is None and not any(
                given_by_library(cls, symbol.name, renamed) for cls in owner.mro
            )
        return not isinstance(self.change.after.project.analysis(Named).of(path), Method | ClassDef)

    def _definition(self, symbol: Method | ClassDef) -> Occurrence | None:
        """The place that defined what is gone, as a name."""
        rows = self.change.before.of_file(symbol.module.source).get(symbol.name, ())
        kind = "class" if isinstance(symbol, ClassDef) else "function"
        made = [row for row in rows if row.role == "defines" and row.kind == kind]
        outer = symbol.qualname.rpartition(".")[0]
        own = (row for row in made if row.unit is not None and row.unit.qualname.removesuffix(".<class>") == outer)
        return next(own, made[0] if made else None)
