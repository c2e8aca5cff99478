"""The expressions that the names and attributes of a function are bound to, as syntax."""

from __future__ import annotations

import ast
from functools import lru_cache

from validator.facts.model import Call
from validator.facts.text import path_of
from validator.project import ClassDef, Method, Project

_SCOPES = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda})
_LEAVES = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
_INNER = frozenset(
    kind for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and not issubclass(kind, _LEAVES)
)  # fmt: skip


class Bindings:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[Method, dict[str, list[ast.expr | None]]] = {}

    def of(self, function: Method) -> dict[str, list[ast.expr | None]]:
        """The values bound to each name and attribute in a function; None for one that is no whole expression."""
        if function not in self._known:
            found: dict[str, list[ast.expr | None]] = {}
            node = function.node
            for each in own_nodes(node) if node is not None else ():
                for target, value in _bound(each):
                    found.setdefault(target, []).append(value)
            self._known[function] = found
        return self._known[function]

    def attribute(self, cls: ClassDef, name: str) -> list[tuple[Method, ast.expr | None]]:
        """What the methods of a class and of its bases bind to an attribute of their objects."""
        found: list[tuple[Method, ast.expr | None]] = []
        for owner in cls.mro:
            for method in owner.every_method():
                path = f"{first_name(method) or 'self'}.{name}"
                if any(row.target == path for row in method.facts.assigns):
                    found += [(method, value) for value in self.of(method).get(path, [])]
        return found


def first_name(function: Method) -> str:
    """The name under which a method knows its object, empty for functions."""
    return function.facts.params[0].name if function.is_method and function.facts.params else ""


def call_node(function: Method, call: Call) -> ast.Call | None:
    """The syntax of a call."""
    node = function.node
    text = function.module.source_text
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Call) and each.lineno == call.at[0] and text.at(each) == call.at:
            return each
    return None


@lru_cache(maxsize=256)  # several rules look at the same few functions
def own_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes of a function without those of the functions and classes inside it, and without operators."""
    found: list[ast.AST] = []
    stack = _children(node)
    while stack:
        each = stack.pop()
        found.append(each)
        if each.__class__ not in _SCOPES:
            stack += _children(each)
    return found


def _children(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`, which takes twice as long, without operators and contexts."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [each for each in value if each.__class__ in _INNER]
        elif value.__class__ in _INNER:
            found.append(value)
    return found


def _bound(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    """The (path, value) pairs that a statement binds; no value where it is a part of one."""
    if isinstance(node, ast.Assign):
        return [row for target in node.targets for row in _targets(target, node.value)]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return _targets(node.target, node.value)
    if isinstance(node, ast.AugAssign):
        return _targets(node.target, None)
    if isinstance(node, ast.NamedExpr):
        return _targets(node.target, node.value)
    if isinstance(node, ast.For | ast.AsyncFor):
        return _targets(node.target, None)
    return []


def _targets(target: ast.expr, value: ast.expr | None) -> list[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Tuple | ast.List):
        parts: list[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            parts = list(value.elts)
        return [row for each, part in zip(target.elts, parts, strict=True) for row in _targets(each, part)]
    return [(path_of(target), value)] if isinstance(target, ast.Name | ast.Attribute) else []
