"""What expressions spell that are made of literals, once for each round of the loops over literals around them."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

from validator.flow.control import reached
from validator.flow.queries.base import Place
from validator.flow.values import Obj, Val

UNKNOWN = object()  # a value that the source does not tell
_LONGEST = 200  # characters of a text that the flow keeps
_ROWS: dict[str, Callable[[dict[Any, Any]], list[Any]]] = {
    "items": lambda rows: list(rows.items()), "keys": list, "values": lambda rows: list(rows.values()),
}  # fmt: skip
_COMPARING: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda part, whole: part in whole, "NotIn": lambda part, whole: part not in whole,
}  # fmt: skip
_DISPLAYS = {"tuple": tuple, "list": list, "set": list}

Round = Mapping[int, Any]  # what the variables of loops are: by the value that gives the element of a round


def rounds(call: Place, given: Round | None = None) -> list[Round]:
    """The rounds in which a call is made with other arguments: for each loop over literals on which these depend, but
    those in which a test of what the round has leaves the call out. `given`: what parameters hold."""
    given = given or {}
    numbers = {s.number for n in call.value.args[1:] for s in call.value_at(n).parts if s.value.op == "next"}
    gone_through = ((number, call.value_at(number).iterable) for number in sorted(numbers))
    loops = [(number, literal(iterable, given)) for number, iterable in gone_through if iterable is not None]
    known = [(number, elements) for number, elements in loops if isinstance(elements, tuple | list | dict)]
    found = [
        {**given, **dict(zip([n for n, _ in known], each, strict=True))} for each in product(*(e for _, e in known))
    ]
    return [each for each in found if not known or _is_made(call, each)]


def _is_made(call: Place, known: Round) -> bool:
    """Whether a call may be made in a round."""
    return call.value.block in reached(call.unit.code, lambda number: _holds(call.value_at(number), known))


def _holds(test: Place, known: Round) -> bool | None:
    """Whether a test holds in a round; None where the source does not tell."""
    value = test.value
    if value.op == "unary" and value.data == "Not":
        inner = _holds(test.value_at(value.args[0]), known)
        return None if inner is None else not inner
    if test.unit.connective(test.number):
        parts = [_holds(test.value_at(number), known) for number in value.args]
        decisive = test.unit.connective(test.number) == "or"
        return decisive if decisive in parts else None if None in parts else not decisive
    if value.op == "call" and ("ext", "isinstance") in test.operand(0).val.objs and len(value.args) == 3:
        return _is_instance(literal(test.operand(1), known), test.operand(2).closed)
    if value.op == "compare" and value.data in _COMPARING:
        left, right = (literal(test.operand(index), known) for index in (0, 1))
        with suppress(TypeError):
            return None if UNKNOWN in (left, right) else bool(_COMPARING[value.data](left, right))
        return None
    found = literal(test, known)
    return None if found is UNKNOWN else bool(found)


def _is_instance(value: Any, classes: Val) -> bool | None:
    """Whether a literal is of one of some builtin classes."""
    each = [part for o in classes.each for part in ([o] if o[0] != "tuple" else [p for v in o[1] for p in v.each])]
    types = [getattr(builtins, str(o[1]), None) if o[0] == "ext" else None for o in each]
    known = all(isinstance(each, type) for each in types) and types
    return isinstance(value, tuple(types)) if known and value is not UNKNOWN else None  # type: ignore[arg-type]


def literal(place: Place, known: Round | None = None) -> Any:
    """The value of an expression; `UNKNOWN` where it is computed."""
    if place.value.op == "mut" and place.closed.of("dict"):
        return of_value(place.closed)  # what was put into it counts
    place = place.root
    value = place.value
    parts = (literal(place.value_at(number), known) for number in value.args if number >= 0)
    if known is not None and place.number in known:
        return known[place.number]
    if value.op == "call" and value.data.names == () and place.method in _ROWS and place.receiver is not None:
        rows = literal(place.receiver, known)
        return _ROWS[place.method](rows) if isinstance(rows, dict) else of_value(place.closed)
    if value.op == "const":
        return value.data
    if value.op in _DISPLAYS and not value.data:
        found = list(parts)
        return UNKNOWN if UNKNOWN in found else _DISPLAYS[value.op](found)
    if value.op == "unpack":
        (whole,) = parts
        position, count, starred = value.data
        fits = isinstance(whole, tuple | list) and len(whole) == count and starred < 0
        return whole[position] if fits else UNKNOWN
    if value.op in ("join", "binary", "unary"):
        return _computed(value.op, str(value.data), list(parts))
    return of_value(place.closed)


def text(place: Place, known: Round | None = None) -> str | None:
    """The text that an expression spells; None where it is computed."""
    found = literal(place, known)
    return found if isinstance(found, str) else None


def of_value(value: Val) -> Any:
    """The one thing that a value is, as the flow knows it."""
    (only,) = value.objs if len(value.objs) == 1 else (("top",),)
    return _of(only)


def _of(o: Obj) -> Any:
    if o[0] == "const":
        return o[2] if not isinstance(o[2], str) or len(o[2]) < _LONGEST else UNKNOWN
    if o[0] == "tuple":
        found = [of_value(part) for part in o[1]]
        return UNKNOWN if UNKNOWN in found else found
    if o[0] == "dict" and o[2] is None:
        return {key: of_value(part) for key, part in o[1]}
    return UNKNOWN


def _computed(op: str, operator: str, parts: list[Any]) -> Any:
    """A text put together, the sum of two texts or rows, a number with its sign."""
    if op == "join":
        return "".join(map(str, parts)) if UNKNOWN not in parts else UNKNOWN
    if op == "binary" and operator == "Add" and all(isinstance(part, str) for part in parts):
        return "".join(parts)
    if op == "binary" and operator == "Add" and all(isinstance(part, list | tuple) for part in parts):
        return [each for part in parts for each in part]
    if op == "unary" and operator == "USub" and isinstance(parts[0], int | float):
        return -parts[0]
    return UNKNOWN
