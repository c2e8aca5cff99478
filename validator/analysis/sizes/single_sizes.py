"""Sizes of mesh dimensions that are one where the source takes some way: `mesh["dp"] if ring == 1 else …`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from validator.analysis.places import within
from validator.domains.axes import axes_of
from validator.facts.model import Assign, Call, Return
from validator.facts.text import path_of
from validator.project import Method

Known = tuple[str, bool]  # a test as text, and whether it holds

# the words that follow a dimension in the name of its size: `ring_attn_size`, `context_parallel_degree`
_SIZE = re.compile(r"(_(attn|attention|parallel|world|model))*_(size|degree)$")
# (comparison, number): whether a size is one where it holds, or where it does not
_ONE: dict[tuple[type[ast.cmpop], str], bool] = {
    (ast.Eq, "1"): True, (ast.LtE, "1"): True, (ast.Lt, "2"): True,
    (ast.NotEq, "1"): False, (ast.Gt, "1"): False, (ast.GtE, "2"): False,
}  # fmt: skip


def is_one(name: str, size: ast.expr | None, known: Iterable[Known]) -> bool:
    """Whether tests with known answers say that the dimension of a mesh, made with that size, has one rank."""
    return any(_speaks_of(node, name, size) for text, holds in known for node in _ones(_parsed(text), holds))


def known_at(function: Method, value: ast.expr) -> dict[Known, None]:
    """The tests around the statement or the call in which a value stands, with their answers."""
    place, facts = function.module.source_text.at(value), function.facts
    rows: list[Assign | Return | Call] = [*facts.assigns, *facts.returns, *facts.calls]
    around = (row.guards for row in rows if within(place, row.at))
    return {(g.text, not g.negated): None for guards in around for g in guards if g.kind == "if"}


def overrides(function: Method, first: ast.expr, second: ast.expr) -> list[Known]:
    """What is known where a value is kept that a later one of the same function replaces under one test."""
    if (first.lineno, first.col_offset) >= (second.lineno, second.col_offset):
        return []
    before, after = known_at(function, first), known_at(function, second)
    added = [row for row in after if row not in before]
    return [(text, not holds) for text, holds in added] if len(added) == 1 and before.keys() <= after.keys() else []


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None


def _ones(test: ast.expr | None, holds: bool) -> Iterator[ast.expr]:
    """The expressions that are one where a test has this answer, as far as they are sizes: of `ring > 1`, `ring`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _ones(test.operand, not holds)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is holds:
        for part in test.values:
            yield from _ones(part, holds)
    elif isinstance(test, ast.Compare) and _ONE.get((type(test.ops[0]), ast.unparse(test.comparators[-1]))) is holds:
        yield from [test.left] if len(test.ops) == 1 else []


def _speaks_of(node: ast.expr, name: str, size: ast.expr | None) -> bool:
    """Whether an expression is the size of a dimension: spelled as where the mesh is made, or named after it."""
    if isinstance(node, ast.Call):  # `mesh["ring"].size()`
        owner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "size" else None
        key = owner.slice if isinstance(owner, ast.Subscript) and not node.args else None
        return isinstance(key, ast.Constant) and key.value == name
    word = _last(node)
    stem = _SIZE.sub("", word)
    alike = stem != word and "_" not in stem and axes_of(stem) == axes_of(name) != frozenset()
    return bool(word) and (name in (word, stem) or word == _last(size) or alike)


def _last(node: ast.expr | None) -> str:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)  # `config["ring_size"]`
    return path_of(node).rpartition(".")[2] if isinstance(node, ast.Name | ast.Attribute) else ""
