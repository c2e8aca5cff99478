"""Which of the objects that callers pass are there under the conditions of a place: one option chooses both.

`Model(make_head(args), args)` gets the head that `args.head` names; where the model asks for `args.head == "light"`, it
is none of the heads that are made for another name.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.effects.condition_keys import Assumed, Key, assume, holding, keys_of
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.pure_functions import Computed
from validator.flow.values import Obj

Conditions = list[tuple[Key, bool]]


def possible(place: Place, user: Place) -> frozenset[Obj] | None:
    """The objects that a parameter may be where another value stands; None where nothing tells them apart."""
    flow, unit, root = place.flow, place.unit, place.root
    conditions = conditions_at(flow, unit, user.value.block) if root.value.op == "param" else []
    if not conditions or unit.is_receiver(root.number):
        return None
    found: set[Obj] = set()
    calls = list(flow.calls_of(unit))
    for caller, passed in calls:
        given = argument_of(caller, passed.site, unit, root.value.data[0])
        if given is None:
            return None
        assumed: Assumed = {}
        for key, holds in _from(caller, passed.site, flow, unit, conditions):
            assumed = assume(assumed, key, holds)
        found |= _made(Place(flow, caller, given), assumed)
    return frozenset(found) if calls else None


def conditions_at(flow: Flow, unit: Unit, block: int) -> Conditions:
    """What is decided where a block runs, also where it is an error otherwise: conditions, and whether they hold."""
    found = []
    for branch in unit.code.tests:
        end = unit.code.blocks[branch].end
        for way in dict.fromkeys(end[2:4]) if end[0] == "branch" else ():
            if unit.control.leads(block, branch, way):
                key, positive = keys_of(flow, unit).test(end[1])
                found.append((key, positive is (way == end[2])))
    return found


def _from(caller: Unit, call: int, flow: Flow, unit: Unit, conditions: Conditions) -> Iterator[tuple[Key, bool]]:
    """Conditions of a function in the terms of a call of it, as far as these tell them."""
    for key, holds in conditions:
        outside = keys_of(flow, caller).from_inside(key, Computed(unit, -1), call)
        if outside is not None:
            yield outside, holds


def _made(given: Place, assumed: Assumed) -> set[Obj]:
    """The objects that an argument may be; of a function that makes them those of ways that what is assumed admits."""
    made = given.root
    site = made.result.sites.get(made.number) if made.value.op == "call" else None
    if site is None or site.others or site.away or len(site.targets) != 1:
        return set(given.closed.objs)
    unit = site.targets[0].unit
    found: set[Obj] = set()
    for number in unit.code.returned:
        for way in origins(unit, number):
            value = Place(made.flow, unit, way)
            conditions = conditions_at(made.flow, unit, value.value.block)
            rows = _from(made.unit, made.number, made.flow, unit, conditions)
            if all(holding(key, assumed) in (None, holds) for key, holds in rows):
                found |= value.closed.objs
    return found
