"""Functions that are handed on with their arguments: `apply(x, self.reduce, op, group=group)` calls
`self.reduce(x, op, group=group)` where `apply(x, fn, *args, **kwargs)` calls `fn(x, *args, **kwargs)`."""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Side
from validator.facts.model import Call
from validator.flow.callgraph.dispatch import Sent, as_call, from_outside
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place


def calls_made_with(side: Side, unit: Unit, number: int, operand: int) -> Iterator[Call]:
    """The calls of a function that run because another call is given it, with the arguments as that one has them."""
    call = Place(side.flow, unit, number)
    for callee, position in _taking(side, call, operand):
        for place, sent in _called_inside(side, callee, position, frozenset()):
            there = from_outside(sent, call, callee)
            if there is not None:
                yield as_call(place, there)._replace(at=call.at)


def _taking(side: Side, call: Place, operand: int) -> Iterator[tuple[Unit, int]]:
    """The functions that a call runs, with the position of the parameter that gets an operand."""
    for method in side.project.analysis(Objects).run_by(call):
        unit = side.unit_of(method)
        if unit is None:
            continue
        skipped = implicit(call.unit, call.value, unit)
        for index, (keyword, number) in enumerate(zip(call.value.data.names, call.value.args[1:], strict=True)):
            if number != operand or keyword in ("*", "**"):
                continue
            for position, (name, kind) in enumerate(unit.code.params):
                if name == keyword or keyword is None and position == index + skipped and kind in ("pos", "any"):
                    yield unit, position


def _called_inside(side: Side, unit: Unit, position: int, seen: frozenset[Unit]) -> Iterator[tuple[Place, list[Sent]]]:
    """The calls of a parameter in a unit, and in those that it hands the parameter to, with what they pass."""
    if unit in seen:
        return
    for number, value in enumerate(unit.code.values):
        if value.op != "param" or value.data[0] != position:
            continue
        for user in unit.users.get(number, ()):
            place = Place(side.flow, unit, user)
            if place.value.op != "call":
                continue
            if place.value.args[0] == number:
                yield place, [Sent(name, place.operand(i + 1)) for i, name in enumerate(place.value.data.names)]
                continue
            for inner, at in _taking(side, place, number):
                for called, sent in _called_inside(side, inner, at, seen | {unit}):
                    there = from_outside(sent, place, inner)
                    if there is not None:
                        yield called, there
