"""The divisions of sizes in a project, and the tests that the sizes divide."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from validator.analysis.options.by_name import filled, passes
from validator.analysis.sizes.dimensions import Dimensions, Factor, Size, quotient, tag_of
from validator.domains.axes import MODEL_PARALLEL
from validator.facts.text import path_of
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Module, Project

_DIVISION = re.compile(r"(^|[\w)\]\s])//=?\s*[\w(]|\bint\(.*[\w)\]]\s*/\s*[\w(]")
_DIVIDES = re.compile(r"//|%|\bint\(.* / ")
_TEST = re.compile(r"%=?\s*[(\w]|[!=]=.*\*|\*.*[!=]=")
_SIZES = re.compile(
    r"world_size|WORLD_SIZE|n_gpus|num_gpus|num_processes|batch|bsz|gbs|_parallel|_heads|tp_size|tp_degree"
)
_CHECKER = re.compile(r"divisib|divide|validate|check|verify|ensure|require", re.IGNORECASE)
_ROUND_UP = re.compile(r"ceil|pad|round_up|roundup|cdiv", re.IGNORECASE)


class Quotient(NamedTuple):
    """A division that drops remainders. `target`: the path that gets its value, empty where another call does."""

    function: Method
    node: ast.expr | ast.AugAssign
    statement: ast.stmt
    target: str
    size: Size


class Check(NamedTuple):
    """A test whether one size is a multiple of another. `tests`: the conditions around it, outermost first.

    `by_name`: it is one of several that a loop over names of attributes makes.
    """

    function: Method
    node: ast.expr
    left: Size
    right: Size
    tests: tuple[ast.If, ...]
    by_name: bool = False


class Quotients:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.dimensions = project.analysis(Dimensions)
        self._checks: dict[Method, list[Check]] = {}

    @cached_property
    def _lines(self) -> tuple[dict[Method, set[int]], dict[Method, set[int]]]:
        """Per function of a package that speaks of ranks or batches, its lines with divisions and those with tests."""
        divided: dict[Method, set[int]] = {}
        tested: dict[Method, set[int]] = {}
        for module in self.project.modules.values():
            text = module.source.text
            if is_aside(module.path) or not _SIZES.search(text) or not _DIVIDES.search(text):
                continue
            divisions = [
                n
                for n, line in enumerate(module.source_text.lines, 1)
                if ("//" in line or "int(" in line) and _DIVISION.search(_code(line))
            ]
            tests = [
                n
                for n, line in enumerate(module.source_text.lines, 1)
                if _TEST.search(line) and _TEST.search(_code(line))
            ]
            for lines, found in ((divisions, divided), (tests, tested)):
                for function, number in _functions_at(module, lines):
                    found.setdefault(function, set()).add(number)
        return divided, tested

    @cached_property
    def all(self) -> list[Quotient]:
        """Every floor division of ranks or batches, each chain of them once."""
        rows = self._lines[0].items()
        return [row for function, lines in rows if _speaks(function) for row in self._of(function, lines)]

    def _of(self, function: Method, lines: set[int]) -> Iterator[Quotient]:
        for statement, node in _outermost(function, lines):
            if isinstance(node, ast.AugAssign):
                size = quotient(self.dimensions.size(function, node.target), self.dimensions.size(function, node.value))
                yield Quotient(function, node, statement, path_of(node.target), size)
            else:
                yield Quotient(
                    function, node, statement, _target(statement, node), self.dimensions.size(function, node)
                )

    @cached_property
    def groups(self) -> dict[str, Quotient]:
        """The sizes of model parallelism by which the program divides its ranks, with a place where it does."""
        found: dict[str, Quotient] = {}
        for row in self.all:
            if row.size.has("world") and "batch" not in row.size.tags:
                for factor in row.size.under:
                    if factor.tag in MODEL_PARALLEL:
                        found.setdefault(factor.tag, row)
        return found

    def tested(self) -> Iterator[Check]:
        """The tests of every function that speaks of ranks or batches."""
        for function in self._lines[1]:
            if _speaks(function):
                yield from self.checks(function)

    # -- checks --------------------------------------------------------------------------------------------

    def checks(self, function: Method) -> list[Check]:
        """The tests `a % b` of a function, and those that compare a product with a whole."""
        if function not in self._checks:
            lines = self._lines[1].get(function, set())
            node = function.node if lines else None
            self._checks[function] = [*self._tested(function, node, (), lines, {})] if node is not None else []
        return self._checks[function]

    def _tested(
        self, function: Method, node: ast.AST, tests: tuple[ast.If, ...], lines: set[int], named: Mapping[str, str]
    ) -> Iterator[Check]:
        """The tests below a node. `named`: what the variables of the loops around it over literal texts are."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                continue
            if isinstance(child, ast.stmt) and not _spans(child, lines):
                continue
            if isinstance(child, ast.BinOp) and isinstance(child.op, ast.Mod) and not _is_text(child.left):
                left, right = (
                    self.dimensions.size(function, filled(each, named)) for each in (child.left, child.right)
                )
                yield Check(function, child, left, right, tests, bool(named))
            if isinstance(child, ast.Compare) and len(child.ops) == 1 and isinstance(child.ops[0], ast.Eq | ast.NotEq):
                yield from self._compared(function, child, tests)
            inside = tests
            if isinstance(node, ast.If) and child in (*node.body, *node.orelse):
                inside = (*tests, node)
            for more in passes(child) or [{}]:
                yield from self._tested(function, child, inside, lines, {**named, **more})

    def _compared(self, function: Method, node: ast.Compare, tests: tuple[ast.If, ...]) -> Iterator[Check]:
        """`dp * tp != world_size`, whichever side the product stands on. By the names that stand there, where one of
        them is what the division gave: the size of the product is that of the whole."""
        sides = (node.left, node.comparators[0])
        for one, other in (sides, sides[::-1]):
            whole, parts = self.dimensions.size(function, one), self.dimensions.size(function, other)
            if parts.has("world") and isinstance(other, ast.BinOp) and isinstance(other.op, ast.Mult):
                parts = Size(tuple(Factor(tag_of(text), text) for text in factors(other)))
            if whole.has("world") and not whole.under and parts.tags & MODEL_PARALLEL and not parts.has("world"):
                yield Check(function, node, whole, parts, tests)

    def reached(self, function: Method) -> list[Check]:
        """The checks of a function and of the functions that it calls itself."""
        found = list(self.checks(function))
        for call in function.facts.calls:
            for target in self.project.analysis(Objects).targets(function, call):
                if target is not function:
                    found += self.checks(target)
        return found

    def around(self, row: Quotient) -> list[Check]:
        """The checks that hold where a quotient is taken: in its function, its class, and for the whole program.

        A check under a condition counts only if the quotient stands under it too, or the condition asks about one
        of the sizes. Checks in methods of other classes say nothing about this one.
        """
        found = [c for c in self.reached(row.function) if _holds_at(c, row.statement)]
        cls = row.function.cls
        if cls is not None:
            for owner in {*cls.mro, *cls.descendants()}:
                for method in owner.every_method():
                    if method is not row.function:
                        found += [c for c in self.reached(method) if _holds_at(c, row.statement)]
        return found + [c for c in self.general if c.function is not row.function]

    @cached_property
    def general(self) -> list[Check]:
        """The checks in functions that are no methods: of a configuration, of arguments."""
        return [c for f in self._lines[1] if f.cls is None and _speaks(f) for c in self.checks(f) if _holds_at(c, None)]

    def is_trusted(self, row: Quotient) -> bool:
        """Whether a helper outside the project, by its name, checks or rounds what is divided."""
        calls = (c for c in row.function.facts.calls if _CHECKER.search(c.method) or _ROUND_UP.search(c.method))
        parts = {f.text for f in (*row.size.over, *row.size.under)}
        return any(
            a.value in parts
            for c in calls
            for a in c.args
            if not self.project.analysis(Objects).targets(row.function, c)
        )


