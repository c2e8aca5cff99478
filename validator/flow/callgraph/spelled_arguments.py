"""What calls pass, as the source spells it: arguments, keywords of dictionaries that are written out."""

from __future__ import annotations

from validator.facts.model import Argument, At, Call
from validator.flow.program.unit import Unit
from validator.ir import Value


def call_of(unit: Unit, number: int) -> Call:
    """A call of the intermediate representation as a fact, with its arguments' places."""
    code, value = unit.code, unit.code.values[number]
    args: list[Argument] = []
    for name, operand in zip(value.data.names, value.args[1:], strict=True):
        text, place = unit.text(code.values[operand].at), unit.at(code.values[operand].at)
        keys = _spread(unit, operand) if name == "**" else ()
        args += [Argument(key, "other", text, place) for key in keys] or [Argument(name, "other", text, place)]
    at: At = unit.at(value.at)
    callee = code.values[value.args[0]]
    return Call(unit.text(callee.at), tuple(args), "", (), at, unit.at(callee.at))


def _spread(unit: Unit, operand: int) -> tuple[str, ...]:
    """The keywords that `**x` passes, where x is a dictionary that is written out, on whatever way; empty where that is
    not known."""
    found: dict[str, None] = {}
    for each in origins(unit, operand):
        value = unit.code.values[each]
        keys = literal_keys(unit, value) if value.op == "dict" else None
        if keys is None:
            return ()
        found.update(dict.fromkeys(keys))
    return tuple(found)


def literal_keys(unit: Unit, value: Value) -> tuple[str, ...] | None:
    """The keys of a dictionary that is written out, in their order; None where one is no literal text."""
    keys = [unit.code.values[key] if key >= 0 else None for key in value.args[::2]]
    if any(key is None or key.op != "const" or not isinstance(key.data, str) for key in keys):
        return None
    return tuple(str(key.data) for key in keys if key is not None)


def origins(unit: Unit, number: int) -> list[int]:
    """The values that one may be on the ways that lead to it."""
    ways = {number: None}
    queue = [number]
    for each in queue:
        value = unit.code.values[each]
        fresh = dict.fromkeys(other for other in value.args if other not in ways) if value.op == "phi" else {}
        ways.update(fresh)
        queue += fresh
    return [each for each in queue if unit.code.values[each].op != "phi"]
