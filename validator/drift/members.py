"""The names that objects of libraries have: who asks an unknown object for one of them may mean a library's."""

from __future__ import annotations

import os
from functools import cache

from validator.tables import load_toml


@cache
def of_libraries() -> frozenset[str]:
    """Names of public members of builtins and of the classes that training code holds most."""
    table = load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "members.toml"))
    return frozenset(name for names in table["members"].values() for name in names)
