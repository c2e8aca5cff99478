"""What a stretch of statements lost on its way into a function of its own.

A stretch that several functions had, or that had grown long, goes into a helper, and the functions call that. The
helper makes the calls of the stretch; a meeting of ranks between them that it does not have was left out on the way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, Statement, statements
from validator.drift.statements.drops import Drops
from validator.drift.statements.effects import Effects, Lost
from validator.drift.statements.named_effects import table
from validator.drift.statements.surroundings import last_name, names_called
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test

_HALF = 0.5  # of the functions of the project that a stretch called, which the helper calls too


class Extracted:
    """The meetings of ranks that a change left out of the functions that it made."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self._effects: Effects = change.analysis(Effects)

    @cached_property
    def lost(self) -> list[Lost]:
        found: dict[tuple[str, str], Lost] = {}
        helpers = {unit.name: unit for unit in self._fresh()}
        for pair, old, _, edits in self.change.analysis(Drops).edited if helpers else ():
            came = [each.new for each in edits if each.new is not None]
            called = {name for each in came for name in names_called(each.node)}
            for name in sorted(helpers.keys() & called):
                for stretch in _stretches(old, edits):
                    for lost in self._left_out(pair, stretch, came, helpers[name]):
                        found.setdefault((name, lost.name), lost)
        return list(found.values())

    def _fresh(self) -> Iterator[Unit]:
        """The functions of changed files that were not there before."""
        for before, after in self.change.modules:
            if after is None or is_test(after.path):
                continue
            known = self.change.before.units(before) if before is not None else {}
            for key, unit in self.change.after.units(after).items():
                if unit.code.kind == "function" and key not in known:
                    yield unit

    def _left_out(self, pair: Pair, stretch: list[Statement], came: list[Statement], helper: Unit) -> Iterator[Lost]:
        inside = statements(helper)
        now = [name for each in (*inside, *came) for name in names_called(each.node)]
        own = {name for each in stretch for name in names_called(each.node) if name in self.change.after.methods}
        if len(own) < 2 or len(own & set(now)) < len(own) * _HALF or len(own & set(now)) < 2:
            return
        met = {name for each in stretch for name in names_called(each.node)}
        if any(self._meets(name) and name not in met for name in now if name != helper.name):
            return  # ranks meet in another way there
        for place, each in enumerate(stretch):
            name = _alone(each)
            if not self._meets(name) or name in now:
                continue
            before, behind = (
                {n for s in part for n in names_called(s.node)} & own
                for part in (stretch[:place], stretch[place + 1 :])
            )
            following = next((s for s in inside if names_called(s.node) & behind), None)
            if before & set(now) and following is not None:
                yield Lost(
                    Pair(pair.old, helper), each, "extracted", name, following.node.lineno, pair.old.qualname, "warning"
                )

    def _meets(self, name: str) -> bool:
        return self._effects.waits(name) or name in table()["waiting"]


def _alone(statement: Statement) -> str:
    """The name of what a statement calls without a result."""
    call = statement.node.value if isinstance(statement.node, ast.Expr) else None
    return last_name(call.func) if isinstance(call, ast.Call) else ""


def _stretches(old: list[Statement], edits: list[Edit]) -> Iterator[list[Statement]]:
    """The runs of statements that went together."""
    gone = {id(each.old.node) for each in edits if each.old is not None}
    run: list[Statement] = []
    for each in old:
        if id(each.node) in gone:
            run.append(each)
        elif run:
            yield run
            run = []
    if run:
        yield run
