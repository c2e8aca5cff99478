"""What a call of a function gives back that hands on a parameter, or what lies in an attribute of one: what this call
passes, not what all calls do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from validator.flow.having import having
from validator.flow.narrowing import narrowed
from validator.flow.values import NOT_YET, TOP, UNKNOWN, Obj, Val, join

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.getters import Got
    from validator.flow.program.unit import Unit

_THINGS = frozenset({"inst", "self", "class", "made", "ext", "unit", "module", "keeping"})


def told(at: Evaluation, number: int, unit: Unit, back: Val, argument: Callable[[int], Val]) -> Val:
    """What a call of a function gives back: `back` is what all its calls do. It is among both."""
    if not unit.gets or any(name in at.flow.properties for each in unit.gets for name in each.names):
        return back
    found = join(_told(at, number, unit, each, argument(each.position)) for each in unit.gets)
    if found is NOT_YET or back is NOT_YET or TOP in found.objs:
        return back
    objs = found.objs if TOP in back.objs else found.objs & back.objs
    if not objs:
        objs = back.objs - _turned_away(at, number, unit, argument)
    return back if objs == back.objs else Val(objs, back.v, back.n, back.p, back.state)


def _turned_away(at: Evaluation, number: int, unit: Unit, argument: Callable[[int], Val]) -> frozenset[Obj]:
    """What a call passes for parameters that a function gives back only where they are something else."""
    whole = [each for each in unit.gets if not each.names]
    given: frozenset[Obj] = frozenset().union(*(argument(each.position).objs for each in whole))
    return given.difference(*(_told(at, number, unit, each, argument(each.position)).objs for each in whole))


def _told(at: Evaluation, number: int, unit: Unit, each: Got, value: Val) -> Val:
    """One thing that a function gives back, of what a call passes."""
    if each.is_changed and any(o[0] not in _THINGS for o in value.each):
        return UNKNOWN  # a container holds something else by now
    tests = unit.class_tests
    for classes, holds in tests.around(each.number, each.block):
        (wanted,) = at.flow.part(("unit", unit), ("vals", (classes,))) or (UNKNOWN,)
        value = narrowed(value, wanted, holds, at.models)
    for name, holds in tests.asked_for(each.number, each.block):
        value = having(at.flow, value, name, holds)
    for name in each.names:
        if not value.objs:
            break
        value = at.attribute(number, value, name)
    return value
