"""At which level of a recipe code asks for a key: of which section, by the ways it takes to it.

`config.pop("lightning").get("trainer").get("precision", 32)` asks for `lightning.trainer.precision` of `config`. What
that is, no flow tells where a library reads the file. Then the keys tell that are asked of the same thing in the same
file of code: it is the section that has most of them, if that is one and the same in all recipes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from validator.analysis.options.namespaces import Namespaces
from validator.analysis.recipes.key_reads import asked_of, key_of, owner_of
from validator.analysis.recipes.recipes import Links, Recipes
from validator.definitions import Module
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.values.text_origins import text_origins
from validator.flow.values import NONE_OBJ
from validator.project import Project

_OF_PROJECT = frozenset({"inst", "self", "class"})
_MADE_HERE = frozenset({"dict", "list", "tuple", "const", "set", "module", "func", "seq"})  # and no part of a file
_TOLD_BY = 2  # keys asked of one thing that make it a section


class Way(NamedTuple):
    """What something is asked of at last (`root`: a variable, a call, an attribute), and the keys that lead from there
    to the section that is meant."""

    root: Place
    links: Links


class Asked(NamedTuple):
    """A place where code asks for a key, and the ways to the section of which it asks."""

    place: Place
    name: str
    ways: tuple[Way, ...]
    has_default: bool


class AskedLevels:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)
        self.recipes = project.analysis(Recipes)
        self.namespaces = project.analysis(Namespaces)
        self._asking: dict[str, tuple[Asked, ...]] = {}
        self._ways: dict[Place, tuple[Way, ...]] = {}
        self._bases: dict[Any, Links | None] = {}
        self._paths: dict[tuple[Any, Module], frozenset[Links]] = {}

    @cached_property
    def with_default(self) -> frozenset[str]:
        """The keys of recipes that code asks for somewhere and goes on with a default."""
        mentions = self.queries.flow.mentions
        return frozenset(
            name for name in self.recipes.names if any(self._is_tried(u, name) for u in mentions.units(name))
        )

    def _is_tried(self, unit: Unit, name: str) -> bool:
        if is_aside(unit.path):
            return False
        texts = (place for place in self.queries.values(unit, "const") if place.value.data == name)
        return any(_tries(user, text) for text in texts for user in text.users)

    def asking(self, name: str) -> tuple[Asked, ...]:
        """Where code asks for a key, but of what is surely no section."""
        known = self._asking.get(name)
        if known is None:
            known = self._asking[name] = tuple(self._all(name))
        return known

    def levels(self, asked: Asked) -> tuple[frozenset[Links], bool]:
        """The sections, by their paths from the top of a recipe, that are asked for a key; and whether those are all
        that may be meant."""
        found, whole = set(), True
        for way in asked.ways:
            base = self.base(way.root, asked.name)
            if base is None:
                whole = False
            else:
                found.add((*base, *way.links))
        return frozenset(found), whole

    def may_ask(self, asked: Asked, section: Links) -> bool:
        """Whether a place may ask a section for its key."""
        for way in asked.ways:
            base = self.base(way.root, asked.name)
            if base is None and section[len(section) - len(way.links) :] == way.links:
                return True
            if base is not None and (*base, *way.links) == section:
                return True
        return False

    def base(self, root: Place, name: str) -> Links | None:
        """Which section of recipes a thing is, as all keys but one tell that it is asked for; None where that is not
        known."""
        key = (*_identity(root), name)
        if key not in self._bases:
            company = frozenset(path for path in self._company(root) if path[-1] != name)
            self._bases[key] = self.recipes.section_with(company, _TOLD_BY)
        return self._bases[key]

    def _company(self, root: Place) -> frozenset[Links]:
        """The keys, with those that lead to them, that the file of code asks of a thing."""
        module, key = root.unit.module, _identity(root)
        if (key, module) not in self._paths:
            rows: dict[Any, set[Links]] = {}
            for unit in self.queries.flow.whole_units(module):
                for read in self.queries.values(unit, "attr", "item", "call"):
                    owner = owner_of(read) if key_of(read) in self.recipes.names else None
                    for way in self.ways(owner) if owner is not None and not read.is_called else ():
                        rows.setdefault(_identity(way.root), set()).add((*way.links, key_of(read)))
            for other, paths in rows.items():
                self._paths[other, module] = frozenset(paths)
            self._paths.setdefault((key, module), frozenset())
        return self._paths[key, module]

    # -- places --------------------------------------------------------------------------------------------

    def _all(self, name: str) -> Iterator[Asked]:
        for unit in self.queries.flow.mentions.units(name):
            for place in self.queries.values(unit, "attr", "const"):
                yield from self._at(place, name)

    def _at(self, place: Place, name: str) -> Iterator[Asked]:
        if place.value.op == "attr" and place.value.data == name and not place.is_called:
            yield from self._asked(place, place.operand(0), name, has_default=False)
        elif place.value.op == "const" and place.value.data == name:
            for user in place.users:
                owner = asked_of(user, place)
                if owner is not None:
                    yield from self._asked(user, owner, name, has_default=_tries(user, place))
                elif not _puts(user, place):
                    yield Asked(place, name, (Way(place, ()),), has_default=False)  # of what, nobody knows
        elif place.value.op == "const" and str(place.value.data).endswith(f".{name}"):
            yield Asked(
                place, name, (Way(place, ()),), has_default=False
            )  # `OmegaConf.select(config, "trainer.steps")`

    def _asked(self, place: Place, owner: Place, name: str, has_default: bool) -> Iterator[Asked]:
        ways = self.ways(owner)
        if ways:
            yield Asked(place, name, ways, has_default)

    # -- ways ----------------------------------------------------------------------------------------------

    def ways(self, owner: Place) -> tuple[Way, ...]:
        """The ways to the section that a value is; none where it is surely none."""
        if owner not in self._ways:
            self._ways[owner] = ()  # in a circle
            self._ways[owner] = tuple(dict.fromkeys(self._led(owner)))
        return self._ways[owner]

    def _led(self, place: Place) -> Iterator[Way]:
        for origin in text_origins(place, _is_read):
            here = origin.place.root
            if _is_read(here):
                owner = owner_of(here)
                assert owner is not None
                yield from (Way(way.root, (*way.links, key_of(here))) for way in self.ways(owner))
            elif not any(map(self._is_no_section, (place, origin.place, here))):
                yield Way(here, ())

    def _is_no_section(self, place: Place) -> bool:
        """Whether a value was made by code, is an object of the project or what a parser gives."""
        if place.value.op in _MADE_HERE or self.namespaces.held(place):
            return True
        kinds = {o[0] for o in place.closed.objs if o != NONE_OBJ}
        return bool(kinds) and (not kinds.isdisjoint(_OF_PROJECT) or kinds <= _MADE_HERE)


def _tries(user: Place, key: Place) -> bool:
    """Whether something that looks up a key goes on where there is none."""
    if asked_of(user, key) is None:
        return False
    if user.value.op == "compare":
        return True
    least = {"get": 0, "hasattr": 0, "pop": 3, "getattr": 4}.get(user.method if user.value.op == "call" else "")
    return least is not None and len(user.value.args) >= least


def _puts(user: Place, key: Place) -> bool:
    """Whether something is put under a key."""
    if user.value.op == "store_item":
        return user.value.args[1] == key.number and user.value.args[2:] != (key.number,)
    return user.value.op == "dict" and key.number in user.value.args[::2]


def _is_read(place: Place) -> bool:
    """Whether a value is what stands under a key, and not what an object of the project or a module has."""
    owner = owner_of(place) if key_of(place) else None
    if owner is None or place.unit.is_receiver(owner.root.number):
        return False
    return not any(o[0] in (*_OF_PROJECT, "module") for o in owner.closed.each)


def _identity(root: Place) -> tuple[Any, ...]:
    """The same of all reads of one attribute in one class; else the place."""
    unit: Unit = root.unit
    if root.value.op == "attr" and unit.cls is not None and unit.is_receiver(root.operand(0).root.number):
        return unit.cls, root.value.data
    return unit, root.number
