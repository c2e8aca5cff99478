"""Definite assignment within one function: whether a statement surely binds a name, by the shape of the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from validator.facts.control import terminates


def binds(node: ast.stmt, name: str) -> bool:
    """Whether every way through a statement that goes on after it has bound the name."""
    if isinstance(node, ast.If):
        return _arm(node.body, name) and _arm(node.orelse, name)
    if isinstance(node, ast.With | ast.AsyncWith):
        return any(_stores(item, name) for item in node.items) or block_binds(node.body, name)
    if isinstance(node, ast.Try):
        return block_binds(node.finalbody, name) or (
            (block_binds(node.body, name) or block_binds(node.orelse, name))
            and all(_arm(h.body, name) for h in node.handlers)
        )
    if isinstance(node, ast.Match):
        return bool(node.cases) and all(_arm(case.body, name) for case in node.cases)
    if isinstance(node, ast.While):
        return isinstance(node.test, ast.Constant) and bool(node.test.value) and _mentions_store(node, name)
    if isinstance(node, ast.For | ast.AsyncFor):
        return False
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any((a.asname or a.name.partition(".")[0]) == name for a in node.names)
    return _stores(node, name)


def block_binds(block: Sequence[ast.stmt], name: str) -> bool:
    return any(binds(node, name) for node in block)


def _arm(block: Sequence[ast.stmt], name: str) -> bool:
    return block_binds(block, name) or terminates(block)


def _stores(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in _own(node))


def _mentions_store(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(node))


def reads(node: ast.stmt, name: str) -> ast.Name | None:
    """The place where a plain statement (no branch, no loop) surely reads the name."""
    if not isinstance(node, ast.Return | ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign):
        return None
    for child in _evaluated(node):
        if isinstance(child, ast.Name) and child.id == name and isinstance(child.ctx, ast.Load):
            return child
    return None


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement or expression that belong to this scope."""
    yield node
    if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for child in ast.iter_child_nodes(node):
        yield from _own(child)


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are evaluated whenever the statement is: no lambda, comprehension or conditional part."""
    yield node
    if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.BoolOp):
        children = [node.values[0]]
    elif isinstance(node, ast.IfExp):
        children = [node.test]
    for child in children:
        yield from _evaluated(child)


def blocks_around(body: Sequence[ast.stmt], target: ast.stmt) -> list[Sequence[ast.stmt]] | None:
    """The blocks that hold a statement, outermost first; None where it lies elsewhere, or in a loop or handler."""
    for node in body:
        if node is target:
            return [body]
        arms: list[Sequence[ast.stmt]] = []
        if isinstance(node, ast.If):
            arms = [node.body, node.orelse]
        elif isinstance(node, ast.With | ast.AsyncWith):
            arms = [node.body]
        for arm in arms:
            if (inner := blocks_around(arm, target)) is not None:
                return [body, *inner]
    return None
