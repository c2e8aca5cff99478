"""Calls whose result is asked for what the functions that bear their name do not give: they run something else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from types import CoroutineType

from validator.definitions import ClassDef, Method
from validator.flow.program.flow import Flow
from validator.flow.queries.base import Place
from validator.project import Project

# What a coroutine has, and what it may give: numbers, texts and containers.
_COMMON = frozenset({each for kind in (CoroutineType, dict, list, str, int, float, set) for each in dir(kind)})


class OtherResults:
    """What results of calls are asked for, and which classes of the project have that."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)

    @cached_property
    def _having(self) -> dict[str, set[ClassDef]]:
        """The classes that define a method, by its name."""
        found: dict[str, set[ClassDef]] = {}
        for cls in self.project.classes():
            for name in cls.methods:
                found.setdefault(name, set()).add(cls)
        return found

    def are_of_others(self, call: Place, methods: Iterable[Method]) -> bool:
        """Whether the result of a call is called by a method that classes of the project have, none of which coroutines
        of that name give when they are awaited: an object that stands for others has a method of that name, too."""
        asked = {str(user.value.data) for user in _users(call) if user.value.op == "attr" and user.is_called}
        had = [self._having[name] for name in asked - _COMMON if name in self._having]
        return bool(had) and all(given.isdisjoint(classes) for classes in had for given in map(self._given, methods))

    def _given(self, method: Method) -> set[ClassDef]:
        """The classes of what a function of the project returns, with those above them."""
        unit = self.flow.unit_of(method)
        returned = self.flow.close(self.flow.result(unit).returned, unit).each if unit is not None else ()
        return {above for o in returned if o[0] in ("inst", "self") for above in o[1].mro}


def _users(call: Place) -> Iterator[Place]:
    """The users of a result, also behind variables that hold it or something else."""
    stack, seen = [call], {call}
    while stack:
        for user in stack.pop().taken_by:
            yield user
            if user.value.op in ("phi", "mut") and user not in seen:
                seen.add(user)
                stack.append(user)


__all__ = ["OtherResults"]