def factors(node: ast.expr) -> list[str]:
    """The paths of which a product is made; an empty text for each factor that is no path."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors(node.left), *factors(node.right)]
    path = path_of(node)
    return ["" if path.startswith("?") else path]


def _functions_at(module: Module, numbers: list[int]) -> Iterator[tuple[Method, int]]:
    """The inmost functions around lines."""
    if not numbers:
        return
    functions = sorted(
        (m.facts.at[0], m.facts.at[2], m.qualname) for m in module.functions.values() if m.name[0] != "<"
    )
    starts = [row[0] for row in functions]
    for number in numbers:
        index = bisect_right(starts, number) - 1
        while index >= 0 and functions[index][1] < number:
            index -= 1
        yield module.functions[functions[index][2]] if index >= 0 else module.top, number


def _code(line: str) -> str:
    return line.partition("#")[0]


def _speaks(function: Method) -> bool:
    """Whether a function says anything of ranks or batches."""
    first, _, last, _ = function.facts.at
    return any(_SIZES.search(line) for line in function.module.source_text.lines[first - 1 : last])


def _spans(statement: ast.stmt, lines: set[int]) -> bool:
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    return any(first <= line <= last for line in lines)


def _outermost(function: Method, lines: set[int]) -> Iterator[tuple[ast.stmt, ast.expr | ast.AugAssign]]:
    """The floor divisions of a function with their statements; of a chain or product the whole."""
    stack: list[ast.AST] = [function.node] if function.node is not None else []
    while stack:
        statement = stack.pop()
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if not isinstance(child, ast.expr) and (not isinstance(child, ast.stmt) or _spans(child, lines)):
                stack.append(child)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.FloorDiv):
            yield statement, statement
        elif isinstance(statement, ast.stmt) and not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for expression in _expressions(statement):
                for each in _chains(expression):
                    yield statement, each


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.withitem):
            yield child.context_expr


def _chains(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call) and path_of(node.func) == "int" and len(node.args) == 1 and _is_ratio(node.args[0]):
        yield node.args[0]
        return
    if any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv) for n in _links(node)):
        yield node  # type: ignore[misc]
        return
    if isinstance(node, ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from _chains(child)


def _is_ratio(node: ast.expr) -> bool:
    """Whether `int(…)` around an expression drops the remainder of a division."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)


