"""Results that callers keep and reckon with: values that must be numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from validator.analysis.interfaces.uses import Use
from validator.analysis.places import within
from validator.facts.model import Assign
from validator.facts.text import path_of
from validator.files.integers import is_whole
from validator.flow.objects import Objects
from validator.project import Method, Project

_RECKONING = (ast.Add, ast.Sub, ast.Mod, ast.FloorDiv, ast.Div)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def kept_as_number(project: Project, use: Use) -> bool:
    """Whether a caller keeps the result of a call under a name that is a number everywhere else.

    `step = strategy.load_ckpt(…)` with `range(step, …)`, or `trainer.step = …` of a class that counts `self.step += 1`.
    """
    caller, call = use.caller, use.call
    row = next((r for r in caller.facts.assigns if r.value == call.target and within(call.at, r.at)), None)
    if row is None or row.kind != "call":
        return False
    head, _, name = row.target.rpartition(".")
    if not head:
        others = [r for r in caller.facts.assigns if r.target == name and r is not row]
        return _is_number(others, [caller], {name})
    classes = project.analysis(Objects).named(caller, head)
    methods = [method for cls in classes for owner in cls.mro for method in owner.every_method()]
    rows = [r for m in methods for r in m.facts.assigns if r.target == f"{m.own_object}.{name}" and r is not row]
    return bool(classes) and _is_number(rows, methods, {f"{m.own_object}.{name}" for m in methods if m.own_object})


def _is_number(others: Iterable[Assign], functions: Iterable[Method], paths: set[str]) -> bool:
    """Whether nothing else than numbers is kept there, and some function reckons with it."""
    if not all(row.kind in ("aug", "none") or row.value == "None" or is_whole(row.value) for row in others):
        return False
    nodes = [node for function in functions if function.node is not None for node in ast.walk(function.node)]
    if any(isinstance(n, ast.Subscript | ast.Starred) and path_of(n.value) in paths for n in nodes):
        return False
    return any(path_of(each) in paths for node in nodes for each in _reckoned(node))


def _reckoned(node: ast.AST) -> Iterator[ast.expr]:
    """What an expression takes for a number: the other side of an operation with one, or a bound of `range`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _RECKONING):
        yield from _beside(node.left, node.right)
        if isinstance(node.op, ast.Mod):
            yield node.left
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], _ORDER):
        yield from _beside(node.left, node.comparators[0])
    elif isinstance(node, ast.AugAssign) and _number(node.value):
        yield node.target
    elif isinstance(node, ast.Call) and path_of(node.func) == "range":
        yield from node.args


def _beside(left: ast.expr, right: ast.expr) -> Iterator[ast.expr]:
    if _number(right):
        yield left
    if _number(left):
        yield right


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
