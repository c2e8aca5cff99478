"""Values that say something special, which a change gave another meaning: `-1` for "once an epoch" that is `0` now.

Code tells such a value apart by a test (`args.interval == -1`, `is None`, `< 0`, or whether it is true). Where a change
puts a test for another value in the place of one, and nothing in the project tells the old value apart any more, then
whoever still gives it means what it meant before.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.commands.command_line import CommandLines
from validator.analysis.commands.launch import Launches
from validator.analysis.commands.programs import Programs
from validator.definitions import ClassDef, Method
from validator.drift.change import Change, Pair
from validator.drift.interfaces.calls import sites, taken_over
from validator.drift.names.occurrences import option_name
from validator.drift.names.removed import are_like
from validator.drift.statements.differences import Statement, edits, statements
from validator.facts.config_files import MAPPING, settings_of
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.models.members import is_telling

Scalar = str | int | float | None
_SWAPPED = {"Lt": "Gt", "LtE": "GtE", "Gt": "Lt", "GtE": "LtE"}
_SAME = frozenset({"Eq", "NotEq", "Is", "IsNot", "In", "NotIn"})
_ALONE = frozenset({"Eq", "NotEq", "Is", "IsNot"})
_ORDER = {
    "Lt": lambda one, other: one < other, "GtE": lambda one, other: one < other,
    "LtE": lambda one, other: one <= other, "Gt": lambda one, other: one <= other,
}  # fmt: skip
_MENDING = frozenset({"max", "min", "abs"})  # what makes another value of a special one
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class Test(NamedTuple):
    """A test of what has a name: `op` is the comparison, with `values`, or `true` where the value itself decides."""

    name: str
    op: str
    values: tuple[Scalar, ...]
    unit: Unit
    number: int  # the test
    subject: int  # what is tested

    def tells(self, value: Scalar) -> bool:
        """Whether a value is told apart from those that are only large: it is the one that is asked for, or below."""
        if self.op == "true":
            return not value
        if self.op in _SAME:
            return any(type(each) is type(value) and each == value or _equal(each, value) for each in self.values)
        bound = self.values[0]
        numbers = isinstance(bound, int | float) and isinstance(value, int | float)
        return numbers and bool(_ORDER[self.op](value, bound))

    @property
    def at(self) -> At:
        return self.unit.at(self.unit.code.values[self.number].at)

    @property
    def text(self) -> str:
        return self.unit.text(self.unit.code.values[self.number].at)

    @property
    def is_of_parameter(self) -> bool:
        return self.unit.code.values[self.unit.root(self.subject)].op == "param"


class Given(NamedTuple):
    """A place that gives a name a value."""

    value: Scalar
    path: str
    at: At


class Stale(NamedTuple):
    """A value that was told apart before: the tests that did and that stand there now, the places that give it."""

    value: Scalar
    old: Test
    new: Test
    places: tuple[Given, ...]


class Markers:
    """The values that a change gave another meaning and that are still given."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after

    @cached_property
    def stale(self) -> list[Stale]:
        found: dict[tuple[str, str], Stale] = {}
        for pair in self.change.pairs:
            if is_test(pair.new.path) or is_foreign(pair.new.path):
                continue
            for old, new in _exchanged(pair):
                for row in self._left(pair, old, new):
                    found.setdefault((old.name, repr(row.value)), row)
        return list(found.values())

    def _left(self, pair: Pair, old: Test, new: Test) -> Iterator[Stale]:
        by_value: dict[str, list[Given]] = {}
        for each in self._given(pair, new):
            if _is_special(old, new, each.value) and not new.tells(each.value) and self._stood(each):
                by_value.setdefault(repr(each.value), []).append(each)
        for rows in by_value.values():
            if not self._is_told(new.name, rows[0].value):
                yield Stale(rows[0].value, old, new, tuple(dict.fromkeys(rows)))

    def _stood(self, each: Given) -> bool:
        """Whether a place stood there before: what the change writes itself was not left behind."""
        return not self.change.wrote(each.path, each.at[0]) and not is_test(each.path) and not is_foreign(each.path)

    # -- tests ---------------------------------------------------------------------------------------------

    def _is_told(self, name: str, value: Scalar) -> bool:
        """Whether anything in the project still tells a value apart, or makes another one of it."""
        units = {row.unit for row in self.after.occurrences(name) if row.unit is not None and not is_test(row.path)}
        for unit in sorted(units, key=lambda each: (each.path, each.qualname)):
            if any(test.tells(value) for test in tests(unit) if test.name == name):
                return True
            reads = [number for number in range(len(unit.code.values)) if _name(unit, number) == name]
            if any(self._is_told_by_callee(unit, number, value) for number in reads):
                return True
        return False

    def _is_told_by_callee(self, unit: Unit, number: int, value: Scalar) -> bool:
        for user in unit.users.get(number, ()):
            call = unit.code.values[user]
            if call.op == "call" and number in call.args[1:] and unit.known_as(call.args[0]) in _MENDING:
                return True
        taken = taken_over(self.after, unit, number)
        return any(
            test.tells(value) for target, place in taken for test in tests(target) if target.root(test.subject) == place
        )

    # -- who gives a value ---------------------------------------------------------------------------------

    def _given(self, pair: Pair, test: Test) -> Iterator[Given]:
        """What is given to what a test is about: to a parameter by calls and its default, to an option or a field by
        scripts, files of settings and its default."""
        if test.is_of_parameter:
            yield from self._passed(pair.new, test.name, pair.new.method)
            return
        subject = test.unit.code.values[test.unit.root(test.subject)]
        if subject.op == "attr" and test.unit.is_receiver(subject.args[0]):
            yield from self._made_with(pair.new.cls, test.name)
            if not is_telling(test.name):
                return
        yield from self._stated(pair.new, test.name)
        yield from self._in_scripts(pair.new, test.name)
        if is_telling(test.name):
            yield from self._in_settings(pair.new, test.name)

    def _made_with(self, cls: ClassDef | None, name: str) -> Iterator[Given]:
        """What the objects of a class are given for the parameter that an attribute keeps."""
        made = cls.find("__init__") if cls is not None else None
        unit = self.after.unit_of(made) if made is not None else None
        for value in unit.code.values if unit is not None else ():
            if unit is not None and value.op == "store_attr" and value.data == name and unit.is_receiver(value.args[0]):
                held = unit.code.values[unit.root(value.args[1])]
                if held.op == "param":
                    yield from self._passed(unit, str(held.data[1]), cls)

    def _passed(self, unit: Unit, name: str, called: Method | ClassDef | None) -> Iterator[Given]:
        """The default of a parameter, and what calls that can mean nothing else pass for it."""
        if unit.outer is not None and name in unit.code.defaults:
            yield from _literal_at(unit.outer, unit.code.defaults[name])
        for site in sites(self.after, called.name) if called is not None else ():
            shape = site.unit.code.values[site.number]
            if site.reached == (called,) and site.how == "call":
                for keyword, number in zip(shape.data.names, shape.args[1:], strict=True):
                    yield from _literal_at(site.unit, number) if keyword == name else ()

    def _stated(self, unit: Unit, name: str) -> Iterator[Given]:
        """The defaults of options and fields in the programs of a file."""
        near = self.after.beside(unit.module)
        for row in self.after.occurrences(name):
            here = row.unit
            if here is None or row.path not in near or row.role != "defines" or row.kind not in ("option", "field"):
                continue
            for value in here.code.values:
                if row.kind == "field" and value.op == "store_class" and value.data == name:
                    yield from _literal_at(here, value.args[0])
                elif row.kind == "option" and value.op == "call" and row.number in value.args[1:]:
                    said = dict(zip(value.data.names, value.args[1:], strict=True))
                    yield from _literal_at(here, said["default"]) if "default" in said else ()

    def _in_scripts(self, unit: Unit, name: str) -> Iterator[Given]:
        programs = self.after.project.analysis(Programs)
        launches = self.after.project.analysis(Launches)
        for launch, line in self.after.project.analysis(CommandLines).all:
            module = launches.likely(launch)
            if module is None or unit.module not in programs.modules(module):
                continue
            for given in line.given:
                own = given.option.dest if given.option is not None else option_name(given.name)
                if own == name and len(given.values) == 1 and given.values[0].known:
                    yield Given(_read(given.values[0].text), given.flag.place.path, given.at)

    def _in_settings(self, unit: Unit, name: str) -> Iterator[Given]:
        """The files of settings that have, beside the name, another one that its file asks for."""
        here = self.after.of_file(unit.module.source)
        for source in self.after.mentioning(name):
            rows = settings_of(source).settings if source.absolute not in self.after.project.modules else ()
            for each in rows:
                if each.path[-1].replace("-", "_") != name or each.kind == MAPPING or not _is_plain(each.value):
                    continue
                beside = (other.path[-1] for other in rows if other.path[:-1] == each.path[:-1])
                if any(
                    row.role in ("asks", "tries") for other in beside if other != name for row in here.get(other, ())
                ):
                    yield Given(each.value, source.path, each.value_at)


