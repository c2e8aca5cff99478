"""Which variables a code unit binds itself, by Python's scoping rules."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


class Names(NamedTuple):
    """The names of one unit: its own variables, and those that it declares to be of the module or of a unit around."""

    bound: frozenset[str]
    globals: frozenset[str]
    nonlocals: frozenset[str]


# Where in a node others may bind names, but for assignment expressions.
_BINDING: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Assign: ("targets",), ast.AugAssign: ("target",), ast.AnnAssign: ("target",), ast.Delete: ("targets",),
    ast.For: ("target", "body", "orelse"), ast.AsyncFor: ("target", "body", "orelse"),
    ast.While: ("body", "orelse"), ast.If: ("body", "orelse"), ast.With: ("items", "body"),
    ast.AsyncWith: ("items", "body"), ast.withitem: ("optional_vars",), ast.ExceptHandler: ("body",),
    ast.Try: ("body", "handlers", "orelse", "finalbody"),
    ast.Tuple: ("elts",), ast.List: ("elts",), ast.Starred: ("value",), ast.Match: ("cases",),
    ast.match_case: ("pattern", "body"), ast.MatchSequence: ("patterns",), ast.MatchMapping: ("patterns",),
    ast.MatchClass: ("patterns", "kwd_patterns"), ast.MatchOr: ("patterns",), ast.MatchAs: ("pattern",),
}  # fmt: skip
if sys.version_info >= (3, 11):
    _BINDING[ast.TryStar] = _BINDING[ast.Try]
if sys.version_info >= (3, 12):
    _BINDING[ast.TypeAlias] = ("name",)


def names_of(params: Iterable[str], body: Iterable[ast.AST], walrus: bool = True) -> Names:
    """The names that parameters and the statements of a body bind; bodies of nested units are not entered.

    `walrus`: whether there may be assignment expressions; without them only targets need to be looked at.
    """
    bound: set[str] = set(params)
    global_names: set[str] = set()
    nonlocals: set[str] = set()
    for node in _own_nodes(body) if walrus else statements(body):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
        elif isinstance(node, Definition):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            if node.name:
                bound.add(node.name)
        elif isinstance(node, ast.MatchMapping):
            if node.rest:
                bound.add(node.rest)
        elif isinstance(node, ast.Global):
            global_names.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            nonlocals.update(node.names)
    return Names(frozenset(bound - global_names - nonlocals), frozenset(global_names), frozenset(nonlocals))


def statements(body: Iterable[ast.AST], inside: bool = False) -> Iterator[ast.AST]:
    """Statements and what they assign to, expressions left out; those of units inside only where they are asked for."""
    stack = list(body)
    while stack:
        node = stack.pop()
        yield node
        fields = _BINDING.get(type(node), ("body",) if inside and isinstance(node, Definition) else ())
        for field in fields:
            held = getattr(node, field)
            if isinstance(held, list):
                stack += held
            elif held is not None:
                stack.append(held)


def _own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a unit without those of units inside it; of a comprehension only what binds outside of it."""
    stack = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, Definition):
            yield node
            stack += node.decorator_list
            if isinstance(node, ast.ClassDef):
                stack += [*node.bases, *(k.value for k in node.keywords)]
            else:
                stack += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
        elif isinstance(node, ast.Lambda):
            stack += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
        elif isinstance(node, _COMPREHENSIONS):
            stack += _assigned_inside(node)
        else:
            yield node
            stack += ast.iter_child_nodes(node)


def _assigned_inside(comprehension: ast.AST) -> list[ast.AST]:
    """The targets of assignment expressions inside a comprehension: they are variables of the unit around."""
    return [n.target for n in ast.walk(comprehension) if isinstance(n, ast.NamedExpr)]


def parameters(node: ast.arguments) -> tuple[tuple[str, str], ...]:
    """The parameters as (name, kind) in the order of their positions."""
    rows = [(a.arg, "pos") for a in node.posonlyargs] + [(a.arg, "any") for a in node.args]
    if node.vararg:
        rows.append((node.vararg.arg, "*"))
    rows += [(a.arg, "kw") for a in node.kwonlyargs]
    if node.kwarg:
        rows.append((node.kwarg.arg, "**"))
    return tuple(rows)


def defaults(node: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    """The parameters that have a default, with it."""
    positional = [*node.posonlyargs, *node.args]
    if node.defaults:
        for argument, default in zip(positional[-len(node.defaults) :], node.defaults, strict=True):
            yield argument.arg, default
    for argument, keyword_default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
        if keyword_default is not None:
            yield argument.arg, keyword_default
