"""Walks the values of a unit until nothing changes, and later only those that news from elsewhere reach.

Values are taken in an order in which operands come first and what follows a loop comes after its body. Which values an
instruction reads beside its operands, and what of other units and fields, is noted as it is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

from validator.domains.spmd import NONE, UNIFORM, Causes, only
from validator.flow.values import BOTTOM, NOT_YET, NOTHING, Val, const, join2, widened
from validator.ir.model import Code
from validator.ir.model import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.program.unit import Unit
    from validator.flow.solver import Read

_NOTING = frozenset({"call", "part", "attr", "iter", "enter", "leave", "store_item"})  # what notes more than a value
_PATIENCE = 20  # evaluations of one instruction in one walk before its values are joined
_plain = list.__getitem__


class Order:
    """The order in which the values of a unit are evaluated, and its loops as ranges of places in that order."""

    def __init__(self, code: Code, evaluated: Callable[[str], object]) -> None:
        values = code.values
        self.blocks = code.in_order(bodies_first=True)
        self.numbers = [n for b in self.blocks for n in code.blocks[b].values if evaluated(values[n].op)]
        self.constants = [n for n in self.numbers if values[n].op == "const"]  # known before anything is evaluated
        self.place = array("i", [-1]) * len(values)  # by number, of what is evaluated at all
        for place, number in enumerate(self.numbers):
            self.place[number] = place
        self.end = array("i", [-1]) * len(self.numbers)  # by place in a loop: where the innermost loop around ends
        self.first = self.end[:]  # by place in a loop: where the outermost loop around begins
        self.last: dict[int, int] = {}  # by the first place of an outermost loop: its last
        self.tests: dict[int, list[int]] = {}  # by condition: the blocks whose branch it decides
        for block in self.blocks:
            end = code.blocks[block].end
            if end[0] == "branch":
                self.tests.setdefault(end[1], []).append(block)
        if code.loops:
            self._loops(code)

    def _loops(self, code: Code) -> None:
        inside: dict[int, list[int]] = {}  # by header the places of the loop, those of inner ones too
        for place, number in enumerate(self.numbers):
            header = code.blocks[code.values[number].block].loop
            while header >= 0:
                inside.setdefault(header, []).append(place)
                header = code.blocks[code.loops[header].after].loop
        ranges = [(places[0], places[-1]) for places in inside.values()]
        for first, last in sorted(ranges, key=lambda row: row[0] - row[1]):  # inner ones have the last word
            outermost = self.first[first] < 0
            if outermost:
                self.last[first] = last
            for place in range(first, last + 1):
                self.end[place] = last
                if outermost:
                    self.first[place] = first


class Tracked(list[Val]):
    """The values of a unit; which of them are read is noted."""

    __slots__ = ("read",)

    def __init__(self, order: Order) -> None:
        super().__init__([NOT_YET if place >= 0 else BOTTOM for place in order.place])
        self.read: list[int] = []

    def __getitem__(self, number: Any) -> Any:
        self.read.append(number)
        return _plain(self, number)


class After(dict[tuple[int, int], Callable[[Val], Val]]):
    """(call, position) -> what an argument becomes by the call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[int, list[tuple[int, int]]] = {}

    def __setitem__(self, key: tuple[int, int], change: Callable[[Val], Val]) -> None:
        super().__setitem__(key, change)
        self.calls.setdefault(key[0], []).append(key)

    def forget(self, call: int) -> bool:
        """Drop what a call did; whether there was something."""
        keys = self.calls.pop(call, ())
        for key in keys:
            self.pop(key, None)
        return bool(keys)


