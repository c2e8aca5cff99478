"""Calls of functions and methods of the project: what runs is noted, what comes back is told in terms of the caller."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from validator.definitions import ClassDef
from validator.domains.placement import steps_since
from validator.flow.annotations import declared, objects_of
from validator.flow.callgraph import dataclass_readers as readers
from validator.flow.calls.arguments import (
    NO_SPREADS,
    SPREADS,
    Arguments,
    Spreads,
    before_own,
    bind,
    is_refused,
    spreads_of,
    told_apart,
)
from validator.flow.calls.getters import told
from validator.flow.calls.sites import note
from validator.flow.foreign import is_unknown
from validator.flow.program.answers import Result, Site, Target
from validator.flow.program.return_tests import open_returns
from validator.flow.substitution import instantiated
from validator.flow.values import BOTTOM, NOT_YET, UNKNOWN, Obj, Val, join2, join_ways, obj, of_one

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.unit import Unit


def call_unit(at: Evaluation, number: int, unit: Unit, first: list[Val], arguments: Arguments) -> Val:
    """Run a unit of the project with the arguments of a call, behind `first`: its receiver, if it has one."""
    if is_refused(unit, len(first), arguments):
        return run(at, number, unit, first + [BOTTOM] * (len(unit.code.params) - len(first)), {})
    spreads = spreads_of(arguments)
    positional, keywords = told_apart(unit, first, arguments, spreads)
    return run(at, number, unit, positional, keywords, spreads, before_own(at, number, len(first), positional))


def call_object(at: Evaluation, number: int, o: Obj, arguments: Arguments) -> Val:
    """Call an object of the project: its `__call__`, or the `forward` of a module."""
    cls: ClassDef = o[1]
    receiver = of_one(o)
    names = ("__call__", "forward") if "__call__" not in cls.methods else ("__call__",)
    for name in names:
        if (method := cls.find(name)) is not None and (unit := at.flow.unit_of(method)) is not None:
            given = call_unit(at, number, unit, [receiver], arguments)
            stored = at.flow.stores.writers(name) and at.flow.get("field", cls, name, False).objs
            return join2(given, UNKNOWN) if stored else given  # `encoder.forward = encoder.forward_chunk`
    return UNKNOWN


def guess_units(at: Evaluation, number: int, name: str, arguments: Arguments) -> None:
    """Note the methods of the project that a call on an unknown object probably runs, by their name."""
    found = []
    for cls, unit in at.flow.guessed.units(name, tuple(keyword for keyword, _ in arguments)):
        positional, keywords = told_apart(unit, [obj("self", cls)], arguments, NO_SPREADS)
        found.append(Target.of(unit, bind(at, unit, positional, keywords)))
    if found:
        note(at, number, Site((), (), guessed=tuple(found)))


def run(
    at: Evaluation, number: int, unit: Unit, positional: list[Val], keywords: dict[str, Val],
    spreads: Spreads = NO_SPREADS, shift: int = 1,
) -> Val:  # fmt: skip
    """Run a unit of the project at a site; what it returns, in terms of this unit. `shift`: how many parameters are
    before the first argument of the call."""
    bindings = bind(at, unit, positional, keywords, spreads)
    if unit.code.is_generator:
        held = tuple(sorted(((i, v) for i, v in bindings.items()), key=lambda r: r[0]))
        return Val(frozenset({("generator", unit, held)}))
    note(at, number, Site((Target.of(unit, bindings),), ()))
    return _returned(at, number, unit, bindings, shift)


def _returned(at: Evaluation, number: int, unit: Unit, bindings: dict[int, Val], shift: int) -> Val:
    """What a unit returns that gets these parameters; what becomes of the arguments is noted."""
    result = at.flow.get("unit", unit)

    def argument(position: int) -> Val:
        given = bindings.get(position)
        if given is not None:
            return given
        return at.flow.parameters.default(unit, unit.code.params[position][0])

    _changed_arguments(at, number, unit, argument, shift)
    _wrapped_by(at, number, unit, result.returned, shift)
    returned = _returned_to(result, unit, argument)
    value = instantiated(readers.made_by(returned, at.unit, number, unit), argument)
    value = told(at, number, unit, value, argument)
    if (rebuilt := readers.rebuilt(at.flow, unit)) is not None:
        value = join2(value, readers.taken_apart(argument(rebuilt)))
    if unit.method is not None and unit.method.facts.returns_annotation and is_unknown(value):
        said = declared(at.flow.project, unit.method, unit.method.facts.returns_annotation)
        if objects_of(said):
            return Val(said.objs, value.v, value.n, value.p, value.state)
    return value


def _returned_to(result: Result, unit: Unit, argument: Callable[[int], Val]) -> Val:
    """What a unit returns on the ways that the constants among the arguments leave."""
    if not unit.return_tests:
        return result.returned
    ways, blocks = result.ways, open_returns(unit, argument)
    if blocks is None:
        return NOT_YET
    kept = [value for block, value in ways.items() if block in blocks]
    return result.returned if len(kept) in (0, len(ways)) else join_ways(kept)


def _changed_arguments(at: Evaluation, number: int, unit: Unit, argument: Callable[[int], Val], shift: int) -> None:
    """Note what a unit makes of arguments that it changes in place."""
    instruction = at.code.values[number]
    if instruction.op != "call":
        return
    names = [n if kind not in SPREADS else None for n, kind in unit.code.params]  # of `*args` each is a part
    for place, keyword in enumerate(instruction.data.names):
        position = place + shift if keyword is None else names.index(keyword) if keyword in names else -1
        known = 0 <= position < len(names) and names[position] is not None
        out = at.flow.part(("unit", unit), ("outs", position)) if known else ()
        if out:
            said = objects_of(at.flow.parameters.declared(unit, unit.code.params[position][0]))
            if said & out.objs and out is not NOT_YET:  # what it is passed is not what the parameter is declared to be
                out = Val(out.objs - said, out.v, out.n, out.p, out.state)
            at.steps[number, place] = steps_since(out.state, position)
            at.after[number, place] = partial(_left_of, now=instantiated(out, argument))


def _wrapped_by(at: Evaluation, number: int, unit: Unit, returned: Val, shift: int) -> None:
    """The arguments that a unit returns placed otherwise (`model = strategy.shard(model)`)."""
    instruction = at.code.values[number]
    placements = returned.placements
    if instruction.op != "call" or not any(each[0] == "$" and "+" in each for each in placements):
        return
    for position, (name, kind) in enumerate(unit.code.params):
        steps = steps_since(placements, position) if kind not in SPREADS else ()
        for place, keyword in enumerate(instruction.data.names if steps else ()):
            if (keyword is None and place + shift == position) or keyword == name:
                at.wrapped[number, place] = steps


def _left_of(before: Val, now: Val) -> Val:
    """What an argument is behind a call: what the call leaves of it, placed as that at least."""
    return now if now.objs or now.v else before.placed(now.state)


def own_class(at: Evaluation) -> ClassDef | None:
    """The class in whose body the unit stands; None outside of classes."""
    unit: Unit | None = at.unit
    while unit is not None:
        if unit.cls is not None:
            return unit.cls
        unit = unit.outer
    return None
