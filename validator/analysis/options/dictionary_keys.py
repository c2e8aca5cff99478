"""Which keys of dictionaries code reads, and which texts the project has that could be such a key put somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.company import path_of
from validator.analysis.interfaces.unspelled import Unspelled, are_alike
from validator.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_aside, is_test
from validator.ir import Value
from validator.models.members import is_telling
from validator.project import Project

_WORDS = re.compile(r"\w+")
_ASKING = frozenset({"get", "pop"})
_GROWING = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "setdefault"})
_SHARE = 4  # keys that the project puts for one that it does not, where both are read of its own dictionary
_MANY = 200  # letters of a text that is not looked through for keys: a description


class Read(NamedTuple):
    """`owner.attribute["key"]`, where a missing key raises KeyError."""

    place: Place
    attribute: str
    key: str


class Unput(NamedTuple):
    """A read of a key that nothing puts anywhere, and the keys like it that are put."""

    place: Place
    key: str
    alike: tuple[str, ...]


class DictionaryKeys:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """What is read of dictionaries that objects keep as attributes, outside of tests."""
        return tuple(read for unit in self._units if not is_aside(unit.path) for read in _reads(self.flow, unit))

    @cached_property
    def put(self) -> dict[str, frozenset[str]]:
        """By name of an attribute: the keys that code puts into what is kept there."""
        found: dict[str, set[str]] = {}
        for unit in self._units:
            for attribute, key in _puts(unit):
                found.setdefault(attribute, set()).add(key)
        return {attribute: frozenset(keys) for attribute, keys in found.items()}

    def is_told(self, key: str) -> bool:
        """Whether the project has a key anywhere but where it is read: it may be put there, by whatever way."""
        return key in self._told or any(key.startswith(start) and key.endswith(end) for start, end in self._formed)

    def may_be_put(self, key: str) -> bool:
        """Whether code may put a key into some dictionary: it does so, or the project has a text for it, or forms one,
        besides those by which dictionaries are asked."""
        formed = any(key.startswith(start) and key.endswith(end) for start, end in self._formed)
        return formed or key in self._makers or key in self._spelled

    @cached_property
    def unput(self) -> tuple[Unput, ...]:
        """What is read of any dictionary by a key of several words that nothing in the project puts or spells, while
        something like it is put: of one that is put and never read, or beside keys that are put."""
        return tuple(each for unit in self._units if not is_aside(unit.path) for each in self._unput_in(unit))

    def _unput_in(self, unit: Unit) -> Iterator[Unput]:
        unspelled, values = self.project.analysis(Unspelled), unit.code.values
        for number, value in enumerate(values):
            key = _text(values[value.args[1]]) if value.op == "item" else ""
            if not is_telling(key) or not key.isidentifier() or key in self._told or key in self._grown:
                continue
            alike = self._alike(key)
            if (
                alike
                and not unspelled.may_be_formed(key)
                and self._is_of_project(Place(self.flow, unit, number), key, alike)
            ):
                yield Unput(Place(self.flow, unit, number), key, tuple(alike))

    def _alike(self, key: str) -> list[str]:
        """The keys that code puts which are like another."""
        known = self._likenesses.get(key)
        if known is None:
            known = self._likenesses[key] = [each for each in self._makers if is_telling(each) and are_alike(each, key)]
        return known

    @cached_property
    def _likenesses(self) -> dict[str, list[str]]:
        return {}

    def _is_of_project(self, place: Place, key: str, alike: list[str]) -> bool:
        """Whether it is the project that fills a dictionary: a function that puts a key like it puts others that are
        read of the dictionary, too, and hardly any is put nowhere; or what it puts under that key is never read."""
        path = path_of(place.unit, place.operand(0).number)
        beside = {each for each, where in _read_by_path(place.unit) if where and where == path} - {key}
        put = beside & self._makers.keys()
        if len(put) < _SHARE * len(beside - put):
            return False
        makers = {maker for each in alike for maker in self._makers[each]}
        return any(not makers.isdisjoint(self._makers[each]) for each in put) or any(e not in self._read for e in alike)

    @cached_property
    def _makers(self) -> dict[str, set[Unit]]:
        """By key that code puts into some dictionary the functions that do so."""
        found: dict[str, set[Unit]] = {}
        for unit in self._units:
            for key in _put(unit) if not is_test(unit.path) else ():
                found.setdefault(key, set()).add(unit)
        return found

    @cached_property
    def _grown(self) -> frozenset[str]:
        """The keys under which code adds to lists, which a `defaultdict` puts there."""
        return frozenset(key for unit in self._units for key in _grown(unit))

    @cached_property
    def _read(self) -> frozenset[str]:
        return frozenset(key for unit in self._units for key in _keys_read(unit))

    @cached_property
    def _spelled(self) -> frozenset[str]:
        return frozenset(text for unit in self._units if not is_test(unit.path) for text in _spelled(unit))

    @cached_property
    def _told(self) -> frozenset[str]:
        found: set[str] = set()
        for unit in self._units:
            found.update(_told(unit))
        for source in self.project.files.values():
            if not source.path.endswith(".py"):
                found.update(_WORDS.findall(source.data.decode(errors="replace")))
        return frozenset(found)

    @cached_property
    def _formed(self) -> frozenset[tuple[str, str]]:
        """How texts begin and end that code puts together."""
        return frozenset(form for unit in self._units for form in _forms(unit))

    @cached_property
    def _units(self) -> tuple[Unit, ...]:
        return tuple(unit for module in self.project.modules.values() for unit in self.flow.whole_units(module))


def _reads(flow: Flow, unit: Unit) -> Iterator[Read]:
    values = unit.code.values
    for number, value in enumerate(values):
        owner = values[unit.root(value.args[0])] if value.op == "item" else None
        key = _text(values[value.args[1]]) if owner is not None else ""
        if owner is not None and owner.op == "attr" and key.isidentifier():
            yield Read(Place(flow, unit, number), owner.data, key)


def _puts(unit: Unit) -> Iterator[tuple[str, str]]:
    values = unit.code.values
    for value in values:
        if value.op == "store_item":
            owner = values[unit.root(value.args[0])]
            if owner.op == "attr" and (key := _text(values[value.args[1]])):
                yield owner.data, key
        elif value.op == "store_attr":
            yield from ((value.data, key) for key in _keys(unit, value.args[1]))
        elif value.op == "call":
            named = zip(value.data.names, value.args[1:], strict=True)
            yield from ((name, key) for name, each in named if name for key in _keys(unit, each))
            callee = values[value.args[0]]
            updated = values[unit.root(callee.args[0])] if (callee.op, callee.data) == ("attr", "update") else None
            if updated is not None and updated.op == "attr":
                yield from ((updated.data, key) for each in value.args[1:] for key in _keys(unit, each))
                yield from ((updated.data, name) for name in value.data.names if name)


def _keys(unit: Unit, number: int) -> Iterator[str]:
    """The keys of a dictionary that is spelled out."""
    values = unit.code.values
    value = values[unit.root(number)]
    for each in value.args[::2] if value.op == "dict" else ():
        if each >= 0 and (key := _text(values[each])):
            yield key


def _put(unit: Unit) -> Iterator[str]:
    """The keys that code puts into dictionaries."""
    values = unit.code.values
    for number, value in enumerate(values):
        if value.op == "dict":
            yield from _keys(unit, number)
        elif value.op == "store_item" and not unit.is_augmented(value):
            yield _text(values[value.args[1]])
        elif value.op == "call" and values[value.args[0]].data in ("dict", "update"):
            yield from (name for name in value.data.names if name)


def _grown(unit: Unit) -> Iterator[str]:
    values = unit.code.values
    for value in values:
        grown = values[unit.root(value.args[0])] if value.op == "attr" and value.data in _GROWING else None
        if grown is not None and grown.op == "item" and values[unit.root(grown.args[0])].op != "dict":
            yield _text(values[grown.args[1]])
        elif value.op == "item":
            made = values[unit.root(value.args[0])]
            if made.op == "call" and values[made.args[0]].data == "defaultdict":
                yield _text(values[value.args[1]])


def _keys_read(unit: Unit) -> Iterator[str]:
    values = unit.code.values
    for value in values:
        yield from (_text(values[each]) for each in _read(values, value))


def _read_by_path(unit: Unit) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The keys that are read by index, with the names by which the dictionary is known."""
    values = unit.code.values
    for value in values:
        if value.op == "item" and (key := _text(values[value.args[1]])):
            yield key, path_of(unit, value.args[0])


