"""Subclasses that a change of their base left behind: overrides with the old parameters, and methods that they must
define since they became abstract."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import ClassDef, Method
from validator.drift.change import Change
from validator.drift.interfaces.calls import Site, misfit, sites
from validator.drift.interfaces.signatures import outline
from validator.drift.statements.drops import Drops
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.models.members import of_libraries


class LeftOverride(NamedTuple):
    """An override with the parameters that its base had before, and a call that fits only the base."""

    override: Method
    base: Method
    site: Site
    text: str


class LeftAbstract(NamedTuple):
    """A class that is made somewhere although a method that it inherits is abstract since the change."""

    cls: ClassDef
    method: Method
    site: Site


class Unhooked(NamedTuple):
    """A method that nothing calls since the change; `base`: what it overrode, `renamed`: what is called now."""

    method: Method
    base: Method | None
    renamed: str


class Subclasses:
    """The subclasses that a change left behind."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after

    @cached_property
    def _methods(self) -> list[tuple[Method, Method]]:
        """The methods of changed files before and after."""
        found = []
        for old, new in self.change.modules:
            if old is None or new is None or is_foreign(new.path):
                continue
            for qualname, method in old.functions.items():
                other = new.functions.get(qualname)
                if other is not None and method.cls is not None and other.cls is not None:
                    found.append((method, other))
        return found

    @cached_property
    def overrides(self) -> list[LeftOverride]:
        found: list[LeftOverride] = []
        for old, new in self._methods:
            if old.name == "__init__" or outline(old.facts.params) == outline(new.facts.params) or new.cls is None:
                continue
            kin = [cls.methods[new.name] for cls in new.cls.descendants() if new.name in cls.methods]
            same = [each for each in kin if outline(each.facts.params) == outline(old.facts.params)]
            if same:
                found += self._refusing(new, same)
            others = [each for each in kin if each not in same and self._fitted(old, each)]
            found += self._refusing(new, others, within=True) if others else ()
        return found

    def _fitted(self, old: Method, override: Method) -> bool:
        """Whether all calls that reached the base before reached an override that took them."""
        before = next((m for m in self.change.before.methods.get(old.name, ()) if _is_same(m, override)), None)
        calls = [site for site in sites(self.change.before, old.name) if old in site.reached and site.how != "text"]
        own = [site for site in calls if before in site.reached]
        return before is not None and bool(own) and all(misfit(self.change.before, before, s) == "" for s in own)

    def _refusing(self, new: Method, overrides: list[Method], within: bool = False) -> Iterator[LeftOverride]:
        """`within`: only by calls in classes of the family."""
        seen: set[Method] = set()
        for site in sites(self.after, new.name):
            if within and (site.unit.cls is None or new.cls not in site.unit.cls.relatives):
                continue
            if not site.bound:
                continue  # `Base.make(…)` means that of the base
            if new not in site.reached or site.how == "text" or misfit(self.after, new, site) != "":
                continue
            for override in overrides:
                if override in seen or override not in site.reached:
                    continue
                text = misfit(self.after, override, site)
                if text:
                    seen.add(override)
                    yield LeftOverride(override, new, site, text)

    @cached_property
    def unhooked(self) -> list[Unhooked]:
        """Methods under a name that nothing calls now: overrides of what a change took out of their base or renamed
        there, and those of other classes whose callers it sent to another name."""
        found: dict[tuple[str, str], Unhooked] = {}
        for old, new in self.change.classes:
            for name, method in old.methods.items():
                if name in new.methods or name.startswith("__") or is_test(old.path) or new.find(name) is not None:
                    continue
                heirs = [cls.methods[name] for cls in new.descendants() if name in cls.methods]
                if heirs and not self._is_asked(name):
                    found.update({(heir.path, heir.qualname): Unhooked(heir, method, "") for heir in heirs})
        for old_name, new_name in self._redirected.items():
            if self._is_asked(old_name):
                continue
            for method in self.after.methods.get(old_name, ()):
                if method.cls is None or old_name in of_libraries() and set(method.cls.external_bases) - {"object"}:
                    continue  # a library may call it
                if method.cls.find(new_name) is None:
                    found.setdefault((method.path, method.qualname), Unhooked(method, None, new_name))
        for method, old_name in self._renamed_alone:
            found.setdefault((method.path, method.qualname), Unhooked(method, None, old_name))
        return [each for each in found.values() if not is_test(each.method.path) and not is_foreign(each.method.path)]

    @cached_property
    def _renamed_alone(self) -> list[tuple[Method, str]]:
        """Overrides that have a name now for which nobody asks, with their old one, under which others still reach the
        base: `collate_fn`, where the loader takes the `collater` of whatever data set it is given."""
        found = []
        for was, now in self.change.classes:
            gone, added = was.methods.keys() - now.methods.keys(), now.methods.keys() - was.methods.keys()
            for old_name, new_name in itertools.product(sorted(gone), sorted(added)):
                if _body(was.methods[old_name]) != _body(now.methods[new_name]) or self._is_asked(new_name):
                    continue
                of_library = old_name in of_libraries() and bool(set(now.external_bases) - {"object"})
                if of_library or now.find(old_name) is not None and self._is_asked(old_name):
                    found.append((now.methods[new_name], old_name))
        return found

    @cached_property
    def _redirected(self) -> dict[str, str]:
        """By name of a method that was called the one that the same places call now."""
        found: dict[str, set[str]] = {}
        for drop in self.change.analysis(Drops).drops:
            old, new = drop.old, drop.new
            if drop.kind != "name" or not isinstance(old, ast.Attribute) or not isinstance(new, ast.Attribute):
                continue
            if ast.dump(old.value) == ast.dump(new.value) and self._is_renamed(old.attr, new.attr):
                found.setdefault(old.attr, set()).add(new.attr)
        for name, now in self._told_otherwise:
            found.setdefault(name, set()).add(now)
        return {name: next(iter(now)) for name, now in found.items() if len(now) == 1}

    @cached_property
    def _told_otherwise(self) -> list[tuple[str, str]]:
        """The names of methods that are put together of a text (`getattr(callback, f"on_{event}")`), which the change
        exchanged where it is passed, and of which nothing has the old one any more."""
        texts = {
            (str(drop.old.value), str(drop.new.value))
            for drop in self.change.analysis(Drops).drops
            if drop.kind == "text" and isinstance(drop.old, ast.Constant) and isinstance(drop.new, ast.Constant)
        }
        found = []
        for was, now in self.change.classes:
            for old in was.methods.keys() - now.methods.keys():
                for text, instead in texts:
                    new = old.replace(text, instead, 1)
                    formed = text and text in old and text != old and new in now.methods.keys() - was.methods.keys()
                    if formed and not self._is_asked(text) and self._is_renamed(old, new):
                        found.append((old, new))
        return found

    def _is_renamed(self, old: str, new: str) -> bool:
        """Whether some class of a changed file had a method under the one name and has it under the other."""
        return any(
            old in was.methods and new not in was.methods and new in now.methods and old not in now.methods
            for was, now in self.change.classes
        )

    def _is_asked(self, name: str) -> bool:
        """Whether anything but tests, and functions of that very name, speaks of it."""
        return any(
            row.role in ("asks", "spells", "tries") and not is_test(row.path) and not _is_within(row.unit, name)
            for row in self.after.occurrences(name)
        )

    @cached_property
    def abstract(self) -> list[LeftAbstract]:
        found = []
        for old, new in self._methods:
            if old.facts.is_abstract or not new.facts.is_abstract or new.cls is None:
                continue
            for cls in (new.cls, *new.cls.descendants()):
                if cls.find(new.name) is new and (site := self._making(cls)) is not None:
                    found.append(LeftAbstract(cls, new, site))
        return found

    def _making(self, cls: ClassDef) -> Site | None:
        """A call that makes an object of the class."""
        return next((site for site in sites(self.after, cls.name) if site.sure and cls in site.reached), None)


def _is_within(unit: Unit | None, name: str) -> bool:
    """Whether a place stands in a function of a name: one that hands its call on to others of it."""
    while unit is not None and unit.name != name:
        unit = unit.outer
    return unit is not None


def _body(method: Method) -> list[str]:
    """The lines of a method behind the one with its name."""
    return method.module.source.lines[method.facts.name_at[0] : method.facts.at[2]]


def _is_same(one: Method, other: Method) -> bool:
    return one.path == other.path and one.qualname == other.qualname
