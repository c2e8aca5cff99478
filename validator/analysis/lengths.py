"""How often a loop goes round, where that differs between ranks: micro-batches counted by each rank's own tokens."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from validator.analysis.bindings import own_nodes
from validator.analysis.conditions import Taint
from validator.facts.text import path_of
from validator.project import Method

if TYPE_CHECKING:
    from validator.analysis.taint import Taints

_DEPTH = 4
_SAME = frozenset({"enumerate", "list", "tuple", "reversed", "sorted", "tqdm", "iter"})  # as long as their argument
_DIVIDING = frozenset({"chunk", "tensor_split", "split", "array_split"})  # as many parts, or parts as large, as told
_NUMBERS = frozenset({"int", "len", "min", "max", "round", "ceil", "item"})
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class Lengths:
    """Answers for the taints of one project, remembered."""

    def __init__(self, taints: Taints) -> None:
        self.taints = taints
        self._returned: dict[Method, Taint | None] = {}

    def rounds(self, node: ast.AST, function: Method) -> Taint | None:
        """Why a loop or a comprehension goes round more often on some ranks; None where it does not, or may not."""
        if isinstance(node, ast.While):
            return self.taints.condition(node.test, function).taint
        if isinstance(node, _COMPREHENSIONS):
            return self._of(node.generators[0].iter, function, _DEPTH)
        return self._of(node.iter, function, _DEPTH) if isinstance(node, ast.For | ast.AsyncFor) else None

    def _of(self, node: ast.expr, function: Method, depth: int) -> Taint | None:
        """Why a value has more elements on some ranks."""
        if isinstance(node, ast.Name):
            return self._named(node, function, depth)
        if isinstance(node, _COMPREHENSIONS):
            return self._of(node.generators[0].iter, function, depth)
        if not isinstance(node, ast.Call):
            return None
        name = path_of(node.func).rpartition(".")[2]
        if isinstance(node.func, ast.Name) and name == "range":
            bounds = ast.copy_location(ast.Tuple(node.args, ast.Load()), node)
            return self.taints.condition(bounds, function).taint
        if isinstance(node.func, ast.Name) and name in _SAME and node.args:
            return self._of(node.args[0], function, depth)
        if isinstance(node.func, ast.Name) and name == "zip":
            return next((t for each in node.args if (t := self._of(each, function, depth)) is not None), None)
        if name in _DIVIDING and (taint := self._divided(node, function)) is not None:
            return taint
        return self._called(node, function, depth) if depth else None

    def _divided(self, node: ast.Call, function: Method) -> Taint | None:
        """Of `x.chunk(count)`: what the count tells of this rank's data."""
        parts = node.args[:1] if isinstance(node.func, ast.Attribute) else node.args[1:2]
        if not parts or not self._is_number(parts[0], function):
            return None  # `x.split(sizes)`: as many parts as there are sizes, however large
        taint = self.taints.expression(parts[0], function)
        return taint if taint is not None and taint.kind == "local" else None

    def _is_number(self, node: ast.expr, function: Method) -> bool:
        if isinstance(node, ast.Name):
            values = self.taints.own_data.values(function, node.id)
            return len(values) == 1 and not isinstance(values[0], ast.Name) and self._is_number(values[0], function)
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.FloorDiv)
        return isinstance(node, ast.Call) and path_of(node.func).rpartition(".")[2] in _NUMBERS

    def _named(self, node: ast.Name, function: Method, depth: int) -> Taint | None:
        values = self.taints.own_data.values(function, node.id)
        return self._of(values[0], function, depth - 1) if len(values) == 1 and depth else None

    def _called(self, node: ast.Call, function: Method, depth: int) -> Taint | None:
        fact = self.taints.fact(node, function)
        for target in self.taints.project.types.targets(function, fact) if fact is not None else ():
            if (taint := self._result(target, depth)) is not None and taint.kind == "local":
                return taint
        return None

    def _result(self, function: Method, depth: int) -> Taint | None:
        if function not in self._returned:
            self._returned[function] = None  # a cycle adds nothing
            found = (self._of(value, function, depth - 1) for value in _returns(function))
            self._returned[function] = next((taint for taint in found if taint is not None), None)
        return self._returned[function]


def _returns(function: Method) -> Iterator[ast.expr]:
    node = function.node
    for each in own_nodes(node) if node is not None else ():
        if isinstance(each, ast.Return) and each.value is not None:
            yield each.value
