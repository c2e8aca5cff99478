"""The one solver: the least solution of equations that are asked for on demand.

An unknown is any hashable key; its equation is `rhs(key)`, which asks for other unknowns with `get`. Who asked is
remembered, and asked again when an answer grows. All values come from lattices of finite height and the equations are
monotone, so there is one least solution, whatever the order of questions. An answer in the making is never kept as
final: `settle` runs until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

_PATIENCE = 40  # evaluations of one equation before its answers are joined
_NESTED = 40  # equations that are evaluated inside each other before others wait; no influence on the solution


class Solver:
    """`rhs(key)` computes from `get`; `join(old, new)` is the least upper bound; `bottom(key)` where all starts.

    An answer is what its equation says of the present answers; only where equations keep disagreeing (a few are not
    monotone: they tell "nothing known" from "known to be equal") answers are joined, so that all ends.
    """

    def __init__(
        self, rhs: Callable[[Hashable], Any], join: Callable[[Any, Any], Any], bottom: Callable[[Hashable], Any]
    ) -> None:
        self._rhs = rhs
        self._join = join
        self._bottom = bottom
        self.values: dict[Hashable, Any] = {}
        self._asked_by: dict[Hashable, dict[Hashable, None]] = {}
        self._waiting: dict[Hashable, None] = {}
        self._stack: list[Hashable] = []
        self._rounds: dict[Hashable, int] = {}
        self.evaluations = 0

    def get(self, key: Hashable) -> Any:
        """The present value of an unknown; within an equation, its later values reach the asking one too."""
        if self._stack:
            self._asked_by.setdefault(key, {})[self._stack[-1]] = None
        if key not in self.values:
            self.values[key] = self._bottom(key)
            if len(self._stack) < _NESTED:
                self._evaluate(key)
            else:
                self._waiting[key] = None
        return self.values[key]

    def settled(self, key: Hashable) -> Any:
        """The value of an unknown in the solution; asked from outside of equations."""
        self.get(key)
        self.settle()
        return self.values[key]

    def settle(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._evaluate(key)

    def _evaluate(self, key: Hashable) -> None:
        self.evaluations += 1
        self._stack.append(key)
        try:
            new = self._rhs(key)
        finally:
            self._stack.pop()
        old = self.values[key]
        self._rounds[key] = rounds = self._rounds.get(key, 0) + 1
        if rounds > _PATIENCE:
            new = self._join(old, new)
        if new != old:
            self.values[key] = new
            self._waiting.update(self._asked_by.get(key, {}))
