"""Keys that a change takes out of a table, while places that do not ask for them first still look them up there.

A table is a dictionary that is written out and kept under a name: `self.weights = {"mae": 30, "ssim": 10}`, a mapping
of a file of settings. Who looks a key up in what is called so means that table where nothing else of this name in the
project has the key. Each such place is judged by itself: that another one tests for the key does not help it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Side
from validator.drift.names.occurrences import Occurrence, link_of
from validator.drift.names.removed import Names, asked_of
from validator.drift.names.saved_keys import SavedKeys
from validator.facts.config_files import MAPPING, settings_of
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.source import SourceFile

_STORING = frozenset({"store_attr", "store_global", "store_class"})
_PUTTING = frozenset({"key", "keyword", "attribute"})


class Table(NamedTuple):
    """A dictionary that is written out under a name. `within`: the code unit, or the path of the mapping in a file;
    `is_recipe`: whether it is one of the settings of a program, of which each run has another one."""

    name: str
    keys: frozenset[str]
    path: str
    at: At
    within: str
    is_recipe: bool


class Missing(NamedTuple):
    """A key that a table has no longer, and a place that looks it up all the same."""

    key: str
    table: Table
    place: Occurrence


class Tables:
    """The look-ups that a change of a table left without their key."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after
        self._known: dict[tuple[bool, SourceFile], list[Table]] = {}
        self._filled: dict[str, bool] = {}

    @cached_property
    def missing(self) -> list[Missing]:
        told = {(each.path, each.at) for lost in self.change.analysis(Names).lost for each in lost.stale}
        told |= {(row.place.path, row.place.at) for row in self.change.analysis(SavedKeys).dropped}
        found: dict[tuple[str, At], Missing] = {}
        for old, new in self._altered():
            for key in sorted(old.keys - new.keys):
                if not self._is_needed(key, new):
                    continue
                for row in self._looking(key, new.name):
                    if (row.path, row.at) not in told:
                        found.setdefault((row.path, row.at), Missing(key, new, row))
        return list(found.values())

    def _altered(self) -> Iterator[tuple[Table, Table]]:
        """The tables from which a change took keys, and put none in their place; of several of one name in a function
        each with the one that stands where it stood."""
        for path in self.change.changed:
            sources = [side.by_absolute.get(path) for side in (self.change.before, self.after)]
            if sources[0] is None or sources[1] is None or is_test(sources[1].path) or is_foreign(sources[1].path):
                continue
            before, after = (_by_place(self._of_file(side, source)) for side, source in self._sides(sources))
            for place in before.keys() & after.keys():
                if len(before[place]) == len(after[place]):
                    pairs = zip(before[place], after[place], strict=True)
                    yield from ((old, new) for old, new in pairs if old.keys > new.keys)

    def _sides(self, sources: list[SourceFile | None]) -> Iterator[tuple[Side, SourceFile]]:
        sides = zip((self.change.before, self.after), sources, strict=True)
        yield from ((side, source) for side, source in sides if source is not None)

    # -- what else has the key -----------------------------------------------------------------------------

    def _is_needed(self, key: str, table: Table) -> bool:
        """Whether the key can come from nowhere else: no code puts it there, and all tables of this name had it. Other
        recipes, and those between which the same function chooses, may have it still."""
        others = [each for each in self._named(self.after, table.name) if _place(each) != _place(table)]
        if any(key in each.keys for each in others) and not all(each.is_recipe for each in others):
            return False
        if any(key not in each.keys for each in self._named(self.change.before, table.name)):
            return False
        rows = [row for row in self.after.occurrences(key) if row.role == "defines" and not is_test(row.path)]
        return not any(self._may_put(row, table.name) for row in rows)

    def _named(self, side: Side, name: str) -> list[Table]:
        sources = (source for source in side.mentioning(name) if not is_test(source.path))
        return [table for source in sources for table in self._of_file(side, source) if table.name == name]

    def _may_put(self, row: Occurrence, name: str) -> bool:
        """Whether a place may put a key into what has a name: into that itself, or into a dictionary that has no name
        of its own and may get this one."""
        unit = row.unit
        if unit is None or row.kind not in _PUTTING:
            return False
        values = unit.code.values
        if row.number < 0:
            return self._is_filled(name) and any(_is_mapping_made(unit, each) for each in _calls_with(row))
        if row.kind == "attribute":  # `_C.WEIGHTS.mae = 30`
            return values[row.number].op == "store_attr" and _last_of(unit, values[row.number].args[0]) == name
        for user in unit.users.get(row.number, ()):
            value = values[user]
            if value.op == "store_item" and _last_of(unit, value.args[0]) == name:
                return True
            callee = values[value.args[0]] if value.op == "call" else value
            if callee.op == "attr" and _last_of(unit, callee.args[0]) == name:  # `weights.setdefault(…)`
                return True
            if value.op in ("dict", "store_item", "call") and not self._is_named(unit, user):
                return self._is_filled(name)
        return False

    def _is_named(self, unit: Unit, number: int) -> bool:
        """Whether a dictionary is kept under a name, or is what one is put into."""
        value = unit.code.values[number]
        if value.op == "store_item":
            return _last_of(unit, value.args[0]) != ""
        return value.op == "dict" and any(_kept_under(unit, number))

    def _is_filled(self, name: str) -> bool:
        """Whether something else than a dictionary that is written out there gets a name, or fills what has it."""
        if name not in self._filled:
            self._filled[name] = self._may_be_filled(name)
        return self._filled[name]

    def _may_be_filled(self, name: str) -> bool:
        for source in self.after.mentioning(name):
            module = self.after.project.modules.get(source.absolute)
            for unit in self.after.units(module).values() if module is not None and not is_test(source.path) else ():
                values = unit.code.values
                for value in values:
                    if value.op in _STORING and value.data == name:
                        held = unit.root(value.args[-1])
                        if not _keys(unit, held) and _last_of(unit, held) != name:
                            return True
                    if value.op == "attr" and value.data == "update" and _last_of(unit, value.args[0]) == name:
                        return True
        return False

    # -- who looks it up -----------------------------------------------------------------------------------

    def _looking(self, key: str, name: str) -> Iterator[Occurrence]:
        for row in self.after.occurrences(key):
            if row.kind != "key" or row.role != "asks" or row.unit is None or is_test(row.path) or is_foreign(row.path):
                continue
            items = [n for n in row.unit.users.get(row.number, ()) if row.unit.code.values[n].op == "item"]
            owner = asked_of(row.unit, row)
            if not items or _last_of(row.unit, owner) != name or not self._stood(row):
                continue
            if row.unit.code.values[row.unit.root(owner)].op in ("param", "free"):
                continue  # callers may pass whatever they call so
            place = Place(self.after.flow, row.unit, items[0])
            caught = place.catches("KeyError", "LookupError", "Exception") or place.is_switched_off
            if not caught and not any(key in test.words for test in place.tests):
                yield row

    def _stood(self, row: Occurrence) -> bool:
        """Whether the same function looked the key up before."""
        before = self.change.before.twin(row.unit) if row.unit is not None else None
        rows = self.change.before.occurrences(row.name) if before is not None else ()
        return any(each.unit is before and each.kind == "key" and each.role == "asks" for each in rows)

    # -- tables --------------------------------------------------------------------------------------------

    def _of_file(self, side: Side, source: SourceFile) -> list[Table]:
        key = (side is self.after, source)
        if key not in self._known:
            module = side.project.modules.get(source.absolute)
            units = side.units(module).values() if module is not None else ()
            tables = [table for unit in units for table in _in_unit(unit)]
            self._known[key] = tables if module is not None else list(_in_settings(source))
        return self._known[key]


