"""Keys that a change takes out of a dictionary while those who read that dictionary still look them up.

Who reads a dictionary that was saved, sent or returned is told by the keys that it looks up beside: one that the
project puts into this dictionary alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair, Side
from validator.drift.names.occurrences import Occurrence
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test

_SEVERAL = 2  # keys of a file, by which who reads it is told, though something else may be put beside them
_DUMPING = frozenset({"dump", "save"})


class Made(NamedTuple):
    """A dictionary that a unit makes under a name, and the keys that it puts there, with their values."""

    unit: Unit
    number: int
    keys: frozenset[str]
    places: frozenset[int]
    is_written: bool = False  # to a file, as it is made


class Dropped(NamedTuple):
    """A key that a dictionary has no longer, a place that looks it up, and the key by which that place is told."""

    key: str
    made: Made
    place: Occurrence
    beside: str


class SavedKeys:
    """The look-ups that a change left without their key."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def dropped(self) -> list[Dropped]:
        found: list[Dropped] = []
        for pair in self.change.pairs:
            if is_test(pair.new.path) or is_foreign(pair.new.path):
                continue
            for old, new in _dictionaries(pair):
                for key in sorted(old.keys - new.keys):
                    found += self._left(key, old, new)
        return found

    def _left(self, key: str, old: Made, new: Made) -> Iterator[Dropped]:
        side = self.change.after
        for row in side.occurrences(key):
            if row.kind != "key" or row.role != "asks" or row.unit is None or row.unit is new.unit or is_test(row.path):
                continue
            before = self.change.before.twin(row.unit)
            if before is None or not self.change.is_same(before, row.unit):
                continue
            asked = _asked(row.unit, row)
            own = [name for name in sorted(asked - {key}) if name in new.keys]
            beside = [name for name in own if self._is_only_in(name, new)]
            filed = [name for name in own if self._is_of_file(name, new, row.unit)]
            if (beside and asked <= old.keys or len(filed) >= _SEVERAL) and is_expected(side, row):
                yield Dropped(key, new, row, (beside or filed)[0])

    def _is_only_in(self, name: str, made: Made) -> bool:
        """Whether nothing else in the project gives a dictionary the key."""
        rows = [row for row in self.change.after.occurrences(name) if row.kind == "key" and row.role == "defines"]
        return bool(rows) and all(
            row.unit is made.unit and row.number in made.places or is_test(row.path) for row in rows
        )

    def _is_of_file(self, name: str, made: Made, reader: Unit) -> bool:
        """Whether who looks a key up can have it of a file alone, and of the one that is written: nothing in its
        program gives a dictionary the key, and no other dictionary that has it is written as it is made."""
        side = self.change.after
        near = {reader.path, *side.beside(reader.module)}
        rows = [row for row in side.occurrences(name) if row.kind == "key" and row.role == "defines"]
        rows = [row for row in rows if not is_test(row.path)]
        if not made.is_written or any(row.path in near for row in rows):
            return False
        others = [row for row in rows if row.unit is not made.unit or row.number not in made.places]
        return not any(row.number in places for row in others if row.unit for places in _written(row.unit))


def _dictionaries(pair: Pair) -> Iterator[tuple[Made, Made]]:
    """The dictionaries that a function makes under the same name before and after."""
    before, after = (_made(unit) for unit in pair)
    yield from ((old, after[name]) for name, old in before.items() if name in after)


def _made(unit: Unit) -> dict[str, Made]:
    """The dictionaries that a unit makes, by the only variable that holds each."""
    values, found = unit.code.values, dict[str, Made]()
    for name, numbers in unit.code.definitions.items():
        roots = {unit.root(number) for number in numbers if values[unit.root(number)].op == "dict"}
        if len(roots) != 1:
            continue
        root = roots.pop()
        places = list(values[root].args[::2])
        places += [v.args[1] for v in values if v.op == "store_item" and unit.root(v.args[0]) == root]
        if all(number >= 0 and values[number].op == "const" for number in places):
            keys = frozenset(str(values[number].data) for number in places)
            found[name] = Made(unit, root, keys, frozenset(places))
    for call, display in _dumps(unit):
        written = values[display].args[::2]
        callee = unit.text(values[values[call].args[0]].at)
        if callee not in found and all(number >= 0 and values[number].op == "const" for number in written):
            said = frozenset(str(values[number].data) for number in written)
            found[callee] = Made(unit, display, said, frozenset(written), True)
        else:
            found.pop(callee, None)  # one of several
    return found


def _dumps(unit: Unit) -> Iterator[tuple[int, int]]:
    """The calls that write a dictionary to a file as it is made: `pickle.dump({"step": step}, file)`."""
    values = unit.code.values
    for number, value in enumerate(values):
        if value.op == "call" and values[value.args[0]].data in _DUMPING:
            yield from ((number, each) for each in value.args[1:2] if values[each].op == "dict")


def _written(unit: Unit) -> Iterator[tuple[int, ...]]:
    """The keys of the dictionaries that a unit writes to files."""
    return (unit.code.values[display].args[::2] for _, display in _dumps(unit))


def _asked(unit: Unit, row: Occurrence) -> frozenset[str]:
    """The keys that a unit looks up, or asks for, in the dictionary of a look-up."""
    values = unit.code.values
    users = (values[user] for user in unit.users.get(row.number, ()))
    owners = {unit.root(value.args[0]) for value in users if value.op == "item"}
    found = set()
    for value in values:
        held, key = value.args if value.op == "item" else (-1, -1)
        if value.op == "compare" and value.data in ("In", "NotIn"):
            key, held = value.args
        if held >= 0 and unit.root(held) in owners and isinstance(values[key].data, str):
            found.add(values[key].data)
    return frozenset(found)


def is_expected(side: Side, row: Occurrence) -> bool:
    """Whether a look-up counts on the key: it is not tested for, or along with another one in one `and`."""
    assert row.unit is not None
    unit, values, key = row.unit, row.unit.code.values, row.name
    number = next(user for user in unit.users.get(row.number, ()) if values[user].op in ("item", "store_item"))
    if Place(side.flow, unit, number).catches("KeyError", "Exception"):
        return False
    tests: dict[int, set[str]] = {}  # by where it goes on if a test fails: the keys that are tested for
    for branch in unit.control.deciding(values[number].block):
        end = unit.code.blocks[branch].end
        test = values[end[1]]
        if test.op == "compare" and test.data == "In" and isinstance(values[test.args[0]].data, str):
            tests.setdefault(end[3], set()).add(values[test.args[0]].data)
    for names in tests.values():
        if key in names:
            return len(names) > 1
    return not any(key in test.words for test in Place(side.flow, unit, number).tests_inside)
