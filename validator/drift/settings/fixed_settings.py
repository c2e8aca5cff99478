"""Settings that a file left to the arguments of a program (`"auto"`), and that it states itself since a change, while
scripts that name the file still give the argument another value.

Such scripts are often started from a folder that nothing in them tells; which file they mean is told by the end of the
path, and by what lies nearest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.commands.launch import Launch, Launches
from validator.analysis.options.training_arguments import SAME_IN_FILE
from validator.drift.change import Change
from validator.facts.config_files import Setting, settings_of
from validator.flow.queries.outside_program import is_test
from validator.source import SourceFile

_LEFT = "auto"
_NAMING = "--deepspeed"


class Fixed(NamedTuple):
    """A setting that is stated now; `given`: the scripts that give another value, with the line and that value."""

    path: str
    setting: Setting
    argument: str
    given: tuple[tuple[str, int, str], ...]


class FixedSettings:
    """The settings that a change fixed; asked for with `change.analysis(FixedSettings)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Fixed]:
        found: list[Fixed] = []
        for old, new in self.change.settings_files:
            before = {each.path: each.value for each in settings_of(old).settings}
            for setting in settings_of(new).settings:
                if before.get(setting.path) == _LEFT and type(setting.value) in (int, float):
                    for argument in SAME_IN_FILE.get(setting.path, ()):
                        given = tuple(self._given(new, setting, argument))
                        found += [Fixed(new.path, setting, argument, given)] if given else []
        return found

    def _given(self, source: SourceFile, setting: Setting, argument: str) -> Iterator[tuple[str, int, str]]:
        """The launches that name a file and give an argument another number."""
        for launch in self.change.after.project.analysis(Launches).all:
            words = [each.text if each.known else "" for each in launch.arguments]
            if launch.parser is not None or is_test(launch.path) or self._named(launch, words) is not source:
                continue  # of a program that is known the comparison of both is made without a change
            flag = f"--{argument}"
            place = words.index(flag) + 1 if flag in words else len(words)
            if place < len(words) and _number(words[place]) not in (None, setting.value):
                yield launch.path, launch.arguments[place].place.line, words[place]

    def _named(self, launch: Launch, words: list[str]) -> SourceFile | None:
        """The file that a launch names; of several whose paths end so the one that lies nearest."""
        place = words.index(_NAMING) + 1 if _NAMING in words else len(words)
        tail = os.path.normpath(words[place]).lstrip("/.") if place < len(words) else ""
        script = self.change.after.project.files.get(launch.path)
        if "/" not in tail or script is None:
            return None
        files = self.change.after.project.files.values()
        rows = [(_common(each.absolute, script.absolute), each) for each in files if each.absolute.endswith(f"/{tail}")]
        best = [each for near, each in rows if near == max(row[0] for row in rows)]
        return best[0] if len(best) == 1 else None


def _common(one: str, other: str) -> int:
    """How many folders two files have in common."""
    return len(os.path.commonpath([one, other]).split("/"))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
