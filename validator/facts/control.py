"""Control flow that is plain from the shape of statements: what ends a block, what a handler catches, stubs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

_EXITS = frozenset({("sys", "exit"), ("os", "_exit"), ("os", "abort")})


def terminates(block: Sequence[ast.stmt]) -> bool:
    """Whether control never passes the end of a block (an empty block lets it pass)."""
    return any(_ends(node) for node in block)


def _ends(node: ast.stmt) -> bool:
    if isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break):
        return True
    if isinstance(node, ast.If):
        return terminates(node.body) and terminates(node.orelse)
    if isinstance(node, ast.With | ast.AsyncWith):
        return False if _may_swallow(node) else terminates(node.body)
    if isinstance(node, ast.Try):
        if terminates(node.finalbody):
            return True
        return (terminates(node.body) or terminates(node.orelse)) and all(terminates(h.body) for h in node.handlers)
    if isinstance(node, ast.While):
        return _is_true(node.test) and not any(_breaks(child) for child in node.body)
    if isinstance(node, ast.Match):
        return _has_default(node) and all(terminates(case.body) for case in node.cases)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        func = node.value.func
        if isinstance(func, ast.Name):
            return func.id in ("exit", "quit")
        return (
            isinstance(func, ast.Attribute)
            and isinstance(func.value, ast.Name)
            and (func.value.id, func.attr) in _EXITS
        )
    return False


def falls_through(body: Sequence[ast.stmt]) -> bool:
    """Whether control can reach the end of a function's body."""
    return not terminates(body)


def _may_swallow(node: ast.With | ast.AsyncWith) -> bool:
    names = (n for item in node.items for n in ast.walk(item.context_expr) if isinstance(n, ast.Name | ast.Attribute))
    return any((n.id if isinstance(n, ast.Name) else n.attr) in ("suppress", "raises", "assertRaises") for n in names)


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _has_default(node: ast.Match) -> bool:
    last = node.cases[-1]
    return last.guard is None and isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None


def _breaks(node: ast.stmt) -> bool:
    """Whether a statement may break out of the loop that holds it."""
    if isinstance(node, ast.Break):
        return True
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return any(_breaks(child) for child in node.orelse)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(_breaks(child) for child in _statements(node))


def _statements(node: ast.AST) -> Iterable[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body


def catches(handlers: Sequence[ast.ExceptHandler]) -> list[str]:
    """The names of the exceptions that handlers name (last link of a path); `*` for a bare `except`."""
    names: list[str] = []
    for handler in handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for kind in kinds:
            if kind is None:
                names.append("*")
            elif isinstance(kind, ast.Name):
                names.append(kind.id)
            elif isinstance(kind, ast.Attribute):
                names.append(kind.attr)
    return names


def stub_kind(body: Sequence[ast.stmt]) -> str:
    """How a body does nothing (see `Function.stub`), or empty where it does something."""
    rest = list(body)
    if (
        rest
        and isinstance(rest[0], ast.Expr)
        and isinstance(rest[0].value, ast.Constant)
        and isinstance(rest[0].value.value, str)
    ):
        rest = rest[1:]
        if not rest:
            return "docstring"
    if len(rest) != 1:
        return ""
    node = rest[0]
    if isinstance(node, ast.Pass):
        return "pass"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is Ellipsis:
        return "ellipsis"
    if isinstance(node, ast.Raise) and node.exc is not None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return "raise" if isinstance(raised, ast.Name) and raised.id == "NotImplementedError" else ""
    if isinstance(node, ast.Return) and (node.value is None or _constant(node.value)):
        return "constant"
    return ""


def _constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Tuple | ast.List):
        return all(_constant(e) for e in node.elts)
    return (
        isinstance(node, ast.Dict)
        and all(k is not None and _constant(k) for k in node.keys)
        and all(map(_constant, node.values))
    )
