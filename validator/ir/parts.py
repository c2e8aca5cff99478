"""Functions that are a part of another one: private ones that their file names twice, where it defines them and
where it calls them.

To cut a piece out of a function changes nothing that it does. So the caller is lowered with the body in the place of
the call. The function itself stays a unit, too, for whoever asks about it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from validator.ir.scopes import names_of

_KEPT_APART = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom,
    ast.Await, ast.AsyncFor, ast.AsyncWith,
)  # fmt: skip
_OF_FRAMES = frozenset({"super", "locals", "vars", "__class__", "exec", "eval"})


class Part(NamedTuple):
    """One of them: its class, its parameters with the defaults that are constants, and the names that it binds."""

    name: str
    cls: str
    params: tuple[str, ...]
    defaults: dict[str, ast.Constant]
    body: list[ast.stmt]
    bound: frozenset[str]

    def given(self, call: ast.Call) -> dict[str, ast.expr] | None:
        """What a call gives for each parameter; None where that cannot be told."""
        if len(call.args) > len(self.params) or any(isinstance(each, ast.Starred) for each in call.args):
            return None
        given: dict[str, ast.expr] = dict(zip(self.params, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg not in self.params or keyword.arg in given:
                return None
            given[keyword.arg] = keyword.value
        for name in self.params:
            if name not in given:
                if name not in self.defaults:
                    return None
                given[name] = self.defaults[name]
        return given


def parts_of(tree: ast.Module, elsewhere: frozenset[str]) -> dict[str, Part]:
    """The parts of a file, as they are called: `name`, or `.name` on `self`. Nothing `elsewhere` is called like one."""
    rows = _private(tree, elsewhere)
    named = _mentions(tree, {node.name for _, node in rows}) if rows else {}
    found = {}
    for owner, node in rows:
        part = _part(owner, node) if named[node.name] == 1 else None
        if part is not None:
            found["." + node.name if owner else node.name] = part
    return found


def _private(tree: ast.Module, elsewhere: frozenset[str]) -> list[tuple[str, ast.FunctionDef]]:
    """The private functions and methods of a file whose name only one of them has, each with the name of its class."""
    bodies = [("", tree.body), *((cls.name, cls.body) for cls in tree.body if isinstance(cls, ast.ClassDef))]
    rows = [
        (owner, n) for owner, body in bodies for n in body if isinstance(n, ast.FunctionDef) and _is_private(n.name)
    ]
    defined = Counter(node.name for _, node in rows)
    return [(owner, n) for owner, n in rows if defined[n.name] == 1 and n.name not in elsewhere]


def _mentions(tree: ast.Module, names: Iterable[str]) -> Counter[str]:
    """How often a file says each name besides its definition: as a name, an attribute, a text or a part of one."""
    found = Counter(dict.fromkeys(names, 0))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            said: Iterable[str | None] = (node.id,)
        elif isinstance(node, ast.Attribute):
            said = (node.attr,)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            said = node.value.split(".") if "_" in node.value else ()
        elif isinstance(node, ast.keyword | ast.arg):
            said = (node.arg,)
        elif isinstance(node, ast.alias):
            said = (node.name, node.asname)
        else:
            continue
        found.update(name for name in said if name is not None and name in found)
    return found


def _part(cls: str, node: ast.FunctionDef) -> Part | None:
    arguments = node.args
    named = arguments.args
    others = arguments.posonlyargs or arguments.vararg or arguments.kwarg or arguments.kwonlyargs
    said = [node.returns, *(each.annotation for each in named)]
    if node.decorator_list or others or not all(map(_says_nothing, said)):
        return None
    params = [each.arg for each in named]
    if cls and params[:1] != ["self"]:
        return None
    defaults = {each.arg: value for each, value in zip(reversed(named), reversed(arguments.defaults), strict=False)}
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    if not body or not _is_straight(body):
        return None
    constant = {name: value for name, value in defaults.items() if isinstance(value, ast.Constant)}
    bound = names_of((), body).bound
    if cls and "self" in bound:
        return None
    return Part(node.name, cls, tuple(params[1:] if cls else params), constant, body, bound)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _says_nothing(annotation: ast.expr | None) -> bool:
    """Whether an annotation says nothing that would be forgotten where the body stands in the caller."""
    if annotation is None or isinstance(annotation, ast.Constant) and annotation.value is None:
        return True
    return isinstance(annotation, ast.Name) and annotation.id in ("int", "float", "str", "bool")


def _is_straight(body: list[ast.stmt]) -> bool:
    """Whether a body ends at its end, and nothing in it needs a frame of its own."""
    last = body[-1]
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, _KEPT_APART) or isinstance(node, ast.Return) and node is not last:
                return False
            if isinstance(node, ast.Name) and node.id in _OF_FRAMES:
                return False
    return True
