"""Whether a sampler is told its epoch in each round of the loop that goes through its data again and again."""

from __future__ import annotations

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.flow.queries.escapes import Holders, Index

_TELLING = "set_epoch"
_SAMPLERS = frozenset({_TELLING, "sampler", "batch_sampler"})


class Rounds:
    """Answers for one project."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.index = Index(queries.flow)

    def untold(self, sampler: Place) -> str:
        """Why a sampler of which loaders make more than one epoch does not learn which one it is; empty where it may,
        or where not all is seen that holds it."""
        held = Holders(self.queries.flow, self.index, sampler.unit, sampler.number)
        loaders = [Place(self.queries.flow, *given) for given in held.given]
        if held.escapes or held.gathered or not loaders or not all(map(_is_loader, loaders)):
            return ""
        going = [place for loader in loaders for place in self._gone_through(loader) or ()]
        if not all(self._gone_through(loader) for loader in loaders) or not any(
            self.is_in_loop(place, sampler) for place in going
        ):
            return ""
        telling = [Place(self.queries.flow, unit, number) for unit, number, name in held.called if name == _TELLING]
        if not telling:
            return "`set_epoch` is called on other samplers alone"
        units = {place.unit for place in going}
        once = all(place.unit in units and not self.is_in_loop(place) for place in telling)
        return "`set_epoch` is called outside of the loop over epochs" if once else ""

    def _gone_through(self, loader: Place) -> list[Place]:
        """Where a program goes through a loader; nothing where it goes elsewhere, or its sampler is asked for."""
        held = Holders(self.queries.flow, self.index, loader.unit, loader.number)
        asked = {name for _, _, name in held.called}
        if held.escapes or held.gathered or held.given or not asked.isdisjoint(_SAMPLERS):
            return []
        places = (Place(self.queries.flow, unit, number) for unit, number in held.held)
        return [place for place in places if place.value.op == "iter"]

    def is_in_loop(self, place: Place, made: Place | None = None) -> bool:
        """Whether something is done in the rounds of a loop, in its function or where that is called; of one in which
        a sampler is made anew it does not count."""
        making = self.queries.reaching([made.unit]) if made is not None else frozenset[Unit]()
        queue, seen = [place], set[Unit]()
        for each in queue:
            loops = each.unit.control.loops_around(each.value.block)
            if any(not self._makes(each.unit, header, made, making) for header in loops):
                return True
            if each.unit not in seen:
                seen.add(each.unit)
                queue += self.queries.calls_of(each.unit)
        return False

    def _makes(self, unit: Unit, header: int, made: Place | None, making: frozenset[Unit]) -> bool:
        """Whether a round of a loop makes a sampler, itself or in what it calls."""
        inside = {header, *blocks_of(unit.code, header)}
        if made is not None and made.unit is unit and made.value.block in inside:
            return True
        calls = self.queries.calls_in(unit) if making else iter(())
        return any(call.value.block in inside and not making.isdisjoint(self.queries.targets(call)) for call in calls)


def _is_loader(call: Place) -> bool:
    """Whether a call makes a data loader with a sampler."""
    rows = (call.flow.models.call(o[1]) for o in call.operand(0).val.of("ext"))
    return any(row is not None and "sampler" in row.under for row in rows)
