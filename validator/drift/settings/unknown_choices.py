"""Values of recipes that a change replaced by one which nothing in the program knows, where code asks for the one of
before among several and raises for all others, or has nothing for them.

The way of a setting to the code that reads it is often lost (`**config`), and its name changes on it. The value itself
tells: one of several words, or one that is asked of what is called like the setting.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change
from validator.drift.names.occurrences import variable_or_link
from validator.drift.names.texts import constants
from validator.drift.statements.differences import node_of
from validator.facts.config_files import Setting, settings_of
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test

_OFF = frozenset({"none", "null", "false", "off", "no", "disabled", "disable", "never", "default", "identity", "skip"})
_OF_SEVERAL_WORDS = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+")


class UnknownChoice(NamedTuple):
    """A value that no code knows; `choices`: those that a function asks for before it raises."""

    path: str
    setting: Setting
    old: str
    unit: Unit
    line: int
    choices: tuple[str, ...]
    refuses: bool


class UnknownChoices:
    """The values that a change of recipes made unknown; asked for with `change.analysis(UnknownChoices)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[UnknownChoice]:
        found: list[UnknownChoice] = []
        for old, new in self.change.settings_files:
            before = {each.path: each.value for each in settings_of(old).settings}
            for setting in settings_of(new).settings:
                was, now = before.get(setting.path), setting.value
                if isinstance(was, str) and isinstance(now, str) and was != now and now.isprintable() and was and now:
                    found += list(self._of(new.path, setting, was)) or self._unasked(new.path, setting, was)
        return found

    def _unasked(self, path: str, setting: Setting, was: str) -> Iterator[UnknownChoice]:
        """The comparison that asks a setting for the old value, where all that is done with it is to compare it with
        texts, and none of these is the new value, which is no word for `off`."""
        name, now = setting.path[-1], str(setting.value)
        known: set[str] = set()
        asked: tuple[Unit, int] | None = None
        rows = [row for row in self.change.after.occurrences(name) if row.role in ("asks", "tries")]
        for row in rows if now.lower() not in _OFF else ():
            if row.unit is None or is_test(row.path):
                continue
            values = row.unit.code.values
            users = [n for n in row.unit.users.get(row.number, ()) if values[n].op != "mut"]
            if values[row.number].op != "attr" or not users or any(values[n].op != "compare" for n in users):
                return  # it goes on from there
            choices = _choices(row.unit, row.number)
            known |= choices
            if was in choices:
                asked = asked or (row.unit, row.unit.at(values[users[0]].at)[0])
        if asked is not None and now not in known:
            yield UnknownChoice(path, setting, was, *asked, tuple(sorted(known)), refuses=False)

    def _of(self, path: str, setting: Setting, was: str) -> Iterator[UnknownChoice]:
        """The first function that takes the old value and refuses the new one, which stands nowhere in the program."""
        side, now = self.change.after, str(setting.value)
        if any(True for text in {now, now.lower()} for _ in constants(side, text)):
            return
        for unit, number in constants(side, was):
            for subject in _subjects(unit, number) if not is_foreign(unit.path) else ():
                told = _OF_SEVERAL_WORDS.fullmatch(was) or _called(unit, subject) == setting.path[-1]
                choices = _choices(unit, subject)
                refuses = _refuses_others(unit, subject)
                if told and len(choices) > 1 and was in choices and (refuses or _passes_others(unit, subject)):
                    line = unit.at(unit.code.values[number].at)[0]
                    yield UnknownChoice(path, setting, was, unit, line, tuple(sorted(choices)), refuses)
                    return


def _subjects(unit: Unit, number: int) -> Iterator[int]:
    """What is asked whether it is a text: `x == "a"`, `x in ("a", "b")`."""
    values = unit.code.values
    rows = [user for user in unit.users.get(number, ()) if values[user].op in ("tuple", "list", "set")]
    for held in (number, *rows):
        for user in unit.users.get(held, ()):
            value = values[user]
            if value.op == "compare" and (value.data == "Eq" or value.data == "In" and value.args[1] == held):
                yield from (each for each in value.args if each != held)


def _called(unit: Unit, subject: int) -> str:
    value = unit.code.values[unit.root(subject)]
    return str(value.data[1]) if value.op == "param" else variable_or_link(unit, subject)


def _choices(unit: Unit, subject: int) -> frozenset[str]:
    """The texts with which a function compares a value."""
    values, found = unit.code.values, set[str]()
    for test in _tests(unit, subject):
        for operand in values[test].args:
            held = values[unit.root(operand)]
            parts = held.args if held.op in ("tuple", "list", "set") else (unit.root(operand),)
            found.update(
                values[each].data for each in parts if values[each].op == "const" and isinstance(values[each].data, str)
            )
    return frozenset(found)


def _tests(unit: Unit, subject: int) -> list[int]:
    """The comparisons of a value with texts."""
    values, root = unit.code.values, unit.root(subject)
    rows = ((n, value) for n, value in enumerate(values) if value.op == "compare" and value.data in ("Eq", "In"))
    return [n for n, value in rows if unit.root(value.args[0]) == root or unit.root(value.args[1]) == root]


def _passes_others(unit: Unit, subject: int) -> bool:
    """Whether what has none of the texts with which a value is compared, one after the other, comes to no `else`."""
    root, function = unit.root(subject), node_of(unit)
    tests = {unit.at(unit.code.values[n].at) for n in _tests(unit, root)}
    chained = [each for each in ast.walk(function) if isinstance(each, ast.If)] if function is not None else []
    asked = [each for each in chained if unit.module.source_text.at(each.test) in tests]
    inner = {id(each.orelse[0]) for each in asked if len(each.orelse) == 1}
    chains = [_chain(each) for each in asked if id(each) not in inner]
    return any(
        len(chain) > 1 and not chain[-1].orelse and set(map(id, chain)) <= set(map(id, asked)) for chain in chains
    )


def _chain(node: ast.If) -> list[ast.If]:
    """A condition and those that are asked where it does not hold."""
    found = [node]
    while len(found[-1].orelse) == 1 and isinstance(found[-1].orelse[0], ast.If):
        found.append(found[-1].orelse[0])
    return found


def _refuses_others(unit: Unit, subject: int) -> bool:
    """Whether what has none of the texts with which a value is compared ends in an error."""
    blocks, tests = unit.code.blocks, set(_tests(unit, subject))
    ends = {n: block.end for n, block in enumerate(blocks) if block.end[0] == "branch" and block.end[1] in tests}
    for n in ends:
        seen, here = set[int](), n
        while here not in seen:
            seen.add(here)
            end = blocks[here].end
            if end[0] == "raise":
                return True
            if end[0] == "jump":
                here = end[1]
            elif here in ends:
                here = end[3]
    return False
