"""Variables of a shell script that a change renamed, and that the script still reads by their old names.

A variable that a script does not set may come from whoever starts it. So only one counts in whose place the script sets
another one of nearly the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change
from validator.facts.model import At
from validator.facts.script import Assign, Command, For, Piece, Script, Word, parts

_NAME = re.compile(r"(?<![\w$])[A-Za-z_]\w*")
_WITH_DEFAULT = ("-", ":-", "=", ":=", "+", ":+", "?", ":?")  # the script reckons with a variable that is not set
_READING = frozenset({"read", "mapfile", "readarray", "getopts", "declare", "local", "typeset"})
_LIKE = 0.75  # of the letters of two names
_TAKING_OVER = frozenset({"source", "."})
_TESTING = frozenset({"[", "[[", "test"})


class LostInScript(NamedTuple):
    """A variable that nothing sets since the change, where it is read, and the one that came in its place."""

    path: str
    name: str
    at: At
    others: tuple[At, ...]
    renamed: str


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
        return found

    def _set_elsewhere(self, path: str, script: Script) -> frozenset[str]:
        """The variables that another script exports, which may start this one; where this one reads others, all that
        they set."""
        rows = ((each.path, each.facts.extra.get("script")) for each in self.change.after.project.files.values())
        others = [other for where, other in rows if other is not None and where != path]
        if any(command.words[0].text in _TAKING_OVER for command in _commands(script)):
            return frozenset(name for other in others for name in _set_in(other))
        assigns = (each for other in others for each in parts(other) if isinstance(each, Assign))
        return frozenset(each.name for each in assigns if each.keyword == "export")


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
