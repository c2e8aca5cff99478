"""Keys of recipes that stand at another level than the one where code asks for them.

Code asks a section for a key, and goes on with a default where it is not there; the recipe has it in another section,
in which nothing asks for it. That the two belong together, one of three things tells: siblings of the recipe have the
key where code asks for it, and never where this one has it; all recipes have it in one section, and no code asks for
it there; this recipe alone has it, and the name is one of several words that no parameter or field has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.recipes.asked_levels import Asked, AskedLevels
from validator.analysis.recipes.key_reads import KeyReads
from validator.analysis.recipes.recipes import Links, Recipe, Recipes
from validator.files.languages import CONFIGURATION, language
from validator.flow.queries.base import Place, Queries
from validator.project import Project

_SEVERAL = 2  # recipes that tell where a key belongs


class OtherLevel(NamedTuple):
    """A key, where recipes have it, and where code asks for it. `siblings`: those that have it where code asks for it;
    `is_code`: whether it is code that is alone, against all recipes."""

    name: str
    recipes: tuple[Recipe, ...]
    found: Links
    asked: Asked
    wanted: Links
    siblings: tuple[Recipe, ...] = ()
    is_code: bool = False


class OtherLevels:
    """Those of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.recipes = project.analysis(Recipes)
        self.asked = project.analysis(AskedLevels)

    @cached_property
    def all(self) -> tuple[OtherLevel, ...]:
        names = self.asked.with_default if len(self.recipes.all) > 1 else ()
        return tuple(row for name in sorted(names) for row in self._of(name) if not self._is_set_elsewhere(row))

    def _of(self, name: str) -> Iterator[OtherLevel]:
        having = self.recipes.having[name]
        if any(name in recipe.interpolated for recipe in having):
            return
        homes = {home for recipe in having for home in recipe.homes[name]}
        whole = [recipe for recipe in having if self.recipes.is_whole(recipe)]
        if len(homes) == 1 and len(whole) == len(having):
            yield from self._against_all(name, homes.pop(), having)
        for recipe in whole if len(homes) > 1 else ():
            if len(recipe.homes[name]) == 1:
                yield from self._against_siblings(name, recipe)

    def _against_all(self, name: str, found: Links, having: tuple[Recipe, ...]) -> Iterator[OtherLevel]:
        """A key that all recipes which have it have in one section, and for which code asks another one."""
        rows = self.asked.asking(name)
        if any(self.asked.may_ask(row, found) for row in rows):
            return
        tried = [(asked, *self.asked.levels(asked)) for asked in rows if asked.has_default]
        sure = [
            (asked, levels)
            for asked, levels, whole in tried
            if whole and all(each.sections.keys() >= levels for each in having)
        ]
        for asked, levels in sure if sure and self._is_out_of_reach(name, found, len(having)) else ():
            yield OtherLevel(name, having, found, asked, min(levels), is_code=len(having) >= _SEVERAL)

    def _is_out_of_reach(self, name: str, found: Links, count: int) -> bool:
        """Whether nothing takes a key of a section but who asks for it by its name: the code that takes the section
        leaves the others in it; or where no code takes it, nothing in the project has such a name."""
        if found and count >= _SEVERAL:
            return not self.project.analysis(KeyReads).goes_away(found)
        return self._is_own(name)

    def _against_siblings(self, name: str, recipe: Recipe) -> Iterator[OtherLevel]:
        """A key that siblings of a recipe have in the section that is asked for it, and it alone has in another one."""
        (found,) = recipe.homes[name]
        siblings = [each for each in self.recipes.siblings(recipe) if name in each.homes]
        wanted = {home for each in siblings for home in each.homes[name]}
        if len(wanted) != 1 or found in wanted or not recipe.is_alike(found, siblings):
            return
        (level,) = wanted
        rows = self.asked.asking(name) if level in recipe.sections else ()
        if any(found in self.asked.levels(row)[0] for row in rows):
            return
        if len(siblings) < _SEVERAL and not self._is_for_these(name, rows, found):
            return
        for asked in rows:
            if asked.has_default and level in self.asked.levels(asked)[0]:
                yield OtherLevel(name, (recipe,), found, asked, level, tuple(siblings))
                return

    def _is_for_these(self, name: str, rows: tuple[Asked, ...], found: Links) -> bool:
        """Whether nothing but the places that ask for a key of several words may take it, and none of them where it
        stands."""
        return self._is_own(name) and not any(self.asked.may_ask(row, found) for row in rows)

    def _is_own(self, name: str) -> bool:
        return "_" in name and name not in self.project.analysis(KeyReads).taken

    # -- what else may set it ------------------------------------------------------------------------------

    def _is_set_elsewhere(self, row: OtherLevel) -> bool:
        """Whether code or a script puts the key where code asks for it."""
        return self._is_in_scripts(row) or any(map(self._may_be_section, self._stores(row.name)))

    def _is_in_scripts(self, row: OtherLevel) -> bool:
        word = ".".join((*row.wanted[-1:], row.name)).encode()
        sources = self.project.files.values()
        return any(word in each.data for each in sources if language(each.path) not in (*CONFIGURATION, "python"))

    def _stores(self, name: str) -> Iterator[Place]:
        queries = self.project.analysis(Queries)
        for unit in queries.flow.mentions.units(name):
            for store in queries.values(unit, "store_attr", "store_item"):
                key = store.value.data if store.value.op == "store_attr" else store.operand(1).root.value.data
                if key == name:
                    yield store

    def _may_be_section(self, store: Place) -> bool:
        return not store.unit.is_receiver(store.operand(0).root.number) and bool(self.asked.ways(store.operand(0)))
