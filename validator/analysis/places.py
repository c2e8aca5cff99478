"""Where a function stands: what kind of folder, inside which functions, and its own words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from validator.facts.model import Assign, At, Call, Guard
from validator.flow.aside import is_test
from validator.project import Method, Project


def outermost(function: Method) -> Method:
    """The function that holds this one and is held by none."""
    while function.enclosing is not None and function.enclosing.qualname != "<module>":
        function = function.enclosing
    return function


def text_of(function: Method) -> str:
    """The source of a function; of the whole file for the top level of a module."""
    first, _, last, _ = function.facts.at
    return "\n".join(function.module.source_text.lines[first - 1 : last])


def every_guard(function: Method, guards: Iterable[Guard]) -> Iterator[Guard]:
    """The conditions around a place, those around the functions that hold it included."""
    yield from guards
    scope: Method | None = function
    while scope is not None:
        yield from scope.facts.guards
        scope = scope.enclosing


def within(inner: At, outer: At) -> bool:
    """Whether one place lies inside another."""
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]


def call_bound(function: Method, row: Assign) -> Call | None:
    """The call whose result an assignment binds."""
    if row.kind != "call" and not row.kind.startswith("unpack"):
        return None
    return next((c for c in function.facts.calls if c.target == row.value and within(c.at, row.at)), None)


class Words:
    """Which files of a project mention a word, so that rules look closely at few."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[str, bool] = {}

    def anywhere(self, *names: str) -> bool:
        """Whether any function outside tests calls one of the names (last links of paths)."""
        return not self._called.isdisjoint(names)

    @cached_property
    def _called(self) -> frozenset[str]:
        return frozenset(
            call.method
            for function in self.project.functions()
            if not is_test(function.path)
            for call in function.facts.calls
        )
