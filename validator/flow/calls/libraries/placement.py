"""How results of calls are placed: as their receivers, in another precision, inside context managers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.placement import after, inherited
from validator.flow.calls.arguments import Arguments, place_of
from validator.flow.values import Val
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.calls.in_hand import Call
    from validator.flow.evaluation import Evaluation


def placed(call: Call, result: Val) -> Val:
    """A result with the placement of its receiver where a method hands that on, in the precision asked for."""
    at, name, receiver = call.at, call.name, call.receiver
    state = result.state
    if name in at.models.placed and call.is_of_attribute:
        state = inherited(state, receiver.state)
    step = _precision(at, name, call.arguments)
    if row := at.models.steps.get(name):
        step = row[0] if not call.arguments or call.arguments[0][1].is_const(True) or len(row) < 2 else row[1]
    if step:
        state = after(state or receiver.state, step)
        if call.is_of_attribute:
            at.after[call.number, -1] = lambda before: before.placed(after(before.state, step))
            at.steps[call.number, -1] = (step,)
    inside = _built_inside(at, call.number) if any(o[0] in ("inst", "made") for o in result.each) else ""
    state = after(state, inside)
    return result if state == result.state else result.placed(state)


def wraps(at: Evaluation, number: int, row: Row, arguments: Arguments) -> None:
    """Which argument lives on in the result, placed otherwise."""
    which = row.wraps or (("", 0) if row.result == "first" else None)
    place = place_of(which, arguments) if which is not None and row.result_state else -1
    if place >= 0:
        at.wrapped[number, place] = (row.result_state,)


def _precision(at: Evaluation, name: str, arguments: Arguments) -> str:
    """The step that an argument asks for which names a floating-point type."""
    for keyword, given in arguments:
        if keyword in ("dtype", "torch_dtype") or (keyword is None and name in ("to", "type")):
            for word, step in (("half", "half"), ("full", "-half")):
                if given.objs and all(o[-1] in at.models.dtypes.get(word, ()) for o in given.each):
                    return step
    return ""


def _built_inside(at: Evaluation, number: int) -> str:
    """How what is made here is placed by a context manager around: `zero.Init`, `torch.device("meta")`."""
    values = at.code.values
    for manager in at.unit.managers(number):
        callee, *given = values[manager].args if values[manager].op == "call" else (manager,)
        names = values[manager].data.names if given else ()
        if any(name == "enabled" and at.vals[each].is_const(False) for name, each in zip(names, given, strict=True)):
            continue
        first = at.vals[given[0]].constant() if given else None
        for o in at.vals[callee].each:
            name = at.models.named(o[1]) if o[0] == "ext" else ""
            step = at.models.library(f"{name}({first})").inside or at.models.library(f"{name}()").inside
            if name and step:
                return step
    return ""
