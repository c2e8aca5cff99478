"""Whether the programs that come to a function have several processes: what they run on the way there shows so."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from validator.flow.control import reachable
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries


def has_several(queries: Queries, unit: Unit, groupless: bool) -> bool:
    """Whether programs that come to a unit have several processes, as far as is known: where all that it meets in is
    `groupless`, they set up a process group on the way, or issue a collective that does not do without one. A unit that
    nobody calls may run anywhere; nobody else is in a group that is set up with one process."""
    setting = [*queries.calls(*queries.flow.models.ranks["setup"])]
    callers = _callers(queries, unit, {call.unit for call in setting if is_of_one(call) and not call.tests_inside})
    if not callers:
        return False
    way = _Way(queries, unit, callers)
    setting = [call for call in setting if way.passes(call)]
    if setting and all(map(is_of_one, setting)):
        return False
    if not groupless or setting or callers == {unit}:
        return True
    return any(not operation.row.groupless for place in way.calls() for operation in place.operations)


def is_of_one(setting: Place) -> bool:
    """Whether a process is told that it is alone in the group that it sets up."""
    size = setting.argument("world_size", 3)
    return size is not None and size.closed.is_const(1)


def _callers(queries: Queries, unit: Unit, alone: Collection[Unit]) -> frozenset[Unit]:
    """A unit, and those that call it, however deep below, in programs whose process is not `alone` on every way."""
    callers = queries.reaching([unit])
    found = callers.difference(alone)
    if found == callers or unit in alone:
        return found if unit in found else frozenset()
    starts = (each for each in found if all(call.unit is each for call in queries.calls_of(each)))
    return found.intersection(queries.reached(starts))


class _Way:
    """What programs run that come to a unit: all that its callers do before the call or behind it, and not what they do
    instead of it."""

    def __init__(self, queries: Queries, unit: Unit, callers: frozenset[Unit]) -> None:
        self.queries = queries
        self.blocks: dict[Unit, set[int]] = {unit: set(range(len(unit.code.blocks)))}
        for called in callers:
            for call in queries.calls_of(called):
                if call.unit in callers and call.unit is not unit:
                    self.blocks.setdefault(call.unit, set()).update(_on_a_way(call))
        below = {target for place in self._beside() for target in queries.targets(place)}
        self.whole = [each for each in queries.reached(below - callers) if each not in self.blocks]

    def passes(self, call: Place) -> bool:
        """Whether a call is on the way."""
        blocks = self.blocks.get(call.unit)
        return call.unit in self.whole if blocks is None else call.value.block in blocks

    def calls(self) -> Iterator[Place]:
        """The calls on the way that the flow knows: collectives, and those of functions of the project."""
        yield from self._beside()
        for unit in self.whole:
            for number in sorted(self.queries.flow.result(unit).sites):
                yield Place(self.queries.flow, unit, number)

    def _beside(self) -> Iterator[Place]:
        for unit, blocks in self.blocks.items():
            for number in sorted(self.queries.flow.result(unit).sites):
                place = Place(self.queries.flow, unit, number)
                if place.value.block in blocks:
                    yield place


def _on_a_way(call: Place) -> Iterator[int]:
    """The blocks of the unit of a call that one run may come through beside it."""
    code, block = call.unit.code, call.value.block
    yield from reachable(code, start=block)
    yield from (each for each in range(len(code.blocks)) if block in reachable(code, start=each))
