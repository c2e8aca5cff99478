"""Arguments that a change passes by position, for another parameter than the one that they were named for before."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import changed_calls
from validator.drift.statements.drops import Drops
from validator.flow.objects import Callee, Objects
from validator.flow.program.unit import Unit


class NowPositional(NamedTuple):
    """A value that was passed for `before` by its name, and stands at the place of `now` since the change."""

    pair: Pair
    call: ast.Call
    value: ast.expr
    before: str
    now: str


class Unnamed:
    """The arguments of a change that are no longer named, and stand in another's place."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.objects = change.after.project.analysis(Objects)

    @cached_property
    def rows(self) -> list[NowPositional]:
        return [
            row
            for pair, _, _, changed in self.change.analysis(Drops).edited
            for edit in changed
            for old, new in changed_calls(edit)
            for row in self._moved(pair, old, new)
        ]

    def _moved(self, pair: Pair, old: ast.Call, new: ast.Call) -> Iterator[NowPositional]:
        spread = any(isinstance(each, ast.Starred) for each in (*old.args, *new.args))
        if spread or len(new.args) <= len(old.args):
            return
        left = {each.arg for each in new.keywords}
        gone = {
            ast.dump(each.value): each.arg for each in old.keywords if each.arg is not None and each.arg not in left
        }
        for place in range(len(old.args), len(new.args)):
            name = gone.get(ast.dump(new.args[place]))
            taken = self._parameter(pair, new, place) if name is not None else None
            if name is not None and taken is not None and taken[0] != name and name in taken[1]:
                yield NowPositional(pair, new, new.args[place], name, taken[0])

    def _parameter(self, pair: Pair, call: ast.Call, place: int) -> tuple[str, frozenset[str]] | None:
        """The parameter that stands at a place of a call, and all of them; None where it may be one or another."""
        reached = called(self.objects, pair.new, call)
        rows = {tuple(p.name for p in each.params if p.kind in ("any", "pos")) for each in reached}
        every = frozenset(p.name for each in reached for p in each.params)
        names = {row[place] if place < len(row) else "" for row in rows}
        return (names.pop(), every) if len(names) == 1 and "" not in names else None


def called(objects: Objects, unit: Unit, call: ast.Call) -> Sequence[Callee]:
    """What a call may run, with its parameters."""
    at = objects.call_at(unit.module, unit.module.source_text.at(call))
    return objects.reached_by(at.operand(0), at).callees if at is not None else ()
