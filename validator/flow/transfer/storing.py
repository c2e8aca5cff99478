"""Stores: into containers, and into attributes; variables behind calls that change what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import combined, only
from validator.flow.calls.group_loops import around_groups
from validator.flow.merging.conditions import stored_under
from validator.flow.merging.one_rank import is_turn
from validator.flow.merging.phis import are_alike
from validator.flow.values import (
    BOTTOM,
    MANY_KEYS,
    NONE_OBJ,
    PLAIN,
    UNKNOWN,
    Obj,
    Val,
    elements,
    is_dictionary,
    join2,
    unordered,
)
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def changed(at: Evaluation, number: int, value: Instruction) -> Val:
    """A variable behind a call that was given it."""
    before = at.operand(value.args[0])
    change = at.after.get((value.args[1], value.data))
    return change(before) if change is not None else before


def store_item(at: Evaluation, number: int, value: Instruction) -> Val:
    """`container[key] = stored`: what becomes of the container is noted."""
    _owner, key, stored = map(at.operand, value.args)
    is_there = at.unit.is_augmented(value)

    def change(before: Val) -> Val:
        constant = key.constant()
        kept = {o for o in before.each if is_there and o[0] == "dict" and o[2] is None and constant not in dict(o[1])}
        objs: set[Obj] = kept | {_with_item(o, constant, stored, before) for o in before.each if o not in kept}
        if before.of("dict") and (apart := only(key.v, "rank", "member", "param")):
            objs.add(unordered("keys", apart))
        if isinstance(constant, str) and not is_dictionary(before):  # under a text only mappings hold something
            objs.add(("dict", ((constant, stored),), UNKNOWN))
            return Val(frozenset(objs), before.v, before.n, before.p, before.state)
        v = before.v if is_dictionary(before) else combined(before.v, stored.v)
        return Val(frozenset(objs), v, before.n, before.p, before.state)

    at.after[number, 0] = change
    return BOTTOM


def _with_item(o: Obj, key: object, stored: Val, before: Val) -> Obj:
    """One of the containers that a value may be, with something stored under a key (None: it is not known which)."""
    if o[0] == "dict" and key is not None and len(o[1]) < MANY_KEYS:
        rows = dict(o[1])
        rows[key] = join2(rows.get(key, BOTTOM), stored)
        return ("dict", tuple(sorted(rows.items(), key=lambda r: str(r[0]))), o[2])
    if o[0] == "dict":
        rest = join2(o[2] or BOTTOM, stored)
        return ("dict", o[1], PLAIN if rest is BOTTOM else rest)
    return ("seq", join2(elements(before), stored)) if o[0] in ("seq", "tuple") else o


def attribute_stored(at: Evaluation, value: Instruction) -> Val:
    """What is stored in an attribute. Where both ways of a branch store something, it is there on all ranks, and which
    of them it is varies as the branch does."""
    _owner, added = value.args
    control, values = at.unit.control, at.code.values
    balanced: set[int] = set()
    choosing: set[int] = set()
    arms = control.arms.get(value.block, ())
    for other in (values[each] for each in at.leaving.stored) if arms else ():
        if other.op != "store_attr" or other.data != value.data or at.vals[other.args[1]].objs == {NONE_OBJ}:
            continue
        beside = control.arms.get(other.block, ())
        direct = control.direct.get(other.block, ())
        met = {branch for branch, way in arms if (branch, way) not in beside and branch in direct}
        balanced |= met
        if not are_alike(at, {at.root(added), at.root(other.args[1])}):
            choosing.update(branch for branch in met if not is_turn(at.unit, at.vals, branch))
    balanced |= around_groups(at, added, value.block)
    stored = at.vals[added].with_causes(v=at.conditions(frozenset(choosing))) if choosing else at.vals[added]
    return stored_under(at, value.block, stored, frozenset(balanced))
