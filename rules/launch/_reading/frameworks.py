"""Which options of which programs mean which quantity: `flags.toml`, read once."""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "flags.toml")


@dataclass(frozen=True)
class Framework:
    """A kind of program. `switches`: per quantity, the value that the presence of an option means."""

    name: str
    backend: str = ""
    programs: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()
    kin: tuple[frozenset[str], ...] = ()
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    products: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    absent: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unrelated: tuple[str, ...] = ()

    def options(self, quantity: str) -> tuple[str, ...]:
        """The names that a quantity, a setting of plans or a switch has had, without dashes."""
        tables: tuple[Mapping[str, Iterable[str]], ...] = (self.flags, self.switches, self.plan, self.keys)
        names = [name.lstrip("-") for table in tables for name in table.get(quantity, ())]
        return tuple(dict.fromkeys(names))

    def all_options(self) -> frozenset[str]:
        """All names that the table has."""
        quantities = {*self.flags, *self.switches, *self.plan, *self.keys}
        factors = {name.lstrip("-") for product in self.products.values() for factor in product for name in factor}
        return frozenset(name for quantity in quantities for name in self.options(quantity)) | factors

    def is_of(self, program: str, options: Iterable[str]) -> bool:
        """Whether a program is of this kind: by its name, or by an option that it is given.

        `program` is a module (`openrlhf.cli.train_sft`) or a path to one, in whatever folder it lies.
        """
        if any(fnmatch.fnmatchcase(name, pattern) for name in _names(program) for pattern in self.programs):
            return True
        return not self.marks.isdisjoint(options)


def _names(program: str) -> Iterator[str]:
    """The names that a program may have: a path is a module below any of its folders."""
    yield program
    if program.endswith(".py"):
        parts = program.removesuffix(".py").split("/")
        for start in range(len(parts)):
            yield ".".join(parts[start:])


@lru_cache(maxsize=1)
def frameworks() -> tuple[Framework, ...]:
    """All of them, in the order of the file: the first that fits is meant."""
    with open(_FILE, "rb") as file:
        rows = tomllib.load(file)["framework"]
    return tuple(_framework(row) for row in rows)


def named(name: str) -> Framework:
    """The framework of a configuration file."""
    return next(each for each in frameworks() if each.name == name)


def _framework(row: dict[str, Any]) -> Framework:
    switches = {
        quantity: dict.fromkeys(given, True) if isinstance(given, list) else given
        for quantity, given in row.get("switches", {}).items()
    }
    return Framework(
        name=row["name"],
        backend=row.get("backend", ""),
        programs=tuple(row.get("programs", ())),
        marks=frozenset(row.get("marks", ())),
        kin=tuple(frozenset(each) for each in row.get("kin", ())),
        flags={quantity: tuple(names) for quantity, names in row.get("flags", {}).items()},
        switches=switches,
        products={q: tuple(tuple(factor) for factor in factors) for q, factors in row.get("products", {}).items()},
        keys={quantity: tuple(names) for quantity, names in row.get("keys", {}).items()},
        absent=row.get("absent", {}),
        plan={what: tuple(names) for what, names in row.get("plan", {}).items()},
        unrelated=tuple(row.get("unrelated", ())),
    )
