"""Which members the objects of a library's class have, class by class, in any of its releases.

One table for each library, read off its releases by `tests/library_members.py`; grammar at the head of each. A class
that is not in them, or that has such a class above it, may give any.
"""

from __future__ import annotations

import os
import sys
from functools import cache

# By the first word of a dotted name the table in which it is; the standard library has one of its own.
_TABLES = {
    "torch": "torch", "transformers": "transformers", "trl": "trl", "accelerate": "accelerate", "peft": "peft",
    "deepspeed": "deepspeed", "datasets": "datasets", "pytorch_lightning": "pytorch_lightning",
    "lightning_fabric": "pytorch_lightning",
}  # fmt: skip
_PYTHON = "python"
_KEEPING = frozenset({_PYTHON, "torch"})  # what their classes have had they still have, but for these
_CHANGING = ("torch.nn.parallel.", "torch.distributed.")
_SAME = {"lightning.pytorch.": "pytorch_lightning.", "lightning.fabric.": "lightning_fabric."}  # under another name
# By table the libraries that set attributes on objects of classes of others, which they are made to work with.
_HANDLING = {
    "torch": ("transformers", "trl", "accelerate", "peft", "deepspeed", "datasets", "pytorch_lightning"),
    "transformers": ("trl", "accelerate", "peft", "deepspeed"),
    "accelerate": ("transformers", "trl", "peft"),
    "peft": ("transformers", "trl", "accelerate"),
    "deepspeed": ("transformers", "trl", "accelerate", "pytorch_lightning"),
    "datasets": ("transformers", "trl"),
}  # fmt: skip

# By class what its library puts in the place of an object that somebody has made: `fully_shard(module)` replaces the
# parameters of a module, as `parallelize_module` and `distribute_module` do.
_REPLACED = {"torch.nn.parameter.Parameter": "torch.distributed.tensor.DTensor"}


class Classes:
    """The table of one library."""

    def __init__(self, library: str) -> None:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "releases", f"{library}.txt")
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        first = lines[0].partition("read off ")[2].split(" ", 1)[0].split(".")
        self.first = tuple(int(part) for part in first)  # the oldest release that was read
        rows = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
        self.outside = frozenset(rows.pop("*").split())  # what the library sets on objects of others
        self._rows = rows

    def homes(self, name: str) -> list[str]:
        """Where the classes are defined that a dotted name means, in one release or another."""
        return self._rows.get(f"={name}", name).split()

    def own(self, home: str) -> tuple[list[str], list[str]] | None:
        """The bases of a class, and the members that it gives itself."""
        row = self._rows.get(home)
        if row is None:
            return None
        bases, _, members = row[1:].partition(")")
        return bases.split(), members.split()


@cache
def members_of(name: str) -> frozenset[str] | None:
    """All that objects of a class have, but for what other code sets on them; None where that is not known."""
    lineage = _lineage(name)
    return frozenset(each for members in lineage.values() for each in members) if lineage is not None else None


@cache
def known_since(name: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The libraries that define a class and those above it, each with the oldest release of which the members are
    known; without classes that lose none."""
    homes = (home for home in _lineage(name) or {} if home.startswith(_CHANGING) or _table_of(home) not in _KEEPING)
    tables = {table for home in homes if (table := _table_of(home)) is not None}
    return tuple((table, _load(table).first) for table in sorted(tables))


@cache
def set_outside(name: str) -> frozenset[str]:
    """What objects of a class may have beside its members: what libraries set on objects that are not their own, and
    what stands in their place later."""
    replacing = (members_of(_REPLACED[home]) or () for home in _lineage(name) or {} if home in _REPLACED)
    own = {table for home in _lineage(name) or {} if (table := _table_of(home)) is not None}
    handling = own.union(*(_HANDLING.get(each, ()) for each in own))
    return frozenset().union(*(_load(each).outside for each in handling), *replacing)


@cache
def may_descend(name: str, other: str) -> bool:
    """Whether a class is another, or may be below it; true where not all that is above it is known."""
    lineage, path = _lineage(name), _spelled(other)
    table = _table_of(path)
    return lineage is None or not lineage.keys().isdisjoint((path, *(_load(table).homes(path) if table else ())))


@cache
def _lineage(name: str) -> dict[str, list[str]] | None:
    """The own members of a class and of all above it, by home; None where one of them is not known."""
    found: dict[str, list[str]] = {}
    waiting, seen = [_spelled(name)], set[str]()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        table = _table_of(each)
        homes = _load(table).homes(each) if table is not None else []
        waiting += (home for home in homes if home != each)
        own = _load(table).own(each) if table is not None else None
        if own is not None:
            found[each] = own[1]
            waiting += own[0]
        elif each in homes or not homes:
            return None
    return found


def _spelled(name: str) -> str:
    """The name in the tables: without the brackets of a generic class, a builtin with its module."""
    path = name.removesuffix("[]")
    for prefix, instead in _SAME.items():
        if path.startswith(prefix):
            return instead + path.removeprefix(prefix)
    return path if "." in path else f"builtins.{path}"


def _table_of(name: str) -> str | None:
    head = name.partition(".")[0]
    return _TABLES.get(head) or (_PYTHON if head in sys.stdlib_module_names else None)


@cache
def _load(library: str) -> Classes:
    return Classes(library)
