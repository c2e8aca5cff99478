"""What expressions spell that are made of literals, once for each round of the loops over literals around them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from validator.flow.queries.base import Place
from validator.flow.values import Obj, Val

UNKNOWN = object()  # a value that the source does not tell
_LONGEST = 200  # characters of a text that the flow keeps
_DISPLAYS = {"tuple": tuple, "list": list, "set": list}

Round = Mapping[int, Any]  # what the variables of loops are: by the value that gives the element of a round


def rounds(call: Place) -> list[Round]:
    """The rounds in which a call is made with other arguments: for each loop over literals on which these depend."""
    numbers = {s.number for n in call.value.args[1:] for s in call.value_at(n).parts if s.value.op == "next"}
    gone_through = ((number, call.value_at(number).iterable) for number in sorted(numbers))
    loops = [(number, literal(iterable)) for number, iterable in gone_through if iterable is not None]
    known = [(number, elements) for number, elements in loops if isinstance(elements, tuple | list | dict)]
    return [dict(zip([n for n, _ in known], each, strict=True)) for each in product(*(e for _, e in known))]


def literal(place: Place, known: Round | None = None) -> Any:
    """The value of an expression; `UNKNOWN` where it is computed."""
    place = place.root
    value = place.value
    parts = (literal(place.value_at(number), known) for number in value.args if number >= 0)
    if known is not None and place.number in known:
        return known[place.number]
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
        rows = {key: of_value(part) for key, part in o[1]}
        return UNKNOWN if UNKNOWN in rows.values() else rows
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
