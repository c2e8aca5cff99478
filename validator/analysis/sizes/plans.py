"""Plans of tensor parallelism as the source writes them: patterns of module names to styles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.bindings import own_nodes
from validator.facts.text import path_of
from validator.project import Method, Project

_STYLE = re.compile(r"colwise|rowwise|sequence_?parallel|preparemodule|prepare_module|ParallelStyle", re.IGNORECASE)
_ENOUGH = 3  # styles that make a table a plan, whoever reads it
_READER = "parallelize_module"
TOKENS = ("colwise", "Colwise", "rowwise", "Rowwise")


class Entry(NamedTuple):
    """One row of a plan. `pattern`: the module names, with `*` for what a formatted string puts in."""

    pattern: str
    key: ast.expr
    style: str

    @property
    def prefix(self) -> str:
        return self.pattern.rpartition(".")[0]

    @property
    def module(self) -> str:
        return self.pattern.rpartition(".")[2]


class Plan(NamedTuple):
    """A table of module patterns to styles, and the name it is bound to, if any.

    `whole`: it is long enough to be all that is said of a model; a short one may be one of several.
    """

    function: Method
    node: ast.Dict
    name: str
    entries: tuple[Entry, ...]
    whole: bool = True


class Plans:
    """Every plan in the functions and modules of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def all(self) -> list[Plan]:
        """The plans, file by file."""
        modules = (m for m in self.project.modules.values() if any(token in m.source.text for token in TOKENS))
        return [plan for m in modules for f in m.functions.values() for plan in _plans(f)]


def _plans(function: Method) -> Iterator[Plan]:
    first, _, last, _ = function.facts.at
    lines = function.module.source_text.lines[first - 1 : last]
    if function.name == "<class>" or not any(token in line for line in lines for token in TOKENS):
        return
    nodes = own_nodes(function.node) if function.node is not None else []
    names = {id(n.value): path_of(_target(n)) for n in nodes if isinstance(n, ast.Assign | ast.AnnAssign)}
    given = [a for n in nodes if isinstance(n, ast.Call) and _reads(n) for a in _arguments(n)]
    read = {id(a) for a in given} | {path_of(a) for a in given if isinstance(a, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Dict) and (entries := _entries(node)):
            name = names.get(id(node), "")
            whole = len(entries) >= _ENOUGH
            if whole or id(node) in read or (name and name in read):
                yield Plan(function, node, name, entries, whole)


def _reads(node: ast.Call) -> bool:
    return path_of(node.func).rpartition(".")[2] == _READER


def _arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(k.value for k in node.keywords)]


def _target(node: ast.Assign | ast.AnnAssign) -> ast.expr:
    return node.targets[0] if isinstance(node, ast.Assign) else node.target


def _entries(node: ast.Dict) -> tuple[Entry, ...]:
    found = []
    for key, value in zip(node.keys, node.values, strict=True):
        pattern = _pattern(key)
        style = _style(value)
        if key is not None and pattern and style:
            found.append(Entry(pattern, key, style))
    return tuple(found)


def _pattern(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "*" for p in node.values)
    return ""


def _style(node: ast.expr) -> str:
    """The text of a value that is a style: `ColwiseParallel(…)`, `"rowwise"`."""
    if isinstance(node, ast.Call):
        return ast.unparse(node) if _STYLE.search(path_of(node.func)) else ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if _STYLE.match(node.value) else ""
    return ""
