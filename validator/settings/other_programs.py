"""Files that programs of others read, whose formats a table tells: a job of a cluster, a service of containers."""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

from validator.files.tables import load_toml
from validator.settings.sections import Section


class Format(NamedTuple):
    """The keys that a file takes at the top, and those that its sections take, where these are known."""

    keys: frozenset[str]
    sections: dict[str, frozenset[str]]

    def fits(self, root: Section) -> bool:
        """Whether a file has no key that the format does not have."""
        inner = all(
            section.keys.keys() <= self.sections.get(name, section.keys.keys()) for name, section in root.inside.items()
        )
        return root.keys.keys() <= self.keys and inner


def is_of_other_program(root: Section) -> bool:
    """Whether a whole file is in the format of a program that is none of the project's."""
    return any(each.fits(root) for each in _formats())


@cache
def _formats() -> tuple[Format, ...]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "other_programs.toml")
    rows = load_toml(path)["format"]
    sections = [{name: frozenset(keys) for name, keys in row.get("sections", {}).items()} for row in rows]
    return tuple(Format(frozenset(row["keys"]), inner) for row, inner in zip(rows, sections, strict=True))
