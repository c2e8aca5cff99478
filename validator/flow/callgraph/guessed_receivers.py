"""Whose method a call on an object of which nothing is known probably runs, and whose attribute is asked of it.

A name of several words that no known library has, that methods alone bear, and that one family of classes of the
project defines: nothing else in sight can be meant. What rests on it is likely, never certain, and no rule that asks
whom a call reaches is told: it is for what happens among ranks, where a call that is not followed hides a collective.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from validator.analysis.interfaces.binding import keeps_signature, misfit
from validator.definitions import ClassDef, Method
from validator.facts.model import Argument, Call
from validator.flow.queries.outside_program import is_test
from validator.models.members import is_telling, of_libraries

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit


class GuessedReceivers:
    """The methods of one project by the names that tell them."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._families: dict[str, ClassDef | None] = {}
        self._holders: dict[str, ClassDef | None] = {}

    def methods(self, name: str) -> list[Method]:
        """The methods that a call by a name reaches, whoever is asked: all that bear one which no known library has,
        and which nothing but methods bears; none otherwise."""
        methods = self._methods.get(name, [])
        known = bool(methods) and is_telling(name) and name not in self.held  # asked of every attribute that is placed
        return methods if known and all(each.cls is not None and keeps_signature(each) for each in methods) else []

    def units(self, name: str, names: tuple[str | None, ...]) -> list[tuple[ClassDef, Unit]]:
        """The methods that a call with these arguments (their keywords, None by position) probably runs, each with the
        class whose object it is called on."""
        if name not in self._families:
            self._families[name] = self._family(name)
        family = self._families[name]
        if family is None:
            return []
        found = []
        for method in dict.fromkeys(each for each in family.find_below(name).values() if each is not None):
            unit = self.flow.unit_of(method)
            if unit is not None and method.is_method and _takes(method, names):
                found.append((family, unit))
        return found

    def holder(self, name: str) -> ClassDef | None:
        """The class whose objects probably have an attribute that is asked of an unknown object: the one family of
        the project's classes that stores it, declares it or has it as a property."""
        if name not in self._holders:
            self._holders[name] = self._holding(name)
        return self._holders[name]

    def _holding(self, name: str) -> ClassDef | None:
        owners = self._owners.get(name, ())
        if not owners:
            return None
        tops = {next(c for c in reversed(each.mro) if name in c.own_attributes) for each in owners}
        if len(tops) != 1:
            return None
        top = tops.pop()
        family = {top, *top.descendants()}
        writers = (each for each in self.flow.stores.writers(name) if not is_test(each.path))
        return top if all(writer.cls in family for writer in writers) else None

    @cached_property
    def _owners(self) -> dict[str, list[ClassDef]]:
        found: dict[str, list[ClassDef]] = {}
        for cls in self.flow.project.classes():
            for name in () if is_test(cls.path) else cls.own_attributes:
                found.setdefault(name, []).append(cls)
        return found

    def _family(self, name: str) -> ClassDef | None:
        """The class above all others that define a method of that name; None where there are several such."""
        used = [each for each in self.methods(name) if not is_test(each.path)]
        tops = {next(c for c in reversed(each.cls.mro) if name in c.methods) for each in used if each.cls is not None}
        return tops.pop() if len(tops) == 1 else None

    @cached_property
    def held(self) -> frozenset[str]:
        """Names that attributes and imports have too; those of libraries mostly are what libraries call so."""
        renamed = (row.asname for m in self.flow.project.modules.values() for row in m.facts.imports if row.asname)
        return frozenset((*(set(self.flow.stores.written) - of_libraries()), *renamed))

    @cached_property
    def _methods(self) -> dict[str, list[Method]]:
        found: dict[str, list[Method]] = {}
        for function in self.flow.project.functions():
            found.setdefault(function.name, []).append(function)
        return found


def _takes(method: Method, names: tuple[str | None, ...]) -> bool:
    """Whether a method takes as many arguments by position, and such keywords, and lacks none."""
    at = method.facts.name_at
    call = Call(method.name, tuple(Argument(name, "other", "", at) for name in names), "", (), at, at)
    return "*" in names or "**" in names or misfit(method, call) is None
