"""A test of divisibility that asks about another dimension of the tensor than the one that is divided.

What it does
    Reports `x.size(1) // n` in a function that tests `x.size(0) % n` (an assertion, or an `if`), but neither tests the
    dimension that it divides nor divides the one that it tests. Sizes are followed through names
    (`batch, length = x.shape`).

Why is this bad
    The test passes for lengths whose remainder is then dropped, and refuses batches that would do: with one packed row
    to a batch it always fails.

References
    https://docs.pytorch.org/docs/stable/generated/torch.Tensor.size.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.bindings import Bindings, own_nodes
from validator.analysis.places import text_of
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP427", "check-on-other-dimension", "error", "0.1.0", tokens=("%",))

_TESTS = re.compile(r"\b(assert|if)\b[^\n]*%")
_CUTS = frozenset({"chunk", "split", "tensor_split", "view", "reshape", "unflatten", "rearrange", "repeat", "expand"})


class Axis(NamedTuple):
    """A dimension of a tensor: `x.size(1)`."""

    tensor: str
    number: int

    def __str__(self) -> str:
        return f"{self.tensor}.size({self.number})"


class Division(NamedTuple):
    """A dimension taken by a number: `x.size(1) // n`, `x.size(1) % n`."""

    dimension: Axis
    by: str
    node: ast.expr


def check_project(project: Project) -> Iterator[Finding]:
    bindings = project.analysis(Bindings)
    for module in project.modules.values():
        text = module.source.text
        sized = ".size(" in text or ".shape" in text
        if not sized or "//" not in text or is_aside(module.path) or not _TESTS.search(text):
            continue
        for function in module.functions.values():
            if function.name != "<module>" and _is_candidate(function) and function.node is not None:
                yield from _check(bindings, function, own_nodes(function.node))


def _is_candidate(function: Method) -> bool:
    text = text_of(function)
    return "//" in text and _TESTS.search(text) is not None


def _check(bindings: Bindings, function: Method, nodes: list[ast.AST]) -> Iterator[Finding]:
    tests = [row for row in _divisions(bindings, function, nodes, ast.Mod) if _is_tested(nodes, row.node)]
    quotients = _divisions(bindings, function, nodes, ast.FloorDiv) if tests else []
    tested = {(row.dimension, row.by) for row in _divisions(bindings, function, nodes, ast.Mod)}
    divided = {(row.dimension, row.by) for row in quotients}
    for row in quotients:
        if (row.dimension, row.by) in tested:
            continue
        for test in tests:
            one, other = row.dimension, test.dimension
            alike = one.tensor == other.tensor and row.by == test.by and (one.number < 0) == (other.number < 0)
            if not alike or (other, test.by) in divided or _changed(nodes, test, row):
                continue
            yield _report(function, row, test)
            return


def _divisions(bindings: Bindings, function: Method, nodes: list[ast.AST], kind: type[ast.operator]) -> list[Division]:
    found: list[Division] = []
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, kind):
            whole, by = node.left, node.right
        elif isinstance(node, ast.Call) and path_of(node.func) == "divmod" and len(node.args) == 2:
            whole, by = node.args
        else:
            continue
        dimension = _dimension(bindings, function, nodes, whole)
        if dimension is not None and not isinstance(by, ast.Constant):
            found.append(Division(dimension, ast.unparse(by), node))
    return found


def _dimension(bindings: Bindings, function: Method, nodes: list[ast.AST], node: ast.expr) -> Axis | None:
    """The dimension that an expression asks for, itself or under a name that is bound once."""
    if isinstance(node, ast.Name):
        values = bindings.of(function).get(node.id, [])
        if len(values) != 1:
            return None
        value = values[0]
        return _unpacked(nodes, node.id) if value is None else _asked(value)
    return _asked(node)


def _asked(node: ast.expr) -> Axis | None:
    """`x.size(1)` and `x.shape[1]`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
        owner, index = node.func.value, node.args[0] if len(node.args) == 1 else None
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        owner, index = node.value.value, node.slice
    else:
        return None
    try:
        number = ast.literal_eval(index) if index is not None else None
    except ValueError:
        return None
    plain = isinstance(owner, ast.Name | ast.Attribute)
    return Axis(path_of(owner), number) if plain and isinstance(number, int) else None


