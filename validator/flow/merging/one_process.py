"""Ways that only a job of one process takes (`if world_size == 1`)."""

from __future__ import annotations

from validator.domains.spmd import OF_ONE
from validator.flow.control import reachable
from validator.flow.values import NOT_YET, Val
from validator.flow.worklist import Walk
from validator.ir import Value as Instruction

Edge = tuple[int, int]  # (block, the one that follows)


class WaysAlone:
    """The ways of one unit that only a job of one process takes, as far as is known by now."""

    def __init__(self, at: Walk) -> None:
        self._code = at.code
        self._blocks = at.order.blocks
        self._branches = self._telling()
        self._reached: dict[frozenset[Edge], frozenset[int]] = {}
        unknown = (rows for test, rows in self._branches.items() if at.operand(test) is NOT_YET)
        self._edges = frozenset((block, way) for rows in unknown for block, way, _ in rows)
        self._asked: dict[int, list[int]] = {}  # phi -> its operands that came on ways of a job of one process

    def ask(self, number: int, value: Instruction) -> list[int]:
        """The operands of a phi that come on such ways; the phi is told of by `decide` when others do."""
        self._asked[number] = coming = self._coming(value)
        return coming

    def unshared(self) -> frozenset[int]:
        """The blocks that only a job of one process reaches, which alone takes these ways."""
        edges = self._edges
        if edges and edges not in self._reached:
            self._reached[edges] = frozenset(self._blocks) - reachable(self._code, without=edges)
        return self._reached.get(edges, frozenset())

    def decide(self, number: int, condition: Val) -> list[int]:
        """A test has changed; the phis whose operands come on others of these ways now."""
        rows = self._branches.get(number, ())
        taken = {(b, w) for b, w, holds in rows if condition is NOT_YET or condition.is_only_alone(holds)}
        edges = self._edges.difference((block, way) for block, way, _ in rows) | taken
        if edges == self._edges:
            return []
        self._edges = edges
        return [phi for phi, coming in self._asked.items() if self._coming(self._code.values[phi]) != coming]

    def _coming(self, value: Instruction) -> list[int]:
        edges = self._edges
        if not edges:
            return []
        unshared, rows = self.unshared(), zip(value.args, self._code.blocks[value.block].preds, strict=True)
        return [e for e, (pred, _) in rows if pred in unshared or (pred, value.block) in edges]

    def _telling(self) -> dict[int, list[tuple[int, int, bool]]]:
        """By test that may tell a job of one process the ways out of its branches: (block, way, whether it holds)."""
        found: dict[int, list[tuple[int, int, bool]]] = {}
        for block in self._blocks:
            end = self._code.blocks[block].end
            if end[0] == "branch" and end[2] != end[3] and self._may_tell_one(self._code.values[end[1]]):
                found.setdefault(end[1], []).extend(((block, end[2], True), (block, end[3], False)))
        return found

    def _may_tell_one(self, test: Instruction) -> bool:
        """Whether a test is no comparison, or one with the number that tells a job of one process."""
        numbers = {number for _, number in OF_ONE}
        return test.op != "compare" or self._code.values[test.args[1]].data in numbers
