"""The edit that lifts a barrier out of the `if` that keeps some ranks from it, where its meaning is certain."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.collectives import WORLD
from validator.analysis.divergence import Divergence
from validator.analysis.taint import Taints
from validator.facts.model import At
from validator.finding import Edit, Span

_BARRIERS = frozenset({"barrier", "monitored_barrier", "wait_for_everyone"})
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await)


def lifted(found: Divergence, taints: Taints) -> Edit | None:
    """What puts the barrier of a divergence before or behind its `if`; None where that could mean something else.

    The barrier is one of all ranks and the first or the last statement of the arm, the test asks for nothing but the
    rank, there is no other arm, and nothing in this one leaves it.
    """
    node, function = found.node, found.function
    if found.op.name not in _BARRIERS or found.op.group != WORLD or found.op.via or found.arm != "then":
        return None
    if not isinstance(node, ast.If) or node.orelse or taints.condition(node.test, function).assume:
        return None
    around = list(_around(function.node, node)) if function.node is not None else []
    if any(_divides(each, found, taints) for each in around) or any(isinstance(n, _LEAVING) for n in ast.walk(node)):
        return None
    text = function.module.source_text
    barriers = [n for n in node.body if isinstance(n, ast.Expr) and text.at(n.value) == found.op.at]
    return (
        _edit(text.lines, text.at(node), node, barriers[0], found.op.at) if barriers and _plain(barriers[0]) else None
    )


def _plain(barrier: ast.Expr) -> bool:
    """Whether the call takes nothing that the arm may have made for it."""
    call = barrier.value
    return isinstance(call, ast.Call) and not call.args and not call.keywords and barrier.lineno == barrier.end_lineno


def _around(root: ast.AST, node: ast.AST) -> Iterator[ast.AST]:
    """The statements and handlers that hold a node, outermost first."""
    first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    for child in ast.iter_child_nodes(root):
        if child is not node and getattr(child, "lineno", last + 1) <= first and last <= (child.end_lineno or 0):  # type: ignore[attr-defined]
            yield child
            yield from _around(child, node)


def _divides(node: ast.AST, found: Divergence, taints: Taints) -> bool:
    """Whether only some ranks may get into a statement, or not all of them equally often."""
    if isinstance(node, ast.If):
        return taints.condition(node.test, found.function).taint is not None
    return isinstance(node, ast.While | ast.ExceptHandler | ast.Match | ast.Lambda)


def _edit(lines: list[str], place: At, node: ast.If, barrier: ast.Expr, at: At) -> Edit | None:
    first, column, last, end = place
    own = lines[barrier.lineno - 1]
    margin = lines[first - 1][: column - 1]
    behind = own[at[3] - 1 :].strip()
    if (
        margin.strip()
        or own[: at[1] - 1].strip()
        or lines[first - 1][column - 1 :][:2] != "if"
        or (behind and not behind.startswith("#"))
    ):
        return None  # an `elif`, or several statements in a line
    top = barrier.lineno
    while lines[top - 2].lstrip().startswith("#") and top - 1 > first:
        top -= 1  # what is said of the barrier goes with it
    moved = [line.strip() for line in lines[top - 1 : barrier.lineno]]
    header = [lines[first - 1][column - 1 :], *lines[first : top - 1]]
    if len(node.body) == 1:
        moved[-1] = ast.unparse(barrier)  # a comment behind it stays where it is
        kept: list[str] = []
    elif barrier is node.body[0]:
        rest = lines[barrier.lineno : last]
        rest[-1] = rest[-1][: end - 1]
        kept = [header[0], *header[1:], *rest]
        return _put(place, moved, kept, margin, before=True)
    elif barrier is node.body[-1]:
        moved[-1] = ast.unparse(barrier)
        while not header[-1].strip():
            header.pop()
        kept = header
    else:
        return None  # in the middle of what the leader does
    return _put(place, moved, kept, margin, before=False)


def _put(place: At, moved: list[str], kept: list[str], margin: str, *, before: bool) -> Edit:
    moved = [moved[0], *(margin + line for line in moved[1:])]
    if before:
        text = [*moved, margin + kept[0], *kept[1:]]
    else:
        text = [*kept, margin + moved[0], *moved[1:]] if kept else moved
    return Edit(Span(*place), "\n".join(text))
