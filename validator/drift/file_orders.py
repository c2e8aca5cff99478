"""Calls of which the one writes a file and the other reads it, and where a change turned their order round.

Whether two functions mean the same file is told by what stands in their paths: a text that both have there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Protocol

from validator.drift.change import Side
from validator.drift.statements.differences import Statement, in_head
from validator.drift.statements.named_effects import tables
from validator.effects.files import Files
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, numbers_of
from validator.ir.model import Value

_MAKING_FOLDERS = frozenset({"makedirs", "mkdir"})
_PUT_TOGETHER = frozenset({"list", "tuple", "binary", "join"})
_JOINING = frozenset({"join", "joinpath", "Path"})
_SHORT = 3  # letters of a part of a path that may stand there by chance


class _Moved(Protocol):
    """A statement that stands elsewhere in a function now."""

    @property
    def statement(self) -> Statement: ...

    def passed_down(self) -> list[Statement]: ...

    def passed_up(self) -> list[Statement]: ...


def read_too_early(side: Side, unit: Unit, moved: _Moved) -> Iterator[tuple[Statement, Statement, str]]:
    """The first pair of statements of which one reads now before the other writes, and did so behind it: what reads,
    what writes, and the part of the path that both have."""
    ways = [(each, moved.statement) for each in moved.passed_down()]
    ways += [(moved.statement, each) for each in moved.passed_up()]
    for reading, writing in ways:
        readers = [each for each in _run(side, unit, reading) if _reads(side, each)]
        writers = [each for each in _run(side, unit, writing) if _writes(each)] if readers else []
        written = frozenset[str]().union(*(parts for each in writers for parts in _paths(each)))
        read = [parts for each in readers for parts in _paths(each) if parts <= written]
        if read and not set(readers) & set(writers):
            yield reading, writing, "/".join(sorted(read[0]))
            return


def _run(side: Side, unit: Unit, statement: Statement) -> list[Unit]:
    """The functions of the project that the calls of a statement run."""
    queries: Queries = side.project.analysis(Queries)
    lines = {each.lineno for each in in_head(statement.node) if isinstance(each, ast.Call)}
    calls = (Place(side.flow, unit, number) for number in numbers_of(unit, ("call",)))
    return [target for call in calls if call.value.at[0] in lines for target in queries.targets(call)]


def _reads(side: Side, unit: Unit) -> bool:
    """Whether a function reads a file that is not opened for writing."""
    accesses = side.project.analysis(Files).accesses
    return any(each.place.unit is unit and each.kind not in ("write", "append") for each in accesses)


def _writes(unit: Unit) -> bool:
    """Whether a function calls what writes a file, by its name."""
    writing = frozenset(tables()["apart"]["writes"]) - _MAKING_FOLDERS
    values = unit.code.values
    names = (str(values[value.args[0]].data) for value in values if value.op == "call")
    return any(not writing.isdisjoint(name.lower().split("_")) for name in names)


def _paths(unit: Unit) -> list[frozenset[str]]:
    """The texts of which each path in a function is put together."""
    values, found = unit.code.values, dict[int, set[str]]()
    for number, value in enumerate(values):
        if value.op != "const" or not isinstance(value.data, str) or len(value.data.strip("/_-.")) < _SHORT:
            continue
        if value.data.strip("/").replace(".", "_").replace("-", "_").isidentifier():
            for user in unit.users.get(number, ()):
                if values[user].op in _PUT_TOGETHER or _joins(unit, values[user]):
                    found.setdefault(user, set()).add(value.data.strip("/"))
    return [frozenset(parts) for parts in found.values()]


def _joins(unit: Unit, user: Value) -> bool:
    """Whether a call puts a path together."""
    return user.op == "call" and unit.code.values[user.args[0]].data in _JOINING