class Walk:
    """The evaluation of one unit, which can be taken up again."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.code = unit.code
        self.order = unit.order
        self.vals = Tracked(unit.order)
        self.operand = partial(_plain, self.vals)  # the value of an operand: its users are known, nothing is noted
        self.after = After()
        self.branches: dict[int, Causes] = {}  # by block: what its branch depends on, where that is something
        self._dirty = bytearray(b"\1") * len(self.order.numbers)
        for number in self.order.constants:
            self.vals[number] = const(self.code.values[number].data)
            self._dirty[self.order.place[number]] = 0
        self._read_by: dict[int, dict[int, None]] = {}  # value -> instructions that read it beside their operands
        self._asked: dict[int, frozenset[int]] = {}  # instruction -> blocks whose conditions it asked for
        self._asked_of: dict[int, set[int]] = {}  # block -> instructions that have asked for its condition
        self._outside: dict[Read, int | set[int]] = {}  # what else is read -> the instruction that does, or those
        self._at_end: set[Read] = set()  # what is read by no instruction, but for the result as a whole
        self._moved = True  # whether the last walk changed a value, or what an instruction notes
        self._now = -1  # the instruction that is evaluated
        self._back = -1  # the first place before it to which to go back
        self._again = False  # whether this is not the first walk
        self._anew: set[int] = set()  # the outermost loops that are walked anew
        self._started = False  # whether one of them has just been started

    def evaluate(self, number: int, value: Instruction) -> Val:
        """What an instruction gives."""
        raise NotImplementedError

    def noted(self, number: int) -> object:
        """What an evaluation of an instruction has noted."""

    def forget(self, number: int) -> None:
        """Drop what an earlier evaluation of an instruction has noted."""

    def depends(self, condition: Val) -> Causes:
        """What a branch on a value depends on."""
        raise NotImplementedError

    # -- what is read --------------------------------------------------------------------------------------

    def reads(self, read: tuple[Hashable, Hashable]) -> None:
        """Another unknown is asked for."""
        now, known = self._now, self._outside.get(read)
        if now < 0:
            self._at_end.add(read)
        if now < 0 or known == now:
            return
        if known is None:
            self._outside[read] = now
        elif isinstance(known, int):
            self._outside[read] = {known, now}
        else:
            known.add(now)

    def conditions(self, blocks: frozenset[int]) -> Causes:
        """What the branches at the end of some blocks depend on."""
        if self._now >= 0 and blocks:
            known = self._asked.get(self._now, NOTHING)
            self._asked[self._now] = known | blocks if known else blocks
            for block in blocks - known:
                self._asked_of.setdefault(block, set()).add(self._now)
        found: Causes = NONE
        for block, causes in self.branches.items():
            if block in blocks:
                found |= causes
        return found

    # -- walking -------------------------------------------------------------------------------------------

    def walk(self, news: frozenset[Read] | None) -> None:
        """Evaluate until nothing changes: everything, or what depends on news."""
        self._again, self._back = news is not None, -1
        self._moved = news is None or not self._at_end.isdisjoint(news)
        self._anew.clear()
        self.vals.read.clear()  # what the result read
        for read in news or ():
            known = self._outside.get(read, ())
            for number in (known,) if isinstance(known, int) else known:
                self._dirty[self.order.place[number]] = 1
        counts: dict[int, int] = {}
        dirty, numbers, values = self._dirty, self.order.numbers, self.code.values
        place = dirty.find(1)
        while place >= 0:
            dirty[place] = 0
            counts[place] = count = counts.get(place, 0) + 1
            number = numbers[place]
            self._step(place, number, values[number], count)
            following = dirty.find(1, place)
            if self._started:  # what is left of the walk would meet values that are not there yet, and keep that
                self._started, self._back, following = False, -1, dirty.find(1)
            if (back := self._back) >= 0 and (following < 0 or following > max(back, self.order.end[back])):
                # a loop is walked until nothing in it changes before what follows it
                self._back, following = -1, dirty.find(1, back)
            place = following
        self._now = -1

    def _step(self, place: int, number: int, value: Instruction, count: int) -> None:
        vals, first = self.vals, self.order.first[place]
        told, noted = False, None
        if self._again or count > 1:
            self._asked.pop(number, None)
            if value.op in _NOTING:
                told, noted = self.after.forget(number), self.noted(number)
                self.forget(number)
        self._now = number
        new = self.evaluate(number, value)
        if vals.read:
            for each in vals.read:
                if each not in value.args:
                    self._read_by.setdefault(each, {})[number] = None
            vals.read.clear()
        old = self.operand(number)
        told = told or number in self.after.calls
        if new is old and not told:
            self._moved = self._moved or value.op in _NOTING and self.noted(number) != noted
            return
        self._moved = True
        joined = new if old is NOT_YET else join2(old, new) if count > _PATIENCE else widened(old, new)
        if first >= 0 and joined is not new and self._again and first not in self._anew:
            self._start_anew(first)  # something is taken back: what rests on itself must not stay
            return
        if first >= 0 or count > _PATIENCE:
            new = joined
        if new is not old:
            vals[number] = new
            if number in self.order.tests:
                self._decide(number, new)
        if first >= 0 or self._again:
            self._tell(number, new is not old, joined is not new)

    def _tell(self, number: int, changed: bool, taken_back: bool) -> None:
        """Have the users of a value evaluated again; loops from the start if something was taken back."""
        places, values, loops = self.order.place, self.code.values, self.order.first
        users = self.unit.users.get(number)
        if number in self._read_by:
            users = (*users, *self._read_by[number])
        for user in users:
            place = places[user]
            if place < 0 or not (changed or values[user].op == "mut"):
                continue
            first = loops[place]
            if taken_back and first >= 0 and first not in self._anew and first != loops[places[number]]:
                self._start_anew(first)
            elif not self._dirty[place]:
                self._mark(place)

    def _mark(self, place: int) -> None:
        self._dirty[place] = 1
        if self._now >= 0 and place <= self.order.place[self._now]:
            self._back = place if self._back < 0 else min(self._back, place)

    def _decide(self, number: int, condition: Val) -> None:
        """A condition has changed: what asked for it is evaluated again if it now depends on something else."""
        found = self.depends(condition)
        # what is made equal on one of its ways is believed to be equal
        causes = NONE if UNIFORM in found else only(found, "rank", "data", "param", "member")
        for block in self.order.tests[number]:
            if causes == self.branches.get(block, NONE):
                continue
            if causes:
                self.branches[block] = causes
            else:
                del self.branches[block]
            for asking in sorted(self._asked_of.get(block, ())):
                if block in self._asked.get(asking, ()):
                    self._mark(self.order.place[asking])

    def _start_anew(self, first: int) -> None:
        """Walk a loop from the start, as if nothing were known of it yet."""
        self._anew.add(first)
        self._started = True
        places = range(first, self.order.last[first] + 1)
        known = []
        for place in places:
            number = self.order.numbers[place]
            if self.code.values[number].op == "const":
                continue
            self._mark(place)
            if self.operand(number) is not NOT_YET:
                self.vals[number] = NOT_YET
                known.append(number)
                if number in self.order.tests:
                    self._decide(number, NOT_YET)
        for number in known:
            self._tell(number, True, True)
