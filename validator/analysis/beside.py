"""What lies beside the code of a project and is not read as a part of it: notebooks, make files, images, pages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

from validator.files.reading import regular
from validator.project import Project

_SUFFIXES = (".ipynb", ".md", ".rst", ".txt", ".cfg", ".ini", ".mk", ".bat", ".ps1")
_NAMES = ("makefile", "dockerfile", "justfile", "jenkinsfile")
_MOST_FILES = 5_000
_LONGEST = 4_000_000  # bytes of one: notebooks hold pictures


class Beside:
    """Answers for one project, remembered: they read files, and are for who is about to report something."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def texts(self) -> tuple[bytes, ...]:
        """What the files hold."""
        found = []
        for path in self._paths():
            with suppress(OSError):
                found.append(regular(path, _LONGEST))
        return tuple(found)

    def names(self, word: str) -> bool:
        """Whether one of the files has a word."""
        return any(re.search(rb"\b%b\b" % re.escape(word.encode()), text) for text in self.texts)

    def _paths(self) -> Iterator[str]:
        folders = {os.path.dirname(source.absolute) for source in self.project.files.values()}
        top = os.path.commonpath(folders) if folders else ""
        count = 0
        for folder, inside, names in os.walk(top) if top != os.path.dirname(top) else ():
            inside[:] = sorted(name for name in inside if not name.startswith(".") and name != "node_modules")
            for name in sorted(names):
                count += 1
                if name.lower().endswith(_SUFFIXES) or name.lower().startswith(_NAMES):
                    yield os.path.join(folder, name)
            if count > _MOST_FILES:
                return
