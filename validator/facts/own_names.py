"""Names that a file imports under others, where they belong to how code is written: `from typing import Literal as L`.

What declares classes, fields and types is known by its name wherever facts and rules meet it. So a tree is read as if
such an import gave no other name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LIBRARIES = frozenset({
    "abc", "argparse", "attr", "attrs", "collections", "contextlib", "dataclasses", "enum", "functools", "pydantic",
    "types", "typing", "typing_extensions",
})  # fmt: skip


def under_own_names(tree: ast.Module) -> dict[str, str]:
    """Take the other names out of a tree; returns which name they stand for."""
    rows = [row for node in tree.body for row in _renamed(node)]
    if not rows:
        return {}
    taken = set(_bound(tree))
    names: dict[str, str] = {}
    for alias in rows:
        if alias.asname is not None and taken.isdisjoint((alias.name, alias.asname)):
            names[alias.asname], alias.asname = alias.name, None
    for node in ast.walk(tree) if names else ():
        if isinstance(node, ast.Name) and node.id in names:
            node.id = names[node.id]
    return names


def _renamed(node: ast.stmt) -> list[ast.alias]:
    """What a statement imports under another name out of such a library."""
    if not isinstance(node, ast.ImportFrom) or node.level or node.module not in _LIBRARIES:
        return []
    return [alias for alias in node.names if alias.asname not in (None, alias.name)]


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a file binds, but for what it imports under another name at its top."""
    renamed = {id(alias) for node in tree.body for alias in _renamed(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias) and id(node) not in renamed:
            yield node.asname or node.name
