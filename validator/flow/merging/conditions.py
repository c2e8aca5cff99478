"""What tests depend on, and what is stored under branches on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from validator.domains.spmd import Causes, emptied
from validator.flow.merging.even_shares import is_even_slice
from validator.flow.merging.one_rank import is_turn
from validator.flow.values import COUNTED, NONE_OBJ, NOT_YET, Val, holds_alike

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.answers import Site
    from validator.flow.program.unit import Unit
    from validator.ir import Value as Instruction

_TESTED_FOR_LENGTH = frozenset({"tuple", "seq", "dict", "unordered", *COUNTED})
TESTED_FOR_PRESENCE = frozenset({"environment", "inst", "self", "class", "unit", "bound", "module", "group", "mesh"})


def truth_of(value: Val) -> Causes:
    """What a test of a value depends on: a container is tested for its length, an object for its presence."""
    kinds = {o[0] for o in value.each if o != NONE_OBJ}
    causes = emptied(value.n) | value.p
    if kinds and kinds <= _TESTED_FOR_LENGTH | TESTED_FOR_PRESENCE or holds_alike(value, TESTED_FOR_PRESENCE):
        return causes
    return causes | frozenset(
        c._replace(facet="t") if c.kind == "param" and ("param", c.position) in value.objs else c for c in value.v
    )


def truth_at(unit: Unit, number: int, value: Val, sites: Mapping[int, Site]) -> Causes:
    """The same of a value of a unit, whose calls run what `sites` tell: what is cut out of anything is a sequence, and
    is tested for its length; so is a share that functions of the project give back, and see to it that it is even."""
    root = unit.root(number)
    held = unit.code.values[root]
    site = sites.get(root) if held.op == "call" else None
    units = [target.unit for target in site.targets] if site is not None else []
    given = [(each, each.code.values[each.root(end)]) for each in units for end in each.code.returned]
    even = bool(given) and all(_is_cut(each, end) and is_even_slice(each, end.args[1]) for each, end in given)
    return emptied(value.n) | value.p if even or _is_cut(unit, held) else truth_of(value)


def _is_cut(unit: Unit, value: Instruction) -> bool:
    return value.op == "item" and unit.code.values[value.args[1]].op == "slice"


def stored_under(at: Evaluation, block: int, value: Val, balanced: frozenset[int] = frozenset()) -> Val:
    """A value that is stored under branches: whether it is there varies as they do, but for those (`balanced`) of which
    every way stores something, and for those by which each rank stores it in a round of its own."""
    deciding = at.staying.deciding(block) - balanced
    causes = at.conditions(frozenset(branch for branch in deciding if not is_turn(at.unit, at.vals, branch)))
    under = at.flow.get("under", at.unit)
    if under is NOT_YET:
        return under
    causes |= under.v
    if not causes or NONE_OBJ in value.objs and len(value.objs) == 1:
        return value
    return value.with_causes(p=causes)


def tests_around(at: Evaluation, block: int) -> set[int]:
    """The conditions of the branches that decide whether a block is reached."""
    return {at.code.blocks[branch].end[1] for branch in at.unit.control.deciding(block)}