def _links(node: ast.AST) -> Iterator[ast.expr]:
    """The products and quotients that make up a chain."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mult):
        yield node
        yield from _links(node.left)
        yield from _links(node.right)


def _target(statement: ast.stmt, node: ast.expr) -> str:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and _is_value(statement.value, node):
        return path_of(statement.targets[0])
    if isinstance(statement, ast.AnnAssign) and statement.value is not None and _is_value(statement.value, node):
        return path_of(statement.target)
    return ""


def _is_value(value: ast.expr, node: ast.expr) -> bool:
    """Whether a value is the quotient, or `max(1, …)`, `int(…)` or a choice of it."""
    if value is node:
        return True
    if isinstance(value, ast.Call) and path_of(value.func) in ("int", "max", "min"):
        return any(_is_value(a, node) for a in value.args)
    return isinstance(value, ast.IfExp) and (_is_value(value.body, node) or _is_value(value.orelse, node))


def _holds_at(check: Check, statement: ast.stmt | None) -> bool:
    """Whether no condition around a check keeps it from being made where the statement runs."""
    parts = {f.text for f in (*check.left.over, *check.right.over, *check.right.under)}
    for test in check.tests:
        if statement is not None and any(statement is each for each in ast.walk(test)):
            continue
        text = ast.unparse(test.test)
        if not any(part in text for part in parts):
            return False
    return True


def _is_text(node: ast.expr) -> bool:
    """Whether `%` formats a string."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
