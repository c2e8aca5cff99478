"""Arguments that a change left out of a call, whose parameter has its default there now, while all other calls give it.

A parameter with a default asks no caller for anything. Where each of the others gives it, one that did so, too, and
does no longer is not what the default was made for.
"""

from __future__ import annotations

import ast
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.binding import parameters
from validator.definitions import ClassDef, Method
from validator.drift.change import Change
from validator.drift.interfaces.calls import Site, sites
from validator.drift.interfaces.now_positional import called
from validator.drift.interfaces.relied_defaults import passed_for
from validator.drift.statements.drops import Drop, Drops
from validator.drift.statements.intention import Intention, words_of
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test


class LeftOut(NamedTuple):
    """An argument that went. `others`: the calls that give it still."""

    drop: Drop
    name: str
    default: str
    others: tuple[Site, ...]


class LeftToDefault:
    """The arguments that a change left out; asked for with `change.analysis(LeftToDefault)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[LeftOut]:
        drops: Drops = self.change.analysis(Drops)
        small = {id(pair) for pair, *_ in drops.small}
        rows = (drop for drop in drops.drops if drop.kind in ("keyword", "argument") and id(drop.pair) in small)
        return [row for drop in rows if (row := self._of(drop)) is not None]

    def _of(self, drop: Drop) -> LeftOut | None:
        if not isinstance(drop.old, ast.Call) or not isinstance(drop.new, ast.Call) or is_test(drop.pair.new.path):
            return None
        given = drop.part.value if isinstance(drop.part, ast.keyword) else drop.part
        if isinstance(given, ast.Constant):
            return None  # what is the same in each run may as well be the default
        reached = called(self.change.after.project.analysis(Objects), drop.pair.new, drop.new)
        if len(reached) != 1:
            return None
        made = reached[0].place.find("__init__") if isinstance(reached[0].place, ClassDef) else reached[0].place
        param = self._parameter(made, drop) if isinstance(made, Method) else None
        if param is None or not isinstance(made, Method):
            return None
        others = self._others(reached[0].place, made, param[0], drop)
        intention: Intention = self.change.analysis(Intention)
        telling = frozenset({param[0]} | words_of(drop.part, drop.pair.old))
        if not others or intention.severity(drop.pair, [drop.edit], telling, frozenset(), True) != "warning":
            return None
        return LeftOut(drop, *param, others)

    def _parameter(self, made: Method, drop: Drop) -> tuple[str, str] | None:
        """The parameter that has its default now, with the default: of a keyword by its name, of the last argument by
        its place."""
        rows = [p for p in parameters(made) or () if p.kind in ("pos", "any", "kw")]
        assert isinstance(drop.old, ast.Call)
        if isinstance(drop.part, ast.keyword):
            found = next((p for p in rows if p.name == drop.part.arg), None)
        else:
            place = len(drop.old.args) - 1
            is_last = drop.old.args[-1:] == [drop.part]
            positional = [p for p in rows if p.kind != "kw"]
            found = positional[place] if is_last and place < len(positional) else None
        return (found.name, found.default) if found is not None and found.default is not None else None

    def _others(self, place: Method | ClassDef, made: Method, name: str, drop: Drop) -> tuple[Site, ...]:
        """The other calls, if all of them give the parameter."""
        at = drop.pair.new.module.source_text.at(drop.new)
        rows = [
            site
            for site in sites(self.change.after, place.name)
            if place in site.reached
            and not is_test(site.unit.path)
            and not (site.unit is drop.pair.new and tuple(site.call.at[:2]) == tuple(at[:2]))
        ]
        return tuple(rows) if all(passed_for(site.call, made, name) for site in rows) else ()
