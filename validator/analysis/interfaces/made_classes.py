"""Classes that a call makes, with members that no class statement shows: `type("Timed", (Worker,), {"run": run})`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.definitions import ClassDef
from validator.flow.queries.base import Place, Queries
from validator.project import Project


class MadeClasses:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)

    @cached_property
    def members(self) -> frozenset[str]:
        """The members that such classes are told to have."""
        return frozenset(name for _, names in self._all for name in names or ())

    @cached_property
    def open_bases(self) -> frozenset[ClassDef]:
        """The classes below which there are some whose members are not told."""
        made = [bases for bases, names in self._all if names is None]
        return frozenset(cls for bases in made for cls in _classes(bases))

    @cached_property
    def _all(self) -> list[tuple[Place, frozenset[str] | None]]:
        """The bases of each such class, and its own members; None where they are not all told."""
        calls = (call for call in self.queries.named_anywhere("type") if _makes_a_class(call))
        return [(call.operand(2), _names(call.operand(3))) for call in calls]


def _makes_a_class(call: Place) -> bool:
    return len(call.value.args) == 4 and call.operand(0).val.objs == {("ext", "type")}


def _names(members: Place) -> frozenset[str] | None:
    """The keys of a dictionary; None where there may be others."""
    held = members.closed.each
    if not held or any(o[0] != "dict" or o[2] is not None for o in held):
        return None
    return frozenset(str(key) for o in held for key, _ in o[1])


def _classes(bases: Place) -> Iterator[ClassDef]:
    """The classes in a tuple of bases."""
    root = bases.root
    parts = [root.operand(number) for number in range(len(root.value.args))] if root.value.op == "tuple" else []
    yield from (o[1] for part in parts for o in part.closed.of("class"))
