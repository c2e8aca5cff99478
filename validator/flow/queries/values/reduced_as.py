"""Whether a value is a sum or a mean over ranks, as a collective made it, or a function of the program that has the
operation from its callers (`strategy.all_reduce(x, op="mean")`)."""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.values.sums import KEEPING, averaged, summed

# How functions call the parameter that says how they reduce, and what callers pass for it.
_OPERATION = frozenset({"op", "operation", "reduce_op", "reduction", "reduce_type"})
_WORDS = {"sum": "sum", "mean": "mean", "avg": "mean", "average": "mean"}


def reduced_as(queries: Queries, place: Place) -> str:
    """`sum` or `mean` where a value surely is one over ranks; empty otherwise."""
    for each in _ways_back(place):
        if averaged(each) is not None:
            return "mean"
        if next(summed(each), None) is not None:
            return "sum"
        if each.value.op == "call" and (word := _by_program(queries, each)):
            return word
    return ""


def _ways_back(place: Place) -> Iterator[Place]:
    """A value, and what it is but for its kind: of `x.item()` x, of a part the whole."""
    seen: set[int] = set()
    while place.number not in seen:
        seen.add(place.number)
        yield place
        value = place.value
        if value.op == "unpack" or value.op == "mut" and averaged(place) is None:
            place = place.operand(0)
        elif value.op == "call" and place.method in KEEPING and place.receiver is not None:
            place = place.receiver


def _by_program(queries: Queries, call: Place) -> str:
    """How all functions of the program reduce that a call may run."""
    words = {_word(queries, call, unit) for unit in queries.targets(call)}
    return words.pop() if len(words) == 1 else ""


def _word(queries: Queries, call: Place, unit: Unit) -> str:
    """How a function reduces what it is passed, by the word that it gets or has by default."""
    position = next((n for n, (name, _) in enumerate(unit.code.params) if name in _OPERATION), -1)
    reduces = (each.row.operation is not None for inside in queries.calls_in(unit) for each in inside.operations)
    if position < 0 or not any(reduces):
        return ""
    name = unit.code.params[position][0]
    given = call.argument(name, position - implicit(call.unit, call.value, unit))
    if given is None and not {"*", "**"}.isdisjoint(call.value.data.names):
        return ""
    told = given.closed.constant() if given is not None else call.flow.parameters.default(unit, name).constant()
    return _WORDS.get(told.lower(), "") if isinstance(told, str) else ""
