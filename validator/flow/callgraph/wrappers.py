"""Functions that stand in for one that is passed to the function around them, as most decorators make them.

Where such a wrapper gives back nothing but what the wrapped function gives, called with all that the wrapper is called
with, then whoever calls the wrapper calls the wrapped function. To know it as that function keeps the functions apart
that one decorator wraps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.ir.model import Value

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit

_SPREADS = ("*", "**")


def wrapped_by(unit: Unit) -> tuple[str, frozenset[int]]:
    """The parameter of the function around a unit for which it stands in, and the calls of it; empty for others."""
    code, outer = unit.code, unit.outer
    nothing = "", frozenset[int]()
    if code.kind != "function" or code.is_generator or outer is None or outer.code.kind != "function":
        return nothing
    if not any(kind in _SPREADS for _, kind in code.params) or not code.returned:
        return nothing
    found = {_call_behind(unit, number) for number in code.returned}
    names = {_wrapped_name(unit, number) for number in found}
    (name, *others) = names
    if others or not name or not _is_parameter(outer, name):
        return nothing
    calls = frozenset(n for n, value in enumerate(code.values) if value.op == "call" and _wrapped_name(unit, n) == name)
    return name, calls


def _call_behind(unit: Unit, number: int) -> int:
    """The value that is given back, before it was awaited."""
    number = unit.root(number)
    value = unit.code.values[number]
    return unit.root(value.args[0]) if value.op == "await" else number


def _wrapped_name(unit: Unit, number: int) -> str:
    """The variable of the function around that a call calls with all that this one is called with."""
    values = unit.code.values
    call = values[number]
    callee = values[unit.root(call.args[0])] if call.op == "call" else call
    if call.op != "call" or callee.op != "free" or callee.data[0] != 1 or not _hands_on(unit, call):
        return ""
    return str(callee.data[1])


def _hands_on(unit: Unit, call: Value) -> bool:
    """Whether a call passes on all parameters of the unit in their order; lists, dictionaries as they are by then."""
    given = list(zip(call.data.names, call.args[1:], strict=True))
    if [kind if kind in _SPREADS else None for _, kind in unit.code.params] != [name for name, _ in given]:
        return False
    params = [unit.code.values[unit.root(number)] for name, number in given if name is None]
    return all(each.op == "param" and each.data[0] == place for place, each in enumerate(params))


def _is_parameter(outer: Unit, name: str) -> bool:
    """Whether a variable is a parameter that is never set anew."""
    defined = {outer.root(number) for number in outer.code.definitions.get(name, ())}
    return len(defined) == 1 and all(outer.code.values[number].op == "param" for number in defined)


def communicating(flow: Flow) -> frozenset[str]:
    """Names of what may communicate when called: collectives, and functions that call something of such a name."""
    rows = flow.models.calls.items()
    found = {name.rpartition(".")[2].partition("(")[0] for name, row in rows if row.is_collective}
    calling: dict[str, set[str]] = {}
    for function in flow.project.functions():
        for call in function.facts.calls:
            calling.setdefault(call.method, set()).add(function.name)
    queue = list(found)
    while queue:
        fresh = calling.get(queue.pop(), set()) - found
        found |= fresh
        queue += fresh
    return frozenset(found)
