"""What a library gives for one and the same call, taken apart in one place since a change, and as before in another.

What a file holds is known to who writes and who reads it alone. Where a change makes `load(path)["model"]` of
`load(path)`, the file has another shape now, and whoever reads the same file reads that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, node_of
from validator.drift.statements.drops import Drops, differences
from validator.drift.statements.surroundings import last_name
from validator.facts.model import At


class Untaken(NamedTuple):
    """A call whose result is used as before. `key`: what the change takes out of the result of the same call in `line`,
    or (not `taken`) takes out of it no longer."""

    pair: Pair
    at: At
    key: str
    taken: bool
    line: int


class _Shape(NamedTuple):
    """A call whose result a change takes apart by a key, or does so no longer."""

    call: ast.Call
    key: str
    taken: bool
    edit: Edit


class TakenApart:
    """The calls of libraries whose results a change takes otherwise in one of several places."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def left(self) -> list[Untaken]:
        found: list[Untaken] = []
        for pair, _, _, edits in self.change.analysis(Drops).edited:
            for shape in (each for edit in edits for each in _shapes(edit)):
                if last_name(shape.call.func) not in self.change.after.methods:
                    found += self._others(pair, shape)
        return found

    def _others(self, pair: Pair, shape: _Shape) -> Iterator[Untaken]:
        """The places of the file that make the same call and use its result as all did before."""
        assert shape.edit.new is not None
        here, wanted = node_of(pair.new), ast.dump(shape.call)
        own = {id(node) for node in ast.walk(shape.edit.new.node)}
        for function, outer, node in _calls(pair.new.module.source.tree):
            if ast.dump(node) != wanted or id(node) in own or self.change.wrote(pair.new.path, node.lineno):
                continue
            if function is not here and not _means_the_same(node):
                continue
            asked = isinstance(outer, ast.Subscript) and _key(outer) == shape.key
            elsewhere = (each for each in ast.walk(function) if isinstance(each, ast.Constant) and id(each) not in own)
            if not asked if not shape.taken else asked or any(each.value == shape.key for each in elsewhere):
                continue
            at = pair.new.module.source_text.at(node)
            yield Untaken(pair, at, shape.key, shape.taken, shape.edit.new.node.lineno)


def _shapes(edit: Edit) -> Iterator[_Shape]:
    if edit.old is None or edit.new is None:
        return
    for old, new in differences(edit):
        for one, other, taken in ((old, new, True), (new, old, False)):
            if not isinstance(one, ast.Call) or not isinstance(other, ast.Subscript) or not _key(other):
                continue
            if one.args and ast.dump(one) == ast.dump(other.value):
                yield _Shape(one, _key(other), taken, edit)


def _key(node: ast.Subscript) -> str:
    return node.slice.value if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str) else ""


def _calls(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST, ast.Call]]:
    """The calls of a file, with the function and the node in which each stands."""
    waiting: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
    while waiting:
        function, outer = waiting.pop()
        for node in ast.iter_child_nodes(outer):
            if isinstance(node, ast.Call):
                yield function, outer, node
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            waiting.append((node if inside else function, node))


def _means_the_same(call: ast.Call) -> bool:
    """Whether the arguments of a call are the same in other functions: settings and constants, no variables."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return not any(isinstance(each, ast.Name) for each in given)