def _in_settings(source: SourceFile) -> Iterator[Table]:
    rows = settings_of(source).settings
    below: dict[tuple[str, ...], set[str]] = {}
    for each in rows:
        below.setdefault(each.path[:-1], set()).add(each.path[-1])
    for each in rows:
        if each.kind == MAPPING and not each.path[-1].isdigit():
            keys = frozenset(below.get(each.path, ()))
            yield Table(each.path[-1], keys, source.path, each.at, ".".join(each.path), True)


def _in_unit(unit: Unit) -> Iterator[Table]:
    values = unit.code.values
    for number, value in enumerate(values):
        keys = _keys(unit, number)
        for name, is_part in _kept_under(unit, number) if keys else ():
            recipe = is_part and unit.code.kind == "module"
            yield Table(name, keys, unit.path, unit.at(value.at), unit.code.key, recipe)


def _keys(unit: Unit, number: int) -> frozenset[str]:
    """The keys of a dictionary that is written out, as `{…}` or `dict(…)`; empty where it has others, too."""
    values = unit.code.values
    value = values[number]
    if value.op == "dict" and -1 not in value.args[::2]:
        keys = [values[key].data for key in value.args[::2] if values[key].op == "const"]
        written = [key for key in keys if isinstance(key, str)]
        return frozenset(written) if 2 * len(written) == len(value.args) else frozenset()
    if _is_mapping_made(unit, number) and not {None, "*", "**"} & set(value.data.names):
        return frozenset(value.data.names)
    return frozenset()


