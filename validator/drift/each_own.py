"""What each of several workers had for itself by its number, and all have alike since a change: a seed, a port.

`[seed + i for i in range(n)]` and `for i in range(n): start(port + i)` give each its own. Where the number of the
worker no longer stands there, while the loop is what it was, all get the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, alike_syntax, in_head
from validator.drift.statements.drops import Drops, differences
from validator.drift.statements.intention import Intention, words_of
from validator.drift.statements.named_effects import tables
from validator.facts.model import At
from validator.finding import Severity
from validator.flow.queries.outside_program import is_foreign, is_test

_Display = ast.ListComp | ast.SetComp | ast.GeneratorExp


class Alike(NamedTuple):
    """A value that no longer depends on the number of the one that it is for. `through`: what the loop goes through."""

    pair: Pair
    at: At
    before: str
    now: str
    through: str
    severity: Severity


class _Loop(NamedTuple):
    """An expression for each turn of a loop before and after the change, with the variables of the loop."""

    old: ast.expr
    new: ast.expr
    variables: tuple[frozenset[str], frozenset[str]]
    through: ast.expr
    given: str  # what it is for, as far as a variable tells


class EachOwn:
    """The values that a change made one for all; asked for with `change.analysis(EachOwn)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Alike]:
        intention: Intention = self.change.analysis(Intention)
        found: list[Alike] = []
        for pair, _, _, edits in self.change.analysis(Drops).small:
            for edit in edits if not is_test(pair.new.path) and not is_foreign(pair.new.path) else ():
                for loop in (*_displays(edit), *_loops(edit)):
                    if not _is_alike_now(loop) or not _is_for_one(loop):
                        continue
                    gone = words_of(loop.old, pair.old) - words_of(loop.new, pair.new) - loop.variables[0]
                    severity = intention.severity(pair, [edit], gone, frozenset(), True)
                    if severity is not None:
                        at = pair.new.module.source_text.at(loop.new)
                        old, new, through = (ast.unparse(each) for each in (loop.old, loop.new, loop.through))
                        found.append(Alike(pair, at, old, new, through, severity))
        return found


def _displays(edit: Edit) -> Iterator[_Loop]:
    """The elements of lists that are made by going through the same as before."""
    if edit.old is None or edit.new is None:
        return
    before, after = ([n for n in in_head(each.node) if isinstance(n, _Display)] for each in (edit.old, edit.new))
    for old, new in zip(before, after, strict=False) if len(before) == len(after) else ():
        if len(old.generators) == len(new.generators) == 1:
            (one,), (other,) = old.generators, new.generators
            if alike_syntax(one.iter, other.iter):
                names = _names(one.target), _names(other.target)
                yield _Loop(old.elt, new.elt, names, other.iter, _given(edit.new.node))


def _loops(edit: Edit) -> Iterator[_Loop]:
    """The parts of a statement that differ, for each loop around it."""
    if edit.old is None or edit.new is None:
        return
    for head in edit.new.inside:
        if not head.startswith("for ") or head not in edit.old.inside:
            continue
        loop = ast.parse(f"{head}:\n    pass").body[0]
        if isinstance(loop, ast.For):
            names = _names(loop.target)
            for old, new in differences(edit):
                if isinstance(old, ast.expr) and isinstance(new, ast.expr):
                    yield _Loop(old, new, (names, names), loop.iter, _given(edit.new.node))


def _is_alike_now(loop: _Loop) -> bool:
    """Whether a number was made of the variable of the loop, by which others went too, and is what is left of it."""
    reckoned = any(
        isinstance(node, ast.BinOp | ast.JoinedStr) and _names(node) & loop.variables[0] for node in ast.walk(loop.old)
    )
    left = _names(loop.new)
    return reckoned and bool(left) and left < _names(loop.old) and not left & (loop.variables[0] | loop.variables[1])


def _is_for_one(loop: _Loop) -> bool:
    """Whether a value is what each must have for itself, by its name."""
    words = {word for name in (*_names(loop.new), loop.given) for word in name.lower().split("_")}
    return any(word.rstrip("s") in tables()["apart"]["words"] or word in tables()["apart"]["words"] for word in words)


def _given(node: ast.stmt) -> str:
    """The variable that a statement gives a value."""
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


def _names(node: ast.AST) -> frozenset[str]:
    """The variables and attributes in a piece of syntax, but for `self`."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {"self", "cls"}
    return frozenset(found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)})
