"""Commands that Python code starts from lists, `subprocess.run(["torchrun", "--nproc_per_node", "2", …])`, and texts:
`os.system(f"python evaluate.py --checkpoint {path}")`.

Only lists and texts whose beginning names a launcher, a shell, what submits or runs other commands, or a script are
read; what is not literal in them is not known. A list that is bound to a name and grows (`command += […]`,
`.extend([…])`, `.append(…)`) is read as it stands at the call, or where the function that makes it gives it back
(`run(self.command(…))`); a loop over what is written there is done round by round. What is added under a condition, or
in another loop, is not known.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.commands.fields import Bit, Field, Place
from validator.analysis.commands.scripts import Run
from validator.analysis.commands.wrappers import RUNS_OTHERS, SHELLS, SUBMITS, SUFFIXES
from validator.facts.model import Argument, Call
from validator.project import Method, Project

_STARTERS = frozenset({"run", "Popen", "call", "check_call", "check_output", "execute_subprocess_async", "run_command"})
_OF_TEXTS = frozenset({"system", "popen"})
_WORDS = ("torchrun", "torch.distributed", "deepspeed", "accelerate", "python", "sys.executable")
_CONVERSIONS = frozenset({"str", "int", "float", "repr", "Path"})
_COMMANDS = SHELLS | RUNS_OTHERS | {SUBMITS}
_OF_SHELLS = frozenset("|&;<>()`$\\'\"#\n")

Values = dict[str, ast.expr]  # what plain local names are bound to; `?` where that is more than one thing


class _Word(NamedTuple):
    """An item of a list, and what the names in it stand for."""

    node: ast.expr
    values: Values


class ProcessLists:
    """The commands of a project's Python code."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._all())

    def _all(self) -> Iterator[Run]:
        for function, call in self.project.calls(*_STARTERS, *_OF_TEXTS):
            given = call.args[0] if call.args and call.args[0].keyword is None else None
            if given is None or not self._starts(function, call):
                continue
            if (text := _text_at(function, given)) is not None:
                fields = _split(text, function.path, _locals(function.node))
                if fields and _is_command(fields[0].text):
                    yield Run(function.path, fields, _span(text), (), None, True, False)
            elif call.method not in _OF_TEXTS:
                yield from self._of_list(function, call, given)

    def _starts(self, function: Method, call: Call) -> bool:
        dotted = self.project.dotted(function, call.target)
        if call.method in _OF_TEXTS:
            return dotted.startswith("os.")
        return dotted.startswith("subprocess.") or call.method in ("execute_subprocess_async", "run_command")

    def _of_list(self, function: Method, call: Call, given: Argument) -> Iterator[Run]:
        maker, node = function, _argument(function, given)
        if given.kind == "call":
            made = self._maker(function, given.value)
            maker, node = made if made is not None else (function, None)
        found = _list(maker, node, call.at[0] if maker is function else node.lineno) if node is not None else None
        if found is not None:
            first, words = found
            fields = tuple(_field(word.node, maker.path, word.values) for word in words)
            yield Run(maker.path, fields, _span(first), (), None, True, False)

    def _maker(self, function: Method, target: str) -> tuple[Method, ast.expr] | None:
        """The function of the project that makes a list which is started, and what it gives back."""
        own = target.partition(".")[2] if target.startswith("self.") and function.cls is not None else ""
        made = function.cls.find(own) if own and function.cls is not None else self.project.lookup(function, target)
        if not isinstance(made, Method) or made.node is None:
            return None
        returns = [each for each in _own_nodes(made.node) if isinstance(each, ast.Return)]
        return (made, returns[0].value) if len(returns) == 1 and returns[0].value is not None else None


def _list(function: Method, node: ast.expr, last: int) -> tuple[ast.expr, list[_Word]] | None:
    """A list that begins with the name of a launcher: where it is written, and its items with what is added to it up to
    a line."""
    values = _locals(function.node)
    begun = node
    while isinstance(begun, ast.BinOp) and isinstance(begun.op, ast.Add):
        begun = begun.left
    name = begun.id if isinstance(begun, ast.Name) else ""
    first = _begun(function, name) if name else node
    if first is None or not isinstance(first, ast.List | ast.BinOp) or not _elements(first):
        return None
    if not _is_command(_text_of(_elements(first)[0])) and not any(word in ast.unparse(first) for word in _WORDS):
        return None
    words = [_Word(each, values) for each in _elements(first)]
    if name and function.node is not None:
        words += _added(function.node, name, first, last, values)
        words += [_Word(each, values) for each in _elements(node)[1:]]
    return first, words


def _is_command(first: str) -> bool:
    """Whether the first word of a command is one of those that are followed."""
    name = posixpath.basename(first)
    return name in _COMMANDS or name.endswith(SUFFIXES) or any(word in first for word in _WORDS)


