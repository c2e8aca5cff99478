"""What the body of a function reads and compares: asked of its syntax tree, where the facts do not do."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.bindings import Bindings
from validator.analysis.interfaces.binding import bind
from validator.flow.objects import Objects
from validator.project import Method, Project, Value

_Def = ast.FunctionDef | ast.AsyncFunctionDef


class Bodies:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def node(self, method: Method) -> _Def | None:
        """The definition of a function."""
        return None if isinstance(method.node, ast.Module) else method.node

    def reads(self, method: Method) -> frozenset[str]:
        """The local names that a function reads or deletes, nested functions included; all of them after `locals()`."""
        node = self.node(method)
        if node is None:
            return frozenset(p.name for p in method.facts.params)
        names = {n.id for n in _body(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)}
        if "locals" in names:
            names.update(p.name for p in method.facts.params)
        return frozenset(names)

    def values(self, method: Method, param: str) -> dict[str, bool]:
        """The strings that a function compares a parameter with: to itself or as keys of a table.

        The value tells whether the string has a branch of its own (`op == "max"`, a `case`, a key) or is only
        listed as legal (`op in ("mean", "max")`).
        """
        found: dict[str, bool] = {}
        node = self.node(method)
        for each in _body(node) if node is not None else ():
            for text, branch in [*_compared(each, param), *self._kept_keys(method, each, param)]:
                found[text] = found.get(text, False) or branch
        return found

    def handled(self, method: Method, param: str, depth: int = 3) -> dict[str, bool]:
        """The same, with what the functions of the project do to which this one hands the parameter."""
        found = self.values(method, param)
        for call in method.facts.calls if depth else ():
            if not any(a.kind == "path" and a.value == param for a in call.args):
                continue
            for target in self.project.analysis(Objects).targets(method, call):
                names = [n for n, a in bind(target, call).items() if a.kind == "path" and a.value == param]
                for name in names if target is not method else ():
                    for text, branch in self.handled(target, name, depth - 1).items():
                        found[text] = found.get(text, False) or branch
        return found

    def _kept_keys(self, method: Method, node: ast.AST, param: str) -> Iterator[tuple[str, bool]]:
        """The keys of a table of the module (`_OPS = {"max": …}`) that is asked for the parameter."""
        table = _asked(node, param)
        if isinstance(table, ast.Name) and isinstance(kept := self.project.lookup(method, table.id), Value):
            values = self.project.analysis(Bindings).of(kept.module.top).get(kept.name, [])
            if len(values) == 1 and isinstance(values[0], ast.Dict):
                yield from _keys(values[0])

    def passes_on(self, method: Method, param: str) -> bool:
        """Whether a function hands the parameter to a call other than of itself, so that more may become of it."""
        node = self.node(method)
        for each in _body(node) if node is not None else ():
            if isinstance(each, ast.Call) and not _calls(each, method.name):
                arguments = [*each.args, *(k.value for k in each.keywords)]
                if any(isinstance(a, ast.Name) and a.id == param for a in arguments):
                    return True
        return False


def _body(node: _Def) -> Iterator[ast.AST]:
    for statement in node.body:
        yield from ast.walk(statement)


def _calls(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == name


def _compared(node: ast.AST, param: str) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and _is(node.left, param):
        own = isinstance(node.ops[0], ast.Eq | ast.NotEq)
        yield from ((text, own) for text in _strings(node.comparators[0]))
    elif isinstance(node, ast.Match) and _is(node.subject, param):
        for case in node.cases:
            for part in ast.walk(case.pattern):
                if isinstance(part, ast.MatchValue):
                    yield from ((text, True) for text in _strings(part.value))
    elif (table := _looked_up(node, param)) is not None:
        yield from _keys(table)


def _looked_up(node: ast.AST, param: str) -> ast.Dict | None:
    """The table in `{"max": …}[param]` or `{"max": …}.get(param)`."""
    table = _asked(node, param)
    return table if isinstance(table, ast.Dict) else None


def _asked(node: ast.AST, param: str) -> ast.expr | None:
    """What `….get(param)` or `…[param]` looks the parameter up in."""
    if isinstance(node, ast.Subscript) and _is(node.slice, param):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        return node.func.value if node.args and _is(node.args[0], param) else None
    return None


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _keys(node: ast.Dict) -> Iterator[tuple[str, bool]]:
    for key in node.keys:
        if key is not None:
            yield from ((text, True) for text in _strings(key))


def _strings(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from _strings(element)
