"""Values in terms of a unit's parameters, with what a call, or all callers, pass for these."""

from __future__ import annotations

from collections.abc import Callable

from validator.domains.placement import substituted
from validator.domains.spmd import NONE, UNIFORM, Cause, Causes, combined, emptied, folded, on_some_ways, only, unsure
from validator.flow.values import (
    COUNTED,
    NONE_OBJ,
    NOT_YET,
    Obj,
    Val,
    as_long_as,
    holds_alike,
    join,
    mapped,
    picked,
    substitutions,
)

_HELD = frozenset({"tuple", "seq", "dict", "unordered", "inst", "self", *COUNTED})
_THINGS = frozenset({"inst", "self", "unit", "bound", "class"})
_OWNING = frozenset({"inst", "self", "made", "class", "module", "ext"})


def instantiated(value: Val, argument: Callable[[int], Val]) -> Val:
    """A value of a unit in terms of what its parameters get; not known yet while one of those is not."""
    holes = value.holes
    if not holes:
        return value
    given = [argument(position) for position in holes]
    if NOT_YET in given:
        return NOT_YET
    key = (value.number, *[each.number for each in given])
    known = substitutions.get(key)
    if known is None:
        known = substitutions[key] = _instantiated(value, dict(zip(holes, given, strict=True)))
    return known


def _instantiated(value: Val, given: dict[int, Val]) -> Val:
    parts: list[Val] = []
    plain: list[Obj] = []
    for o in value.each:
        if o[0] == "param":
            parts.append(Val(given[o[1]].objs))
        elif o[0] == "part":
            parts.append(Val(picked(given[o[1]], o[2]).objs))
        elif o[0] == "as long":
            plain += as_long_as(instantiated(o[1], given.__getitem__))
        else:
            plain.append(mapped(o, lambda part: instantiated(part, given.__getitem__)))
    merged = join([Val(frozenset(plain)), *parts])
    v, n, p = (instantiated_causes(each, given.__getitem__) for each in (value.v, value.n, value.p))
    return Val(merged.objs, v, n, p, substituted(value.state, lambda position: given[position].held))


def instantiated_causes(causes: Causes, argument: Callable[[int], Val]) -> Causes:
    """Causes of a unit in terms of what its parameters get."""
    symbolic = [c for c in causes if c.kind == "param"]
    if not symbolic:
        return causes
    parts = [_given(c, argument(c.position)) for c in symbolic]
    if len(symbolic) == len(causes) == 1:
        return parts[0]
    if UNIFORM in causes:  # a way on which it is known to be equal stays one, whatever comes on the others
        return frozenset().union(causes.difference(symbolic), *parts)
    return combined(causes.difference(symbolic), *parts)


def _given(cause: Cause, value: Val) -> Causes:
    """What a cause that speaks of a parameter means for what the parameter gets."""
    facet = cause.facet
    if facet == "a":  # an attribute of an object is its own, of a tensor it is another view
        owned = any(o[0] in _OWNING for o in value.each)
        given = only(value.v, "data", "param", "uniform") if owned else value.v
    elif facet in ("v", "n", "p"):
        given = getattr(value, facet)
    elif facet == "f":
        given = folded(value.v)
    else:  # the truth of a value
        kinds = {o[0] for o in value.each if o != NONE_OBJ}
        known = kinds and kinds <= _HELD or holds_alike(value, _THINGS)
        given = emptied(value.n) | value.p | (NONE if known else value.v)
    given = on_some_ways(given) if cause.some else given
    return given if cause.sure else unsure(only(given, "data", "param"))
