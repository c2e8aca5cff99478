"""Under what circumstances code runs: what decides whether a unit is called, and what is set up in libraries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from validator.domains.axes import WHOLE
from validator.domains.spmd import Causes, combined, data, held, rank, unsure
from validator.flow.calls.arguments import Arguments, argument
from validator.flow.program.answers import Calls
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
        calls: Calls = self.flow.part(("calls", unit), None)
        found, waiting = [], calls.waiting
        for caller, (rows, _) in calls.rows.items():
            for under in dict.fromkeys(passed.under for passed in rows if caller is not unit):
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
        seeds = ((unit, seed or BOTTOM) for unit, _, seed in self.seedings(library))
        found = [held(self.flow.close(seed, unit).v) for unit, seed in seeds]
        if not found:
            return Val(v=data(sure=False))
        causes = frozenset().union(*found)
        return Val(v=causes if all(found) else unsure(causes))

    def seedings(self, library: str) -> Iterator[tuple[Unit, int, Val | None]]:
        """The calls that seed a library's own state: the unit, the call and the seed that it is given. So may what is
        called by a word of seeding in a library of which nothing is known, or sets a state that was kept: with what
        (None), nobody knows."""
        models, mentions = self.flow.models, self.flow.mentions
        wanted, kept = models.seeds[library], models.restores[library]
        known = frozenset(mentions.also(name.rpartition(".")[2] for name in wanted | kept))
        names = known | frozenset(mentions.containing("seed"))
        for unit in mentions.naming(*names):
            for number, value in enumerate(unit.code.values):
                if value.op != "call" or len(value.args) < 2 or unit.known_as(value.args[0]) not in names:
                    continue
                callee, *given = self.flow.vals(unit, value.args)
                paths = [o[1] for o in callee.each if o[0] == "ext"]
                if any(path in wanted or models.named(path) in wanted for path in paths):
                    arguments = list(zip(value.data.names, given, strict=True))
                    yield unit, number, Val(v=combined(*(v.v for _, v in arguments), *self._added(paths, arguments)))
                elif any(path in kept or self._may_seed(path) for path in paths):
                    yield unit, number, None

    def _added(self, paths: list[str], arguments: Arguments) -> Iterator[Causes]:
        """How what a call adds to a seed differs between ranks: the number of each, where a switch says so."""
        rows = (self.flow.models.call(path) for path in paths)
        for switch in (row.ranked for row in rows if row is not None and row.ranked is not None):
            on = argument(switch, arguments)
            if on is not None and not on.is_const(False):
                yield rank(WHOLE, sure=on.is_const(True))

    def _may_seed(self, path: str) -> bool:
        """Whether a function is named after the seeds that it is given, and of a library that has no random state of
        its own: of the others the tables say what seeds them."""
        package, _, name = path.partition(".")
        told = package in sys.stdlib_module_names or package in self.flow.models.seeds
        return package.isidentifier() and not told and "seed" in name.rpartition(".")[2].lower()
