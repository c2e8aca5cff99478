"""Functions that a decorator lets run on some ranks alone: `@rank_zero_only`, `@accelerator.on_main_process`, and
methods of workers that are registered for one of them (`@register(execute_mode=Execute.RANK_ZERO)`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries

_FIRST = re.compile(r"(^|_)(rank_?(zero|0)|rank0)(_|$)", re.IGNORECASE)  # of a member that says which worker runs it
_MODE = re.compile(r"(^|_)(execute|executed|run|runs|exec)(_|$)")


class OnSome(NamedTuple):
    """Why only some ranks run a function: the decorator, as it is written, and whether that is certain."""

    decorator: Place
    text: str
    sure: bool


def runs_on_some(queries: Queries, unit: Unit) -> OnSome | None:
    """The decorator that keeps all ranks but some from running a function; None where there is none."""
    names = queries.flow.models.ranks["decorators"]
    for decorator in queries.decorators(unit):
        called = decorator.operand(0) if decorator.value.op == "call" else decorator
        known = called.closed.each
        libraries = [str(o[1]) for o in known if o[0] == "ext" and not str(o[1]).startswith("~")]
        if libraries and all(name.rpartition(".")[2] in names for name in libraries):
            return OnSome(decorator, _written(unit, libraries[0]), True)
        if decorator.value.op == "call" and _is_for_first(decorator):
            return OnSome(decorator, decorator.text, True)
        own = any(o[0] in ("unit", "bound", "inst", "self", "class") for o in known)
        last = called.value.data if called.value.op in ("attr", "name") else ""
        if not own and not libraries and last in names:
            return OnSome(decorator, _written(unit, str(last)), False)
    return None


def _written(unit: Unit, name: str) -> str:
    """A decorator as it stands above a function."""
    last = name.rpartition(".")[2]
    above = unit.scope.facts.decorators
    return next((each for each in above if each.removesuffix("()").rpartition(".")[2] == last), last)


def _is_for_first(decorator: Place) -> bool:
    """Whether a keyword of a decorator names the first rank as the one that runs the function."""
    for name, number in zip(decorator.value.data.names, decorator.value.args[1:], strict=True):
        given = decorator.value_at(number).root
        member = given.value.data if given.value.op == "attr" else given.value.data if given.value.op == "const" else ""
        if name and _MODE.search(name) and isinstance(member, str) and _FIRST.search(member):
            return True
    return False
