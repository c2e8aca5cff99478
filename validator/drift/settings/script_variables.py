"""Variables of a shell script that a change renamed, and that scripts still read by their old names.

A variable that a script does not set may come from whoever starts it. So only one counts in whose place the script, or
the Python file that starts scripts with an environment of its own, sets another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cached_property
from typing import NamedTuple

from validator.definitions import Module
from validator.drift.change import Change, Side
from validator.facts.model import At
from validator.facts.script import Assign, Command, For, Piece, Script, Word, parts
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test

_NAME = re.compile(r"(?<![\w$])[A-Za-z_]\w*")
_WITH_DEFAULT = ("-", ":-", "=", ":=", "+", ":+", "?", ":?")  # the script reckons with a variable that is not set
_READING = frozenset({"read", "mapfile", "readarray", "getopts", "declare", "local", "typeset"})
_LIKE = 0.75  # of the letters of two names
_TAKING_OVER = frozenset({"source", "."})
_TESTING = frozenset({"[", "[[", "test"})


class LostInScript(NamedTuple):
    """A variable that nothing sets since the change, where it is read, and the one that came in its place. `setter`:
    what sets that, if it is no script."""

    path: str
    name: str
    at: At
    others: tuple[At, ...]
    renamed: str
    setter: str = ""


class ScriptVariables:
    """The variables that scripts read in vain since a change."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def lost(self) -> list[LostInScript]:
        found: list[LostInScript] = []
        for old, source in self.change.settings_files:
            before, after = old.facts.extra.get("script"), source.facts.extra.get("script")
            if before is None or after is None:
                continue
            gone, came = _set_in(before) - _set_in(after), _set_in(after) - _set_in(before)
            read_before, read = _read_in(before), _read_in(after)
            for name in sorted(gone & read_before.keys() & read.keys() - self._set_elsewhere(source.path, after)):
                new = next((each for each in sorted(came) if _are_near(name, each)), "")
                if new and new in read:
                    found.append(LostInScript(source.path, name, read[name][0], tuple(read[name][1:]), new))
        return [*found, *self._of_started()]

    def _of_started(self) -> Iterator[LostInScript]:
        """Variables that a Python file hands to what it starts by other names since the change: what scripts read."""
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path):
                continue
            before, after = _given_on(self.change.before, old), _given_on(self.change.after, new)
            came = sorted(after.keys() - before.keys())
            starts = b".sh" in new.source.data or b"bash" in new.source.data
            for name in sorted(before.keys() - after.keys()) if starts else ():
                renamed = next((each for each in came if after[each] == before[name]), "")
                where = [row for row in self._asked_for if name in row[1] and renamed not in row[1]]
                if renamed and where and not self._is_set(name):
                    path, asked = where[0]
                    yield LostInScript(path, name, asked[name][0], tuple(asked[name][1:]), renamed, new.path)

    @cached_property
    def _asked_for(self) -> list[tuple[str, dict[str, list[At]]]]:
        """By script the variables that it takes from whoever starts it."""
        return [(path, _asked_for_in(script)) for path, script in self._scripts]

    @cached_property
    def _scripts(self) -> list[tuple[str, Script]]:
        files = self.change.after.project.files.values()
        rows = ((each.path, each.facts.extra.get("script")) for each in files)
        return [(path, script) for path, script in rows if script is not None and not is_test(path)]

    def _is_set(self, name: str) -> bool:
        """Whether something else may set a variable: code that has its name, a script that exports it, or names it
        where it starts something."""
        modules = self.change.after.project.modules.values()
        rows = (each for _, script in self._scripts for each in parts(script) if isinstance(each, Assign))
        exported = any(each.name == name and each.keyword == "export" for each in rows)
        words = (word.text for _, script in self._scripts for each in _commands(script) for word in each.words)
        given = any(f"{name}=" in text for text in words) or any(
            line.startswith(b"#SBATCH") and name.encode() in line
            for source in self.change.after.project.files.values()
            if source.facts.extra.get("script") is not None
            for line in source.data.splitlines()
        )
        return exported or given or any(name.encode() in each.source.data for each in modules)

    def _set_elsewhere(self, path: str, script: Script) -> frozenset[str]:
        """The variables that another script exports, which may start this one; where this one reads others, all that
        they set."""
        rows = ((each.path, each.facts.extra.get("script")) for each in self.change.after.project.files.values())
        others = [other for where, other in rows if other is not None and where != path]
        if any(command.words[0].text in _TAKING_OVER for command in _commands(script)):
            return frozenset(name for other in others for name in _set_in(other))
        assigns = (each for other in others for each in parts(other) if isinstance(each, Assign))
        return frozenset(each.name for each in assigns if each.keyword == "export")


