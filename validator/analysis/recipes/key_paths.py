"""Texts in recipes that are paths of keys of the same file, without anything around them that says so.

`mapping: {train.ckpt: flow.params.ckpt_path}`: code takes such texts for `OmegaConf.select` and `OmegaConf.update`.
That they are such paths, the others tell that stand in the same section of any recipe: nearly all lead to keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.recipes.recipes import Links, Recipe, Recipes
from validator.facts.model import At
from validator.project import Project

_TOLD_BY = 3  # texts that lead somewhere for each one that does not


class KeyPath(NamedTuple):
    """A text, where it stands in a recipe, and the path that it says."""

    recipe: Recipe
    at: At
    where: Links
    links: Links

    @property
    def leads(self) -> bool:
        return self.links in self.recipe.rows


class LedAstray(NamedTuple):
    """A path that leads nowhere, the one key of its last name that its first section has, and how many others beside
    it lead to keys."""

    path: KeyPath
    meant: Links
    others: int


def led_astray(project: Project) -> Iterator[LedAstray]:
    by_section: dict[tuple[str, Links], list[KeyPath]] = {}
    for recipe in project.analysis(Recipes).all:
        for kind, row in _paths(recipe):
            by_section.setdefault((kind, row.where[:-1]), []).append(row)
    for rows in by_section.values():
        lost = [row for row in rows if not row.leads]
        others = len(rows) - len(lost)
        for row in lost if others >= _TOLD_BY * len(lost) else ():
            meant = _meant(row)
            if len(meant) == 1:
                yield LedAstray(row, meant[0], others)


def _paths(recipe: Recipe) -> Iterator[tuple[str, KeyPath]]:
    """The keys and values of a recipe that look like a path into one of its own sections, and which of both each is."""
    for where, setting in recipe.rows.items():
        for kind, text, at in (("key", where[-1], setting.at), ("value", setting.value, setting.value_at)):
            links = tuple(text.split(".")) if isinstance(text, str) else ()
            if len(links) > 1 and links[:1] in recipe.sections and all(link.isidentifier() for link in links):
                yield kind, KeyPath(recipe, at, where, links)


def _meant(path: KeyPath) -> list[Links]:
    """The keys below the same first section that are called like the last link of a path."""
    homes = path.recipe.homes.get(path.links[-1], ())
    return [(*home, path.links[-1]) for home in homes if home[:1] == path.links[:1]]
