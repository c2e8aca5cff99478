"""The names that objects of libraries have: who asks an unknown object for one of them may mean a library's."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from validator.files.tables import load_toml

# By list in the table the packages of which it is, where that is not its name.
_PACKAGES = {
    "named_tuple": ("python",), "module": ("python",), "transformers_4": ("transformers",),
    "gymnasium": ("gymnasium", "gym"), "lightning": ("lightning", "pytorch_lightning"),
}  # fmt: skip


@cache
def of_libraries() -> frozenset[str]:
    """Names of members of builtins and of the classes that training code holds, and inherits from, most."""
    return frozenset(" ".join((*_table()["members"].values(), *_table()["kept"].values())).split())


@cache
def _having() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for library, names in (*_table()["members"].items(), *_table()["kept"].items()):
        for name in names.split():
            found.setdefault(name, set()).update(_PACKAGES.get(library, (library,)))
    return {name: frozenset(packages) for name, packages in found.items()}


def packages_having(name: str) -> frozenset[str]:
    """The packages among these whose objects have a name; `python` for Python's own."""
    return _having().get(name, frozenset())


@cache
def listed() -> frozenset[str]:
    """The bases of libraries whose public members are listed one by one."""
    return frozenset(_table()["listed"])


@cache
def of_base(base: str) -> frozenset[str]:
    """The public names that objects have from such a base."""
    table = _table()
    return frozenset(table["members"][table["listed"][base]].split())


def is_telling(name: str) -> bool:
    """Whether a name is one that a project gives: of several words, and of no object of a known library."""
    special = name.startswith("__") and name.endswith("__")
    return not special and len([word for word in name.split("_") if word]) > 1 and name not in of_libraries()


def is_known(base: str) -> bool:
    """Whether the names of all members are known that a class of a library gives to those that inherit from it."""
    path = base.removesuffix("[]")
    above = [path[:end] for end, letter in enumerate(path) if letter == "."]
    if path in _known("classes") or any(each in _known("modules") for each in above[-1:]):
        return True
    return any(each in _known("packages") for each in above)


def dispatched(base: str, name: str) -> bool:
    """Whether a class of a library calls methods of a name that it puts together (`visit_Call`)."""
    starts = _table()["dispatched"].get(base.removesuffix("[]").partition(".")[0], "").split()
    return name.startswith(tuple(starts))


def called_by(name: str) -> str:
    """The module of a library of which code asks for something wherever methods of a name are called; empty if any."""
    return str(_table()["called_by"].get(name, ""))


def is_wrapping(decorator: str) -> bool:
    """Whether a decorator of a library only gives back the function, or one around it."""
    paths = _table()["wrapping"]["paths"].split()
    return any(f"{decorator}.".startswith(f"{path}.") for path in paths)


@cache
def _known(kind: str) -> frozenset[str]:
    return frozenset(_table()["bases"][kind].split())


@cache
def _table() -> dict[str, dict[str, Any]]:
    return load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "members.toml"))
