"""Tests as the comparison of their arms needs them: what differs between ranks in them, and what must hold for it."""

from __future__ import annotations

import ast
from typing import NamedTuple

MEMBERS = "<members>"  # in place of a group: the test is whether the rank is among some ranks
CONTENTS = "<contents>"  # in place of a group: what a tensor holds differs, not whether there is one


class Taint(NamedTuple):
    """Why a value differs between ranks. `dim`: the mesh dimension of the coordinate, empty for the global rank."""

    kind: str  # rank or local
    dim: str
    group: str  # text of the process group whose rank is tested, if one is named
    why: str  # source text of what differs


class Condition(NamedTuple):
    """A test as the comparison of its arms needs it.

    `assume`: the uniform parts that must have this value for the ranks to disagree (in `a is None or rank == 0`
    they disagree only where `a is None` is false). `given`: the text is `x is None` of a variable that a call passes,
    which counts as false unless more is known.
    """

    text: str
    positive: bool  # whether the test holds when `text` does
    taint: Taint | None
    assume: tuple[tuple[str, bool], ...]
    member: bool = False  # `rank in ranks`: holds for every member of a group of those ranks
    given: bool = False


def normal(test: ast.expr) -> tuple[str, bool]:
    """A test as (text, whether the text is meant affirmatively), so that `x is not None` negates `x is None`."""
    positive = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, positive = test.operand, not positive
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        flipped = {ast.IsNot: ast.Is(), ast.NotEq: ast.Eq(), ast.NotIn: ast.In()}.get(type(test.ops[0]))
        if flipped is not None:
            return ast.unparse(ast.Compare(test.left, [flipped], test.comparators)), not positive
    return ast.unparse(test), positive
