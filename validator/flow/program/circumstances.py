"""Under what circumstances code runs: what decides whether a unit is called, and what is set up in libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import unsure
from validator.flow.program.unit import Unit
from validator.flow.values import BOTTOM, NOT_YET, Val, join

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow


class Circumstances:
    """What is known of the circumstances under which the units of a program run."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def under(self, unit: Unit) -> Val:
        """On what it depends whether a unit runs at all: the branches around every call of it but its own."""
        found, waiting = [], False
        for caller in self.flow.callers(unit):
            rows = self.flow.passed(caller, unit) if caller is not unit else ()
            waiting = waiting or rows is None
            for under in dict.fromkeys(passed.under for passed in rows or ()):
                around = self.flow.close(Val(v=under), caller)
                around = around if around.v else self.flow.get("under", caller)
                if around is NOT_YET:
                    waiting = True
                elif not around.v:
                    return BOTTOM  # one call that nothing decides: it runs; the others need not be asked
                else:
                    found.append(around.v)
        return Val(v=frozenset().union(*found)) if found else NOT_YET if waiting else BOTTOM

    def state(self, name: str) -> Val:
        """Whether a library was set up, as `p`."""
        found = []
        for unit in self.flow.mentions.naming(self.flow.models.states[name].rpartition(".")[2]):
            rows = self.flow.part(("unit", unit), ("switched", name))
            found += [self.flow.close(value, unit) for value in rows or ()]
        return join(found)

    def random(self, library: str) -> Val:
        """How random numbers that a library draws from its own state differ: as the seeds do, surely where all seeds
        tell the rank; where nothing seeds they are likely to."""
        from validator.domains.spmd import data, held

        models = self.flow.models
        wanted, found = models.seeds[library], []
        names = frozenset(self.flow.mentions.also(name.rpartition(".")[2] for name in wanted))
        for unit in self.flow.mentions.naming(*names):
            for value in unit.code.values:
                if value.op != "call" or len(value.args) < 2 or unit.known_as(value.args[0]) not in names:
                    continue
                callee, seed = (*self.flow.vals(unit, value.args[:2]), BOTTOM, BOTTOM)[:2]
                if any(o[0] == "ext" and (o[1] in wanted or models.named(o[1]) in wanted) for o in callee.each):
                    found.append(held(self.flow.close(seed, unit).v))
        if not found:
            return Val(v=data(sure=False))
        causes = frozenset().union(*found)
        return Val(v=causes if all(found) else unsure(causes))