def _given_on(side: Side, module: Module) -> dict[str, str]:
    """The variables that a file puts into an environment, its own or a copy of it that what it starts gets, with what
    it puts there."""
    found: dict[str, str] = {}
    if b"environ" not in module.source.data:
        return found
    for unit in side.units(module).values():
        values = unit.code.values
        for value in values:
            if (
                value.op == "store_item"
                and values[value.args[1]].op == "const"
                and _is_environment(unit, value.args[0])
            ):
                name, at = values[value.args[1]].data, values[value.args[2]].at
                if isinstance(name, str):
                    found[name] = unit.text(at) if at else ""
    return found


def _is_environment(unit: Unit, number: int) -> bool:
    """Whether a value is `os.environ`, or made of it: `os.environ.copy()`, `dict(os.environ)`, `{**os.environ}`."""
    value = unit.code.values[unit.root(number)]
    while value.op == "mut":
        value = unit.code.values[unit.root(value.args[0])]
    if value.op == "attr":
        return value.data == "environ" or value.data == "copy" and _is_environment(unit, value.args[0])
    return value.op in ("call", "dict") and any(each >= 0 and _is_environment(unit, each) for each in value.args)


def _asked_for_in(script: Script) -> dict[str, list[At]]:
    """The variables that a script takes from whoever starts it, with a word for the case that nothing sets them or
    without, with their places."""
    found: dict[str, list[At]] = {}
    assigns = [each for each in parts(script) if isinstance(each, Assign)]
    for word in (each for each in parts(script) if isinstance(each, Word)):
        for piece in _pieces(word.pieces):
            if piece.kind == "variable":
                found.setdefault(piece.value, []).append(_at(piece))
    kept = {each.name for each in assigns if each.value and each.name in {p.value for p in _pieces(each.value.pieces)}}
    own = {each.name for each in assigns} - kept
    return {name: places for name, places in found.items() if name not in own}


def _are_near(one: str, other: str) -> bool:
    """Whether two names differ by few letters, or one has a word more."""
    return SequenceMatcher(None, one.lower(), other.lower()).ratio() >= _LIKE


def _set_in(script: Script) -> frozenset[str]:
    """The variables that a script sets, by whatever statement."""
    found = {each.name for each in parts(script) if isinstance(each, Assign)}
    found.update(each.name for each in script.every() if isinstance(each, For))
    for command in _commands(script):
        if command.words[0].text in _READING:
            found.update(word.text for word in command.words[1:])
    return frozenset(found)


def _read_in(script: Script) -> dict[str, list[At]]:
    """The variables that a script reads without a word for the case that nothing sets them, with their places."""
    found: dict[str, list[At]] = {}
    tests = (command.words for command in _commands(script) if command.words[0].text in _TESTING)
    tested = {piece.value for words in tests for word in words for piece in _pieces(word.pieces)}
    words = [each for each in parts(script) if isinstance(each, Word)]
    for piece in (each for word in words for each in _pieces(word.pieces)):
        if piece.kind == "variable" and not piece.operator.startswith(_WITH_DEFAULT):
            found.setdefault(piece.value, []).append(_at(piece))
        elif piece.kind == "arithmetic" and "\n" not in piece.value:
            for match in _NAME.finditer(piece.value):
                found.setdefault(match[0], []).append(_at(piece))
    return {name: places for name, places in found.items() if name not in tested}


def _commands(script: Script) -> list[Command]:
    """The commands of a script that have a word."""
    return [each for each in script.every() if isinstance(each, Command) and each.words]


def _pieces(pieces: tuple[Piece, ...]) -> Iterator[Piece]:
    for piece in pieces:
        yield piece
        yield from _pieces(piece.operand)


def _at(piece: Piece) -> At:
    return (piece.line, piece.column, piece.line, piece.column + max(piece.width, 1))
