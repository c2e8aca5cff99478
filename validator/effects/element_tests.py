"""The tests by which elements are chosen: how many of them a loop goes through rests on these.

A generator that leaves some out (`if …: continue` before its `yield`), a comprehension with a condition, `filter`, a
list to which only some rounds of a loop append.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.calls.libraries.containers import COPYING, LAZY
from validator.flow.containers import GROWING
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.origins import sources

_AS_LONG = LAZY | COPYING | {"list", "tuple", "sorted"}


def choosing(iterated: Place) -> Iterator[Place]:
    """The tests that decide how many elements something has, as far back as it can be followed."""
    seen: set[Place] = set()
    queue = [iterated.root]
    while queue:
        place = queue.pop().root
        if place in seen:
            continue
        seen.add(place)
        yield from _tests(place)
        queue += _before(place)


def _tests(place: Place) -> Iterator[Place]:
    """The tests that stand at the value itself."""
    value, unit = place.value, place.unit
    if value.op == "collect":
        yield from (place.value_at(each) for each in value.args[value.data[1] + value.data[2] :])
    elif value.op == "mut" and place.operand(1).value.op == "call" and place.operand(1).method in GROWING:
        yield from _deciding(unit, place, value.block)
    elif value.op == "call" and "filter" in _names(place) and len(value.args) > 1:
        functions = [o[1] for o in place.operand(1).val.each if o[0] == "unit"]
        yield from (Place(place.flow, each, end) for each in functions for end in each.code.returned if end >= 0)
    for generator in _generators(place):
        for each in generator.code.values:
            if each.op in ("yield", "yield from"):
                yield from _deciding(generator, place, each.block)


def _deciding(unit: Unit, place: Place, block: int) -> Iterator[Place]:
    """The conditions of the branches, but for the heads of loops, that decide whether a block is reached."""
    heads = {header for header, loop in unit.code.loops.items() if loop.iterator >= 0}
    ends = (unit.code.blocks[branch].end[1] for branch in unit.control.deciding(block) - heads)
    yield from (Place(place.flow, unit, end) for end in ends)


def _generators(place: Place) -> list[Unit]:
    """The generators that a value is, or that run where it is gone through."""
    site = place.result.sites.get(place.number) if place.value.op == "iter" else None
    ran = [target.unit for target in site.targets] if site is not None else []
    return [unit for unit in (*ran, *(o[1] for o in place.val.of("generator"))) if unit.code.is_generator]


def _before(place: Place) -> Iterator[Place]:
    """What has as many elements as a value, or some of them, one step before."""
    value = place.value
    if value.op == "iter" or value.op == "mut":
        yield place.operand(0)
    elif value.op == "collect":
        yield from (place.value_at(each) for each in value.args[value.data[1] : value.data[1] + value.data[2]])
    elif value.op == "call" and not _names(place).isdisjoint(_AS_LONG):
        yield from (place.value_at(each) for each in value.args[1:])
    else:
        yield from sources(place) or ()
    for generator in _generators(place):
        loops = generator.code.loops.values()
        yield from (Place(place.flow, generator, loop.iterator) for loop in loops if loop.iterator >= 0)
        given = (each for each in generator.code.values if each.op == "yield from")
        yield from (Place(place.flow, generator, each.args[0]) for each in given)


def _names(call: Place) -> set[str]:
    """The names of the library's functions that a call runs."""
    return {o[1] for o in call.operand(0).val.each if o[0] == "ext"}
