"""Which oldest version of a package a project admits, by what it declares beside its code."""

from __future__ import annotations

import os
import re

from validator.files.reading import regular
from validator.project import Project

_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "requirements/requirements.txt")
_MARKERS = (".git", ".hg")  # a checkout ends here
_LONGEST = 400_000

Version = tuple[int, ...]


class Requirements:
    """Answers by folder, remembered."""

    def __init__(self, project: Project) -> None:
        self._known: dict[tuple[str, str], Version | None] = {}

    def oldest(self, package: str, path: str) -> Version | None:
        """The lower bound that holds for a file (absolute path); None where nothing says any."""
        return self._folder(package, os.path.dirname(path))

    def _folder(self, package: str, folder: str) -> Version | None:
        key = (package, folder)
        if key not in self._known:
            found = next(
                (v for name in _FILES if (v := _declared(package, os.path.join(folder, name))) is not None), None
            )
            parent = os.path.dirname(folder)
            ends = parent == folder or any(os.path.exists(os.path.join(folder, m)) for m in _MARKERS)
            self._known[key] = found if found is not None or ends else self._folder(package, parent)
        return self._known[key]


def _declared(package: str, path: str) -> Version | None:
    """The smallest lower bound in one file: `torch>=2.4`, `torch==2.9.1`, `torch = "^2.4"`."""
    try:
        text = regular(path, _LONGEST).decode("utf-8", "replace")
    except OSError:
        return None
    pattern = (
        rf"(?:^|[\"'\s]){re.escape(package)}(?:\[[^\]]*\])?\s*(?:=\s*[\"'])?\s*(?:>=|==|~=|\^|>)\s*"
        r"v?([0-9]{1,9}(?:\.[0-9]{1,9})*)"
    )
    versions = [tuple(map(int, found.split("."))) for found in re.findall(pattern, text, re.MULTILINE)]
    return min(versions, default=None)
