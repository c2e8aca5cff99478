"""The oldest Python that a file must run on: the lower bound its own project declares.

Read from the nearest folder upwards that says so: `requires-python` in pyproject.toml (or Poetry's `python`),
`python_requires` in setup.cfg or setup.py, `Requires-Python` in the metadata of an unpacked wheel.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from validator.files.reading import regular
from validator.project import Project

_DECLARED = {
    "pyproject.toml": re.compile(r"^\s*(?:requires-python|python)\s*=\s*[\"']([^\"']+)[\"']", re.M),
    "setup.cfg": re.compile(r"^\s*python_requires\s*=\s*([^\n#]+)", re.M),
    "setup.py": re.compile(r"\bpython_requires\s*=\s*[\"']([^\"']+)[\"']"),
    "METADATA": re.compile(r"^Requires-Python:\s*(.+)$", re.M),
}
_LOWER = re.compile(r"(?:>=|~=|==|\^|~)\s*3\.([0-9]{1,4})")
_MARKERS = (".git", ".hg")  # a checkout ends here


class Bound(NamedTuple):
    """Python 3.`minor` is the oldest that `file` (absolute path) promises to support."""

    minor: int
    file: str


class OldestPython:
    """Answers by folder, remembered."""

    def __init__(self, project: Project) -> None:
        configured = getattr(project.config, "target_version", None)
        source = getattr(project.config, "source", "")
        self._configured = Bound(configured[1], source) if configured and source else None
        self._known: dict[str, Bound | None] = {}

    def of(self, path: str) -> Bound | None:
        """The bound that holds for a file given by its absolute path."""
        return self._configured or self._folder(os.path.dirname(path))

    def _folder(self, folder: str) -> Bound | None:
        if folder not in self._known:
            self._known[folder] = None
            parent = os.path.dirname(folder)
            found = _declared_in(folder)
            if (
                found is None
                and parent != folder
                and not any(os.path.exists(os.path.join(folder, m)) for m in _MARKERS)
            ):
                found = self._folder(parent)
            self._known[folder] = found
        return self._known[folder]


def _declared_in(folder: str) -> Bound | None:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None
    files = [name for name in _DECLARED if name in names]
    files += [f"{name}/METADATA" for name in names if name.endswith(".dist-info")]
    for name in files:
        path = os.path.join(folder, name)
        try:
            text = regular(path, 200_000).decode("utf-8", "replace")
        except OSError:
            continue
        declared = _DECLARED[os.path.basename(name)].search(text)
        if declared and (lower := _LOWER.search(declared[1])):
            return Bound(int(lower[1]), path)
    return None
