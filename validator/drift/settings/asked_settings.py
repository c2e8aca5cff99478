"""Settings in files under a name by which the program asks for them no longer.

A key that code looks up in a configuration (`h.get("clip", 1.0)`, `cfg.train.clip`) has no definition but the files
that give it. Where a change has the program ask for another key at the same place, or renames the key in some of the
files, the files that still have the old one say something that nothing reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import External, Module
from validator.drift.change import Change, Pair, Side
from validator.drift.names.occurrences import Occurrence
from validator.drift.names.removed import Lost, asked_of
from validator.drift.statements.drops import Drops
from validator.facts.config_files import Setting, settings_of
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.source import SourceFile

_READING = frozenset({"asks", "tries"})
_ASKED = frozenset({"key", "getattr", "attribute"})
_TAKING = frozenset({"parameter", "field", "option"})  # what a mapping that is handed on as a whole may fill
_BESIDE = 2  # other keys of one mapping that the program asks of the same object


class _Renamed(NamedTuple):
    """A key that is asked for under another name now: the two places in code."""

    old: Occurrence
    new: Occurrence


class AskedSettings:
    """The settings that a change left without a reader."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.before = change.before
        self.after = change.after

    @cached_property
    def lost(self) -> list[Lost]:
        found: dict[str, Lost] = {}
        for old, new in self._renamed():
            if old.name in found or self._is_of_library(new) or self._is_read(old.name):
                continue
            stale = tuple(row for source in self.after.mentioning(old.name) for row in self._left(source, old, new))
            if stale:
                found[old.name] = Lost(old.name, "key", old, new.name, new, stale)
        return list(found.values())

    # -- renamed keys --------------------------------------------------------------------------------------

    def _renamed(self) -> Iterator[_Renamed]:
        for drop in self.change.analysis(Drops).drops:
            if drop.kind in ("text", "name") and not is_foreign(drop.pair.new.path):
                yield from self._exchanged(drop.pair, drop.old, drop.new)
        for old, new in sorted(self._in_files):
            before, after = reading(self.before, old), reading(self.after, new)
            if before and after:
                yield _Renamed(before[0], after[0])

    def _exchanged(self, pair: Pair, old: ast.expr, new: ast.expr) -> Iterator[_Renamed]:
        """The two places where a key is asked for, if that is what an edit exchanged."""
        names = _name(old), _name(new)
        if "" in names or names[0] == names[1]:
            return
        both = (each for each in (old, new) if isinstance(each, ast.Attribute))
        if len({ast.dump(each.value) for each in both}) > 1:
            return  # of another object
        was, now = _asked_at(self.before, pair.old, old), _asked_at(self.after, pair.new, new)
        if was is not None and now is not None and not self.is_own(now) and not _is_called(now):
            yield _Renamed(was, now)

    @cached_property
    def _in_files(self) -> frozenset[tuple[str, str]]:
        """The keys that the change gave another name in a file of settings: the only one of its mapping that went, and
        the only one that came, with the same value."""
        found = set()
        for old, new in self.change.settings_files:
            before, after = ({each.path: each for each in settings_of(source).settings} for source in (old, new))
            for gone in before.keys() - after.keys():
                came = [each for each in after.keys() - before.keys() if each[:-1] == gone[:-1]]
                if len(came) == 1 and before[gone].value == after[came[0]].value:
                    found.add((gone[-1], came[0][-1]))
        return frozenset(found)

    # -- who reads -----------------------------------------------------------------------------------------

    def _is_read(self, name: str) -> bool:
        """Whether anything in the project may take what stands under a name in a file."""
        for row in self.after.occurrences(name):
            if row.unit is None or is_test(row.path):
                continue
            if row.kind in _TAKING and row.role == "defines" and self.is_filled(row):
                return True
            if row.role == "spells" or row.role in _READING and not self.is_own(row):
                return True
        return False

    def is_own(self, row: Occurrence) -> bool:
        """Whether an attribute is one that the object itself keeps, or that of a module."""
        if row.kind != "attribute" or row.unit is None:
            return False
        owner = row.unit.code.values[row.number].args[0]
        mention = self.after.mention(row.unit, row.number)
        of_module = mention is not None and isinstance(mention.symbol, External | Module)
        return of_module or row.unit.is_receiver(owner)

    def _is_of_library(self, row: Occurrence) -> bool:
        """Whether a class of a library reads the object that is asked, as it likes: `AutoConfig.from_pretrained`."""
        assert row.unit is not None
        owner = Place(self.after.flow, row.unit, asked_of(row.unit, row))
        makers = (str(o[1]).split(".") for o in owner.closed.objs if o[0] == "made")
        return any(len(path) > 1 and path[-2][:1].isupper() for path in makers)

    def is_filled(self, row: Occurrence) -> bool:
        """Whether some call may fill what takes a value by its name from a mapping: `Model(**config)`."""
        assert row.unit is not None
        if row.kind != "parameter":
            return True
        cls = row.unit.cls
        return not self._spread.isdisjoint({row.unit.name, cls.name if cls is not None else row.unit.name, ""})

    @cached_property
    def _spread(self) -> frozenset[str]:
        """The names of what is called with a mapping spread into its parameters."""
        return frozenset(
            unit.known_as(value.args[0])
            for module in self.after.project.modules.values()
            if b"**" in module.source.data
            for unit in self.after.units(module).values()
            for value in unit.code.values
            if value.op == "call" and "**" in value.data.names
        )

    # -- files ---------------------------------------------------------------------------------------------

    def _left(self, source: SourceFile, old: Occurrence, new: Occurrence) -> Iterator[Occurrence]:
        """Where a file that has the old key of before the change still has it, and not the new one."""
        earlier = self.before.by_absolute.get(source.absolute)
        if source.absolute in self.after.project.modules or is_test(source.path) or is_foreign(source.path):
            return
        if earlier is None or old.name.encode() not in source.data:
            return
        rows = settings_of(source).settings
        paths = {each.path for each in rows}
        before = {each.path for each in settings_of(earlier).settings}
        for each in rows:
            if each.path[-1] != old.name or each.path not in before or (*each.path[:-1], new.name) in paths:
                continue
            if any(link.isdigit() for link in each.path):
                continue  # a row of records: data
            if (old.name, new.name) in self._in_files or self._is_of(each, rows, new):
                *above, name = each.path
                yield Occurrence(name, "defines", "setting", None, -1, source.path, each.at, "", tuple(above))

    def _is_of(self, setting: Setting, rows: tuple[Setting, ...], new: Occurrence) -> bool:
        """Whether the program asks the object that it asks for the new key for others of a mapping, too."""
        beside = {each.path[-1] for each in rows if each.path[:-1] == setting.path[:-1]} - {setting.path[-1]}
        return len(beside & self._asked_beside(new)) >= _BESIDE

    def _asked_beside(self, row: Occurrence) -> frozenset[str]:
        """The keys that a file asks of what it calls as the object that is asked at a place."""
        assert row.unit is not None
        owner = owner_text(row.unit, row)
        here = self.after.of_file(row.unit.module.source)
        asked = ((name, each) for name, places in here.items() for each in places if _is_asked(each))
        return frozenset(name for name, each in asked if each.unit is not None and owner_text(each.unit, each) == owner)