def _is_mapping_made(unit: Unit, number: int) -> bool:
    """Whether a value is what `dict(…)` makes."""
    value = unit.code.values[number]
    callee = unit.code.values[value.args[0]] if value.op == "call" else None
    return callee is not None and callee.op == "name" and callee.data == "dict"


def _kept_under(unit: Unit, number: int) -> Iterator[tuple[str, bool]]:
    """The names under which a value is kept, and whether that is in another dictionary, or a keyword."""
    values = unit.code.values
    for user, held_as in _uses(unit, number):
        value = values[user]
        if value.op in _STORING:
            yield str(value.data), False
        elif value.op == "dict":
            pairs = zip(value.args[::2], value.args[1::2], strict=True)
            yield from ((str(values[key].data), True) for key, held in pairs if held == held_as and key >= 0)
        elif value.op == "store_item" and value.args[2] == held_as and values[value.args[1]].op == "const":
            yield str(values[value.args[1]].data), True
        elif value.op == "call":
            shape = zip(value.data.names, value.args[1:], strict=True)
            yield from ((name, True) for name, held in shape if held == held_as and name not in (None, "*", "**"))


def _uses(unit: Unit, number: int) -> Iterator[tuple[int, int]]:
    """What uses a value, also where it is one of two (`a if c else b`), with the value as it comes there."""
    waiting, seen = [number], {number}
    for each in waiting:  # grows
        for user in unit.users.get(each, ()):
            if unit.code.values[user].op != "phi":
                yield user, each
            elif user not in seen:
                seen.add(user)
                waiting.append(user)


def _calls_with(row: Occurrence) -> Iterator[int]:
    """The calls of a unit that pass a keyword."""
    values = row.unit.code.values if row.unit is not None else ()
    return (n for n, value in enumerate(values) if value.op == "call" and row.name in value.data.names)


def _last_of(unit: Unit, number: int) -> str:
    """The last name that leads to an object: `weights` of `config.weights`, of `config["weights"]` or its `get`."""
    values = unit.code.values
    value = values[unit.root(number)] if number >= 0 else None
    if value is None:
        return ""
    if value.op == "item" and isinstance(values[value.args[1]].data, str):
        return str(values[value.args[1]].data)
    if value.op == "call" and len(value.args) > 1 and values[value.args[0]].op == "attr":
        asked = values[value.args[1]]
        return str(asked.data) if values[value.args[0]].data == "get" and asked.op == "const" else ""
    return link_of(value)


def _by_place(tables: list[Table]) -> dict[tuple[str, str], list[Table]]:
    found: dict[tuple[str, str], list[Table]] = {}
    for table in tables:
        found.setdefault((table.within, table.name), []).append(table)
    return found


def _place(table: Table) -> tuple[str, str, str]:
    return table.path, table.within, table.name
