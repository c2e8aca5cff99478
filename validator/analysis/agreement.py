"""Whether conditions that all ranks share can hold together: `not plugin.is_v2` beside what only version 2 makes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from validator.analysis.conditions import normal
from validator.facts.text import path_of
from validator.project import Method, Project

_DEPTH = 5
Known = tuple[str, bool]  # a condition as text, and its value


class Agreement:
    """Answers for one project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def excludes(self, function: Method, assumed: Iterable[Known], chosen: Iterable[Known]) -> bool:
        """Whether what is assumed of one value of the configuration leaves no room for what is chosen of the same."""
        first = {fact for text, value in assumed for fact in self._told(function, text, value)}
        second = {fact for text, value in chosen for fact in self._told(function, text, value)}
        return any((what, constant, not holds) in second for what, constant, holds in first) or any(
            what == other and holds and also and constant != another
            for what, constant, holds in first
            for other, another, also in second
        )

    def _told(self, function: Method, text: str, value: bool) -> Iterator[tuple[str, str, bool]]:
        try:
            node = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            return
        yield from self._facts(function, node, value, _DEPTH)

    def _facts(self, function: Method, node: ast.expr, value: bool, depth: int) -> Iterator[tuple[str, str, bool]]:
        """(attribute, constant, whether it equals it) of what a condition with a known value says."""
        text, positive = normal(node)
        if not positive:
            node, value = ast.parse(text, mode="eval").body, not value
        if not depth:
            return
        if isinstance(node, ast.BoolOp):
            every = isinstance(node.op, ast.And) is value
            # of `backend == FSDP and version == 2` the last part fails: the others say whether it is asked at all
            for part in node.values if every else node.values[-1:]:
                yield from self._facts(function, part, value, depth - 1)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.Is):
            yield from self._compared(function, node, value, depth)
        elif isinstance(node, ast.Attribute):
            for method, returned in self._property(function, node):
                yield from self._facts(method, returned, value, depth - 1)

    def _compared(
        self, function: Method, node: ast.Compare, value: bool, depth: int
    ) -> Iterator[tuple[str, str, bool]]:
        constant = node.comparators[0]
        if not isinstance(constant, ast.Constant):
            return
        if constant.value is not None:
            yield path_of(node.left).rpartition(".")[2], repr(constant.value), value
        elif not value and isinstance(node.left, ast.Name):
            for maker, text, holds in self._made_under(function, node.left.id):
                try:
                    test = ast.parse(text, mode="eval").body
                except (SyntaxError, ValueError, RecursionError):
                    continue
                yield from self._facts(maker, test, holds, depth - 1)

    def _property(self, function: Method, node: ast.Attribute) -> Iterator[tuple[Method, ast.expr]]:
        """What a property returns, where one return is all that it has."""
        for cls in self.project.types.of(function, path_of(node.value)):
            method = cls.find(node.attr)
            body = method.node if method is not None and method.facts.is_property else None
            returns = [n for n in ast.walk(body) if isinstance(n, ast.Return)] if body is not None else []
            if method is not None and len(returns) == 1 and returns[0].value is not None:
                yield method, returns[0].value

    def _made_under(self, function: Method, name: str) -> Iterator[tuple[Method, str, bool]]:
        """The conditions under which the function that a name comes from returns anything but None."""
        rows = [row for row in function.facts.assigns if row.target == name]
        reached = (
            self.project.types.called(function, rows[0].value) if len(rows) == 1 and rows[0].kind == "call" else []
        )
        for maker in reached:
            given = {row.value for row in maker.facts.returns if row.kind == "path"}
            made = [row for row in maker.facts.assigns if row.target in given]
            real = [row for row in made if row.value != "None"]
            if real and len(given) == 1 and len(real) < len(made):
                shared = set.intersection(
                    *({(g.text, g.negated) for g in row.guards if g.kind == "if"} for row in real)
                )
                yield from ((maker, text, not negated) for text, negated in shared)
