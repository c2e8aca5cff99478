"""Which files are no part of the program: shown to people, measured with, or somebody else's."""

from __future__ import annotations

import re
from functools import cache

from validator.files.programs import ProgramPath, foreign_folder, is_called_test, is_in_tests

# Not `scripts`, `tools` and `examples`: many projects keep the programs there that people train with.
_FOLDERS = frozenset({
    "benchmark", "benchmarks", "bench", "demo", "demos", "doc", "docs", "tutorial", "tutorials", "notebooks",
    "manim_animations", "ci", "docker", "legacy", "deprecated",
})  # fmt: skip
_BY_HAND = frozenset({"example", "examples", "script", "scripts", "tool", "tools"})

# Words in the name of a folder that is kept as it was, and is not meant to run any more.
_KEPT = frozenset({"archive", "archived", "archives", "attic", "deprecated", "obsolete"})


def is_foreign(path: str) -> bool:
    """Whether a file is a copy of somebody else's code. One of the project's own among these is none."""
    return _is_among_copies(path) and not isinstance(path, ProgramPath)


@cache
def is_archived(path: str) -> bool:
    """Whether a file lies in a folder that says of itself that it is of the past."""
    return any(not _KEPT.isdisjoint(re.split(r"[^a-z]+", folder.lower())) for folder in path.split("/")[:-1])


def is_aside(path: str) -> bool:
    """Whether a file is a test, a demonstration, a benchmark or somebody else's code."""
    return _is_shown(path) or is_test(path) or is_foreign(path)


def is_by_hand(path: str) -> bool:
    """Whether a file is one of `is_aside`, or of those that somebody runs by hand on files of their own."""
    return not _BY_HAND.isdisjoint(path.split("/")[:-1]) or is_aside(path)


def is_test(path: str) -> bool:
    """Whether a file belongs to the tests of a project. A program of this name is not one (`mark_programs`)."""
    return _is_in_tests(path) or (_is_called_test(path) and not isinstance(path, ProgramPath))


@cache
def _is_shown(path: str) -> bool:
    *folders, name = path.split("/")
    return not _FOLDERS.isdisjoint(folders) or name == "setup.py"


@cache
def _is_among_copies(path: str) -> bool:
    return foreign_folder(path) >= 0


_is_in_tests = cache(is_in_tests)
_is_called_test = cache(is_called_test)
