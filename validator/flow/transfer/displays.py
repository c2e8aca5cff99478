"""Displays, comprehensions and formatted texts: what they hold, by what they and their lengths vary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.placement import UNPLACED
from validator.domains.spmd import NONE, Causes, combined
from validator.flow.merging.conditions import truth_of
from validator.flow.texts import spelled
from validator.flow.values import (
    BOTTOM,
    COUNTED,
    Val,
    beside,
    dictionary_of,
    elements,
    is_text,
    join,
    obj,
    sequence,
    tuple_of,
    unordered,
)
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def formatted(at: Evaluation, number: int, value: Instruction) -> Val:
    """The text that an f-string spells."""
    parts = [at.operand(each) for each in value.args]
    return Val(spelled(parts), combined(*(p.v for p in parts)))


def display(at: Evaluation, number: int, value: Instruction) -> Val:
    """A list, set or dictionary that is written out; of a module's own with what other functions put into it."""
    made = _DISPLAYS[value.op](at, number, value)
    names = _global_names(at, number) if at.code.kind == "module" else ()
    return join([made, *(held for name in names for held in at.flow.variables.filled(at.unit.module, name))])


def _global_names(at: Evaluation, number: int) -> list[str]:
    """The global variables in which a value is stored."""
    users = (at.code.values[user] for user in at.unit.users.get(number, ()))
    return [user.data for user in users if user.op == "store_global"]


def tuple_display(at: Evaluation, number: int, value: Instruction) -> Val:
    """A tuple, or a list, that is written out."""
    parts = [at.operand(each) for each in value.args]
    v = frozenset().union(*(p.v for p in parts)) if parts else NONE
    if value.data:  # starred elements
        inner = join(elements(p) if i in value.data else p for i, p in enumerate(parts))
        n = frozenset().union(*(parts[i].n for i in value.data))
        return Val(sequence(inner).objs, v, n)
    made = tuple_of(parts) if len(parts) <= 24 else sequence(join(parts))
    return Val(made.objs, v)


def _set(at: Evaluation, number: int, value: Instruction) -> Val:
    parts = [at.operand(each) for each in value.args]
    texts = len(parts) > 1 and any(is_text(part) for part in parts)
    order = frozenset({unordered("set")}) if texts else NONE
    return Val(sequence(join(parts)).objs | order, frozenset().union(*(p.v for p in parts)))


def _dict(at: Evaluation, number: int, value: Instruction) -> Val:
    pairs = zip(value.args[::2], value.args[1::2], strict=True)
    # what is no constant may be any key: as the empty tuple here
    keyed = ((None if key < 0 else _key(at, key), at.vals[held]) for key, held in pairs)
    return dictionary_of(keyed)


def _key(at: Evaluation, number: int) -> object:
    constant = at.vals[number].constant()
    return () if constant is None else constant


def comprehension(at: Evaluation, number: int, value: Instruction) -> Val:
    """A list, set, dictionary or generator that a comprehension makes."""
    kind, count, iterators = value.data
    elts = [at.operand(each) for each in value.args[:count]]
    n: Causes = NONE
    for each in value.args[count : count + iterators]:
        n |= at.operand(each).n
    for each in value.args[count + iterators :]:
        n |= truth_of(at.operand(each))
    v = frozenset().union(*(e.v for e in elts)) if kind != "dict" else NONE
    over = [at.operand(each) for each in value.args[count : count + iterators]]
    order = frozenset().union(*(beside(each, "unordered") for each in over))
    if kind == "set":
        order = frozenset({unordered("set")}) if elts and is_text(elts[-1]) else NONE
    if kind == "list" and len(value.args) == count + 1:
        order |= beside(over[0], *COUNTED)
    made = obj("dict", (), elts[-1]) if kind == "dict" else sequence(elts[-1]) if elts else BOTTOM
    return Val(made.objs | order if elts else NONE, v, n, state=elts[-1].state - UNPLACED)


_DISPLAYS = {"list": tuple_display, "set": _set, "dict": _dict}
