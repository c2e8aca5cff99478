"""What collectives make equal on all ranks: the variables of a function that they work on in place, and results."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

from validator.analysis.conditions import Taint
from validator.facts.text import path_of
from validator.project import Method

if TYPE_CHECKING:
    from validator.analysis.taint import Taints

# the parameters whose tensors a collective makes alike, as callers name them
_REDUCED_BY = (None, "tensor", "output_tensor", "object_list", "tensor_list", "input_tensor")
_GROUP = re.compile(r"group|mesh")


class Reductions:
    """Answers for the taints of one project."""

    def __init__(self, taints: Taints) -> None:
        self.taints = taints

    def equal(self, function: Method, name: str) -> bool:
        """Whether a collective in the function makes a variable equal on all ranks (`all_reduce(x)` works in place)."""
        return name in self._lines.get(function, ())

    def is_uniform(self, function: Method, target: str) -> bool:
        """Whether a call leaves the same value on every rank."""
        table = self.taints.table
        row = table.calls.get(self.taints.project.dotted(function, target))
        if row is None and "." in target:
            receiver, _, name = target.rpartition(".")
            entry = table.methods.get(name)
            if entry is not None and (not entry[1] or receiver.rpartition(".")[2] in entry[1]):
                row = entry[0]
        return row is not None and row.uniform

    def gives_equal(self, node: ast.Call, function: Method) -> bool:
        """Whether a call gives the same value on every rank.

        So does a method with the name of such a collective that no class of the project is known to have,
        `self.strategy.all_reduce(count, op="max")`, unless it names a group.
        """
        target = path_of(node.func)
        if self.is_uniform(function, target):
            return True
        receiver, _, name = target.rpartition(".")
        if not receiver or name not in self._names or not _gives_value(node):
            return False
        fact = self.taints.fact(node, function)
        return not (fact is not None and self.taints.project.types.targets(function, fact))

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names of the collectives of torch.distributed that leave the same value on every rank."""
        rows = self.taints.table.calls.items()
        return frozenset(row.name for dotted, row in rows if row.uniform and dotted.startswith("torch.distributed."))

    def later(self, test: ast.expr, function: Method) -> Taint | None:
        """The taint of a test of a value that is reduced only after it: `if tokens > 0: all_reduce(tokens)`."""
        lines = self._lines.get(function)
        if not lines:
            return None
        for name in sorted({node.id for node in ast.walk(test) if isinstance(node, ast.Name)} & lines.keys()):
            rows = [row for row in function.facts.assigns if row.target == name and row.at[0] < test.lineno]
            last = max(rows, key=lambda row: row.at, default=None)
            if last is None or any(last.at[0] <= line < test.lineno for line in lines[name]):
                continue
            taint = self.taints.assigned(function, last)
            if taint is not None and taint.kind == "local":
                return taint._replace(why=name)
        return None

    @cached_property
    def _lines(self) -> dict[Method, dict[str, list[int]]]:
        """Per function the names that a collective makes equal on all ranks, and the lines where it does."""
        found: dict[Method, dict[str, list[int]]] = {}
        for function in self.taints.project.functions():
            for call in function.facts.calls:
                if self.is_uniform(function, call.target):
                    names = found.setdefault(function, {})
                    for argument in call.args:
                        if argument.kind == "path" and argument.keyword in _REDUCED_BY:
                            names.setdefault(argument.value.partition(".")[0], []).append(call.at[0])
        return found


def _gives_value(node: ast.Call) -> bool:
    """Whether a call is given something to reduce, over no group that it names."""
    named = [k for k in node.keywords if k.arg is None or _GROUP.search(k.arg)]
    named = [k for k in named if ast.unparse(k.value) not in ("None", "dist.group.WORLD", "group.WORLD")]
    grouped = any(_GROUP.search(path_of(a).rpartition(".")[2]) for a in node.args[1:])
    return bool(node.args or node.keywords) and not named and not grouped
