"""Collectives that no call of the project comes to any more since a change: a test around them is always false now, for
what all callers pass.

`if dist.is_initialized(): dist.all_reduce(n)` is `if group is not None: dist.all_reduce(n, group=group)` now, and no
caller passes a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.known_calls import KnownCalls
from validator.analysis.usage import Usage
from validator.drift.change import Change, Pair, Side
from validator.drift.statements.drops import Drops
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test


class RuledOut(NamedTuple):
    """A collective, and the test that keeps all calls of its function from it since the change."""

    pair: Pair
    call: Place
    test: Place


class RuledOutCollectives:
    """The collectives that a change switched off; asked for with `change.analysis(RuledOutCollectives)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[RuledOut]:
        drops: Drops = self.change.analysis(Drops)
        return [row for pair, *_ in drops.small if not is_test(pair.new.path) for row in self._of(pair)]

    def _of(self, pair: Pair) -> Iterator[RuledOut]:
        meeting = _meeting(self.change.after, pair.new)
        if not meeting:
            return
        known = _known(self.change.after)
        open_now = known.reached(pair.new)
        off = [call for call in meeting if call.value.block not in open_now]
        if not off:
            return
        open_before = _known(self.change.before).reached(pair.old)
        left = Counter(c.method for c in _meeting(self.change.before, pair.old) if c.value.block in open_before)
        left -= Counter(call.method for call in meeting if call.value.block in open_now)
        for call in off:
            test = next((each for each in call.tests_inside if known.truth(pair.new, each.number) is not None), None)
            if test is not None and left[call.method] > 0:
                left[call.method] -= 1
                yield RuledOut(pair, call, test)


def _meeting(side: Side, unit: Unit) -> list[Place]:
    """The calls of a unit that are collectives for certain."""
    sites = sorted(side.flow.result(unit).sites.items())
    calls = (Place(side.flow, unit, number) for number, site in sites if site.operations)
    return [call for call in calls if all(operation.sure for operation in call.operations)]


def _known(side: Side) -> KnownCalls:
    return side.project.analysis(Usage).known_calls
