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
from validator.flow.queries.outside_program import is_test

_NAME = re.compile(r"(?<![\w$])[A-Za-z_]\w*")
_WITH_DEFAULT = ("-", ":-", "=", ":=", "+", ":+", "?", ":?")  # the script reckons with a variable that is not set
_READING = frozenset({"read", "mapfile", "readarray", "getopts", "declare", "local", "typeset"})
_LIKE = 0.75  # of the letters of two names
_TAKING_OVER = frozenset({"source", "."})


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
        for path in self.change.changed:
            sources = [side.by_absolute.get(path) for side in (self.change.before, self.change.after)]
            before, after = (each.facts.extra.get("script") if each is not None else None for each in sources)
            if before is None or after is None or sources[1] is None or is_test(sources[1].path):
                continue
            gone, came = _set_in(before) - _set_in(after), _set_in(after) - _set_in(before)
            read_before, read = _read_in(before), _read_in(after)
            for name in sorted(gone & read_before.keys() & read.keys() - self._set_elsewhere(sources[1].path, after)):
                new = next((each for each in sorted(came) if _are_near(name, each)), "")
                if new and new in read:
                    found.append(LostInScript(sources[1].path, name, read[name][0], tuple(read[name][1:]), new))
        return found

    def _set_elsewhere(self, path: str, script: Script) -> frozenset[str]:
        """The variables that another script exports, which may start this one; where this one reads others, all that
        they set."""
        rows = ((each.path, each.facts.extra.get("script")) for each in self.change.after.project.files.values())
        others = [other for where, other in rows if other is not None and where != path]
        if any(isinstance(each, Command) and _first(each) in _TAKING_OVER for each in script.every()):
            return frozenset(name for other in others for name in _set_in(other))
        assigns = (each for other in others for each in parts(other) if isinstance(each, Assign))
        return frozenset(each.name for each in assigns if each.keyword == "export")


def _are_near(one: str, other: str) -> bool:
    """Whether two names differ by few letters, or one has a word more."""
    return SequenceMatcher(None, one.lower(), other.lower()).ratio() >= _LIKE


def _first(command: Command) -> str:
    """The first word of a command."""
    return "".join(piece.value for piece in command.words[0].pieces) if command.words else ""


def _set_in(script: Script) -> frozenset[str]:
    """The variables that a script sets, by whatever statement."""
    found = {each.name for each in parts(script) if isinstance(each, Assign)}
    for each in script.every():
        if isinstance(each, For):
            found.add(each.name)
        elif isinstance(each, Command) and each.words:
            if _first(each) in _READING:
                found.update("".join(piece.value for piece in word.pieces) for word in each.words[1:])
            found.update(assign.name for assign in each.assigns)
    return frozenset(found)


def _read_in(script: Script) -> dict[str, list[At]]:
    """The variables that a script reads without a word for the case that nothing sets them, with their places."""
    found: dict[str, list[At]] = {}
    tested = {
        piece.value
        for each in script.every()
        if isinstance(each, Command) and each.words and each.words[0].pieces[:1] and _is_test(each.words[0])
        for word in each.words
        for piece in _pieces(word.pieces)
    }
    words = [each for each in parts(script) if isinstance(each, Word)]
    for piece in (each for word in words for each in _pieces(word.pieces)):
        if piece.kind == "variable" and not piece.operator.startswith(_WITH_DEFAULT):
            found.setdefault(piece.value, []).append(_at(piece, 0, max(piece.width, 1)))
        elif piece.kind == "arithmetic" and "\n" not in piece.value:
            for match in _NAME.finditer(piece.value):
                found.setdefault(match[0], []).append(_at(piece, 0, max(piece.width, 1)))
    return {name: places for name, places in found.items() if name not in tested}


def _is_test(word: Word) -> bool:
    return word.pieces[0].value in ("[", "[[", "test")


def _pieces(pieces: tuple[Piece, ...]) -> Iterator[Piece]:
    for piece in pieces:
        yield piece
        yield from _pieces(piece.operand)


def _at(piece: Piece, start: int, width: int) -> At:
    return (piece.line, piece.column + start, piece.line, piece.column + start + width)
