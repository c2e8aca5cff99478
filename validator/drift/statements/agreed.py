"""Statements that several functions had alike, and that a change made otherwise in one of them alone.

Unlike twins (`validator.drift.statements.twins`) these functions need not resemble each other: that three or more
places did the same thing in the same words shows that it is to be done so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, Statement, is_same_target
from validator.drift.statements.drops import Drops
from validator.drift.statements.surroundings import own_head
from validator.drift.statements.twins import Twins, says_something
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test

_FEW = 3  # edits in a function, beyond which it is another one now
_OTHERS = 2  # functions that still have it
_WORTH = 5  # names and operators in a statement that says something of its own
_WORD = re.compile(r"[^\W\d]\w{2,}")
_PLAIN = ast.Assert | ast.Return


class Parted(NamedTuple):
    """A statement `old` that `others` still have, with where; `new`: what stands here now."""

    pair: Pair
    old: Statement
    new: Statement
    others: tuple[tuple[Unit, Statement], ...]


class Agreed:
    """What a change altered in one of several places that agreed."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.twins: Twins = change.analysis(Twins)

    @cached_property
    def parted(self) -> list[Parted]:
        found = []
        for pair, before, _, edits in self.change.analysis(Drops).small:
            gone = [edit.old for edit in edits if edit.old is not None]
            if len(gone) > _FEW or is_test(pair.new.path) or is_foreign(pair.new.path):
                continue
            for old in filter(_is_worth_it, gone):
                new = _instead(old, edits)
                if new is None or _is_of_taste(before, old, new):
                    continue
                others = tuple(self._having(old.text, pair.new))
                if len({unit for unit, _ in others}) >= _OTHERS and not any(self._having(new.text, pair.new)):
                    found.append(Parted(pair, old, new, others))
        return found

    def _having(self, text: str, but: Unit) -> Iterator[tuple[Unit, Statement]]:
        """The other functions that have a statement now."""
        words = sorted(set(_WORD.findall(text)), key=lambda word: (-len(word), word))
        side = self.change.after
        for source in side.mentioning(words[0]) if words else ():
            module = side.module(source.absolute)
            if module is None or is_test(source.path) or is_foreign(source.path):
                continue
            for unit in side.units(module).values():
                if unit is not but and unit.code.kind == "function":
                    yield from ((unit, each) for each in self.twins.statements(unit) if each.text == text)


def _instead(old: Statement, edits: list[Edit]) -> Statement | None:
    """What stands in the place of a statement that is gone: what sets the same, where others came beside it."""
    new = next(edit.new for edit in edits if edit.old is old)
    came = (edit.new for edit in edits if edit.old is None and edit.new is not None)
    return new or next((each for each in came if is_same_target(old.node, each.node)), None)


def _is_worth_it(statement: Statement) -> bool:
    """Whether a statement can be right or wrong wherever it stands: what a class passes to its base is its own."""
    node = statement.node
    own = isinstance(node, _PLAIN) or "super" in _names(statement)
    return not own and says_something(node, _WORTH)


def _is_of_taste(before: list[Statement], old: Statement, new: Statement) -> bool:
    """Whether two statements differ in numbers and texts alone, or in names that the function did not have before."""
    if _masked(old.node, names=False) == _masked(new.node, names=False):
        return True
    if _masked(old.node, names=True) != _masked(new.node, names=True):
        return False
    return not _names(new) <= set().union(*map(_names, before))


def _names(statement: Statement) -> set[str]:
    return {each.id for each in ast.walk(own_head(statement.node)) if isinstance(each, ast.Name)}


def _masked(node: ast.stmt, names: bool) -> str:
    """The shape of a statement without its constants, and without its names if asked."""
    parts = []
    for each in ast.walk(own_head(node)):
        if isinstance(each, ast.Constant):
            parts.append("constant")
        elif isinstance(each, ast.Name):
            parts.append("name" if names else each.id)
        else:
            parts.append(f"{type(each).__name__} {getattr(each, 'attr', '')} {getattr(each, 'arg', '')}")
    return "\n".join(parts)
