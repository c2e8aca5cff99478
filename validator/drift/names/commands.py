"""Commands that a program writes as texts, and that pages show, with options that what they start has no longer.

`os.system(f"python evaluate.py --lora_weights {path}")` and `["python", "evaluate.py", "--lora_weights", path]` start a
program of the project with options, as a script of the shell does, and whoever runs what a page shows.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cached_property

from validator.analysis.commands.command_line import CommandLines, strict
from validator.analysis.commands.programs import Programs
from validator.definitions import Module
from validator.drift.change import Change
from validator.drift.names.occurrences import Occurrence
from validator.drift.names.removed import Lost, Names
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test

_FLAG = re.compile(r"--([A-Za-z][\w-]*)(?:=.*)?", re.DOTALL)
_GIVEN = frozenset({"option", "field"})
_HOLE = "{}"


class Commands:
    """The options that commands in texts still pass, and which their program lost."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after

    @cached_property
    def lost(self) -> list[Lost]:
        gone = {name: row for name, row in self._gone.items() if not is_test(row.path)}
        found = []
        for name, row in sorted(gone.items()):
            stale = (*self._passing(name, row), *self._shown(name, row))
            if stale:
                renamed = self.change.analysis(Names).renamed(row)
                found.append(Lost(name, "option", row, renamed.name if renamed else "", renamed, stale))
        return found

    @cached_property
    def _gone(self) -> dict[str, Occurrence]:
        """The options that files which changed define no longer."""
        found: dict[str, Occurrence] = {}
        for old, new in self.change.modules:
            if old is None or new is None or is_foreign(new.path):
                continue
            now = self.after.of_file(new.source)
            for name, rows in self.change.before.of_file(old.source).items():
                was = next((row for row in rows if _is_given(row)), None)
                if was is not None and not any(map(_is_given, now.get(name, ()))):
                    found[name] = was
        return found

    def _passing(self, name: str, lost: Occurrence) -> Iterator[Occurrence]:
        """The commands that pass an option to a program which had it and has it no longer."""
        for source in self.after.mentioning(name):
            module = self.after.project.modules.get(source.absolute)
            if module is None or is_test(source.path) or is_foreign(source.path):
                continue
            for unit in self.after.units(module).values():
                for number, words in _commands(unit):
                    started = self._started(module, words)
                    if started is not None and name in started[1] and self._has_lost(started[0], name, lost):
                        at = unit.at(unit.code.values[number].at)
                        yield Occurrence(name, "sets", "flag", unit, number, unit.path, at)

    def _shown(self, name: str, lost: Occurrence) -> Iterator[Occurrence]:
        """The commands in pages that do, where the parser of the program would refuse the option."""
        for launch, line in self.after.project.analysis(CommandLines).shown:
            if launch.module is None or launch.parser is None or not strict(launch.parser):
                continue
            given = next((g for g in line.given if g.is_unknown and name in _flags([g.flag.text])), None)
            if given is not None and self._has_lost(launch.module, name, lost):
                place = given.flag.place
                at = (place.line, place.column, place.line, max(given.flag.end, place.column + 1))
                yield Occurrence(name, "sets", "flag", None, -1, launch.path, at)

    def _started(self, module: Module, words: list[str]) -> tuple[Module, frozenset[str]] | None:
        """The file of the project that a command starts, and the options that it gives it."""
        for place, word in enumerate(words):
            path = f"{word.replace('.', '/')}.py" if words[:place][-1:] == ["-m"] else word
            if not path.endswith(".py") or _HOLE in path:
                continue
            tail = posixpath.normpath(path).lstrip("./")
            files = [each for each in self.after.project.modules.values() if f"/{each.path}".endswith(f"/{tail}")]
            beside = [each for each in files if posixpath.dirname(each.path) == posixpath.dirname(module.path)]
            for each in files if len(files) == 1 else beside:
                return each, _flags(words[place + 1 :])
        return None

    def _has_lost(self, program: Module, name: str, lost: Occurrence) -> bool:
        """Whether an option was one of a program, and nothing in its files defines it now."""
        parts = list(self.after.project.analysis(Programs).modules(program))
        if all(each.path != lost.path for each in parts):
            return False
        return not any(map(_is_given, (row for each in parts for row in self.after.of_file(each.source).get(name, ()))))


def _is_given(row: Occurrence) -> bool:
    return row.role == "defines" and row.kind in _GIVEN


def _flags(words: list[str]) -> frozenset[str]:
    matches = (_FLAG.fullmatch(word) for word in words)
    return frozenset(match[1].replace("-", "_") for match in matches if match)


def _commands(unit: Unit) -> Iterator[tuple[int, list[str]]]:
    """The texts of a unit, and its lists of texts, as words: what is put into them is a hole."""
    for number, value in enumerate(unit.code.values):
        if value.op in ("list", "tuple"):
            yield number, [_text(unit, each) for each in value.args]
        elif value.op in ("const", "join", "binary") and not _is_part(unit, number):
            words = _text(unit, number).split()
            if len(words) > 1:
                yield number, words


def _is_part(unit: Unit, number: int) -> bool:
    """Whether a text is a piece of a longer one."""
    users = (unit.code.values[user] for user in unit.users.get(number, ()))
    return any(user.op in ("join", "list", "tuple") or user.op == "binary" and user.data == "Add" for user in users)


def _text(unit: Unit, number: int) -> str:
    value = unit.code.values[unit.root(number)]
    if value.op == "const" and isinstance(value.data, str):
        return value.data
    if value.op == "join" or value.op == "binary" and value.data == "Add":
        return "".join(_text(unit, each) for each in value.args)
    return _HOLE
