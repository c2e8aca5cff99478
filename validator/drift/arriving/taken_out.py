"""Keywords that a function reads out of its `**kwargs`, and takes out of it since a change, so that what it hands
`**kwargs` on to gets them no longer.

Who takes one out so that the next does not get it gives it by its name, or means it to have none. It is neither where
the function puts the key back on some of its ways, or where what it hands on to takes a parameter of the name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.interfaces.now_positional import called
from validator.drift.statements.differences import Edit, in_head, node_of
from validator.drift.statements.drops import Drops
from validator.flow.objects import Objects


class TakenOut(NamedTuple):
    """A key that is taken out of what is handed on to `taker` since the change. `back`: the line in which it is put
    back on some ways; 0 where the taker has a parameter of the name."""

    pair: Pair
    at: ast.Call
    key: str
    kept: str
    taker: ast.Call
    back: int
    before: str


class TakenOutKeys:
    """The keys that a change took out; asked for with `change.analysis(TakenOutKeys)`."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.objects = change.after.project.analysis(Objects)

    @cached_property
    def rows(self) -> list[TakenOut]:
        return [
            row
            for pair, _, _, edits in self.change.analysis(Drops).edited
            for edit in edits
            if pair.new.code.kind == "function"
            for row in self._of(pair, edit)
        ]

    def _of(self, pair: Pair, edit: Edit) -> Iterator[TakenOut]:
        function = node_of(pair.new)
        if edit.old is None or edit.new is None or not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        kept = function.args.kwarg.arg if function.args.kwarg is not None else ""
        read = {key for each in in_head(edit.old.node) if (key := _read(each, kept))} if kept else set[str]()
        for call in in_head(edit.new.node) if read else ():
            key = _taken(call, kept)
            if key in read and isinstance(call, ast.Call) and not _reads(edit.new.node, kept, key):
                for taker in _takers(function, kept, call.lineno):
                    back = _put_back(function, kept, key)
                    if not _gives(taker, key) and (back or self._takes(pair, taker, key)):
                        yield TakenOut(pair, call, key, kept, taker, back, edit.old.text)
                        return

    def _takes(self, pair: Pair, call: ast.Call, key: str) -> bool:
        """Whether all that a call may run has a parameter of a name."""
        reached = called(self.objects, pair.new, call)
        return bool(reached) and all(any(p.name == key for p in each.params) for each in reached)


def _key_of(node: ast.AST, name: str, method: str) -> str:
    """The key with which a method of a variable is called."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return ""
    owner, key = node.func.value, node.args[0]
    fits = isinstance(owner, ast.Name) and owner.id == name and node.func.attr == method
    return key.value if fits and isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _read(node: ast.AST, name: str) -> str:
    """The key that an expression reads in a mapping and leaves there."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = node.slice
        fits = isinstance(node.value, ast.Name) and node.value.id == name
        return key.value if fits and isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
    return _key_of(node, name, "get")


def _taken(node: ast.AST, name: str) -> str:
    return _key_of(node, name, "pop")


def _reads(node: ast.stmt, name: str, key: str) -> bool:
    return any(_read(each, name) == key for each in in_head(node))


def _takers(function: ast.AST, name: str, line: int) -> Iterator[ast.Call]:
    """The calls behind a line that a mapping is handed on to as keywords."""
    for call in (each for each in ast.walk(function) if isinstance(each, ast.Call) and each.lineno >= line):
        spread = (keyword.value for keyword in call.keywords if keyword.arg is None)
        if any(isinstance(value, ast.Name) and value.id == name for value in spread):
            yield call


def _gives(call: ast.Call, key: str) -> bool:
    return any(keyword.arg == key for keyword in call.keywords)


def _put_back(function: ast.AST, name: str, key: str) -> int:
    """The line in which the key is stored again, under a condition; 0 where it is not, or on all ways."""
    for branch in (each for each in ast.walk(function) if isinstance(each, ast.If)):
        stored = [line for part in (branch.body, branch.orelse) for line in _stored(part, name, key)]
        if stored and not (_stored(branch.body, name, key) and _stored(branch.orelse, name, key)):
            return stored[0]
    return 0


def _stored(body: list[ast.stmt], name: str, key: str) -> list[int]:
    targets = [
        target
        for statement in body
        for each in ast.walk(statement)
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Subscript)
    ]
    return [
        each.lineno
        for each in targets
        if isinstance(each.value, ast.Name)
        and each.value.id == name
        and isinstance(each.slice, ast.Constant)
        and each.slice.value == key
    ]
