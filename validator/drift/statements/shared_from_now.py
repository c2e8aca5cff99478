"""Copies that a change took away although what was copied is written to behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.drift.statements.differences import alike_syntax, node_of
from validator.drift.statements.drops import Drop
from validator.drift.statements.surroundings import last_name

_COPYING = frozenset({"deepcopy", "copy", "clone"})
_FILLING = frozenset({"append", "extend", "insert", "update", "add", "pop", "setdefault", "clear", "remove"})


def shares_from_now(drop: Drop) -> bool:
    """Whether a variable is the thing itself of which it was a copy, something is stored in it behind that, and the
    thing is used there, too: `ref = copy.deepcopy(actor)` that is `ref = actor`, `ref.args["save"] = False`."""
    made = drop.edit.new.node if drop.edit.new is not None else None
    if not isinstance(drop.part, ast.Call) or last_name(drop.part.func) not in _COPYING:
        return False
    if not isinstance(drop.new, ast.Name | ast.Attribute | ast.Subscript):
        return False  # what a call makes anew is nobody else's
    if not isinstance(made, ast.Assign) or made.value is not drop.new or not isinstance(made.targets[0], ast.Name):
        return False
    function = node_of(drop.pair.new)
    name, later = made.targets[0].id, list(_behind(function, made)) if function is not None else []
    bound = min((n.lineno for n in later if isinstance(n, ast.Name) and _is_bound(n, name)), default=None)
    mine = [n for n in later if bound is None or n.lineno < bound]
    first = min((n.lineno for n in mine if _is_written(n, name)), default=None)
    return first is not None and any(n.lineno > first and alike_syntax(n, drop.new) for n in later)


def _behind(function: ast.AST, statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a function that stand behind a statement."""
    last = statement.end_lineno or statement.lineno
    return (n for n in ast.walk(function) if isinstance(n, ast.expr) and n.lineno > last)


def _is_bound(node: ast.Name, name: str) -> bool:
    return node.id == name and isinstance(node.ctx, ast.Store)


def _is_written(node: ast.expr, name: str) -> bool:
    """Whether something is stored in what a variable holds, or in a part of it."""
    if isinstance(node, ast.Call):
        filled = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr in _FILLING else None
        return filled is not None and _root(filled) == name
    stored = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)
    return stored and _root(node) == name


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
