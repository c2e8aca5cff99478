"""Conditions that a change made narrower: of an `if`, or within an expression."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.drift.statements.differences import in_head
from validator.drift.statements.surroundings import conjuncts


def added(old: ast.stmt, new: ast.stmt) -> ast.expr | None:
    """The one condition that an `if` asks for in addition to what it asked before."""
    if not isinstance(old, ast.If) or not isinstance(new, ast.If) or new.orelse:
        return None
    before = {ast.dump(each) for each in conjuncts(old.test)}
    after = list(conjuncts(new.test))
    added = [each for each in after if ast.dump(each) not in before]
    return added[0] if len(added) == 1 and len(after) == len(before) + 1 else None


def shortcuts(old: ast.stmt, new: ast.stmt) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls that an expression only makes where something else holds, and made always before."""
    before = {ast.dump(n) for n in in_head(old) if isinstance(n, ast.Call)} - {
        ast.dump(call) for call, _ in _behind_tests(old)
    }
    yield from (row for row in _behind_tests(new) if ast.dump(row[0]) in before)


def _behind_tests(node: ast.stmt) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls of a statement that stand behind a test within their expression."""
    for each in in_head(node):
        if isinstance(each, ast.BoolOp):
            parts, test = each.values[1:], each.values[0]
        elif isinstance(each, ast.IfExp):
            parts, test = [each.body, each.orelse], each.test
        else:
            continue
        yield from ((n, test) for part in parts for n in ast.walk(part) if isinstance(n, ast.Call))
