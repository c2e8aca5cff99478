"""Calls made for what they do, that a change took out of a function or put under a condition.

What a function does is its statements that are calls whose result nobody takes, its `with` blocks and its checks. The
rest of the function must stay as it was: of a function that is written anew nothing is said. An effect that turns up
elsewhere in the change has moved and is not lost.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property
from typing import NamedTuple

from validator.domains.axes import of_parallelism
from validator.drift.change import Change, Pair
from validator.drift.drops import Drops
from validator.drift.edits import Edit, Statement
from validator.models import models
from validator.tables import load_toml

_FEW = 3  # edits in a function, beyond which it does something else now
_BRANCHES = ("if ", "orelse of if ", "except ", "case ")


class Lost(NamedTuple):
    """An effect that a function has no longer on some way. `kind`: `call`, `context`, `check`; `condition`: under which
    it still happens, or an empty text."""

    pair: Pair
    statement: Statement
    kind: str
    name: str
    line: int
    condition: str


@cache
def named() -> frozenset[str]:
    """The last names of calls of libraries that are made for what they do."""
    table = load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "effects.toml"))["effects"]
    rows = models().calls
    collective = {name.rpartition(".")[2] for name, row in rows.items() if row.is_collective}
    return frozenset(name for names in table.values() for name in names) | collective


class Effects:
    """The effects that a change took away."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.drops = change.analysis(Drops)

    @cached_property
    def lost(self) -> list[Lost]:
        found: list[Lost] = []
        for pair, old, new, edits in self.drops.edited:
            if len(edits) <= _FEW and all(edit.old is not None and edit.new is None for edit in edits):
                found += self._removed(pair, old, new, edits)
            found += _conditional(pair, old, new, edits)
        return found

    def _removed(
        self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]
    ) -> Iterator[Lost]:
        for edit in edits:
            assert edit.old is not None
            kind, name = self._effect(edit.old)
            if name and not self._turns_up(name, pair):
                yield Lost(pair, edit.old, kind, name, _line(old, new, edit.old), "")

    def _effect(self, statement: Statement) -> tuple[str, str]:
        node = statement.node
        if isinstance(node, ast.Assert):
            return ("check", statement.text) if _is_about_sizes(node.test) else ("", "")
        call = called(node)
        if call is None:
            return "", ""
        name = last_name(call.func)
        kind = "context" if isinstance(node, ast.With | ast.AsyncWith) else "call"
        return (kind, name) if self.is_effect(name) else ("", "")

    def is_effect(self, name: str) -> bool:
        """Whether a call by this name does something: of the tables, or of a function of the project that is not
        there for reports."""
        if name in named():
            return True
        return any(_does(method.name) for method in self.change.after.methods.get(name, ()))

    def _turns_up(self, name: str, pair: Pair) -> bool:
        """Whether the change calls it somewhere where it was not called before."""
        return self._calls[1][name] > self._calls[0][name] - self._lost_here(pair, name)

    def _lost_here(self, pair: Pair, name: str) -> int:
        before, after = (_names(unit)[name] for unit in pair)
        return before - after

    @cached_property
    def _calls(self) -> tuple[Counter[str], Counter[str]]:
        """How often each name is called in the changed files, before and after."""
        counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        for side, count in zip((self.change.before, self.change.after), counts, strict=True):
            for path in self.change.changed:
                module = side.module(path)
                for unit in side.units(module).values() if module is not None else ():
                    count.update(_names(unit))
        return counts


def _names(unit: object) -> Counter[str]:
    code = unit.code  # type: ignore[attr-defined]
    callees = (code.values[v.args[0]] for v in code.values if v.op == "call")
    return Counter(str(callee.data) for callee in callees if callee.op in ("attr", "name"))


def _does(name: str) -> bool:
    words = set(name.strip("_").split("_"))
    return not words & {"log", "print", "report", "warn", "debug", "info", "trace", "metric", "metrics", "format"}


def called(node: ast.stmt) -> ast.Call | None:
    """The call that a statement is: its result is dropped, or it is a context."""
    if isinstance(node, ast.With | ast.AsyncWith):
        value: ast.expr = node.items[0].context_expr
    elif isinstance(node, ast.Expr):
        value = node.value
    else:
        return None
    if isinstance(value, ast.Await):
        value = value.value
    return value if isinstance(value, ast.Call) else None


def last_name(node: ast.expr) -> str:
    """The last name of what is called; of `f.remote` and `f.options(…)` that of f."""
    if isinstance(node, ast.Attribute):
        if node.attr in ("remote", "options"):
            return last_name(node.value)
        return node.attr
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.id if isinstance(node, ast.Name) else ""


def _is_about_sizes(test: ast.expr) -> bool:
    """Whether a check is of a remainder, or of sizes and ranks of groups."""
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return True
        if isinstance(node, ast.Name | ast.Attribute) and of_parallelism(last_name(node)):
            return True
    return False


def _conditional(pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Lost]:
    """Effects that stand under a condition now and stood under none of it before."""
    fresh = {edit.new.text for edit in edits if edit.new is not None and isinstance(edit.new.node, ast.If)}
    if not fresh or len(edits) > _FEW:
        return
    before = Counter(each.text for each in old)
    for statement in new:
        added = [head for head in statement.inside if head.startswith(_BRANCHES) and head.rpartition(" of ")[2] in fresh]
        call = called(statement.node)
        if not added or call is None or before[statement.text] != 1:
            continue
        name = last_name(call.func)
        if name in named():
            yield Lost(pair, statement, "call", name, statement.node.lineno, added[-1])


def _line(old: list[Statement], new: list[Statement], gone: Statement) -> int:
    """The line of the new function before which what went would stand: of the statement that followed it."""
    place = next(index for index, each in enumerate(old) if each is gone)
    following = [each.text for each in old[place + 1 :]]
    for text in following:
        for each in new:
            if each.text == text:
                return each.node.lineno
    return new[-1].node.end_lineno or new[-1].node.lineno if new else 0
