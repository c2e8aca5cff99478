"""Attributes and items of values, slices, and what is taken apart into variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.placement import inherited
from validator.domains.spmd import NONE, UNIFORM, Causes, between, combined, data, only, shared_out, unsure
from validator.flow.attributes import attribute
from validator.flow.callgraph import sections
from validator.flow.calls.libraries.environment import environment
from validator.flow.calls.meshes import part_of_mesh
from validator.flow.foreign import likely_rank
from validator.flow.merging.even_shares import is_even_piece, is_evened
from validator.flow.values import (
    ANYTHING,
    COUNTED,
    NOT_YET,
    UNKNOWN,
    Obj,
    Val,
    elements,
    entries,
    is_dictionary,
    join,
    picked,
)
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def attribute_of(at: Evaluation, number: int, value: Instruction) -> Val:
    """`owner.name`."""
    owner = at.operand(value.args[0])
    return attribute(at, number, at.behind_tests(owner, value.args[0], value.block), value.data)


def item(at: Evaluation, number: int, value: Instruction) -> Val:
    """`owner[key]`."""
    owner, key = at.operand(value.args[0]), _key(at, value.args[1])
    constant = key.constant()
    found: list[Val] = []
    for o in owner.each:
        if o[0] == "ext" and o[1] == "os.environ":
            return environment(at.models, key)
        found += _items_of(at, o, owner, key, value.args[1])
    result = join(found) if found or owner.of("dict") else UNKNOWN
    if result is NOT_YET:
        return result
    if isinstance(constant, str) and constant in at.models.ranks["names"] and result.objs == UNKNOWN.objs:
        result = likely_rank(constant)  # `opt["rank"]` of a configuration, as `opt.rank` of an unknown object
    v = _varies(at, owner, key, result)
    n = result.n
    if _selects(at, value.args[1]):
        n |= owner.n | (data(sure=False) if UNIFORM not in owner.v else NONE) | owner.v | key.v
    elif slices := _slices(at, value.args[1]):
        n |= owner.n.union(*(_cut(at, each.args) for each in slices))
    return Val(result.objs, combined(result.v, v), n, result.p, inherited(result.state, owner.state))


def _key(at: Evaluation, number: int) -> Val:
    """What stands in brackets. Of several dimensions each may tell ranks apart."""
    key: Val = at.operand(number)
    value = at.code.values[number]
    return key.with_causes(v=combined(*(at.vals[each].v for each in value.args))) if value.op == "tuple" else key


def _slices(at: Evaluation, number: int) -> list[Instruction]:
    """The slices in brackets, one for each dimension that is cut."""
    value = at.code.values[number]
    parts = [at.code.values[each] for each in value.args] if value.op == "tuple" else [value]
    return [each for each in parts if each.op == "slice"]


def _items_of(at: Evaluation, o: Obj, owner: Val, key: Val, number: int) -> list[Val]:
    """What one of the objects that a value may be has under a key, whose number is `number`; empty where it says
    nothing of that."""
    kind, constant = o[0], key.constant()
    if kind == "tuple" and isinstance(constant, int) and -len(o[1]) <= constant < len(o[1]):
        return [o[1][constant]]
    if kind == "dict":
        return entries(o, key)
    if kind == "mesh":
        return [part_of_mesh(o, key)]
    if kind == "section":
        return [sections.below(o, constant)]
    if kind in ("tuple", "seq"):
        sliced = at.code.values[number].op == "slice"
        return [Val(frozenset({("seq", elements(owner))})) if sliced else elements(owner)]
    if kind == "param":
        return _items_of_passed(at, o[1], key)
    return [UNKNOWN] if kind == "top" else [ANYTHING] if kind == "more" else []


def _items_of_passed(at: Evaluation, parameter: int, key: Val) -> list[Val]:
    """What callers pass under a key of a parameter."""
    constant = key.constant()
    passed: Val = at.flow.get("argument", at.unit, parameter)
    meshes = [part_of_mesh(mesh, key) for mesh in passed.of("mesh")]
    found = [sections.below(each, constant) for each in passed.of("section")]
    found += meshes or [NOT_YET if passed is NOT_YET else UNKNOWN]
    if isinstance(constant, str) and is_dictionary(passed):
        held = picked(passed, constant)
        found = [held] if held.objs else [*found, held]
    elif isinstance(constant, int) and not isinstance(constant, bool) and constant >= 0 and not meshes:
        found[-1] = _of_passed(at, parameter, constant)
    return found


def _varies(at: Evaluation, owner: Val, key: Val, result: Val) -> Causes:
    """By what an item varies beside what is known of it: as its container and the key do."""
    constant = key.constant()
    # the elements of one tuple say themselves by what they vary
    place = constant if isinstance(constant, int) else None
    exact = place is not None and len(owner.objs) == 1 and any(place < len(o[1]) for o in owner.of("tuple"))
    v = key.v if exact else combined(owner.v, key.v)
    if isinstance(constant, str) and constant in at.models.likely["columns"] and UNIFORM not in v | result.v:
        v |= data(sure=False)  # a column of a batch, whatever holds it
    return v


def slice_of(at: Evaluation, number: int, value: Instruction) -> Val:
    """The bounds of a slice."""
    return Val(v=combined(*(at.operand(each).v for each in value.args)))


def _cut(at: Evaluation, bounds: tuple[int, ...]) -> Causes:
    """By what the length of a slice varies. A piece between two bounds that move together is as long everywhere;
    `rows[rank::size]` is, where the rows can be shared out evenly: each is a share, but where the function sees to it
    that they can."""
    lower, upper = (at.vals[each].v for each in bounds[:2])
    if len(bounds) > 2 and not at.vals[bounds[2]].is_const(None):
        return unsure(upper) | (NONE if is_evened(at.unit, bounds[2]) else shared_out(lower))
    cut = between(lower, upper)
    return frozenset(c for c in cut if c.kind != "share") if is_even_piece(at.unit, bounds[1]) else cut


def _selects(at: Evaluation, number: int) -> bool:
    """Whether an index is a mask: what is left of a tensor then depends on what it holds."""
    value = at.code.values[at.root(number)]
    if value.op == "compare":
        return value.data in ("Gt", "GtE", "Lt", "LtE", "Eq", "NotEq")
    if value.op == "unary":
        return bool(value.data == "Invert")
    if value.op == "binary" and value.data in ("BitAnd", "BitOr"):
        return all(_selects(at, each) for each in value.args)
    if value.op == "call":
        callee = at.code.values[value.args[0]]
        return callee.op == "attr" and callee.data == "bool"
    return False


def unpacked(at: Evaluation, number: int, value: Instruction) -> Val:
    """One of the variables into which something is taken apart."""
    owner = at.operand(value.args[0])
    found = _parts(at, owner, *value.data)
    result = join(found) if found else UNKNOWN
    if result is NOT_YET:
        return result
    exact = bool(owner.objs) and all(o[0] == "tuple" for o in owner.each)
    v = result.v if exact else result.v | owner.v
    held = any(o[0] in ("tuple", "seq", "dict") for o in owner.each)
    n = result.n if held else result.n | only(owner.n, "rank", "data")
    return Val(result.objs, v, n, result.p, inherited(result.state, owner.state))


def _parts(at: Evaluation, owner: Val, position: int, count: int, star: int) -> list[Val]:
    """What stands at a position in what is taken apart into `count` variables. `star`: the starred one, or -1."""
    found: list[Val] = []
    fits = star < 0 and any(o[0] == "tuple" and len(o[1]) == count for o in owner.each)
    for o in owner.each:
        if fits and o[0] == "tuple" and len(o[1]) != count:
            continue  # it cannot be taken apart into so many
        if o[0] == "tuple" and position != star and (place := _from_star(position, count, star, len(o[1]))) < len(o[1]):
            found.append(o[1][place])
        elif o[0] in ("tuple", "seq", "dict"):
            found.append(elements(owner))
        elif o[0] == "param" and (star < 0 or position < star):
            found.append(_of_passed(at, o[1], position))
        elif o[0] not in ("unordered", "str", *COUNTED):
            found.append(UNKNOWN if o[0] != "more" else ANYTHING)
    return found


def _from_star(position: int, count: int, star: int, length: int) -> int:
    """The place of a variable's part in a tuple: behind a starred one it is counted from the end."""
    return position if star < 0 or position < star else max(length - (count - position), position - 1)


def _of_passed(at: Evaluation, parameter: int, position: int) -> Val:
    """An element of the tuples that all callers pass; of anything else nothing is known."""
    passed: Val = at.flow.get("argument", at.unit, parameter)
    if passed is NOT_YET:
        return passed
    told = bool(passed.objs) and all(o[0] == "tuple" and position < len(o[1]) for o in passed.each)
    return picked(passed, position) if told else UNKNOWN