def _text_of(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _begun(function: Method, name: str) -> ast.expr | None:
    """What a name is bound to, where it is bound once and else only grows."""
    rows = [row for row in function.facts.assigns if row.target == name]
    if not rows or any(row.kind != "aug" for row in rows[1:]) or function.node is None:
        return None
    bound = (each for each in ast.walk(function.node) if isinstance(each, ast.Assign) and len(each.targets) == 1)
    return next((e.value for e in bound if isinstance(e.targets[0], ast.Name) and e.targets[0].id == name), None)


def _locals(tree: ast.AST | None) -> Values:
    values: Values = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            values[name] = ast.Name("?") if name in values else node.value
    return values


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, and not in one inside it."""
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield child
            yield from _own_nodes(child)


def _argument(function: Method, given: Argument) -> ast.expr | None:
    """The expression of an argument."""
    for node in ast.walk(function.node) if function.node is not None else ():
        if isinstance(node, ast.expr) and (node.lineno, node.col_offset + 1) == given.at[:2]:
            return node
    return None


def _text_at(function: Method, given: Argument) -> ast.expr | None:
    """The text that an argument is, or that the name given is bound to."""
    node = _argument(function, given) if given.kind in ("path", "const", "other") else None
    if isinstance(node, ast.Name):
        node = _begun(function, node.id)
    plain = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node if plain or isinstance(node, ast.JoinedStr) else None


def _split(text: ast.expr, path: str, values: Values) -> tuple[Field, ...]:
    """The words of a text, up to what a shell reads in its own way; what is put into it may be any number of words."""
    place = Place(path, text.lineno, text.col_offset + 1)
    words: list[list[Bit]] = [[]]
    for bit in _bits(text, place, values):
        if bit.why:
            words[-1].append(bit._replace(many=True))
            continue
        for number, part in enumerate(_before_shell(bit.text).split(" ")):
            if number:
                words.append([])
            words[-1] += [bit._replace(text=part)] if part else []
        if _before_shell(bit.text) != bit.text:
            break
    fields = [Field((word[0]._replace(width=1), *word[1:])) for word in words if word]
    return tuple(fields)


def _before_shell(text: str) -> str:
    return text[: min((n for n, letter in enumerate(text) if letter in _OF_SHELLS), default=len(text))]


def _span(node: ast.expr) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset + 1, node.end_lineno or 0, (node.end_col_offset or 0) + 1


def _elements(node: ast.expr) -> list[ast.expr]:
    """The items of a list, or of a sum of lists; what is not literal stands for any number of words."""
    if isinstance(node, ast.List | ast.Tuple):
        return node.elts
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_elements(node.left), *_elements(node.right)]
    return [_any_number(node)]


def _any_number(node: ast.expr) -> ast.Starred:
    return ast.copy_location(ast.Starred(node, ast.Load()), node)


def _added(tree: ast.AST, name: str, first: ast.expr, last: int, values: Values) -> Iterator[_Word]:
    """What is added to a named list between the line that makes it and the one that starts the command."""
    for statement, known in _statements(tree, values):
        if first.lineno < statement.lineno <= last:
            for item in _additions(statement, name):
                yield _Word(item, known) if known is not None else _Word(_any_number(item), values)


def _statements(node: ast.AST, values: Values | None) -> Iterator[tuple[ast.stmt, Values | None]]:
    """The statements of a function in order, each with what names stand for where it runs once in every call; in a loop
    over what is written there, once for each round."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, values
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            continue
        rounds = _rounds(node, child, values) if isinstance(child, ast.For) and values is not None else None
        if rounds is not None and isinstance(child, ast.For):
            for known in rounds:
                for statement in child.body:
                    yield statement, known
                    yield from _statements(statement, None)
        else:
            branches = isinstance(child, ast.If | ast.For | ast.While | ast.Try)
            yield from _statements(child, None if branches else values)


def _rounds(around: ast.AST, loop: ast.For, values: Values) -> list[Values] | None:
    """What names stand for in each round of a loop over a dictionary's items, or a list, that is written out and that
    nothing around the loop does anything else with."""
    if any(isinstance(each, ast.Break | ast.Continue) for each in ast.walk(loop)):
        return None
    over, items = loop.iter, None
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items":
        named = over.func.value
        table = values.get(named.id) if isinstance(named, ast.Name) and _mentions(around, named.id) == 2 else named
        if isinstance(table, ast.Dict) and all(key is not None for key in table.keys):
            items = [[key, value] for key, value in zip(table.keys, table.values, strict=True) if key is not None]
    elif isinstance(over, ast.List | ast.Tuple):
        items = [each.elts if isinstance(each, ast.Tuple) else [each] for each in over.elts]
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    if items is None or any(len(each) != len(names) for each in items):
        return None
    plain = [name.id for name in names if isinstance(name, ast.Name)]
    return [{**values, **dict(zip(plain, each, strict=True))} for each in items] if len(plain) == len(names) else None


def _mentions(tree: ast.AST, name: str) -> int:
    return sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


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
        yield Bit(str(value.value), place, 0, place, True, name=node.id)
    else:
        text = ast.unparse(node)
        yield Bit(text, place, 0, place, True, why=f"`{text}` is known when it runs", name=_name(node))


def _name(node: ast.expr) -> str:
    """How a value is called: a variable, an attribute of something (`config.limit`), an item by its key."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{above}.{node.attr}" if (above := _name(node.value)) else node.attr
    if isinstance(node, ast.Subscript) and (key := _text_of(node.slice)).isidentifier():
        return f"{above}.{key}" if (above := _name(node.value)) else key
    converted = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CONVERSIONS
    return _name(node.args[0]) if converted and isinstance(node, ast.Call) and len(node.args) == 1 else ""