def tests(unit: Unit) -> Iterator[Test]:
    """The tests of a unit whose subject has a name."""
    values = unit.code.values
    for number, value in enumerate(values):
        if value.op == "compare":
            for subject, other, op in (
                (*value.args, value.data),
                (*value.args[::-1], _SWAPPED.get(value.data, value.data)),
            ):
                held = _constants(unit, other)
                name = _name(unit, subject) if held is not None else ""
                if name and held is not None and (op in _SAME or op in _ORDER):
                    yield Test(name, op, held, unit, number, subject)
        elif value.op == "unary" and value.data == "Not" and (name := _name(unit, value.args[0])):
            yield Test(name, "true", (), unit, value.args[0], value.args[0])
    for block in unit.code.blocks:
        if block.end[0] == "branch" and (name := _name(unit, block.end[1])):
            yield Test(name, "true", (), unit, block.end[1], block.end[1])


def _is_special(old: Test, new: Test, value: Scalar) -> bool:
    """Whether a value is one that a test singled out: none, a number that counts nothing, a text that is spelled
    otherwise now or is no text any more. Another number or text is one choice of several, and has a meaning without."""
    if old.op not in (*_ALONE, *_ORDER) or not old.tells(value):
        return False
    if isinstance(value, str):
        return all(not isinstance(each, str) or are_like(each, value) for each in new.values)
    return value is None or value <= 0


