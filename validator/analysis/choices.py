"""Which class a factory takes: an entry of a table of classes, or one arm of a conditional expression.

Only what is written out counts: a table that gets entries of unknown class, or from another module, is no table.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from validator.project import ClassDef, Method, Module, Project, Value

Classes = frozenset[ClassDef]
NOTHING: Classes = frozenset()
_LOOKUPS = ("[]", ".get()")


class Choices:
    """`instances` asks what a path is an instance of, as `Types.of`."""

    def __init__(self, project: Project, instances: Callable[[Method, str], Classes]) -> None:
        self.project = project
        self.instances = instances
        self._tables: dict[tuple[Module, str], Classes] = {}

    def named(self, function: Method, path: str) -> Classes:
        """The classes that a path may stand for, as classes: `TABLE[key]`, `TABLE.get(key)`, or a name given one."""
        for lookup in _LOOKUPS:
            if path.endswith(lookup):
                symbol = self.project.lookup(function, path.removesuffix(lookup))
                return self._table(symbol.module, symbol.name) if isinstance(symbol, Value) else NOTHING
        if "." in path or "(" in path or path not in function.facts.bound:
            return NOTHING
        rows = [row for row in function.facts.assigns if row.target == path]
        if not rows or len(rows) != len([row for row in rows if row.kind in ("path", "call", "other")]):
            return NOTHING
        return union(self._class_of(function, row.value + "()" * (row.kind == "call")) for row in rows)

    def made(self, function: Method, text: str) -> Classes:
        """What a conditional expression may be an instance of, where each arm is known."""
        arms = _arms(text)
        return union(self.instances(function, arm) for arm in arms) if len(arms) > 1 else NOTHING

    def _class_of(self, function: Method, text: str) -> Classes:
        if text.endswith(_LOOKUPS):
            return self.named(function, text)
        found = []
        for arm in _arms(text):
            symbol = self.project.lookup(function, arm)
            found.append(frozenset({symbol}) if isinstance(symbol, ClassDef) else NOTHING)
        return union(found)

    def _table(self, module: Module, name: str) -> Classes:
        key = module, name
        if key not in self._tables:
            self._tables[key] = self._read_table(module, name)
        return self._tables[key]

    def _read_table(self, module: Module, name: str) -> Classes:
        """The classes in a table of the module: all that the module puts into it, if it is nothing but classes."""
        rows = [row for row in module.top.facts.assigns if row.target == name]
        if not rows or not all(row.value.startswith("{") or row.value == "dict" for row in rows):
            return NOTHING
        found: list[Classes] = []
        for value in _entries(module.source.tree, name):
            symbol = self.project.lookup(module.top, ast.unparse(value)) if _is_path(value) else None
            found.append(frozenset({symbol}) if isinstance(symbol, ClassDef) else NOTHING)
        return union(found)


def _entries(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """What is put into a table: in its display, and one by one. Another kind of value comes as it is."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and target.id == name:
                yield from _values(node.value)
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == name:
                yield node.value


def _values(table: ast.expr) -> list[ast.expr]:
    if isinstance(table, ast.Dict):
        return table.values
    if isinstance(table, ast.Call) and isinstance(table.func, ast.Name) and table.func.id == "dict" and not table.args:
        return [keyword.value for keyword in table.keywords]
    return [table]


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or isinstance(node, ast.Attribute) and _is_path(node.value)


def _arms(text: str) -> list[str]:
    """The arms of a conditional expression as paths, calls without their arguments; the text itself if it is none."""
    if " if " not in text:
        return [text]
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return [text]  # cut off where it was too long
    return [_path(arm) for arm in _ends(node)]


def _ends(node: ast.expr) -> list[ast.expr]:
    return [*_ends(node.body), *_ends(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def _path(node: ast.expr) -> str:
    return ast.unparse(node.func) + "()" if isinstance(node, ast.Call) else ast.unparse(node)


def union(sources: Iterable[Classes]) -> Classes:
    """What a value may be, given each of its sources; nothing if one of them is not known."""
    found: set[ClassDef] = set()
    for classes in sources:
        if not classes:
            return NOTHING
        found |= classes
    return frozenset(found)
