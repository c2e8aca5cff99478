"""Which units meet an object of some kind: they have it as a value, or are passed it."""

from __future__ import annotations

from validator.flow.callgraph.sections import of_program
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.values import Val, parts_of


def meeting(flow: Flow, kind: str) -> list[Unit]:
    """The units in whose values objects of a kind stand, those included that are only passed one."""
    holding: dict[int, bool] = {}

    def holds(value: Val) -> bool:
        known = holding.get(value.number)
        if known is None:
            holding[value.number] = False
            known = any(o[0] == kind or any(map(holds, parts_of(o))) for o in value.each)
            holding[value.number] = known
        return known

    found = {
        unit: None for unit in flow.all_units() if holds(of_program(unit)) or any(map(holds, flow.result(unit).vals))
    }
    queue = list(found)
    for unit in queue:
        for target, rows in flow.result(unit).passed.items():
            values = (value for row in rows for _, value in row.bindings) if target not in found else ()
            if any(holds(flow.close(value, unit)) for value in values):
                found[target] = None
                queue.append(target)
    return sorted(found, key=lambda unit: unit.place)
