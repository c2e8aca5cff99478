"""Values that are surely no texts: numbers, and what is computed as only numbers, tensors and the like are."""

from __future__ import annotations

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.values.text_origins import text_origins

_NEVER = frozenset({"Sub", "Div", "FloorDiv", "Pow", "MatMult", "LShift", "RShift"})
_COUNTING = frozenset({"len", "int", "float", "bool", "round", "abs", "ord", "hash", "id"})


def is_no_text(place: Place) -> bool:
    """Whether a value is a number, or made by an operation that gives no text whatever it is given."""
    return _is_none(place, frozenset())


def _is_none(place: Place, above: frozenset[tuple[Unit, int]]) -> bool:
    """`above`: what is made of the value; what a variable is made of itself says nothing new."""
    key = (place.root.unit, place.root.number)
    if key in above:
        return True
    origins = [each.place for each in text_origins(place, _is_made)]
    return bool(origins) and all(_is_made_so(each.root, above | {key}) for each in origins)


def _is_made(place: Place) -> bool:
    return place.value.op in ("binary", "unary") or _is_counted(place)


def _is_made_so(place: Place, above: frozenset[tuple[Unit, int]]) -> bool:
    value = place.value
    if value.op == "binary":
        left, right = place.operand(0), place.operand(1)
        if value.data == "Add":  # a text takes only texts
            return _is_none(left, above) or _is_none(right, above)
        if value.data == "Mult":
            return _is_none(left, above) and _is_none(right, above)
        return value.data in _NEVER or value.data == "Mod" and _is_none(left, above)
    if value.op == "call":
        return any(place.operand(0).val.objs == {("ext", name)} for name in _COUNTING)
    return value.op == "unary" or _is_counted(place) or _is_constant(place)


def _is_counted(place: Place) -> bool:
    """Whether a value is the number of a round: of `range`, of `enumerate`."""
    counting, source = "range", place
    if place.value.op == "unpack" and place.value.data[0] == 0:
        counting, source = "enumerate", place.operand(0).root
    through = source.iterable
    made = through.root if through is not None else None
    return made is not None and made.value.op == "call" and made.operand(0).val.objs == {("ext", counting)}


def _is_constant(place: Place) -> bool:
    """Whether a value can only be numbers that the code writes."""
    held = place.val.each
    return bool(held) and all(o[0] == "const" and o[1] in ("int", "float", "bool") for o in held)
