"""Whether all ranks of a group run a function: what it does besides, or what runs it, shows so."""

from __future__ import annotations

from validator.domains.spmd import only
from validator.flow.merging.conditions import truth_of
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries


def is_run_by_all(queries: Queries, call: Place) -> bool:
    """Whether all ranks of the group of a collective come to its function, as far as branches around the calls of it
    let them: a file runs it, it or a caller sets up the process group or meets in another collective of that group, or
    it asks for the rank itself."""
    flow = queries.flow
    starting = setting_up(queries)
    if _asks_for_rank(call):
        return True
    queue, seen = [call.unit], {call.unit}
    for unit in queue:
        if unit.code.kind == "module" or unit in starting or _meets(call, unit):
            return True
        queue += dict.fromkeys(caller for caller, _ in flow.calls_of(unit) if caller not in seen)
        seen.update(queue)
    return False


def setting_up(queries: Queries) -> frozenset[Unit]:
    """The functions in which a process takes its place among others, by themselves or in what they call; not those in
    which a process starts others that do, whether or not it may also do it itself."""
    found = {call.unit for call in queries.calls(*queries.flow.models.ranks["setup"])}
    parents: set[Unit] = set()
    stack = list(found)
    while stack:
        for call in queries.calls_of(stack.pop()):
            if call.hands_on:
                parents.add(call.unit)
            elif call.unit not in found:
                found.add(call.unit)
                stack.append(call.unit)
    return frozenset(found) - queries.reaching(parents)


def is_within(queries: Queries, units: frozenset[Unit], place: Place) -> bool:
    """Whether the function of a place is one of some, or is called by them alone, in the same process."""
    callers = {call.unit for call in queries.calls_of(place.unit) if not call.hands_on}
    return place.unit in units or bool(callers) and callers <= units


def _asks_for_rank(call: Place) -> bool:
    """Whether a branch in the function of a collective tells ranks of its group apart."""
    blocks = (block for block in call.unit.code.blocks if block.end[0] == "branch")
    tests = (truth_of(call.value_at(block.end[1]).closed) for block in blocks)
    return any(cause.sure and cause.axis in call.group for test in tests for cause in only(test, "rank"))


def _meets(call: Place, unit: Unit) -> bool:
    """Whether a unit issues a collective for which all ranks of the group must come, and that has no root."""
    for number in sorted(call.flow.result(unit).sites):
        place = Place(call.flow, unit, number)
        if not only(place.around(), "rank", "member", "data") and number != call.number:
            for operation, inner in place.reached():
                rooted = operation.row.root is not None or operation.row.groupless
                if operation.sure and not rooted and inner.group == call.group:
                    return True
    return False
