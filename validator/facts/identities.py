"""What a file says with more words than it needs: calls of functions that give back their argument, and ends that do
nothing.

`def _holds(value): return value` hides nothing: `if _holds(rank == 0):` is `if rank == 0:` to facts and to the engine.
"""

from __future__ import annotations

import ast
from collections import Counter


def looked_through(tree: ast.Module) -> ast.Module:
    """Replace the calls of such functions of the module; returns the same tree."""
    defined = Counter(each.name for each in tree.body if isinstance(each, ast.FunctionDef))
    found = {each.name for each in tree.body if isinstance(each, ast.FunctionDef) and _gives_back(each)}
    found = {name for name in found if defined[name] == 1}
    for node in ast.walk(tree) if found else ():
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.discard(node.id)
        elif isinstance(node, ast.arg):
            found.discard(node.arg)
    if found:
        _Argument(found).visit(tree)
    return tree


def _gives_back(node: ast.FunctionDef) -> bool:
    given = node.args
    if len(given.args) != 1 or given.posonlyargs or given.vararg or given.kwarg or given.kwonlyargs:
        return False
    if node.decorator_list or given.args[0].annotation is not None or node.returns is not None:
        return False
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    last = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    return isinstance(last, ast.Name) and last.id == given.args[0].arg


def without_empty_ends(tree: ast.Module) -> ast.Module:
    """Take out `try` with nothing but a `finally` that does nothing; returns the same tree."""
    _Ends().visit(tree)
    return tree


class _Ends(ast.NodeTransformer):
    def visit_Try(self, node: ast.Try) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        is_empty = all(isinstance(each, ast.Pass) for each in node.finalbody)
        return node.body if is_empty and not node.handlers and not node.orelse else node


class _Argument(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        plain = called in self._names and len(node.args) == 1 and not node.keywords
        return node.args[0] if plain and not isinstance(node.args[0], ast.Starred) else node
