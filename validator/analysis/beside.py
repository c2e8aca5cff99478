"""What lies beside the code of a project and is not read as a part of it: notebooks, make files, images, pages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

from validator.files import naming
from validator.files.reading import regular
from validator.project import Project

_SUFFIXES = (".ipynb", ".md", ".rst", ".txt", ".cfg", ".ini", ".mk", ".bat", ".ps1")
_COMPILED = (".c", ".cc", ".cpp", ".cxx", ".cu", ".rs", ".h", ".hpp", "cmakelists.txt")
_NAMES = ("makefile", "dockerfile", "justfile", "jenkinsfile")
_MOST_FILES = 5_000
_LONGEST = 4_000_000  # bytes of one: notebooks hold pictures


class Beside:
    """Answers for one project, remembered: they read files, and are for who is about to report something."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def sources(self) -> tuple[bytes, ...]:
        """What is compiled: sources of other languages."""
        return tuple(self._read(_COMPILED, ()))

    @cached_property
    def texts(self) -> tuple[bytes, ...]:
        """What the files hold."""
        return tuple(self._read(_SUFFIXES, _NAMES))

    @cached_property
    def pages(self) -> tuple[tuple[str, bytes], ...]:
        """The pages, by their path (absolute)."""
        return tuple(self._rows((".md",), ()))

    def _read(self, suffixes: tuple[str, ...], names: tuple[str, ...]) -> Iterator[bytes]:
        return (text for _, text in self._rows(suffixes, names))

    def _rows(self, suffixes: tuple[str, ...], names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
        for path in self._paths:
            name = os.path.basename(path).lower()
            if name.endswith(suffixes) or names and name.startswith(names):
                with suppress(OSError):
                    yield path, regular(path, _LONGEST)

    def names(self, word: str) -> bool:
        """Whether one of the files has a word."""
        return any(re.search(rb"\b%b\b" % re.escape(word.encode()), text) for text in self.texts)

    @cached_property
    def _paths(self) -> tuple[str, ...]:
        """The files below the folder that holds all that is read, with the packages in it."""
        folders = {os.path.dirname(source.absolute) for source in self.project.files.values()}
        folders |= {naming.locate(path).root for path in self.project.modules}
        top = os.path.commonpath(folders) if folders else ""
        found: list[str] = []
        for folder, inside, names in os.walk(top) if top != os.path.dirname(top) else ():
            inside[:] = sorted(name for name in inside if not name.startswith(".") and name != "node_modules")
            found += (os.path.join(folder, name) for name in sorted(names))
            if len(found) > _MOST_FILES:
                break
        return tuple(found)
