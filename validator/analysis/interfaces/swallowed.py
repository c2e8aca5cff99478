"""Which keys of its `**` a function reads that does nothing else with it: all others that it is passed are lost."""

from __future__ import annotations

from validator.analysis.interfaces.binding import keeps_signature
from validator.definitions import Method
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit

_READING = frozenset({"get", "pop", "setdefault"})


def keys_read(flow: Flow, function: Method) -> frozenset[str] | None:
    """The keys that a function reads of its `**`: of all others nothing is left. None where it takes none, hands it on,
    goes through it, or computes a key."""
    star = next((i for i, p in enumerate(function.facts.params) if p.kind == "**"), -1)
    unit = flow.unit_of(function)
    if star < 0 or unit is None or unit.code.kind != "function" or not keeps_signature(function):
        return None
    if any(each.outer is unit and _closes_over(each, function.facts.params[star].name) for each in _inner(flow, unit)):
        return None
    values = enumerate(unit.code.values)
    taken = next((n for n, value in values if value.op == "param" and value.data[0] == star), -1)
    read = _read(unit, taken) if taken >= 0 else []
    return frozenset(read) if read is not None else None


def _inner(flow: Flow, unit: Unit) -> list[Unit]:
    return [each for each in flow.units_of(unit.module).values() if each is not unit]


def _closes_over(unit: Unit, name: str) -> bool:
    return any(value.op == "free" and value.data[1] == name for value in unit.code.values)


def _read(unit: Unit, number: int) -> list[str] | None:
    """The keys that are read of a dictionary as it was passed; None where something else is done with it."""
    same, keys = [number], []
    ends = {end for block in unit.code.blocks for end in block.end[1:2] if block.end[0] != "jump"}
    for each in same:  # grows: the same dictionary behind the calls that may change it
        if each in ends:
            return None
        for user in unit.users.get(each, ()):
            value = unit.code.values[user]
            if value.op in ("mut", "phi"):
                same += [user] if user not in same else []
                continue
            found = keys_asked(unit, each, user)
            if found is None:
                return None
            keys += found
    return keys


def keys_asked(unit: Unit, held: int, user: int) -> list[str] | None:
    """The keys by which a use of a dictionary asks it; empty where a method is only named, None where it does something
    else, or a key is computed."""
    values = unit.code.values
    value = values[user]
    if value.op == "attr" and value.data in _READING:
        calls = [values[n] for n in unit.users.get(user, ()) if values[n].op != "mut"]
        asked = [call.args[1] for call in calls if call.op == "call" and call.args[0] == user and len(call.args) > 1]
        found = [values[number].data for number in asked if values[number].op == "const"]
        return found if len(found) == len(calls) and all(isinstance(key, str) for key in found) else None
    if value.op == "item" and value.args[0] == held or value.op == "compare" and value.args[1:] == (held,):
        asked_by = values[value.args[1] if value.op == "item" else value.args[0]]
        return [asked_by.data] if asked_by.op == "const" and isinstance(asked_by.data, str) else None
    return None
