"""The names that objects of libraries have: who asks an unknown object for one of them may mean a library's."""

from __future__ import annotations

import os
from functools import cache

from validator.tables import load_toml


@cache
def of_libraries() -> frozenset[str]:
    """Names of members of builtins and of the classes that training code holds, and inherits from, most."""
    return frozenset(name for names in (*_table()["members"].values(), *_table()["kept"].values()) for name in names)


def is_known(library: str) -> bool:
    """Whether the names are known that the classes of a library have from which programs inherit."""
    return library in _table()["kept"] or library in ("abc", "typing", "enum", "object")


@cache
def _table() -> dict[str, dict[str, list[str]]]:
    return load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "members.toml"))
