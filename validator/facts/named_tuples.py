"""Named tuples that are made by a call, written out as the classes that they are.

`Batch = namedtuple("Batch", ["tokens", "mask"])` becomes `class Batch(namedtuple)` with two annotated names, so that
facts, objects and rules know its fields. What is computed stays a call.
"""

from __future__ import annotations

import ast

from validator.facts.text import path_of

_MAKERS = {"namedtuple": "collections", "NamedTuple": "typing"}


def write_out(tree: ast.Module) -> ast.Module:
    """Replace such assignments at the top of a module; returns the same tree."""
    makers = {(alias.asname or alias.name) for node in tree.body for alias in _imported(node)}
    written = _constants(tree) if makers else {}
    for index, node in enumerate(tree.body if makers else ()):
        made = _class(node, makers, written)
        if made is not None:
            tree.body[index] = made
    return tree


def _imported(node: ast.stmt) -> list[ast.alias]:
    """What an import binds that makes named tuples, or is the module that does."""
    if isinstance(node, ast.ImportFrom):
        return [alias for alias in node.names if _MAKERS.get(alias.name) == node.module and not node.level]
    return [alias for alias in node.names if alias.name in _MAKERS.values()] if isinstance(node, ast.Import) else []


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """By name what is written at the top of a module and bound nowhere else in it: lists of names stand there."""
    bound = [each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)]
    rows = (node for node in tree.body if isinstance(node, ast.Assign) and len(node.targets) == 1)
    named = (
        (node.targets[0], node.value) for node in rows if isinstance(node.value, ast.List | ast.Tuple | ast.Constant)
    )
    return {name.id: value for name, value in named if isinstance(name, ast.Name) and bound.count(name.id) == 1}


def _class(node: ast.stmt, makers: set[str], written: dict[str, ast.expr]) -> ast.ClassDef | None:
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Call):
        return None
    target, call = node.targets[0], node.value
    module, _, name = path_of(call.func).rpartition(".")
    if not isinstance(target, ast.Name) or (module or name) not in makers or module and name not in _MAKERS:
        return None
    fields = _fields(call, written)
    if fields is None or len(call.args) != 2 or any(k.arg != "defaults" for k in call.keywords):
        return None
    body: list[ast.stmt] = [_field(*field) for field in fields]
    made = ast.ClassDef(name=target.id, bases=[call.func], keywords=[], body=body or [ast.Pass()], decorator_list=[])
    made.type_params = []  # type: ignore[attr-defined]  # Python 3.12
    return ast.fix_missing_locations(ast.copy_location(made, node))


def _fields(call: ast.Call, written: dict[str, ast.expr]) -> list[tuple[ast.expr, ast.expr, ast.expr | None]] | None:
    """The name of each field as written, its annotation, its default; None where they are computed."""
    given = call.args[1] if len(call.args) > 1 else None
    given = written.get(given.id) if isinstance(given, ast.Name) else given
    rows = _named(given) if given is not None else None
    defaults = next((k.value for k in call.keywords), None)
    values = defaults.elts if isinstance(defaults, ast.List | ast.Tuple) else []
    if rows is None or defaults is not None and not values:
        return None
    if not all(isinstance(name, ast.Constant) and str(name.value).isidentifier() for name, _ in rows):
        return None
    return [(*row, each) for row, each in zip(rows, [*[None] * (len(rows) - len(values)), *values], strict=False)]


def _named(given: ast.expr) -> list[tuple[ast.expr, ast.expr]] | None:
    """The names of the fields, each with what says its type."""
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        words = [ast.copy_location(ast.Constant(word), given) for word in given.value.replace(",", " ").split()]
        return [(word, word) for word in words]
    if not isinstance(given, ast.List | ast.Tuple):
        return None
    rows = [each.elts if isinstance(each, ast.Tuple) else [each] for each in given.elts]
    return [(row[0], row[-1]) for row in rows if row]


def _field(name: ast.expr, hint: ast.expr, default: ast.expr | None) -> ast.stmt:
    assert isinstance(name, ast.Constant)
    target = ast.copy_location(ast.Name(id=str(name.value), ctx=ast.Store()), name)
    return ast.copy_location(ast.AnnAssign(target=target, annotation=hint, value=default, simple=1), name)
