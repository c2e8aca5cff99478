"""The recipes of a project: its files of settings that are made like others, with the paths of their keys."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from validator.facts.config_files import Setting, Settings
from validator.files.languages import language
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.project import Project
from validator.source import SourceFile

Links = tuple[str, ...]
_LANGUAGES = ("yaml", "json", "toml")
_COMPOSED = "defaults"  # the key of a file that is laid over others


class Recipe:
    """One file: its keys by their paths, without what stands in lists."""

    def __init__(self, source: SourceFile, rows: dict[Links, Setting]) -> None:
        self.source = source
        self.rows = rows
        self.sections: dict[Links, set[str]] = {(): set()}
        self.homes: dict[str, list[Links]] = {}  # by key the sections that have it
        for path in rows:
            self.sections.setdefault(path[:-1], set()).add(path[-1])
            self.homes.setdefault(path[-1], []).append(path[:-1])

    def setting(self, section: Links, name: str) -> Setting:
        path = (*section, name)
        return self.rows[path]

    def is_like(self, other: Recipe) -> bool:
        """Whether most keys at the top are those of another one."""
        mine, theirs = self.sections[()], other.sections[()]
        return len(mine & theirs) > 1 and 2 * len(mine & theirs) >= len(mine | theirs)

    def is_alike(self, section: Links, others: Iterable[Recipe]) -> bool:
        """Whether one of the others has a section too, of which no text says that it is of another kind, nor of what it
        is a part of: `type: sgd`."""
        return any(section in other.sections and self._kinds(section) == other._kinds(section) for other in others)

    def _kinds(self, section: Links) -> set[Links]:
        """The texts in a section and those around it, but the top, with their keys."""
        around = [section[:end] for end in range(1, len(section) + 1)]
        paths = ((*each, name) for each in around for name in self.sections.get(each, ()))
        return {(*path, text) for path in paths if isinstance(text := self.rows[path].value, str)}

    @cached_property
    def interpolated(self) -> frozenset[str]:
        """The words that stand in interpolations: `${model.name}`."""
        texts = (row.value for row in self.rows.values() if isinstance(row.value, str))
        inside = (part.partition("}")[0] for text in texts for part in text.split("${")[1:])
        return frozenset(word for path in inside for word in path.split("."))


class Recipes:
    """Those of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def all(self) -> tuple[Recipe, ...]:
        sources = (each for each in self.project.files.values() if language(each.path) in _LANGUAGES)
        found = (recipe_of(each) for each in sources if not is_test(each.path) and not is_foreign(each.path))
        return tuple(sorted((each for each in found if each is not None), key=lambda each: each.source.path))

    @cached_property
    def names(self) -> frozenset[str]:
        """The keys of all recipes."""
        return frozenset(self.having)

    @cached_property
    def having(self) -> dict[str, tuple[Recipe, ...]]:
        """By key the recipes that have it, at whatever level."""
        found: dict[str, list[Recipe]] = {}
        for recipe in self.all:
            for name in recipe.homes:
                found.setdefault(name, []).append(recipe)
        return {name: tuple(rows) for name, rows in found.items()}

    def is_whole(self, recipe: Recipe) -> bool:
        """Whether a program is given what is written in a file: it is no part of a configuration of several files."""
        folders = f"{posixpath.dirname(recipe.source.path)}/"
        return "<<" not in recipe.homes and not any(folders.startswith(above) for above in self._composed)

    @cached_property
    def _composed(self) -> frozenset[str]:
        """The folders of the files that name others to be laid over."""
        return frozenset(
            f"{posixpath.dirname(each.source.path)}/" for each in self.all if _COMPOSED in each.sections[()]
        )

    def siblings(self, recipe: Recipe) -> list[Recipe]:
        """The others that are made like one."""
        return [each for each in self.all if each is not recipe and recipe.is_like(each)]

    def section_with(self, paths: frozenset[Links], least: int) -> Links | None:
        """The one section that has most of some paths of keys, and at least a few, in the recipes that have most of
        them; None where none does, or not the same in all."""
        counted = [_sections_with(paths, each) for each in self._having_any(paths)]
        most = max((max(each.values(), default=0) for each in counted), default=0)
        found: set[Links] = set()
        for each in counted if most >= least else ():
            here = max(each.values(), default=0)
            if here >= least and 2 * here > most:
                found.update(section for section, count in each.items() if count == here)
        return found.pop() if len(found) == 1 else None

    def _having_any(self, paths: frozenset[Links]) -> list[Recipe]:
        return list({id(each): each for path in paths for each in self.having.get(path[-1], ())}.values())


def _sections_with(paths: frozenset[Links], recipe: Recipe) -> Counter[Links]:
    """How many of some paths of keys lead on from each section of a recipe."""
    return Counter(
        home[: len(home) + 1 - len(path)]
        for path in paths
        for home in recipe.homes.get(path[-1], ())
        if home[len(home) + 1 - len(path) :] == path[:-1]
    )


def recipe_of(source: SourceFile) -> Recipe | None:
    """The recipe in a file; None where nothing stands under keys there."""
    settings: Settings = source.facts.extra.get("settings", Settings())
    rows = {each.path: each for each in settings.settings if not any(link.isdigit() for link in each.path)}
    return Recipe(source, rows) if rows else None
