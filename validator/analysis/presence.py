"""Things that only some ranks have (`self.writer` is None elsewhere): to ask who has one is to ask who it is."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from validator.analysis.conditions import MEMBERS, Condition, Taint
from validator.analysis.places import every_guard
from validator.facts.model import Assign, Call, Guard
from validator.project import Method, Value

if TYPE_CHECKING:
    from validator.analysis.taint import Taints

# who holds one of these is a member of it: the branch is the group's own affair
_OF_MEMBERS = re.compile(r"group|mesh|(^|_)comm|communicator|(^|_)pg$|engine|peer|stage", re.IGNORECASE)
_CALLERS = 2  # calls above a place whose conditions are looked at
# modules that hold something once it is made: what is read of it, and what makes it
_KEPT = {"wandb.run": "wandb.init", "swanlab.run": "swanlab.init"}

Bound = list[tuple[Method, Assign]]


class Presence:
    """Answers for the taints of one project, remembered."""

    def __init__(self, taints: Taints) -> None:
        self.taints = taints
        self.project = taints.project
        self._guards: dict[tuple[Method, str], Taint | None] = {}
        self._libraries: dict[str, Taint | None] = {}

    def of(self, rows: Bound) -> Taint | None:
        """The taint of something that is None but where the rank is tested. `rows`: all that it is bound to."""
        given = [(function, row) for function, row in rows if row.value != "None"]
        return self._given(given) if given and len(given) < len(rows) else None

    def of_module(self, value: Value) -> Taint | None:
        """Of a global name of a module, set by its functions."""
        module = value.module
        functions = [module.top, *(f for f in module.functions.values() if value.name not in f.facts.bound)]
        return self.of([(f, row) for f in functions for row in f.facts.assigns if row.target == value.name])

    def of_library(self, dotted: str) -> Taint | None:
        """`wandb.run`, where only some ranks call `wandb.init`."""
        if dotted not in _KEPT:
            return None
        if dotted not in self._libraries:
            self._libraries[dotted] = None
            maker = _KEPT[dotted]
            calls = self.project.calls(maker.rpartition(".")[2])
            made = [(f, c) for f, c in calls if self.project.dotted(f, c.target) == maker]
            self._libraries[dotted] = self._all_on_some(made, _CALLERS)
        return self._libraries[dotted]

    def asked(self, node: ast.Call, function: Method) -> Taint | None:
        """`hasattr(self, "writer")`, where only some ranks set the attribute at all."""
        if len(node.args) != 2 or not isinstance(node.args[1], ast.Constant) or not isinstance(node.args[0], ast.Name):
            return None
        name = str(node.args[1].value)
        for cls in self.project.types.of(function, node.args[0].id):
            rows = self.project.types.set_on(cls, name)
            if cls.find(name) is None and not cls.is_open and (taint := self._given(rows)) is not None:
                return taint
        return None

    def _given(self, rows: Bound) -> Taint | None:
        """The taint of the tests under all of which something is set, where no two of them are opposites."""
        if not rows or any(_OF_MEMBERS.search(f"{row.target.rpartition('.')[2]} {row.value}") for _, row in rows):
            return None
        found = [self._on_some(function, row.guards, _CALLERS) for function, row in rows]
        tests = {(guard.text, guard.negated) for _, row in rows for guard in row.guards}
        if not all(found) or any((text, not negated) in tests for text, negated in tests):
            return None
        return found[0]

    def _all_on_some(self, calls: list[tuple[Method, Call]], depth: int) -> Taint | None:
        found = [self._on_some(function, call.guards, depth) for function, call in calls]
        return found[0] if found and all(found) else None

    def _on_some(self, function: Method, guards: tuple[Guard, ...], depth: int) -> Taint | None:
        """The taint of the test that keeps all but some ranks from a place: around it, or around all calls of it."""
        for guard in every_guard(function, guards):
            if guard.kind == "if" and (taint := self._guard(function, guard.text)) is not None:
                return taint
        return self._all_on_some(self.project.types.callers.get(function, []), depth - 1) if depth else None

    def _guard(self, function: Method, text: str) -> Taint | None:
        key = (function, text)
        if key not in self._guards:
            self._guards[key] = None  # a cycle adds nothing
            found = self._condition(function, text)
            taint = found.taint if found is not None and not found.member else None
            self._guards[key] = taint if taint is not None and _tells_apart(taint) else None
        return self._guards[key]

    def _condition(self, function: Method, text: str) -> Condition | None:
        try:
            return self.taints.condition(ast.parse(text, mode="eval").body, function)
        except (SyntaxError, ValueError, RecursionError):
            return None


def _tells_apart(taint: Taint) -> bool:
    """Whether a test is about the rank in the job or among those that hold the same model: not about a part of it."""
    return taint.kind == "rank" and taint.group != MEMBERS and taint.dim in ("", "dp", "cp", "tp")
