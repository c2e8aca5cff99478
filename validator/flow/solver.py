"""The one solver: the least solution of equations that are asked for on demand.

An unknown is any hashable key; its equation is `rhs(key, news)`, which asks for other unknowns with `get`. Who asked is
remembered, with the *part* of the answer that was wanted, and asked again when that part changes. All values come from
lattices of finite height and the equations are (but for a few) monotone, so there is one least solution, whatever the
order of questions. An answer in the making is never kept as final: `settle` runs until nothing changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any

_PATIENCE = 40  # evaluations of one equation before its answers are joined
_WAVERING = 10  # the same, counting only answers that take back what was said before
_NESTED = 40  # equations that are evaluated inside each other before others wait; no influence on the solution

Read = tuple[Hashable, Hashable]  # an unknown and a part of its answer


class Solver:
    """`rhs(key, news)` computes from `get`; `join(old, new)` is the least upper bound; `bottom(key)` where all starts.

    `news`: what has changed since the equation was evaluated last, None at first. `part(answer, part)`: a part of an
    answer. `grounded(answer)`: an answer once it is clear that what it still waits for does not come: it waits for
    itself. `closed()` is called when all that was asked is final: nothing of it is evaluated again.

    An answer is what its equation says of the present answers; only where equations keep disagreeing (a few are not
    monotone: they tell "nothing known" from "known to be equal") answers are joined, so that all ends.
    """

    def __init__(
        self,
        rhs: Callable[[Hashable, frozenset[Read] | None], Any],
        join: Callable[[Any, Any], Any],
        bottom: Callable[[Hashable], Any],
        part: Callable[[Any, Hashable], Any],
        grounded: Callable[[Any], Any],
        closed: Callable[[], None],
    ) -> None:
        self._rhs = rhs
        self._join = join
        self._bottom = bottom
        self._part = part
        self._grounded = grounded
        self._closed = closed
        self.final: dict[Hashable, Any] = {}  # of unknowns on which nothing that is still open has a say
        self._open: dict[Hashable, Any] = {}
        self._asked_by: dict[Hashable, dict[Hashable, dict[Hashable, None]]] = {}  # key -> part -> who asked
        self._waiting: dict[Hashable, set[Read]] = {}
        self._queue: deque[Hashable] = deque()
        self._answered: set[Hashable] = set()
        self._stack: list[Hashable] = []
        self._running: set[Hashable] = set()
        self._rounds: dict[Hashable, int] = {}
        self._wavered: dict[Hashable, int] = {}
        self._without: set[Hashable] = set()  # what does not wait any more
        self.evaluations = 0

    def get(self, key: Hashable, part: Hashable = None) -> Any:
        """The present value of an unknown, or a part of it; within an equation, later values reach the asking one."""
        value = self.final.get(key)
        if value is not None:
            return value if part is None else self._part(value, part)
        if self._stack:
            parts = self._asked_by.get(key)
            if parts is None:
                parts = self._asked_by[key] = {}
            parts.setdefault(part, {})[self._stack[-1]] = None
        value = self._open.get(key)
        if value is None:
            value = self._open[key] = self._bottom(key)
            if len(self._stack) < _NESTED:
                self._evaluate(key)
                value = self._open[key]
            else:
                self._wait(key)
        elif key in self._waiting and key not in self._running and len(self._stack) < _NESTED:
            self._evaluate(key)
            value = self._open[key]
        return value if part is None else self._part(value, part)

    def settled(self, key: Hashable) -> Any:
        """The value of an unknown in the solution; asked from outside of equations."""
        value = self.final.get(key)
        if value is None:
            assert not self._stack  # equations ask with `get`
            self.get(key)
            self.settle()
            value = self.final[key]
        return value

    def settle(self) -> None:
        """Evaluate what waits, in the order in which it came; then all that was asked is final."""
        while self._queue or self._ground():
            key = self._queue.popleft()
            if key in self._waiting:
                self._evaluate(key)
        self.final.update(self._open)
        for table in (self._open, self._asked_by, self._answered, self._rounds, self._wavered, self._without):
            table.clear()
        self._closed()

    def _ground(self) -> bool:
        """Have what only waits for itself known as nothing; whether that makes something evaluated again.

        All of it at once: it is the same whichever was asked first.
        """
        found = [(key, old, new) for key, old in self._open.items() if (new := self._grounded(old)) is not old]
        for key, old, new in found:
            self._without.add(key)
            self._change(key, old, new)
        return bool(self._queue)

    def _wait(self, key: Hashable, news: Iterable[Read] = ()) -> None:
        known = self._waiting.get(key)
        if known is None:
            known = self._waiting[key] = set()
            self._queue.append(key)
        known.update(news)

    def _evaluate(self, key: Hashable) -> None:
        self.evaluations += 1
        news = self._waiting.pop(key, None)
        self._stack.append(key)
        self._running.add(key)
        try:
            new = self._rhs(key, frozenset(news) if news and key in self._answered else None)
        finally:
            self._stack.pop()
            self._running.discard(key)
        self._answered.add(key)
        if key in self._without:
            new = self._grounded(new)
        old = self._open[key]
        if new is old or new == old:
            return
        new = self._settled(key, old, new)
        if new != old:
            self._change(key, old, new)

    def _change(self, key: Hashable, old: Any, new: Any) -> None:
        self._open[key] = new
        for part, asking in self._asked_by.get(key, {}).items():
            if part is None or self._part(old, part) != self._part(new, part):
                for each in asking:
                    self._wait(each, ((key, part),))

    def _settled(self, key: Hashable, old: Any, new: Any) -> Any:
        """The new answer, joined with the old one where an equation has changed its mind too often."""
        self._rounds[key] = rounds = self._rounds.get(key, 0) + 1
        if rounds <= 2:
            return new
        joined = self._join(old, new)
        if joined != new:
            self._wavered[key] = self._wavered.get(key, 0) + 1
        return joined if rounds > _PATIENCE or self._wavered.get(key, 0) > _WAVERING else new
