"""Values that went by the name of what they are given to, and in whose place a change wrote another member of the same
object.

`mp_pg=context.mp_pg` says twice which group is meant. Where it is `mp_pg=context.tp_pg` since the change, one of the
two is wrong, unless the change speaks of it elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, in_head
from validator.drift.statements.drops import Drop, Drops
from validator.drift.statements.intention import Intention
from validator.finding import Severity

_PUTTING = frozenset({"append", "add"})


class Namesake(NamedTuple):
    """A member that stands where that of the name of the taker stood before."""

    pair: Pair
    edit: Edit
    old: ast.Attribute
    new: ast.Attribute
    taker: str
    severity: Severity


class Namesakes:
    """The names that a change exchanged; asked for with `change.analysis(Namesakes)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Namesake]:
        drops: Drops = self.change.analysis(Drops)
        small = {id(pair) for pair, *_ in drops.small}
        found = []
        for drop in drops.drops:
            if drop.kind == "name" and id(drop.pair) in small and (row := self._of(drop)) is not None:
                found.append(row)
        return found

    def _of(self, drop: Drop) -> Namesake | None:
        old, new = drop.old, drop.new
        if not isinstance(old, ast.Attribute) or not isinstance(new, ast.Attribute) or old.attr == new.attr:
            return None
        if ast.dump(old.value) != ast.dump(new.value) or not self._were_both_known(old.attr, new.attr):
            return None
        taker = next((name for name in _takers(drop) if _is_same(name, old.attr)), "")
        if not taker or _says_too(taker, new.attr):
            return None
        intention: Intention = self.change.analysis(Intention)
        words = frozenset({old.attr}), frozenset({new.attr})
        severity = intention.severity(drop.pair, [drop.edit], *words, True)
        return Namesake(drop.pair, drop.edit, old, new, taker, severity) if severity == "warning" else None

    def _were_both_known(self, old: str, new: str) -> bool:
        """Whether both names stand in the project in both revisions: neither was made by the change, or went."""
        return bool(self.change.before.mentioning(new)) and bool(self.change.after.mentioning(old))


def _takers(drop: Drop) -> Iterator[str]:
    """The names of what is given the value: a keyword, a variable, a key, a list that it is put into."""
    node = drop.edit.new.node if drop.edit.new is not None else None
    for each in in_head(node) if node is not None else ():
        if isinstance(each, ast.keyword) and each.arg and each.value is drop.new:
            yield each.arg
        elif isinstance(each, ast.Assign) and each.value is drop.new:
            yield from (_last(target) for target in each.targets)
        elif isinstance(each, ast.Dict) and drop.new in each.values:
            key = each.keys[each.values.index(drop.new)]
            yield key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _PUTTING:
            yield _last(each.func.value) if drop.new in each.args else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_same(taker: str, name: str) -> bool:
    """Whether a taker and a member have one name; a list has that of many."""
    one, other = taker.strip("_").lower(), name.strip("_").lower()
    return one == other or one in (f"{other}s", f"{other}es", f"{other}_list")


def _says_too(taker: str, name: str) -> bool:
    """Whether a member is one of the kind that the taker names: `lr=args.actor_lr`."""
    return frozenset(taker.strip("_").lower().split("_")) <= frozenset(name.strip("_").lower().split("_"))
