"""Values that a function computes from this rank's part of each sequence, inside torch's `context_parallel`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.bindings import Bindings, own_nodes
from validator.facts.text import path_of
from validator.project import Method, Project

_SPLITS = "context_parallel"
_UNSPLITS = "context_parallel_unshard"
_SIZES = frozenset({"shape", "size", "numel", "ndim", "dim", "device", "dtype"})  # of a tensor, not what it holds
_COUNTS = frozenset({"len", "range", "isinstance", "type"})
_GROWS = frozenset({"append", "extend", "add_", "update"})
_COLLECTIVES = frozenset({
    "all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "gather", "full_tensor",
    _UNSPLITS,
})  # fmt: skip


class Part(NamedTuple):
    """A `with` that splits sequences, and the paths of what is computed of their parts, there or later."""

    place: ast.With
    products: frozenset[str]


class RingParts:
    """Answers for one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.bindings = project.analysis(Bindings)

    def of(self, function: Method) -> list[Part]:
        """The places of a function that split sequences. None of which a called function reduces anything."""
        calls = function.facts.calls
        if not any(g.kind == "with" for c in calls for g in c.guards) or function.node is None:
            return []
        if any(call.method == _UNSPLITS for call in calls):
            return []
        found: list[Part] = []
        nodes = own_nodes(function.node)
        for node in nodes:
            for item in node.items if isinstance(node, ast.With) else ():
                buffers = self._buffers(function, item.context_expr)
                if buffers and isinstance(node, ast.With) and not self._reduced_inside(function, node):
                    found.append(Part(node, _products(node, nodes, buffers)))
        return found

    def _buffers(self, function: Method, node: ast.expr) -> set[str]:
        """The names given to a call that splits sequences; empty for any other context."""
        bound = self.bindings.of(function).get(node.id, []) if isinstance(node, ast.Name) else []
        values = [side for value in (*bound, node) for side in _sides(value)]
        calls = [value for value in values if isinstance(value, ast.Call)]
        return {name for call in calls if self._splits(function, path_of(call.func)) for name in _arguments(call)}

    def _splits(self, function: Method, target: str) -> bool:
        """Whether a call gives torch's context, itself or through a project function."""
        reached = self._reached(function, target)
        if not reached:
            return target.rpartition(".")[2] == _SPLITS
        return any(row.value.rpartition(".")[2] == _SPLITS for m in reached for row in m.facts.returns)

    def _reached(self, function: Method, target: str) -> list[Method]:
        call = next((c for c in function.facts.calls if c.target == target), None)
        return self.project.types.targets(function, call) if call is not None else []

    def _reduced_inside(self, function: Method, node: ast.With) -> bool:
        """Whether a function called in a block works together with other ranks: with whom is not followed."""
        calls = [(function, c) for c in function.facts.calls if node.lineno <= c.at[0] <= (node.end_lineno or 0)]
        for _ in range(2):
            if any(call.method in _COLLECTIVES for _, call in calls):
                return True
            reached = dict.fromkeys(m for each, call in calls for m in self.project.types.targets(each, call))
            calls = [(method, call) for method in reached for call in method.facts.calls]
        return any(call.method in _COLLECTIVES for _, call in calls)


def _sides(node: ast.expr | None) -> list[ast.expr | None]:
    return [*_sides(node.body), *_sides(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def _arguments(call: ast.Call) -> set[str]:
    """The names among the arguments of a call that splits sequences, without its mesh."""
    values = [*call.args, *(k.value for k in call.keywords if k.arg in ("buffers", "no_restore_buffers"))]
    return {n.id for v in values for n in ast.walk(v) if isinstance(n, ast.Name) and n.id not in ("self", "mesh")}


def _products(block: ast.With, nodes: list[ast.AST], buffers: set[str]) -> frozenset[str]:
    """What is made of the buffers in a block, and of that in the statements after its start."""
    inside = {id(n) for n in ast.walk(block)}
    rows = [
        (target, value, id(n) in inside) for n in nodes for target, value in _assigned(n) if value.lineno > block.lineno
    ]
    found: set[str] = set()
    grown = True
    while grown:
        known = len(found)
        found |= {
            target for target, value, local in rows if not _held(value).isdisjoint(found | buffers if local else found)
        }
        grown = len(found) > known
    return frozenset(found - buffers)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = [e for t in node.targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    value = getattr(node, "value", None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
        targets, value = [node.func.value], ast.Tuple(node.args, ast.Load(), lineno=node.lineno)
    if isinstance(value, ast.expr):
        yield from ((path_of(t), value) for t in targets if isinstance(t, ast.Name | ast.Attribute))


def _held(node: ast.AST) -> set[str]:
    """The paths of which a value holds contents: not those of which it asks a size only."""
    if isinstance(node, ast.Attribute):
        return set() if node.attr in _SIZES else {path_of(node)} | _held(node.value)
    if isinstance(node, ast.Call) and path_of(node.func) in _COUNTS:
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    return {path for child in ast.iter_child_nodes(node) for path in _held(child)}
