"""Functions that only compute: what a call of one gives is an expression of what it gets.

A condition means the same whether it stands in the test, in a variable or in a helper (`def is_first(rank): …`).
"""

from __future__ import annotations

from typing import NamedTuple

from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.escapes import argument_of

_IDLE = frozenset({"contextlib.nullcontext", "torch.no_grad", "torch.inference_mode", "torch.enable_grad"})
_EMPTY = frozenset({"param", "const", "yield", "tuple", "name", "undefined"})


class Computed(NamedTuple):
    """The value that a call gives: a value of the unit that it runs."""

    unit: Unit
    number: int


def computed(flow: Flow, unit: Unit, call: int) -> Computed | None:
    """What a call gives, if it surely runs one function that only computes and has one way out."""
    value = unit.code.values[call]
    site = flow.result(unit).sites.get(call) if value.op == "call" else None
    if site is None or site.away or site.others or site.operations or len(site.targets) != 1:
        return None
    inner = site.targets[0].unit
    callee = flow.result(unit).vals[value.args[0]]
    if any(o[0] not in ("unit", "bound") for o in callee.each) or inner is unit:
        return None
    number = _returned(flow, inner)
    return Computed(inner, number) if number is not None else None


def origin(flow: Flow, unit: Unit, number: int) -> int:
    """The value of a unit that a value is: what a function gives back that it was given is what it was given."""
    seen: set[int] = set()
    while number not in seen:
        seen.add(number)
        number = unit.root(number)
        made = computed(flow, unit, number)
        if made is None:
            return number
        inner = made.unit.code.values[origin(flow, made.unit, made.number)]
        given = argument_of(unit, number, made.unit, inner.data[0]) if inner.op == "param" else None
        if given is None:
            return number
        number = given
    return number


def _returned(flow: Flow, unit: Unit) -> int | None:
    """The one value that a function returns which stores nothing and hands nothing to what may change it."""
    if "_given" not in unit.__dict__:
        unit.__dict__["_given"] = _find_returned(flow, unit)
    found: int | None = unit.__dict__["_given"]
    return found


def _find_returned(flow: Flow, unit: Unit) -> int | None:
    code = unit.code
    if code.kind not in ("function", "lambda") or code.is_async or code.is_generator or code.loops:
        return None
    if any(v.op.startswith("store") or v.op in ("next", "yield", "await") for v in code.values):
        return None
    if any(v.op == "enter" and not is_idle(flow, unit, v.args[0]) for v in code.values):
        return None
    if any(v.op == "mut" and not _keeps(flow, unit, v.args[1]) for v in code.values):
        return None
    ends = {code.blocks[block].end[1] for block in code.in_order() if code.blocks[block].end[0] == "return"}
    return ends.pop() if len(ends) == 1 else None


def is_idle(flow: Flow, unit: Unit, manager: int) -> bool:
    """Whether a context manager leaves what is done in it as it is: it is empty, or only switches gradients."""
    value = unit.code.values[manager]
    callee = flow.result(unit).vals[value.args[0] if value.op == "call" else manager]
    return bool(callee.objs) and all(
        o[0] == "ext" and o[1] in _IDLE
        or o[0] == "unit" and o[1].code.is_generator and {v.op for v in o[1].code.values} <= _EMPTY
        for o in callee.each
    )  # fmt: skip


def _keeps(flow: Flow, unit: Unit, call: int) -> bool:
    """Whether a call leaves what it is given as it was: the tables know it as a function of its arguments."""
    value, models = unit.code.values[call], flow.models
    callee = unit.code.values[value.args[0]] if value.op == "call" else None
    if callee is None:
        return False
    if callee.op == "attr" and callee.data in models.same_methods and not str(callee.data).endswith("_"):
        return True
    names = [models.named(o[1]) if o[0] == "ext" else "" for o in flow.result(unit).vals[value.args[0]].each]
    modules = tuple(f"{module}." for module in models.same_modules)
    return bool(names) and all(
        (name in models.same or name.startswith(modules)) and not name.endswith("_") for name in names
    )
