"""Recipes and scripts that still set what a class or function took before a change.

A recipe belongs to a class or function if it names it (`_target_: package.module.Class`), or if the settings beside
the old name are parameters or fields of it, more of them than of anything else in the project that has the old name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import ClassDef, Method
from validator.drift.calls import constructor
from validator.drift.change import Change
from validator.drift.lost import Lost, Names
from validator.drift.occurrences import Occurrence, groups
from validator.flow.aside import is_foreign, is_test

_TOGETHER = 3  # settings beside the old name that must be parameters or fields of the owner


class Stale(NamedTuple):
    """A setting under the name that its owner had for it before the change."""

    lost: Lost
    owner: ClassDef | Method
    place: Occurrence


class Recipes:
    """The settings that a change left behind."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after

    @cached_property
    def stale(self) -> list[Stale]:
        names = self.change.analysis(Names)
        known = {(place.path, place.at) for lost in names.lost for place in lost.stale}
        found: dict[tuple[str, tuple[int, ...]], Stale] = {}
        for old, new in self._owners():
            before, after = _names(old), _names(new)
            for name in sorted(before - after if before and after else ()):
                for place in self._places(name, new, after):
                    key = (place.path, place.at)
                    if key not in known:
                        found.setdefault(key, Stale(self._lost(name, old, new, place), new, place))
        return list(found.values())

    def _owners(self) -> Iterator[tuple[ClassDef | Method, ClassDef | Method]]:
        """The classes that are made with settings, and the functions, as they were and as they are."""
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path) or is_foreign(new.path):
                continue
            for name, cls in old.classes.items():
                if name in new.classes:
                    yield cls, new.classes[name]
            for name, method in old.functions.items():
                other = new.functions.get(name)
                if other is not None and method.cls is None and method.facts.params != other.facts.params:
                    yield method, other

    def _places(self, name: str, owner: ClassDef | Method, names: frozenset[str]) -> Iterator[Occurrence]:
        for source in self.after.mentioning(name):
            if source.facts.language == "python" or is_test(source.path) or is_foreign(source.path):
                continue
            for group in groups(source):
                place = next((row for row in group if row.name == name and row.kind != "target"), None)
                if place is not None and self._is_of(group, name, owner, names):
                    yield place

    def _is_of(self, group: list[Occurrence], name: str, owner: ClassDef | Method, names: frozenset[str]) -> bool:
        """Whether settings that stand together are those of an owner."""
        targets = {row.name for row in group if row.kind == "target"}
        if targets:
            return owner.name in targets
        beside = {row.name for row in group} - {name}
        own = len(beside & names)
        return own >= _TOGETHER and all(len(beside & other) < own for other in self._others(name))

    def _others(self, name: str) -> Iterator[frozenset[str]]:
        """What else in the project has a name: the fields or parameters, or the options, beside it."""
        for row in self.after.occurrences(name):
            if row.role != "defines" or row.unit is None or is_test(row.path):
                continue
            if row.kind == "field" and row.unit.scope.cls is not None:
                yield _names(row.unit.scope.cls)
            elif row.kind in ("field", "variable") and row.unit.code.kind == "class":
                yield frozenset(row.unit.code.annotated)
            elif row.kind == "parameter":
                yield frozenset(each for each, _ in row.unit.code.params)
            elif row.kind in ("option", "key"):
                rows = self.after.of_file(row.unit.module.source)
                yield frozenset(each for each, places in rows.items() if any(p.kind == row.kind for p in places))

    def _lost(self, name: str, old: ClassDef | Method, new: ClassDef | Method, place: Occurrence) -> Lost:
        was = Occurrence(name, "defines", "field", None, -1, old.path, old.facts.at)
        came = _names(new) - _names(old)
        renamed = next(iter(came)) if len(came) == len(_names(old) - _names(new)) == 1 else ""
        now = was._replace(name=renamed, path=new.path, at=new.facts.at) if renamed else None
        return Lost(name, "field", was, renamed, now, (place,))


def _names(owner: ClassDef | Method) -> frozenset[str]:
    """What a class or function may be given by name."""
    params = owner.facts.params if isinstance(owner, Method) else constructor(owner)
    if params is None:  # a base of a library takes more
        assert isinstance(owner, ClassDef)
        return frozenset(name for cls in owner.mro for name, annotation in cls.facts.attributes if annotation)
    return frozenset(p.name for p in params if p.kind in ("any", "kw"))
