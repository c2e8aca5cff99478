"""Tests for files that ranks answer differently: what one rank makes or removes, another has not seen yet.

Storage counts as shared: a checkpoint that lies there is there for every rank. But where one rank also creates or
removes what all ask for, with no collective between, the quick rank changes the answer of the slow ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import Causes, data
from validator.effects.keys import Key
from validator.flow.program import Unit

if TYPE_CHECKING:
    from validator.effects.trace import Traces

_RANKS = ("rank", "member")


def raced(traces: Traces, unit: Unit, number: int) -> Causes:
    """Why the answer to a question about a file differs between ranks; nothing where it does not."""
    path = _path(traces, unit, number, "asks")
    if path is None:
        return frozenset()
    result, control = traces.flow.result(unit), unit.control
    block = unit.code.values[number].block
    for site, value in enumerate(unit.code.values):
        if value.op != "call" or _path(traces, unit, site, "writes") != path:
            continue
        deciding = control.deciding(value.block)
        tests = [result.vals[unit.code.blocks[b].end[1]] for b in deciding]
        if not any(c.kind in _RANKS for test in tests for c in test.v | test.p):
            continue  # all ranks write it
        follows = block in deciding and _reaches(traces, unit, number, site)
        if follows or (block != value.block and _reaches(traces, unit, site, number)):
            return data()
    return frozenset()


def _path(traces: Traces, unit: Unit, number: int, what: str) -> Key | None:
    """The key of the path that a call asks for or writes."""
    value = unit.code.values[number]
    if value.op != "call":
        return None
    files = traces.flow.models.files
    callee = unit.code.values[value.args[0]]
    for o in traces.flow.result(unit).vals[value.args[0]].objs:
        if o[0] == "ext" and o[1] in files[what] and len(value.args) > 1:
            return traces.keys(unit).of(value.args[1])
    if (
        callee.op == "attr"
        and callee.data in files[f"{what}_methods"]
        and not any(name is None for name in value.data.names)
    ):
        return traces.keys(unit).of(callee.args[0])
    return None


def _reaches(traces: Traces, unit: Unit, first: int, last: int) -> bool:
    """Whether a way leads from one value to another without a collective between."""
    code, sites = unit.code, traces.flow.result(unit).sites
    seen: set[int] = set()
    start = code.values[first].block
    stack = [(start, code.blocks[start].values.index(first) + 1)]
    while stack:
        block, index = stack.pop()
        for number in code.blocks[block].values[index:]:
            if number == last:
                return True
            site = sites.get(number)
            if site is not None and (site.operations or any(t.unit in traces.effectful for t in site.targets)):
                break
        else:
            for following in code.blocks[block].successors():
                if following not in seen:
                    seen.add(following)
                    stack.append((following, 0))
    return False
