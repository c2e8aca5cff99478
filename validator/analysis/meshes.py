"""Device meshes: where they are made, of which dimensions, and which of those a value is a part of."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import NamedTuple

from validator.analysis.bindings import Bindings, call_node, first_name
from validator.facts.model import Call
from validator.facts.text import path_of
from validator.project import Method, Project

_DEPTH = 6


class Mesh(NamedTuple):
    """A device mesh: the names of its dimensions and their sizes, None where the source does not tell them."""

    names: tuple[str, ...] | None
    shape: tuple[ast.expr, ...] | None
    function: Method
    call: ast.Call

    def size(self, name: str) -> ast.expr | None:
        """The size of a named dimension."""
        if self.names is None or self.shape is None or len(self.names) != len(self.shape) or name not in self.names:
            return None
        return self.shape[self.names.index(name)]


class Part(NamedTuple):
    """A value that is some dimensions of a mesh. `keys` are their names as written; empty for the whole mesh."""

    mesh: Mesh
    keys: tuple[str, ...]


class Meshes:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.bindings = project.analysis(Bindings)
        self._parts: dict[tuple[Method, str], list[Part]] = {}

    @cached_property
    def all(self) -> list[Mesh]:
        """Every device mesh that the project makes."""
        return [
            mesh
            for function, call in self.project.calls("init_device_mesh")
            if (mesh := self._made(function, call)) is not None
        ]

    @cached_property
    def flattened(self) -> frozenset[str]:
        """The names given to flattened dimensions, `mesh["dp", "cp"]._flatten("dp_cp")`."""
        found: set[str] = set()
        for _, call in self.project.calls("_flatten", "_unflatten", "_concatenate", "_rename"):
            found.update(a.value.strip("\"'") for a in call.args)
        return frozenset(found)

    @cached_property
    def _whole(self) -> dict[str, tuple[str, ...]]:
        """The dimensions that each flattened one is made of."""
        found: dict[str, tuple[str, ...]] = {}
        for function, call in self.project.calls("_flatten"):
            node = call_node(function, call)
            over = node.func.value if node is not None and isinstance(node.func, ast.Attribute) else None
            keys = _keys(over.slice) if isinstance(over, ast.Subscript) else None
            for argument in call.args if keys else ():
                found[argument.value.strip("\"'")] = keys or ()
        return found

    def _made(self, function: Method, call: Call) -> Mesh | None:
        node = call_node(function, call)
        if node is None:
            return None
        values = {k.arg: k.value for k in node.keywords}
        shape = values.get("mesh_shape", node.args[1] if len(node.args) > 1 else None)
        names = values.get("mesh_dim_names", node.args[2] if len(node.args) > 2 else None)
        return Mesh(self._names(function, names), self._elements(function, shape), function, node)

    def _elements(self, function: Method, node: ast.expr | None) -> tuple[ast.expr, ...] | None:
        if isinstance(node, ast.Name):
            values = self.bindings.of(function).get(node.id, [])
            node = values[0] if len(values) == 1 else None
        if isinstance(node, ast.Tuple | ast.List) and not any(isinstance(e, ast.Starred) for e in node.elts):
            return tuple(node.elts)
        return None

    def _names(self, function: Method, node: ast.expr | None) -> tuple[str, ...] | None:
        parts = self._elements(function, node)
        if parts is None or not all(isinstance(p, ast.Constant) and isinstance(p.value, str) for p in parts):
            return None
        return tuple(str(p.value) for p in parts if isinstance(p, ast.Constant))

    # -- values --------------------------------------------------------------------------------------------

    def mesh(self, function: Method, path: str) -> Mesh | None:
        """The mesh that a name or an attribute holds whole, where one call makes it."""
        parts = self.parts(function, path)
        return parts[0].mesh if len(parts) == 1 and not parts[0].keys else None

    def parts(self, function: Method, path: str, depth: int = 0) -> list[Part]:
        """What a name or an attribute may hold of meshes; empty where a value of it is unknown."""
        key = (function, path)
        if key not in self._parts:
            self._parts[key] = []  # a cycle adds nothing
            if depth < _DEPTH:
                self._parts[key] = self._found(function, path, depth)
        return self._parts[key]

    def part(self, function: Method, node: ast.expr, depth: int = 0) -> list[Part] | None:
        """What an expression may be of meshes; None where it cannot be told."""
        if isinstance(node, ast.Constant) and node.value is None:
            return []
        if isinstance(node, ast.IfExp):
            sides = [self.part(function, side, depth) for side in (node.body, node.orelse)]
            return None if None in sides else [p for side in sides for p in side or ()]
        if isinstance(node, ast.Call):
            made = [mesh for mesh in self.all if _same(mesh.call, node) and mesh.function is function]
            if made:
                return [Part(made[0], ())]
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("_flatten", "get_group"):
                owner = self.part(function, node.func.value, depth)
                named = _keys(node.args[0]) if node.args and node.func.attr == "get_group" else None
                return [Part(p.mesh, named or p.keys) for p in owner] if owner is not None else None
            return None
        if isinstance(node, ast.Subscript):
            owner, asked = self.part(function, node.value, depth), _keys(node.slice)
            keys = tuple(k for key in asked for k in self._whole.get(key, (key,))) if asked else None
            return [Part(p.mesh, keys) for p in owner] if owner and keys else None
        if isinstance(node, ast.Name | ast.Attribute):
            return self.parts(function, path_of(node), depth + 1) or None
        return None

    def _found(self, function: Method, path: str, depth: int) -> list[Part]:
        rows = self._values(function, path)
        found: list[Part] = []
        for owner, value in rows:
            parts = self.part(owner, value, depth) if value is not None else None
            if parts is None:
                return []
            found += [p for p in parts if p not in found]
        return found

    def _values(self, function: Method, path: str) -> list[tuple[Method, ast.expr | None]]:
        """The expressions that a path may have been bound to, with the functions they stand in."""
        head, _, name = path.partition(".")
        if name:
            own = head == first_name(function) and "." not in name and function.cls is not None
            return self.bindings.attribute(function.cls, name) if own and function.cls is not None else []
        values = self.bindings.of(function).get(path)
        if values:
            return [(function, value) for value in values]
        if any(p.name == path for p in function.facts.params):
            calls = self.project.types.callers.get(function, [])
            passed = list(self.project.types.passed(function, path))
            if len(passed) == len(calls):
                return [(caller, ast.parse(value, mode="eval").body) for caller, value in passed if _plain(value)]
        if function.enclosing is not None:
            return self._values(function.enclosing, path)
        return []


def _plain(path: str) -> bool:
    return all(link.isidentifier() for link in path.split("."))


def _keys(node: ast.expr) -> tuple[str, ...] | None:
    """The names in `mesh["dp"]`, `mesh["dp", "cp"]` and `mesh[("dp", "cp")]`."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    names = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
    return tuple(names) if names and len(names) == len(parts) else None


def _same(a: ast.AST, b: ast.AST) -> bool:
    places = [(getattr(n, "lineno", 0), getattr(n, "col_offset", 0)) for n in (a, b)]
    return places[0] == places[1]