def _name(node: ast.expr) -> str:
    """The key that a text or an attribute asks for."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_asked(row: Occurrence) -> bool:
    return row.role in _READING and row.kind in _ASKED and row.number >= 0


def _is_called(row: Occurrence) -> bool:
    """Whether an attribute is a function that is called."""
    unit = row.unit
    users = (unit.code.values[user] for user in unit.users.get(row.number, ())) if unit is not None else ()
    return row.kind == "attribute" and any(user.op == "call" and user.args[0] == row.number for user in users)


def _asked_at(side: Side, unit: Unit, node: ast.expr) -> Occurrence | None:
    """What a piece of syntax asks for."""
    at = unit.module.source_text.at(node)
    rows = side.of_file(unit.module.source).get(_name(node), ())
    return next((row for row in rows if row.at == at and _is_asked(row)), None)


def reading(side: Side, name: str) -> list[Occurrence]:
    """Where code that is no test asks for a key."""
    rows = (row for row in side.occurrences(name) if row.unit is not None and _is_asked(row))
    return [row for row in rows if not is_test(row.path) and not is_foreign(row.path)]


def owner_text(unit: Unit, row: Occurrence) -> str:
    """What is asked for a name, as it is written; empty where the name is only held against something."""
    number = asked_of(unit, row)
    return unit.text(unit.code.values[unit.root(number)].at) if number >= 0 else ""