def _unpacked(nodes: list[ast.AST], name: str) -> Axis | None:
    """The dimension of `batch, length = x.shape` that a name stands for."""
    for node in nodes:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Tuple):
            continue
        names = [t.id if isinstance(t, ast.Name) else "" for t in node.targets[0].elts]
        value = node.value.func if isinstance(node.value, ast.Call) and not node.value.args else node.value
        whole = isinstance(value, ast.Attribute) and value.attr in ("shape", "size")
        if name in names and whole and "" not in names and isinstance(value, ast.Attribute):
            return Axis(path_of(value.value), names.index(name))
    return None


def _is_tested(nodes: list[ast.AST], node: ast.expr) -> bool:
    """Whether a remainder stands in an assertion or in the test of an `if`."""
    tests = (n.test for n in nodes if isinstance(n, ast.Assert | ast.If))
    return any(each is node for test in tests for each in ast.walk(test))


def _changed(nodes: list[ast.AST], test: Division, row: Division) -> bool:
    """Whether the tensor is another one at the division, or is cut by the same number elsewhere."""
    tensor = test.dimension.tensor
    lines = sorted((test.node.lineno, row.node.lineno))
    targets = (t for n in nodes if isinstance(n, ast.Assign) for t in n.targets)
    if any(ast.unparse(t) == tensor and lines[0] < t.lineno < lines[1] for t in targets):
        return True
    calls = (n for n in nodes if isinstance(n, ast.Call) and path_of(n.func).rpartition(".")[2] in _CUTS)
    return any(test.by in {ast.unparse(a) for a in [*c.args, *(k.value for k in c.keywords)]} for c in calls)


def _report(function: Method, row: Division, test: Division) -> Finding:
    return RULE.finding(
        function.path,
        function.module.source_text.at(test.node),
        f"`{function.qualname}` tests whether `{test.dimension}` is a multiple of `{test.by}`, but divides"
        f" `{row.dimension}` by it",
        help=f"test `{row.dimension} % {row.by}`",
        related=[Related(function.path, row.node.lineno, f"`{row.dimension}` is divided here, and nothing tests it")],
        context=f"{function.qualname}:{test.dimension}:{test.by}",
    )


INCORRECT = [
    """
import torch.distributed as dist

def local_part(row, group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    assert row.size(0) % size == 0, "pad first"  # error: MP427
    width = row.size(1) // size
    return row[:, rank * width : (rank + 1) * width]

def heads_of(states, ranks):
    batch, length, heads = states.shape
    if length % ranks != 0:  # error: MP427
        raise ValueError(f"{length} cannot be split over {ranks} ranks")
    return states.new_empty(batch, length, heads // ranks)
""",
]

CORRECT = [
    """
import torch.distributed as dist

def local_part(row, group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    assert row.size(1) % size == 0, "pad first"
    width = row.size(1) // size
    return row[:, rank * width : (rank + 1) * width]

def tiles(image, n):
    height, width = image.shape
    assert height % n == 0 and width % n == 0
    return height // n, width // n
""",
    """
def split(states, ranks):
    if states.size(1) % ranks != 0:
        raise ValueError("length")
    parts = states.chunk(ranks, dim=1)
    return parts, states.size(2) // ranks

def turned(states, ranks):
    assert states.size(1) % ranks == 0
    states = states.transpose(0, 1)
    return states.size(0) // ranks

def last(states, ranks, other):
    assert states.size(-1) % ranks == 0
    return states.size(2) // ranks, other.size(0) // ranks
""",
]
