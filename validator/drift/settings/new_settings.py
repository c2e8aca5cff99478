"""Settings that a change gave some files, and that other files of the kind do not have.

Code that begins to ask a configuration for a key (`info.ann_file`) needs it in every file that may come there: in those
that the class which asks names (`CONFIGS = {"default": "configs/vqg.yaml"}`), or else in those that lie beside a file
which was given the key, and were made like it.
"""

from __future__ import annotations

import posixpath
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change
from validator.drift.names.occurrences import Occurrence
from validator.drift.settings.asked_settings import owner_text, reading
from validator.facts.config_files import Setting, settings_of
from validator.facts.model import At
from validator.files.languages import SETTINGS
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.source import SourceFile

Keys = dict[tuple[str, ...], dict[str, Setting]]  # by path of a mapping its keys


class Lacking(NamedTuple):
    """A mapping of a file that has no such key. `given`: where the change gave the key; `asked`: where code asks."""

    name: str
    source: SourceFile
    at: At
    given: tuple[str, int]
    asked: Occurrence


class _Given(NamedTuple):
    """A key that the change put into a mapping of a file."""

    source: SourceFile
    mapping: tuple[str, ...]
    setting: Setting


class NewSettings:
    """The files that a new setting was not given."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after
        self._keys: dict[SourceFile, Keys] = {}

    @cached_property
    def lacking(self) -> list[Lacking]:
        found: list[Lacking] = []
        for name, given in sorted(self._given.items()):
            asked = self._newly_asked(name)
            naming = [(row, self._named_by(row)) for row in asked]
            named = frozenset[SourceFile]().union(*(sources for _, sources in naming))
            for source in sorted(named or self._beside(given), key=lambda each: each.path):
                mine = [row for row, sources in naming if source in sources] or asked
                at = self._place_for(source, name, given, mine, bool(named))
                if mine and at is not None:
                    first = given[0]
                    found.append(Lacking(name, source, at, (first.source.path, first.setting.at[0]), mine[0]))
        return found

    @cached_property
    def _given(self) -> dict[str, list[_Given]]:
        """By name the keys that the change put into files, where no other key of the mapping went in their stead."""
        found: dict[str, list[_Given]] = {}
        for old, new in self.change.settings_files:
            if not _is_config(new):
                continue
            before = _mappings(old)
            for mapping, keys in self._of(new).items():
                was = before.get(mapping, {})
                if not was or was.keys() - keys.keys():
                    continue
                for name in keys.keys() - was.keys():
                    found.setdefault(name, []).append(_Given(new, mapping, keys[name]))
        return found

    def _newly_asked(self, name: str) -> list[Occurrence]:
        """Where code asks for a key without a default since the change, if it never did before and nothing but files
        sets it."""
        if reading(self.change.before, name):
            return []
        rows = [row for row in self.after.occurrences(name) if not is_test(row.path) and not is_foreign(row.path)]
        if any(row.role in ("tries", "spells") or row.role == "defines" and row.kind != "setting" for row in rows):
            return []
        return [row for row in rows if row.unit is not None and row.role == "asks"]

    def _named_by(self, row: Occurrence) -> frozenset[SourceFile]:
        """The files of settings that the class which asks, or else its module, names."""
        assert row.unit is not None
        units = [each for each in self.after.units(row.unit.module).values() if _belongs(each, row.unit)]
        texts = {
            posixpath.normpath(value.data)
            for unit in units
            for value in unit.code.values
            if value.op == "const" and isinstance(value.data, str) and value.data.endswith(SETTINGS)
        }
        return frozenset(
            source
            for source in self.after.project.files.values()
            if any(source.path == text or source.path.endswith("/" + text.lstrip("./")) for text in texts)
        )

    def _beside(self, given: list[_Given]) -> set[SourceFile]:
        folders = {posixpath.dirname(each.source.path) for each in given}
        return {
            source
            for source in self.after.project.files.values()
            if posixpath.dirname(source.path) in folders and _is_config(source)
        }

    def _place_for(
        self, source: SourceFile, name: str, given: list[_Given], asked: list[Occurrence], named: bool
    ) -> At | None:
        """Where a file has a mapping that is asked for other keys, too, and that lacks this one. A file that no code
        names has to be made like one that was given the key."""
        found = None
        for mapping, keys in self._of(source).items():
            if not any(_link(mapping) == _link(each.mapping) for each in given):
                continue
            alike = any(
                mapping == e.mapping and keys.keys() == self._of(e.source)[mapping].keys() - {name} for e in given
            )
            if name in keys:
                return None  # in whatever section: the file knows it
            if alike or named and any(self._asked_beside(row) & keys.keys() for row in asked):
                first = min(keys.values(), key=lambda each: each.at)
                found = found or first.at
        return found

    def _asked_beside(self, row: Occurrence) -> frozenset[str]:
        """What the function that asks asks of the same object besides."""
        assert row.unit is not None
        owner = owner_text(row.unit, row)
        rows = self.after.of_file(row.unit.module.source).items()
        return frozenset(
            name
            for name, places in rows
            for each in places
            if each.unit is row.unit
            and each.role == "asks"
            and each.number >= 0
            and owner_text(row.unit, each) == owner
        )

    def _of(self, source: SourceFile) -> Keys:
        if source not in self._keys:
            self._keys[source] = _mappings(source)
        return self._keys[source]


def _is_config(source: SourceFile) -> bool:
    return source.path.endswith(SETTINGS) and not is_test(source.path) and not is_foreign(source.path)


def _mappings(source: SourceFile) -> Keys:
    """The mappings of a file, but for those in lists, which are data."""
    found: Keys = {}
    for each in settings_of(source).settings:
        if not any(link.isdigit() for link in each.path):
            found.setdefault(each.path[:-1], {})[each.path[-1]] = each
    return found


def _link(mapping: tuple[str, ...]) -> str:
    return mapping[-1] if mapping else ""


def _belongs(unit: Unit, asking: Unit) -> bool:
    """Whether a unit is of the class that asks, its body included."""
    cls = asking.cls
    return f"{unit.qualname}.".startswith(f"{cls.qualname}.") if cls is not None else unit.code.key == asking.code.key
