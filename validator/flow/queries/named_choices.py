"""Objects of classes that a factory looks up in a table, by a name that its caller spells out.

def make(name, *args):
    return TABLE[name](*args)

policy = make("policy", model)  # of the class that the table has under this name, of all that it has
"""

from __future__ import annotations

from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.values.demands import only_target
from validator.flow.values import Obj


def named_choice(place: Place) -> frozenset[Obj] | None:
    """The objects that a call of such a factory gives; None where a value is nothing of the kind."""
    call = place.root
    unit = only_target(call) if call.value.op == "call" else None
    if unit is None or not unit.code.returned:
        return None
    found: set[Obj] = set()
    for number in unit.code.returned:
        made = Place(call.flow, unit, number).root if number >= 0 else None
        objs = _looked_up(call, made) if made is not None and made.value.op == "call" else None
        if objs is None:
            return None
        found |= objs
    return frozenset(found)


def _looked_up(call: Place, made: Place) -> set[Obj] | None:
    """The objects of the classes that a table has under the name which a call passes."""
    looked = made.operand(0).root
    key = looked.operand(1).root if looked.value.op == "item" else None
    if key is None or key.value.op != "param":
        return None
    given = argument_of(call.unit, call.number, made.unit, key.value.data[0])
    name = call.value_at(given).val.constant() if given is not None else None
    tables = looked.operand(0).closed.objs
    if not isinstance(name, str) or not tables or any(o[0] != "dict" for o in tables):
        return None
    classes = {each for o in tables for under, val in o[1] if under == name for each in val.each}
    return {("inst", o[1]) for o in classes} if classes and all(o[0] == "class" for o in classes) else None