def _told(unit: Unit) -> Iterator[str]:
    """What a function names: texts other than the keys that it reads, attributes, parameters and keywords."""
    yield from _spelled(unit)
    for value in unit.code.values:
        if value.op in ("attr", "store_attr", "name"):
            yield value.data
        elif value.op == "param":
            yield value.data[1]
        elif value.op == "call":
            yield from (name for name in value.data.names if name)
    yield from unit.code.definitions
    yield from unit.qualname.split(".")


def _spelled(unit: Unit) -> Iterator[str]:
    """The words of a function's texts, but for the keys that it reads and what is long enough for a description."""
    values = unit.code.values
    read = {each for value in values for each in _read(values, value)}
    read |= {value.args[1] for value in values if value.op == "store_item" and unit.is_augmented(value)}
    for number, value in enumerate(values):
        if value.op == "const" and number not in read and isinstance(value.data, str) and len(value.data) <= _MANY:
            yield from _WORDS.findall(value.data)


def _read(values: list[Value], value: Value) -> tuple[int, ...]:
    """The operand by which a dictionary is asked for what it may not have."""
    if value.op == "item":
        return value.args[1:2]
    asked = value.op == "call" and values[value.args[0]].op == "attr" and values[value.args[0]].data in _ASKING
    return value.args[1:2] if asked else ()


def _forms(unit: Unit) -> Iterator[tuple[str, str]]:
    values = unit.code.values
    for value in values:
        if value.args and (value.op == "join" or value.op == "binary" and value.data in ("Add", "Mod")):
            start, end = _text(values[value.args[0]]), _text(values[value.args[-1]])
            if start or end:
                yield start, end


def _text(value: Value) -> str:
    return value.data if value.op == "const" and isinstance(value.data, str) else ""
