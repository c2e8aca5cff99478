"""Attributes that a loop asks for by name: `for name in ("heads", "width"): if getattr(config, name) % tp: …`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping


def passes(node: ast.AST) -> list[dict[str, str]]:
    """What the variable of a loop over literal texts is in each pass; empty where no attribute is asked for by it."""
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
        return []
    texts = node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List) else []
    values = [each.value for each in texts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    name = node.target.id
    if len(values) != len(texts) or not any(_key(each) == name for part in node.body for each in ast.walk(part)):
        return []
    return [{name: value} for value in values]


def filled(node: ast.expr, named: Mapping[str, str]) -> ast.expr:
    """An expression of one pass, with `getattr(config, name)` as `config.heads`."""
    return _Fill(named).visit(copy.deepcopy(node)) if named else node


class _Fill(ast.NodeTransformer):
    def __init__(self, named: Mapping[str, str]) -> None:
        self.named = named

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        value = self.named.get(_key(node))
        return ast.copy_location(ast.Attribute(node.args[0], value, ast.Load()), node) if value is not None else node


def _key(node: ast.AST) -> str:
    """The variable that names the attribute of `getattr(config, name)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        key = node.args[1] if len(node.args) > 1 else None
        return key.id if isinstance(key, ast.Name) else ""
    return ""
