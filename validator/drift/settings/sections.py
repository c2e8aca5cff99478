"""Sections of settings as nested classes: `reward.buffer.size=8` sets `size` of the class of which `buffer` is a field.

A dataclass whose fields are dataclasses gives each of them a path; recipes and command lines spell it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from validator.definitions import ClassDef
from validator.drift.change import Side
from validator.flow.annotations import classes_of, declared
from validator.flow.queries.outside_program import is_test


class Sections:
    """The classes that stand below the names of fields, in one revision."""

    def __init__(self, side: Side) -> None:
        self.project = side.project

    @cached_property
    def _fields(self) -> dict[str, dict[ClassDef, set[ClassDef]]]:
        """By name of a field: the classes that hold objects in it, with those of the objects."""
        found: dict[str, dict[ClassDef, set[ClassDef]]] = {}
        for module in self.project.modules.values():
            for holder in module.classes.values() if not is_test(module.path) else ():
                for name, annotation in holder.facts.attributes:
                    held = classes_of(declared(self.project, module.top, annotation)) if annotation else ()
                    if held:
                        found.setdefault(name, {}).setdefault(holder, set()).update(held)
        return found

    def below(self, path: Iterable[str]) -> tuple[frozenset[ClassDef], int]:
        """The classes whose fields stand below a path, and how many of its last links lead there from one to the
        next."""
        links = [link for link in path if not link.isdigit()]
        for start in range(len(links)):
            if found := self._led_to(links[start:]):
                return found, len(links) - start
        return frozenset(), 0

    def _led_to(self, links: list[str]) -> frozenset[ClassDef]:
        """The classes at the end of a chain of fields."""
        found: frozenset[ClassDef] | None = None
        for link in links:
            rows = self._fields.get(link, {})
            holders = [holder for holder in rows if found is None or any(holder in cls.relatives for cls in found)]
            found = frozenset(held for holder in holders for held in rows[holder])
        return found or frozenset()
