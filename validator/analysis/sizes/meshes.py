"""Device meshes: where they are made, of which dimensions, and which of those a value is a part of."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import NamedTuple

from validator.analysis.bindings import Bindings, call_node
from validator.analysis.sizes.single_sizes import Known, is_one, known_at, overrides
from validator.analysis.sources import Source, Sources
from validator.facts.model import Argument, Call
from validator.facts.text import path_of
from validator.project import Method, Project

_DEPTH = 10


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


class _Way(NamedTuple):
    """What a value is on one way through the source, with the tests that lead there."""

    source: Source
    parts: list[Part]
    known: tuple[Known, ...]


class Meshes:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.bindings = project.analysis(Bindings)
        self.sources = project.analysis(Sources)
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
    def flattened(self) -> dict[str, tuple[str, ...]]:
        """The names given to flattened dimensions, `mesh["dp", "cp"]._flatten("dp_cp")`, with those they are made of.

        The latter are empty where the source does not tell them.
        """
        found: dict[str, tuple[str, ...]] = {}
        for function, call in self.project.calls("_flatten", "_unflatten", "_concatenate", "_rename"):
            node = call_node(function, call) if call.method == "_flatten" else None
            over = node.func.value if node is not None and isinstance(node.func, ast.Attribute) else None
            keys = (_keys(over.slice) if isinstance(over, ast.Subscript) else None) or ()
            names = [n for a in call.args for n in self._flat_name(function, a)]
            for name in names or ["_".join(keys)] * bool(keys):
                found[name] = keys or found.get(name, ())
        return found

    def _flat_name(self, function: Method, argument: Argument) -> list[str]:
        """The name that an argument spells, or that a constant of a module holds."""
        if argument.kind == "const":
            return [argument.value.strip("\"'")]
        values = [row.value for row in self.sources.of(function, argument.value)] if argument.kind == "path" else []
        return [text for value in values if (text := _text(value))]

    @cached_property
    def names_computed(self) -> bool:
        """Whether some flattened dimension has a name that the source does not spell."""
        return any(
            argument.kind != "const" and not self._flat_name(function, argument)
            for function, call in self.project.calls("_flatten")
            for argument in call.args
            if "mesh" in function.module.source.text
        )

    def flattened_of(self, mesh: Mesh) -> tuple[str, ...]:
        """The flattened dimensions that are made of those of one mesh."""
        rows = self.flattened.items()
        return tuple(name for name, keys in rows if keys and set(keys) <= {*(mesh.names or ()), *self.flattened})

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
            grown = any(call.receiver == node.id for call in function.facts.calls)  # `names.append("cp")`
            node = values[0] if len(values) == 1 and not grown else None
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
        if key in self._parts or depth >= _DEPTH:
            return self._parts.get(key, [])
        self._parts[key] = []  # a cycle adds nothing
        self._parts[key] = self._union(self.sources.of(function, path), depth) or []
        return self._parts[key]

    def part(self, function: Method, node: ast.expr, depth: int = 0) -> list[Part] | None:
        """What an expression may be of meshes; None where it cannot be told."""
        if not self.all:
            return None
        if isinstance(node, ast.Constant) and node.value is None:
            return []
        if isinstance(node, ast.IfExp):
            test = ast.unparse(node.test)
            sides = [(Source(function, node.body), (test, True)), (Source(function, node.orelse), (test, False))]
            return self._union([side for side, _ in sides], depth, [known for _, known in sides])
        if isinstance(node, ast.Call):
            return self._call(function, node, depth)
        if isinstance(node, ast.Subscript):
            owner, asked = self.part(function, node.value, depth), self.keys(function, node.slice)
            return [self._of(p.mesh, keys) for p in owner for keys in asked] if owner and asked else None
        if isinstance(node, ast.Name | ast.Attribute):
            return self.parts(function, path_of(node), depth + 1) or None
        return None

    def _call(self, function: Method, node: ast.Call, depth: int) -> list[Part] | None:
        made = [mesh for mesh in self.all if _same(mesh.call, node) and mesh.function is function]
        if made:
            return [Part(made[0], ())]
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("_flatten", "get_group"):
            owner = self.part(function, node.func.value, depth)
            named = _keys(node.args[0]) if node.args and node.func.attr == "get_group" else None
            return [self._of(p.mesh, named or p.keys) for p in owner] if owner is not None else None
        rows = self.sources.returned(function, node) if depth < _DEPTH else []
        return self._union(rows, depth + 1) or None

    def _union(self, rows: list[Source], depth: int, known: list[Known] | None = None) -> list[Part] | None:
        """What several expressions may be; None where one of them cannot be told. `known`: of each the test."""
        ways: list[_Way] = []
        for index, (owner, value) in enumerate(rows):
            parts = self.part(owner, value, depth) if value is not None else None
            if parts is None:
                return None
            ways.append(_Way(rows[index], parts, (known[index],) if known else ()))
        found: list[Part] = []
        for way in ways:
            others = [other for other in ways if other is not way]
            found += [p for p in way.parts if p not in found and not any(_stands_for(o, way, p) for o in others)]
        return found

    def keys(self, function: Method, node: ast.expr, depth: int = 0) -> list[tuple[str, ...]] | None:
        """The names that an index may spell, itself or through a local name; None where it is computed."""
        if depth >= _DEPTH:  # `key = key if … else "dp"`
            return None
        if isinstance(node, ast.IfExp):
            sides = [self.keys(function, side, depth + 1) for side in (node.body, node.orelse)]
            return None if None in sides else [keys for side in sides for keys in side or ()]
        if isinstance(node, ast.Name):
            values = self.bindings.of(function).get(node.id, [])
            grown = any(call.receiver == node.id for call in function.facts.calls)
            value = values[0] if len(values) == 1 and not grown else None
            if value is None or isinstance(value, ast.Name):
                return None
            return self.keys(function, value, depth + 1)
        spelled = _keys(node)
        return [spelled] if spelled else None

    def _of(self, mesh: Mesh, keys: tuple[str, ...]) -> Part:
        """The part of a mesh that names stand for, flattened ones resolved to the dimensions that they are made of."""
        own = mesh.names or ()
        for _ in range(3):  # flattened of flattened
            keys = tuple(k for key in keys for k in (key not in own and self.flattened.get(key)) or (key,))
        return Part(mesh, keys)


def _stands_for(other: _Way, way: _Way, part: Part) -> bool:
    """Whether a part of a mesh is one of another way, less dimensions that have one rank where it is taken."""
    lacking = [
        [key for key in wide.keys or wide.mesh.names or () if key not in part.keys]
        for wide in other.parts
        if part.keys and wide.mesh == part.mesh and {*part.keys} < {*(wide.keys or wide.mesh.names or ())}
    ]
    if not lacking:
        return False
    (function, value), (also, instead) = way.source, other.source
    known = list(way.known)
    if not known and value is not None:
        known += known_at(function, value)
        known += overrides(function, value, instead) if also is function and instead is not None else []
    return any(all(is_one(key, part.mesh.size(key), known) for key in keys) for keys in lacking)


def _keys(node: ast.expr) -> tuple[str, ...] | None:
    """The names in `mesh["dp"]`, `mesh["dp", "cp"]` and `mesh[("dp", "cp")]`."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    names = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
    return tuple(names) if names and len(names) == len(parts) else None


def _text(node: ast.expr | None) -> str:
    """The text that an expression spells: a string, or strings joined by one; empty for others."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join" and node.args:
        between, parts = node.func.value, _keys(node.args[0])
        return str(between.value).join(parts) if isinstance(between, ast.Constant) and parts else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _same(a: ast.AST, b: ast.AST) -> bool:
    places = [(getattr(n, "lineno", 0), getattr(n, "col_offset", 0)) for n in (a, b)]
    return places[0] == places[1]
