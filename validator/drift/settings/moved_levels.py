"""Keys of recipes that a change parted from the code that asks for them, at another level of the same file.

A change moves a key of a recipe into another section, and code asks for it where it was; or code asks another section
for a key since, and the recipes have it where they had it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.recipes.asked_levels import Asked, AskedLevels
from validator.analysis.recipes.key_reads import KeyReads, asked_of
from validator.analysis.recipes.recipes import Links, Recipe, Recipes
from validator.drift.change import Change, Pair, Side
from validator.drift.settings.asked_settings import reading
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside


class Parted(NamedTuple):
    """A key, the recipe that has it, where it is there, and where code asks for it. `moved`: whether the recipe
    changed; else it was code."""

    name: str
    recipe: Recipe
    found: Links
    wanted: Links
    asked: Place
    moved: bool


class MovedLevels:
    """The keys that one change parted from code."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.recipes = [side.project.analysis(Recipes) for side in (change.before, change.after)]
        self.asked = [side.project.analysis(AskedLevels) for side in (change.before, change.after)]

    @cached_property
    def parted(self) -> list[Parted]:
        return [*self._by_recipes(), *self._by_code()]

    # -- a recipe changed ----------------------------------------------------------------------------------

    def _by_recipes(self) -> Iterator[Parted]:
        before, after = ({each.source.absolute: each for each in side.all} for side in self.recipes)
        for path in self.change.changed:
            old, new = before.get(path), after.get(path)
            for name in new.homes if old is not None and new is not None else ():
                if old is not None and new is not None and self._is_moved(name, old, new):
                    yield from self._left(name, new, old.homes[name][0], new.homes[name][0])

    def _is_moved(self, name: str, old: Recipe, new: Recipe) -> bool:
        """Whether a change took a key with its value from one section, which is still there, into another one."""
        was, now = old.homes.get(name, []), new.homes[name]
        if len(was) != 1 or len(now) != 1 or was == now or was[0] not in new.sections or name in new.interpolated:
            return False
        return old.setting(was[0], name).value == new.setting(now[0], name).value

    def _left(self, name: str, recipe: Recipe, was: Links, now: Links) -> Iterator[Parted]:
        """The place that asks for a moved key where it was, if the change has nothing ask for it where it is."""
        if any(now in each.homes.get(name, ()) for each in self.recipes[0].all):
            return  # as others have it
        rows = self.asked[1].asking(name)
        if self._is_read_anew(name) or any(now in self.asked[1].levels(row)[0] for row in rows):
            return
        others = [each for each in self.recipes[1].all if each is not recipe and was in each.homes.get(name, ())]
        sure = [row for row in rows if was in self.asked[1].levels(row)[0]]
        likely = [row for row in rows if self.asked[1].may_ask(row, was) and not is_aside(row.place.unit.path)]
        if sure and (others or not any(self.asked[1].may_ask(row, now) for row in rows)):
            yield Parted(name, recipe, now, was, sure[0].place, moved=True)
        elif others and likely and name not in self.change.after.project.analysis(KeyReads).taken:
            yield Parted(name, recipe, now, was, likely[0].place, moved=True)

    def _is_read_anew(self, name: str) -> bool:
        """Whether a function that the change altered asks for a key."""
        changed = {pair.new for pair in self.change.pairs}
        units = {row.unit for row in reading(self.change.after, name) if row.unit is not None}
        return bool(units & changed) or any(self.change.before.twin(unit) is None for unit in units)

    # -- code changed --------------------------------------------------------------------------------------

    def _by_code(self) -> Iterator[Parted]:
        seen: set[tuple[Unit, str]] = set()
        for pair in self.change.pairs if self.recipes[1].all else ():
            for name in self._asked_otherwise(pair) if not is_aside(pair.new.path) else ():
                for old, new in self._exchanged(pair, name):
                    found = self._in_recipes(name, old, new)
                    if found is not None and (pair.new, name) not in seen:
                        seen.add((pair.new, name))
                        yield found

    def _asked_otherwise(self, pair: Pair) -> list[str]:
        """The keys of recipes that a changed function asks of something else than before, as it is written."""
        old, new = self._written(self.change.before, pair.old), self._written(self.change.after, pair.new)
        return sorted(name for name in old.keys() & new.keys() if old[name] != new[name])

    def _written(self, side: Side, unit: Unit) -> dict[str, list[str]]:
        """By key of a recipe what a function asks for it, as it is written."""
        found: dict[str, list[str]] = {}
        for place in side.project.analysis(Queries).values(unit, "attr", "const"):
            name = place.value.data
            if isinstance(name, str) and name in self.recipes[1].names:
                for user in [place] if place.value.op == "attr" else place.users:
                    owner = place.operand(0) if user is place else asked_of(user, place)
                    if owner is not None:
                        found.setdefault(name, []).append(owner.text)
        return found

    def _exchanged(self, pair: Pair, name: str) -> Iterator[tuple[Asked, Asked]]:
        """A place of before the change and one of after it, of which one asks another section than the other."""
        old, new = (
            [row for row in asked.asking(name) if row.place.unit is unit and len(row.ways) == 1]
            for asked, unit in zip(self.asked, (pair.old, pair.new), strict=True)
        )
        kept = {row.ways[0].links for row in old} & {row.ways[0].links for row in new}
        gone, came = ([row for row in rows if row.ways[0].links not in kept] for rows in (old, new))
        if len(gone) == len(came) == 1 and not kept:
            yield gone[0], came[0]

    def _in_recipes(self, name: str, old: Asked, new: Asked) -> Parted | None:
        """A recipe that has a key where code asked for it before, if none has it where it asks now, and nothing else
        asks for it where it is."""
        having = self.recipes[1].having.get(name, ())
        was = [(each, home) for each in having for home in each.homes[name] if self._is_asked(0, old, home)]
        if not was or any(self._is_asked(1, new, home) for each in having for home in each.homes[name]):
            return None
        recipe, found = was[0]
        wanted = [section for section in recipe.sections if self._is_asked(1, new, section)]
        others = (row for row in self.asked[1].asking(name) if row.place != new.place)
        if len(wanted) != 1 or any(self.asked[1].may_ask(row, found) for row in others):
            return None
        return Parted(name, recipe, found, wanted[0], new.place, moved=False)

    def _is_asked(self, side: int, asked: Asked, section: Links) -> bool:
        """Whether a place is seen to ask a section: by what it is, or by the keys that lead there."""
        return (bool(asked.ways[0].links) or bool(self.asked[side].levels(asked)[0])) and self.asked[side].may_ask(
            asked, section
        )
