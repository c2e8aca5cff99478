"""Protocols of the language that call methods without naming them: iteration, `with`, `len(x)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import Causes
from validator.flow.calls.own_units import run
from validator.flow.calls.sites import note
from validator.flow.program.answers import Site, Target
from validator.flow.substitution import instantiated, instantiated_causes
from validator.flow.values import BOTTOM, UNKNOWN, Obj, Val, join, of_one

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.unit import Unit


def method_of(at: Evaluation, o: Obj, name: str) -> Unit | None:
    """The method of that name of an object of the project."""
    method = o[1].find(name) if o[0] in ("inst", "self") else None
    return at.flow.unit_of(method) if method is not None else None


def ask_object(at: Evaluation, number: int, value: Val, name: str) -> None:
    """The language asks an object by a method that the source does not name: `len(sampler)` runs `__len__`."""
    for o in value.each:
        if (unit := method_of(at, o, name)) is not None:
            run(at, number, unit, [of_one(o)], {})


def drain(at: Evaluation, number: int, value: Val) -> Causes:
    """Generators that are consumed here run here; by what it varies how many elements they give."""
    for o in iterators(at, value):
        note(at, number, Site((Target(o[1], o[2]),), ()))
    return rounds(at, value)


def iterators(at: Evaluation, value: Val) -> list[Obj]:
    """The generators that a value is, or that its `__iter__` starts."""
    found: list[Obj] = []
    for o in value.each:
        if o[0] == "generator":
            found.append(o)
        elif (unit := method_of(at, o, "__iter__")) is not None:
            found.append(("generator", unit, ((0, of_one(o)),)))
    return found


def rounds(at: Evaluation, value: Val) -> Causes:
    """By what it varies how many elements something gives that is gone through."""
    causes = value.n
    for _, unit, rows, *_ in iterators(at, value):
        result, bindings = at.flow.get("unit", unit), dict(rows)
        of_unit = result.rounds if unit.code.is_generator else result.returned.n
        causes |= instantiated_causes(of_unit, lambda i, given=bindings: given.get(i, BOTTOM))  # type: ignore[misc]
    return causes


def yielded(at: Evaluation, o: Obj) -> Val:
    """What a generator yields, in terms of this unit."""
    bindings = dict(o[2])
    result = at.flow.get("unit", o[1])
    return instantiated(result.yielded, lambda position: bindings.get(position, BOTTOM))


def iterated(o: Obj) -> Val:
    """An element of something whose iteration the tables or the project describe."""
    return UNKNOWN if o[0] != "ext" else BOTTOM


def enter(at: Evaluation, number: int, manager: Val, is_async: bool = False) -> Val:
    """What a context manager gives that is entered at an instruction; what runs is noted there."""
    found = []
    for o in manager.each:
        if o[0] == "generator":
            note(at, number, Site((Target(o[1], o[2]),), ()))
            found.append(yielded(at, o))
        elif o[0] in ("inst", "self"):
            if (unit := method_of(at, o, "__aenter__" if is_async else "__enter__")) is not None:
                found.append(run(at, number, unit, [of_one(o)], {}))
        elif o[0] == "made" and at.models.library(o[1]).enters:
            found.append(UNKNOWN)
        else:
            found.append(Val(frozenset({o}), state=manager.state))
    return join(found) if found else manager


def leave(at: Evaluation, number: int, manager: Val, is_async: bool = False) -> None:
    """Note what runs where a context manager is left."""
    ask_object(at, number, manager, "__aexit__" if is_async else "__exit__")
