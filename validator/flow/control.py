"""Which branches decide whether a block runs: postdominators and control dependence of a unit.

Ways that raise are no ways out: `if x: raise …` does not make what follows depend on `x`. A handler depends on what
the `try` does. Of a unit that never returns
the ends of the process are (`sys.exit(main())` at the end), else the tests of its loops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property

from validator.ir import Code, Value
from validator.ir.model import Loop


class Control:
    """Control dependence of one unit."""

    def __init__(self, code: Code, *, to_the_end: bool = False) -> None:
        self.code = code
        self.to_the_end = to_the_end

    @cached_property
    def _graph(self) -> tuple[list[int], dict[int, list[int]], int]:
        """Reachable blocks in order, their successors without ways that only raise, and the number of the exit."""
        code = self.code
        order = code.in_order()
        leave = len(code.blocks)
        after: dict[int, list[int]] = {}
        last = max((block for block in order if code.blocks[block].end[0] == "return"), default=-1)
        for block in order:
            returns = code.blocks[block].end[0] == "return"
            ends = [leave] if block == last or not self.to_the_end else []
            after[block] = ends if returns else list(dict.fromkeys(code.blocks[block].successors()))
        if not any(leave in targets for targets in after.values()):
            ends = [block for block in order if code.blocks[block].end[2:] == ("process",)]
            for block in ends or [header for header in code.loops if header in after]:
                after[block] = [*after[block], leave]
        # what can reach a return (or goes round for ever) without raising
        alive = {leave}
        before: dict[int, list[int]] = {}
        for block, targets in after.items():
            for target in targets:
                before.setdefault(target, []).append(block)
        stack = [leave]
        while stack:
            for each in before.get(stack.pop(), ()):
                if each not in alive:
                    alive.add(each)
                    stack.append(each)
        for block in order:
            kept = [t for t in after[block] if t in alive]
            after[block] = kept or after[block]
        return order, after, leave

    def _immediate(self) -> dict[int, int]:
        """The immediate postdominator of each block that can reach the exit."""
        order, after, leave = self._graph
        # postorder of the reversed graph: walk from the exit
        before: dict[int, list[int]] = {}
        for block in order:
            for target in after[block]:
                before.setdefault(target, []).append(block)
        post: list[int] = []
        seen = {leave}
        stack: list[tuple[int, int]] = [(leave, 0)]
        while stack:
            node, index = stack.pop()
            preds = before.get(node, [])
            if index < len(preds):
                stack.append((node, index + 1))
                if preds[index] not in seen:
                    seen.add(preds[index])
                    stack.append((preds[index], 0))
            else:
                post.append(node)
        number = {node: i for i, node in enumerate(post)}
        found = {leave: leave}
        changed = True
        while changed:
            changed = False
            for node in reversed(post[:-1]):
                candidates = [t for t in after[node] if t in found]
                if not candidates:
                    continue
                best = candidates[0]
                for other in candidates[1:]:
                    best = self._meet(best, other, found, number)
                if found.get(node) != best:
                    found[node] = best
                    changed = True
        return found

    @staticmethod
    def _meet(a: int, b: int, found: dict[int, int], number: dict[int, int]) -> int:
        while a != b:
            while number[a] < number[b]:
                a = found[a]
            while number[b] < number[a]:
                b = found[b]
        return a

    @cached_property
    def direct(self) -> dict[int, tuple[int, ...]]:
        """For each block the branches on which it depends directly."""
        return {block: tuple(dict.fromkeys(branch for branch, _ in rows)) for block, rows in self.arms.items()}

    @cached_property
    def arms(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """For each block the branches on which it depends directly, each with the way that leads to the block."""
        order, after, _ = self._graph
        found: dict[int, dict[tuple[int, int], None]] = {}
        immediate = self._immediate()
        for block in order:
            if self.code.blocks[block].end[0] != "branch" or len(after[block]) < 2 or block not in immediate:
                continue
            stop = immediate[block]
            for target in after[block]:
                runner = target
                while runner != stop and runner in immediate:
                    found.setdefault(runner, {})[block, target] = None
                    following = immediate[runner]
                    if following == runner:
                        break
                    runner = following
        self._with_handlers(found)
        return {block: tuple(rows) for block, rows in found.items()}

    def _with_handlers(self, found: dict[int, dict[tuple[int, int], None]]) -> None:
        """Adds of blocks that only an exception leads to on what the statement depends that raises it: who does not
        come to a `try` does not come to its handlers."""
        order, after, leave = self._graph
        usual = self._follow(order[:1], after, frozenset())
        for handler in order:
            trying = [pred for pred, raised in self.code.blocks[handler].preds if raised]
            first = next((block for block in order if block in trying), None)
            if first is None or handler in usual or first not in found:
                continue
            for block in self._follow([handler], after, {*usual, leave}):
                found.setdefault(block, {}).update(found[first])

    @staticmethod
    def _follow(start: list[int], after: dict[int, list[int]], but: Collection[int]) -> set[int]:
        """The blocks to which a way leads that raises nothing and comes by none of some."""
        seen = set(start)
        stack = list(start)
        while stack:
            for target in after.get(stack.pop(), ()):
                if target not in seen and target not in but:
                    seen.add(target)
                    stack.append(target)
        return seen

    def passing_one(self, blocks: frozenset[int]) -> frozenset[int]:
        """The branches of which every way that raises nothing comes by just one of some blocks before the ways meet."""
        order, after, _ = self._graph
        immediate = self._immediate()
        found = set()
        for branch in order:
            if self.code.blocks[branch].end[0] != "branch" or branch not in immediate:
                continue
            stop = immediate[branch]
            first = self._until({branch}, after, blocks | {stop})
            met = first & blocks - {stop}
            if stop not in first and not self._until(met, after, blocks | {stop}) & blocks - {stop}:
                found.add(branch)
        return frozenset(found)

    @staticmethod
    def _until(start: Collection[int], after: dict[int, list[int]], stops: frozenset[int]) -> set[int]:
        """The blocks to which a way leads that goes on behind none of the stops."""
        seen: set[int] = set()
        stack = [target for each in start for target in after.get(each, ())]
        while stack:
            block = stack.pop()
            if block not in seen:
                seen.add(block)
                stack += after.get(block, ()) if block not in stops else ()
        return seen

    def comes_always(self, block: int) -> bool:
        """Whether every way through the unit that does not raise comes by a block."""
        order, _, leave = self._graph
        immediate, here = self._immediate(), order[0]
        while here not in (block, leave) and here in immediate:
            here = immediate[here]
        return here == block

    @cached_property
    def without_exceptions(self) -> set[int]:
        """The blocks to which a way leads on which nothing raises: no `except` clauses."""
        return self._follow([0], {at: [*block.successors()] for at, block in enumerate(self.code.blocks)}, ())

    def deciding(self, block: int) -> frozenset[int]:
        """The branches that decide, directly or through others, whether a block runs."""
        branches = self.direct.get(block, ())
        known = self._deciding.get(branches)
        if known is None:
            seen = set(branches)
            stack = list(branches)
            while stack:
                for branch in self.direct.get(stack.pop(), ()):
                    if branch not in seen:
                        seen.add(branch)
                        stack.append(branch)
            known = self._deciding[branches] = frozenset(seen)
        return known

    def around(self, block: int) -> frozenset[int]:
        """The branches that decide who comes to a block at all: of the loops around it neither the test nor what
        breaks them off in a round before, which decide how often."""
        known = self._around.get(block)
        if known is None:
            known = self._around[block] = self._deciding_who_comes(block)
        return known

    @cached_property
    def _around(self) -> dict[int, frozenset[int]]:
        return {}

    def _deciding_who_comes(self, block: int) -> frozenset[int]:
        found: set[int] = set()
        queue = [(branch, block) for branch in self.direct.get(block, ())]
        seen = set(queue)
        while queue:
            branch, target = queue.pop()
            around = self.loops_around(target)
            is_test = branch in around
            if not is_test:
                inner = next((header for header in around if header in self.loops_around(branch)), -1)
                if inner == target or inner >= 0 and target not in reachable(self.code, but=inner, start=branch):
                    continue  # of a round before
                found.add(branch)
            for each in ((other, branch) for other in self.direct.get(branch, ())):
                if each not in seen:
                    seen.add(each)
                    queue.append(each)
        return frozenset(found)

    def loops_around(self, block: int) -> list[int]:
        """The headers of the loops in which a block is, the innermost first; a header is in its own loop."""
        found, header = [], block if block in self.code.loops else self.code.blocks[block].loop
        while header >= 0:
            found.append(header)
            header = self.code.blocks[self.code.loops[header].after].loop
        return found

    def settled(self, block: int) -> tuple[tuple[int, int], ...]:
        """The branches that decide over a block and can only have gone one way where it runs: (branch, that way).

        Behind `if a or b` neither is settled, behind `if a and b` both are.
        """
        known = self._settled.get(block)
        if known is None:
            rows = ((branch, way) for branch in sorted(self.deciding(block)) for way in self._graph[1][branch])
            known = self._settled[block] = tuple(row for row in rows if self.leads(block, *row))
        return known

    def leads(self, block: int, branch: int, way: int) -> bool:
        """Whether a block only runs where a branch went one way just before."""
        other = self._other_ways.get((branch, way))
        if other is None:
            other = self._other_ways[branch, way] = bits(reachable(self.code, without={(branch, way)}))
        return not other >> block & 1

    @cached_property
    def _other_ways(self) -> dict[tuple[int, int], int]:
        """By way out of a branch the blocks that others reach, as bits of a number."""
        return {}

    @cached_property
    def _settled(self) -> dict[int, tuple[tuple[int, int], ...]]:
        return {}

    @cached_property
    def _deciding(self) -> dict[tuple[int, ...], frozenset[int]]:
        return {}

    def choosing(self, block: int) -> frozenset[int]:
        """The branches that decide over which way a block is entered: what its phis depend on.

        Of a loop's header none by which the loop is broken off: who comes round again has made as many rounds.
        """
        known = self._choosing.get(block)
        if known is None:
            known = self._choosing[block] = self._chosen(block)
        return known

    def arrivals(self, block: int, branch: int) -> list[frozenset[int]]:
        """For each way out of a branch that leads to a block the predecessors by which it may come there first."""
        _, after, _ = self._graph
        preds = {pred for pred, _ in self.code.blocks[block].preds}
        found = []
        for target in after.get(branch, ()):
            reached = {branch} if target == block else self._follow([target], after, {block})
            found.append(frozenset(preds & reached))
        return [each for each in found if each]

    @cached_property
    def _choosing(self) -> dict[int, frozenset[int]]:
        return {}

    def _chosen(self, block: int) -> frozenset[int]:
        here = self.deciding(block)
        found: set[int] = set()
        for pred, raised in self.code.blocks[block].preds:
            if raised:
                continue
            if self.code.blocks[pred].end[0] == "branch":
                found.add(pred)
            found |= self.deciding(pred)
        if block not in here:
            return frozenset(found - here)
        loop = self.code.loops.get(block)
        return frozenset(found if loop is None else (b for b in found if b == block or not self._breaks_off(b, loop)))

    def _breaks_off(self, branch: int, loop: Loop) -> bool:
        """Whether one of the ways of a branch inside a loop never comes round to its header again."""
        _, after, leave = self._graph
        return not all(
            way == loop.header or loop.header in reachable(self.code, but=loop.after, start=way)
            for way in after[branch]
            if way != leave  # of an endless loop: no way that is there
        )


def bits(numbers: Iterable[int]) -> int:
    """A set of small numbers as the bits of one number."""
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def reachable(code: Code, but: int = -1, start: int = 0, without: Collection[tuple[int, int]] = ()) -> set[int]:
    """The blocks to which a way leads that does not go through one block, nor straight from a block to another one."""
    seen = {start} - {but}
    stack = list(seen)
    while stack:
        at = stack.pop()
        for target in (*code.blocks[at].successors(), *code.blocks[at].handlers):
            if target not in seen and target != but and (at, target) not in without:
                seen.add(target)
                stack.append(target)
    return seen


def comes_after(code: Code, late: Value, number: int, early: Value, first: int) -> bool:
    """Whether one value of a unit is only reached by way of another one (`number`, `first`: their numbers)."""
    if late.block == early.block:
        return number > first
    return late.block not in reachable(code, but=early.block)


def reached(code: Code, truth: Callable[[int], bool | None]) -> set[int]:
    """The blocks to which some way leads, going by tests that always are the same."""
    found, queue = {0}, [0]
    while queue:
        block = code.blocks[queue.pop()]
        following = [*block.successors(), *block.handlers]
        if block.end[0] == "branch" and (holds := truth(block.end[1])) is not None:
            following = [block.end[2 if holds else 3], *block.handlers]
        fresh = [each for each in following if each not in found]
        found.update(fresh)
        queue += fresh
    return found
