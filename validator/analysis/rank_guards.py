"""Whether the conditions around a place leave only some ranks there."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from validator.analysis.conditions import Taint
from validator.analysis.places import every_guard
from validator.analysis.taint import Taints
from validator.facts.model import Guard
from validator.project import Method, Project


class RankGuards:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.taints = project.analysis(Taints)
        self._known: dict[tuple[Method, str], Taint | None] = {}

    def all_of(self, function: Method, guards: Iterable[Guard]) -> list[Taint]:
        """The rank taints of the conditions around a place, those around the enclosing functions included."""
        found = (self._taint(function, guard.text) for guard in every_guard(function, guards) if guard.kind == "if")
        return [taint for taint in found if taint is not None]

    def of(self, function: Method, guards: Iterable[Guard]) -> Taint | None:
        """The first of them."""
        return next(iter(self.all_of(function, guards)), None)

    def leaves_one(self, function: Method, guards: Iterable[Guard]) -> bool:
        """Whether one rank of the job, or of each node, is left: its rank is tested, or two coordinates are."""
        taints = self.all_of(function, guards)
        return any(not taint.dim for taint in taints) or len({taint.dim for taint in taints}) > 1

    def _taint(self, function: Method, text: str) -> Taint | None:
        key = (function, text)
        if key not in self._known:
            self._known[key] = None
            try:
                test = ast.parse(text, mode="eval").body
            except (SyntaxError, ValueError, RecursionError):
                return None
            found = self.taints.condition(test, function)
            taint = found.taint
            if taint is None and found.member:
                taint = Taint("rank", "", "", text)
            self._known[key] = taint if taint is not None and taint.kind == "rank" else None
        return self._known[key]
