"""Local variables that a function hands out by their names, with `locals()`, and that a change renamed or took out.

`callback.update(locals())` makes each name of a variable one by which others find its value. Who keeps the dictionary,
in an attribute, asks for keys of it that no dictionary display shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import ClassDef
from validator.drift.change import Change, Side
from validator.drift.names.occurrences import Occurrence, variables_shown
from validator.drift.names.places import link_at
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test

_ASKING = frozenset({"asks", "tries"})


class Shown(NamedTuple):
    """The variables of a function that a call of a method passes as one dictionary. `position`: among its arguments."""

    names: frozenset[str]
    method: str
    position: int


class LostVariable(NamedTuple):
    """A variable that a function has no longer, and a place that looks for it in what was handed out."""

    name: str
    unit: Unit
    shown: Shown
    place: Occurrence


class ShownLocals:
    """The look-ups that a change left without their variable; asked for with `change.analysis(ShownLocals)`."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after

    @cached_property
    def lost(self) -> list[LostVariable]:
        found: list[LostVariable] = []
        for old, new in self._pairs():
            now = {(row.method, row.position): row for row in _shown(new)}
            for before in _shown(old):
                row = now.get((before.method, before.position))
                if row is not None and before.names - row.names:
                    found += self._missed(new, row, before.names - row.names)
        return found

    def _pairs(self) -> Iterator[tuple[Unit, Unit]]:
        """The units of changed files that hand out their variables; that others have other names is no other code."""
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path) or is_foreign(new.path):
                continue
            units = self.after.units(new)
            for key, unit in self.change.before.units(old).items() if b"locals(" in new.source.data else ():
                if key in units:
                    yield unit, units[key]

    def _missed(self, unit: Unit, shown: Shown, gone: frozenset[str]) -> Iterator[LostVariable]:
        """The first place of each function that looks for a variable which is gone."""
        kept = self._kept(shown)
        seen: set[tuple[Unit, str]] = set()
        for name in sorted(gone):
            rows = [row for row in self.after.occurrences(name) if row.kind == "key" and row.role in _ASKING]
            rows.sort(key=lambda each: each.role)  # who asks, before who tests
            for row in rows if kept and not self._is_shown_otherwise(shown, name, kept) else ():
                if row.unit is None or is_test(row.path) or (row.unit, name) in seen or row.unit.cls is None:
                    continue
                if any(link_at(row) == attribute and row.unit.cls in cls.relatives for cls, attribute in kept):
                    seen.add((row.unit, name))
                    yield LostVariable(name, unit, shown, row)

    def _kept(self, shown: Shown) -> frozenset[tuple[ClassDef, str]]:
        """The attributes in which methods of a name, and those that they hand it on to, keep what they are passed."""
        waiting, found = [(shown.method, shown.position)], set[tuple[ClassDef, str]]()
        for method, position in waiting:  # grows
            for each in self.after.methods.get(method, ()):
                unit = self.after.unit_of(each)
                if unit is None or each.cls is None or is_test(each.path):
                    continue
                for attribute, further in _taken(unit, position):
                    if attribute:
                        found.add((each.cls, attribute))
                    elif further not in waiting:
                        waiting.append(further)
        return frozenset(found)

    def _is_shown_otherwise(self, shown: Shown, name: str, kept: frozenset[tuple[ClassDef, str]]) -> bool:
        """Whether the same attribute gets a variable of the name from a call of another method too."""
        others = (row for row in self._all if name in row.names and row.method != shown.method)
        return any(self._kept(row) & kept for row in others)

    @cached_property
    def _all(self) -> list[Shown]:
        return list(_of_side(self.after))


def _of_side(side: Side) -> Iterator[Shown]:
    for source in side.mentioning("locals"):
        module = side.project.modules.get(source.absolute)
        if module is not None and not is_foreign(source.path) and not is_test(source.path):
            for unit in side.units(module).values():
                yield from _shown(unit)


def _shown(unit: Unit) -> Iterator[Shown]:
    """What calls of methods pass `locals()`."""
    values = unit.code.values
    for number in unit.named.get("locals", ()):
        for made in unit.users.get(number, ()):
            names = variables_shown(unit, values[made]) if values[made].op == "call" else frozenset[str]()
            for user in unit.users.get(made, ()) if names else ():
                call = values[user]
                callee = values[call.args[0]] if call.op == "call" else call
                if callee.op == "attr" and call.op == "call" and made in call.args[1:]:
                    yield Shown(names, str(callee.data), call.args.index(made) - 1)


def _taken(unit: Unit, position: int) -> Iterator[tuple[str, tuple[str, int]]]:
    """What a method does with an argument: the attribute of its object that keeps it, or the method that gets it, with
    the position there."""
    values = unit.code.values
    place = position + unit.has_receiver
    same = [number for number, value in enumerate(values) if value.op == "param" and value.data[0] == place]
    for number in same:  # grows: the same dictionary behind the calls that may change it
        for user in unit.users.get(number, ()):
            value = values[user]
            if value.op in ("mut", "phi"):
                same += [user] if user not in same else []
            elif value.op == "store_attr" and value.args[1] == number and unit.is_receiver(value.args[0]):
                yield str(value.data), ("", 0)
            elif value.op == "call" and number in value.args[1:] and values[value.args[0]].op == "attr":
                callee = values[value.args[0]]
                owner = values[unit.root(callee.args[0])]
                if callee.data == "update" and owner.op == "attr" and unit.is_receiver(owner.args[0]):
                    yield str(owner.data), ("", 0)
                else:
                    yield "", (str(callee.data), value.args.index(number) - 1)
