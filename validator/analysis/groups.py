"""Where process groups come from: which ranks a variable or an attribute that holds a group stands for."""

from __future__ import annotations

import ast
from typing import NamedTuple

from validator.analysis.bindings import Bindings, own_nodes
from validator.analysis.meshes import Meshes, Part
from validator.analysis.sources import Source, Sources
from validator.facts.text import path_of
from validator.project import Method, Project

_MAKER = "new_group"
_DEPTH = 6


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
        self.sources = project.analysis(Sources)
        self._known: dict[tuple[Method, str], Origin | None] = {}

    def origin(self, function: Method, path: str) -> Origin | None:
        """How the group that a path holds is made, where one way is all there is; None where it is not known."""
        key = (function, path)
        if key not in self._known:
            self._known[key] = None  # a cycle adds nothing
            self._known[key] = self._origin(function, path, 0)
        return self._known[key]

    def made(self, function: Method, node: ast.expr) -> Origin | None:
        """How the group that an expression gives is made; None where it is not known."""
        origin = self._made(function, node, 0)
        return origin if origin != _NOTHING else None

    def _origin(self, function: Method, path: str, depth: int) -> Origin | None:
        if depth > _DEPTH:
            return None
        return self._one(self.sources.of(function, path), depth)

    def _one(self, sources: list[Source], depth: int) -> Origin | None:
        """The only way in which several expressions make a group; of one way in several places the first place."""
        found = {self._made(owner, value, depth) for owner, value in sources}
        # `group = None` beforehand says nothing of the group
        found.discard(_NOTHING)
        known = [origin for origin in found if origin is not None]
        alike = len({(origin.kind, origin.ranks) for origin in known}) == 1
        return min(known, key=lambda o: (o.path, o.line)) if alike and len(known) == len(found) else None

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
        return self._one(self.sources.returned(function, value), depth + 1) if depth < _DEPTH else None

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
        """Some dimensions of a mesh, unless they are all that it has, which is the whole job."""
        assert isinstance(call.func, ast.Attribute)
        place = (function.path, call.lineno)
        parts = self.meshes.part(function, call) or []
        if any(_is_whole(part) for part in parts):
            return Origin("all", (), *place)
        asked = [*call.args, *(k.value for k in call.keywords)]
        if isinstance(call.func.value, ast.Subscript):
            asked.append(call.func.value.slice)
        # a number does not say that there are others
        named = any(isinstance(key, ast.Constant | ast.Name) and not _is_number(key) for key in asked)
        return Origin("mesh", (), *place) if named or parts else None


def _is_number(key: ast.expr) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, int)


def _is_whole(part: Part) -> bool:
    """Whether a part of a mesh may be all of it."""
    shape, names = part.mesh.shape, part.mesh.names
    if not part.keys or shape is not None and len(shape) == 1:
        return True
    return names is None or set(names) <= set(part.keys)


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
