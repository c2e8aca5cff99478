"""Whether what a variable holds is ever read."""

from __future__ import annotations

from collections.abc import Callable

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries

_READING = frozenset({"locals", "vars", "eval", "exec"})
_USING = ("return", "raise", "branch")  # ends of blocks that have a value


def is_read(place: Place, later: Callable[[Place], list[Place]] | None = None) -> bool:
    """Whether a value has a use, be it behind phis; what a branch tests, or is returned, has one as well.

    `later`: what a use makes of the value that is the same object still; empty where the use reads it.
    """
    ending = {block.end[1] for block in place.unit.code.blocks if block.end[0] in _USING}
    seen, queue = {place.number}, [place]
    for each in queue:
        if each.number in ending:
            return True
        for user in each.users:
            fresh = [user] if user.value.op == "phi" else later(user) if later is not None else []
            if not fresh:
                return True
            queue += [one for one in fresh if one.number not in seen]
            seen.update(one.number for one in fresh)
    return False


def may_be_read_inside(queries: Queries, unit: Unit, name: str) -> bool:
    """Whether a function inside, or one that sees all variables, may read or bind a variable of a function."""
    named = {value.data for value in unit.code.values if value.op == "name"}
    return not _READING.isdisjoint(named) or any(
        value.op in ("free", "store_free") and name in (value.data, value.data[-1])
        for each in queries.flow.whole_units(unit.module)
        if each is not unit and is_inside(each, unit)
        for value in each.code.values
    )


def is_inside(inner: Unit, unit: Unit) -> bool:
    around = inner.outer
    while around is not None and around is not unit:
        around = around.outer
    return around is unit
