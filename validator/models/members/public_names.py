"""Which public names the modules of libraries have, in any of the releases that were read.

One table for each library, read off its releases by `tests/library_names.py`; grammar at the head of each. A module
that is not in them may have any.
"""

from __future__ import annotations

import itertools
import os
from functools import cache

from validator.files.tables import load_toml

LIBRARIES = frozenset({
    "torch", "transformers", "trl", "accelerate", "peft", "deepspeed", "datasets", "pytorch_lightning",
})  # fmt: skip
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "modules")


class Names:
    """The table of one library."""

    def __init__(self, library: str) -> None:
        with open(os.path.join(_FOLDER, f"{library}.txt"), encoding="utf-8") as file:
            lines = file.read().replace("\n ", " ").splitlines()
        rows = dict(line.split(": ", 1) for line in lines if ": " in line and not line.startswith("#"))
        words = rows.pop("releases").split()
        self.library = library
        self.releases = tuple((int(major), int(minor)) for major, _, minor in (each.partition(".") for each in words))
        self._rows = rows
        self._added = tuple(load_toml(os.path.join(_FOLDER, "added.toml")).get(library, {}).get("backends", ()))

    @property
    def is_gapless(self) -> bool:
        """Whether every minor release between the first and the last was read."""
        return all(b in ((a[0], a[1] + 1), (a[0] + 1, 0)) for a, b in itertools.pairwise(self.releases))

    @property
    def modules(self) -> list[str]:
        """The modules whose names are known."""
        return list(self._rows)

    def of(self, module: str) -> list[str]:
        """The names of a module; none where it may have any."""
        return self._rows.get(module, "").split()

    def like(self, module: str, name: str) -> list[str]:
        """The names of a module that may be meant by one: of about its length, with the same first letter."""
        begin = name[0].lower()
        alike = [each for each in self.of(module) if each[0].lower() == begin and abs(len(each) - len(name)) < 5]
        return sorted(alike, key=lambda each: each[0] == name[0])  # of two that differ in case alone the last is taken

    def lacks(self, module: str, name: str) -> bool:
        """Whether a module has a public name in no release, and gets it from no package for a device."""
        row = self._rows.get(module)
        if row is None or name.startswith("_") or f" {name} " in f" {row} ":
            return False
        return not any(name == each or name.startswith(f"{each}_") for each in self._added)


def first_lacking(path: str) -> tuple[str, str] | None:
    """The first part of a dotted name of a library that nothing has: its module, and the name; None where all may be
    there."""
    parts = path.split(".")
    names = table(parts[0])
    for end in range(1, len(parts)):
        owner = ".".join(parts[:end])
        if names.lacks(owner, parts[end]):
            return owner, parts[end]
    return None


@cache
def table(library: str) -> Names:
    """The table of a library."""
    return Names(library)
