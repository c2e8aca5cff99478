"""Commands that Python code starts from literal lists: `subprocess.run(["torchrun", "--nproc_per_node", "2", …])`.

Only lists whose beginning names a launcher are read; what is not literal in them is not known. A list that is bound to
a name and grows (`command += […]`, `.extend([…])`, `.append(…)`) is read as it stands at the call; what is added under
a condition, or in a loop, is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from validator.analysis.commands.fields import Bit, Field, Place
from validator.analysis.commands.scripts import Run
from validator.facts.model import Call
from validator.project import Method, Project

_STARTERS = frozenset({"run", "Popen", "call", "check_call", "check_output", "execute_subprocess_async", "run_command"})
_WORDS = ("torchrun", "torch.distributed", "deepspeed", "accelerate", "python", "sys.executable")


class ProcessLists:
    """The command lists of a project's Python code."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._all())

    def _all(self) -> Iterator[Run]:
        for function, call in self.project.calls(*_STARTERS):
            if not self._starts(function, call):
                continue
            if (made := self._list(function, call)) is not None:
                node, items, values = made
                fields = tuple(_field(item, function.path, values) for item in items)
                at = (node.lineno, node.col_offset + 1, node.end_lineno or 0, (node.end_col_offset or 0) + 1)
                yield Run(function.path, fields, at, (), None, True, False)

    def _starts(self, function: Method, call: Call) -> bool:
        if not call.args or call.args[0].keyword is not None:
            return False
        dotted = self.project.dotted(function, call.target)
        if not dotted.startswith("subprocess.") and call.method not in ("execute_subprocess_async", "run_command"):
            return False
        text = call.args[0].value
        if call.args[0].kind == "path":
            rows = [row for row in function.facts.assigns if row.target == text]
            whole = bool(rows) and all(row.kind == "aug" for row in rows[1:])
            return whole and any(word in rows[0].value for word in _WORDS)
        return text.startswith("[") and any(word in text for word in _WORDS)

    def _list(self, function: Method, call: Call) -> tuple[ast.expr, list[ast.expr], dict[str, ast.expr]] | None:
        """The list given to a call, or the one that the name given to it is bound to; and plain local values."""
        tree = function.node
        if tree is None:
            return None
        argument = call.args[0]
        name = argument.value if argument.kind == "path" else ""
        values: dict[str, ast.expr] = {}
        found: ast.expr | None = None
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                target = node.targets[0].id
                if target == name and isinstance(node.value, ast.List | ast.BinOp):
                    found = node.value
                values[target] = ast.Name("?") if target in values else node.value
            elif not name and isinstance(node, ast.List) and (node.lineno, node.col_offset + 1) == argument.at[:2]:
                found = node
        if found is None or not (items := _elements(found)):
            return None
        return found, [*items, *(_added(tree, name, found, call.at[0]) if name else ())], values


def _elements(node: ast.expr) -> list[ast.expr]:
    """The items of a list, or of a sum of lists; what is not literal stands for any number of words."""
    if isinstance(node, ast.List | ast.Tuple):
        return node.elts
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_elements(node.left), *_elements(node.right)]
    return [_any_number(node)]


def _any_number(node: ast.expr) -> ast.Starred:
    return ast.copy_location(ast.Starred(node, ast.Load()), node)


def _added(tree: ast.AST, name: str, first: ast.expr, last: int) -> Iterator[ast.expr]:
    """What is added to a named list between the line that makes it and the one that starts the command."""
    for statement, certain in _statements(tree, True):
        if first.lineno < statement.lineno <= last:
            for item in _additions(statement, name):
                yield item if certain else _any_number(item)


def _statements(node: ast.AST, certain: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements of a function in order, each with whether it runs once in every call."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, certain
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            yield from _statements(child, certain and not isinstance(child, ast.If | ast.For | ast.While | ast.Try))


def _additions(statement: ast.stmt, name: str) -> list[ast.expr]:
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and statement.target.id == name:
        return _elements(statement.value)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
        return []
    if not isinstance(call.func.value, ast.Name) or call.func.value.id != name:
        return []
    if call.func.attr == "extend":
        return _elements(call.args[0])
    return call.args if call.func.attr == "append" else [_any_number(call.args[0])]


def _field(node: ast.expr, path: str, values: dict[str, ast.expr]) -> Field:
    place = Place(path, node.lineno, node.col_offset + 1)
    width = (node.end_col_offset or 0) - node.col_offset if node.end_lineno == node.lineno else 1
    if isinstance(node, ast.Starred):
        text = ast.unparse(node)
        return Field((Bit(text, place, width, place, why=f"`{text}` is known when it runs", many=True),))
    bits = tuple(_bits(node, place, values))
    return Field((bits[0]._replace(width=width), *bits[1:]))


def _bits(node: ast.expr, place: Place, values: dict[str, ast.expr]) -> Iterator[Bit]:
    if isinstance(node, ast.Constant):
        yield Bit(str(node.value), place, 0, place, True)
    elif isinstance(node, ast.JoinedStr):
        yield Bit("", place, 0, place, True)
        for part in node.values:
            yield from _bits(part.value if isinstance(part, ast.FormattedValue) else part, place, values)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and len(node.args) == 1:
        yield from _bits(node.args[0], place, values)
    elif ast.unparse(node) == "sys.executable":
        yield Bit("python", place, 0, place, True)
    elif isinstance(node, ast.Name) and isinstance(value := values.get(node.id), ast.Constant):
        yield Bit(str(value.value), place, 0, place, True)
    else:
        text = ast.unparse(node)
        yield Bit(text, place, 0, place, True, why=f"`{text}` is known when it runs")
