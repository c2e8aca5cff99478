"""Where process groups come from: which ranks a variable or an attribute that holds a group stands for."""

from __future__ import annotations

import ast
from typing import NamedTuple

from validator.analysis.bindings import Bindings, first_name, own_nodes
from validator.analysis.meshes import Meshes
from validator.facts.text import path_of
from validator.project import Method, Project

_MAKER = "new_group"
_DEPTH = 4


class Origin(NamedTuple):
    """How a group is made. `kind`: `ranks` (a literal list), `loop` (one of several groups), `mesh` (a dimension),
    `all` (the only dimension of a mesh: the whole job).

    `ranks`: of the literal list, in the job. `line`: where it is made, in `path`.
    """

    kind: str
    ranks: tuple[int, ...]
    path: str
    line: int


class Groups:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.bindings = project.analysis(Bindings)
        self.meshes = project.analysis(Meshes)
        self._known: dict[tuple[Method, str], Origin | None] = {}

    def origin(self, function: Method, path: str) -> Origin | None:
        """How the group that a path holds is made, where one way is all there is; None where it is not known."""
        key = (function, path)
        if key not in self._known:
            self._known[key] = None  # a cycle adds nothing
            self._known[key] = self._origin(function, path, 0)
        return self._known[key]

    def _origin(self, function: Method, path: str, depth: int) -> Origin | None:
        if depth > _DEPTH:
            return None
        found = {self._made(owner, value, depth) for owner, value in self._values(function, path)}
        # `group = None` beforehand says nothing of the group
        found.discard(_NOTHING)
        return found.pop() if len(found) == 1 else None

    def _values(self, function: Method, path: str) -> list[tuple[Method, ast.expr | None]]:
        head, _, name = path.partition(".")
        if name:
            own = head == first_name(function) and "." not in name and function.cls is not None
            return self.bindings.attribute(function.cls, name) if own and function.cls is not None else []
        scope: Method | None = function
        while scope is not None:
            values = self.bindings.of(scope).get(path)
            if values:
                return [(scope, value) for value in values]
            if any(p.name == path for p in scope.facts.params):
                return []
            scope = scope.enclosing
        top = function.module.top
        return [(top, value) for value in self.bindings.of(top).get(path, [])]

    def _made(self, function: Method, value: ast.expr | None, depth: int) -> Origin | None:
        if isinstance(value, ast.Constant) and value.value is None:
            return _NOTHING
        if isinstance(value, ast.Name | ast.Attribute):
            return self._origin(function, path_of(value), depth + 1)
        if not isinstance(value, ast.Call):
            return None
        name = path_of(value.func).rpartition(".")[2]
        if name == _MAKER:
            return self._new_group(function, value)
        if name == "get_group" and isinstance(value.func, ast.Attribute):
            return self._of_mesh(function, value)
        return None

    def _new_group(self, function: Method, call: ast.Call) -> Origin | None:
        dotted = self.project.dotted(function, path_of(call.func))
        if not dotted.startswith(("torch.distributed.", "deepspeed.comm.")):
            return None
        given = next((k.value for k in call.keywords if k.arg == "ranks"), call.args[0] if call.args else None)
        ranks = literal_ranks(self.bindings, function, given)
        if ranks is not None:
            return Origin("ranks", ranks, function.path, call.lineno)
        return Origin("loop", (), function.path, call.lineno) if given is not None and _looped(function, call) else None

    def _of_mesh(self, function: Method, call: ast.Call) -> Origin | None:
        """A dimension of a mesh, unless the mesh has but one, which is then the whole job."""
        assert isinstance(call.func, ast.Attribute)
        named = bool(call.args) or bool(call.keywords)
        if not named and not isinstance(call.func.value, ast.Subscript):
            return None
        parts = self.meshes.part(function, call.func.value) or []
        if any(part.mesh.shape is not None and len(part.mesh.shape) == 1 for part in parts):
            return Origin("all", (), function.path, call.lineno)
        return Origin("mesh", (), function.path, call.lineno)


_NOTHING = Origin("none", (), "", 0)


def literal_ranks(bindings: Bindings, function: Method, node: ast.expr | None) -> tuple[int, ...] | None:
    """The ranks that a literal list, or a name bound once to one, holds."""
    if isinstance(node, ast.Name):
        values = bindings.of(function).get(node.id, [])
        node = values[0] if len(values) == 1 else None
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    ranks = tuple(e.value for e in node.elts if isinstance(e, ast.Constant) and type(e.value) is int)
    return ranks if ranks and len(ranks) == len(node.elts) else None


def _looped(function: Method, call: ast.Call) -> bool:
    """Whether a call stands in a loop: it makes one group of several."""
    node = function.node
    for each in own_nodes(node) if node is not None else ():
        if isinstance(each, ast.For) and each.lineno < call.lineno <= (each.end_lineno or 0):
            return True
    return False