def _exchanged(pair: Pair) -> Iterator[tuple[Test, Test]]:
    """The tests of one name of which one stands in the place of the other since the change."""
    before, after = list(tests(pair.old)), list(tests(pair.new))
    kinds = [{(each.name, each.op, each.values) for each in rows} for rows in (before, after)]
    gone = [each for each in before if (each.name, each.op, each.values) not in kinds[1]]
    came = [each for each in after if (each.name, each.op, each.values) not in kinds[0]]
    pairs = [(old, new) for old in gone for new in came if old.name == new.name]
    if not pairs:
        return
    changed = edits(statements(pair.old), statements(pair.new))
    for old, new in pairs:
        was, now = [_holds(each.old, old) for each in changed], [_holds(each.new, new) for each in changed]
        left = [edit.old for edit, holds in zip(changed, was, strict=True) if holds and edit.new is None]
        came_there = [edit.new for edit, holds in zip(changed, now, strict=True) if holds and edit.old is None]
        beside = any(_is_one_place(one, other) for one in left for other in came_there)
        if beside or any(one and other for one, other in zip(was, now, strict=True)):
            yield old, new


def _holds(statement: Statement | None, test: Test) -> bool:
    """Whether a test stands in a statement, or in the head of one around it."""
    text = _unparsed(test.text)
    return statement is not None and any(text in head for head in (statement.text, *statement.inside))


def _is_one_place(old: Statement | None, new: Statement | None) -> bool:
    """Whether a statement that went and one that came are of one kind and stand in the same."""
    return old is not None and new is not None and type(old.node) is type(new.node) and old.inside == new.inside


def _unparsed(text: str) -> str:
    """A piece of source as Python writes it out."""
    try:
        return ast.unparse(ast.parse(text, mode="eval"))
    except SyntaxError:
        return text


def _name(unit: Unit, number: int) -> str:
    """The name of an option, a field, a key or a parameter that a value is."""
    values = unit.code.values
    value = values[unit.root(number)]
    if value.op == "attr":
        return str(value.data)
    if value.op == "param":
        return str(value.data[1])
    key = value.args[1] if value.op == "item" else -1
    if value.op == "call" and len(value.args) > 1:
        callee = values[value.args[0]]
        if callee.op == "attr" and callee.data == "get":
            key = value.args[1]
        elif callee.op == "name" and callee.data == "getattr" and len(value.args) > 2:
            key = value.args[2]
    found = values[key].data if key >= 0 and values[key].op == "const" else ""
    return found if isinstance(found, str) and found.isidentifier() else ""


def _constants(unit: Unit, number: int) -> tuple[Scalar, ...] | None:
    """The plain values that a value is, or a row of them; None where it is something else."""
    value = unit.code.values[unit.root(number)]
    parts = value.args if value.op in ("tuple", "list", "set") else (number,)
    found = [_literal(unit, each) for each in parts]
    return tuple(each[0] for each in found if each) if all(found) else None


def _literal(unit: Unit, number: int) -> tuple[Scalar] | None:
    """A plain value, in a tuple: it may be None."""
    value = unit.code.values[unit.root(number)]
    if value.op == "unary" and value.data == "USub":
        inner = _literal(unit, value.args[0])
        return (-inner[0],) if inner and isinstance(inner[0], int | float) else None
    return (value.data,) if value.op == "const" and _is_plain(value.data) else None


def _literal_at(unit: Unit, number: int) -> Iterator[Given]:
    found = _literal(unit, number)
    if found:
        yield Given(found[0], unit.path, unit.at(unit.code.values[number].at))


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float) and not isinstance(value, bool)


def _equal(one: Scalar, other: Scalar) -> bool:
    return isinstance(one, int | float) and isinstance(other, int | float) and one == other


def _read(text: str) -> Scalar:
    """What a word of a command line is read as."""
    if not _NUMBER.fullmatch(text.strip()) or len(text) > 40:
        return text
    return int(text) if re.fullmatch(r"[+-]?\d+", text.strip()) else float(text)
