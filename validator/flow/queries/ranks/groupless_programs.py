"""Programs that come to need the default process group, and nothing in which makes one.

A program is a file with a part that runs where it is started (`if __name__ == "__main__":`). Its ways are followed from
there through the functions that it surely calls, up to the first call that needs the group.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import NamedTuple

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.process_groups import TORCH, needs_group
from validator.flow.queries.training.unreduced_models import UnreducedModels
from validator.project import Project

_MAKING = frozenset({f"{TORCH}DeviceMesh", f"{TORCH}fsdp.fully_shard", f"{TORCH}rpc.init_rpc"})
_BUILTINS = frozenset(dir(builtins))


class Needed(NamedTuple):
    """The first call of a program that needs the group, where the program starts, and whether it comes there on every
    way."""

    call: Place
    program: Unit
    sure: bool


class _Need(NamedTuple):
    call: Place
    sure: bool


class _Unclear(Exception):
    """Something may make the group."""


class GrouplessPrograms:
    """Asked for with `project.analysis(GrouplessPrograms)`."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self.flow = self.queries.flow
        self.is_plain = project.analysis(UnreducedModels).is_plain
        self.setup = frozenset(self.flow.models.ranks["setup"] | _MAKING)
        names = [name.rpartition(".")[2] for name in self.setup]
        makers = {call.unit for call in self.queries.named(*names)}
        self.making = self.queries.reaching(makers)
        self.names = frozenset({*names, *(unit.name for unit in self.making if unit.code.kind == "function")})
        self._unclear: dict[Unit, bool] = {}
        self._needed: dict[Unit, _Need | None] = {}

    def found(self) -> Iterator[Needed]:
        at_import = any(unit.code.kind == "module" and _start_of(unit) is None for unit in self.making)
        for unit in self.queries.of_program() if self.flow.is_distributed and not at_import else ():
            if unit.code.kind == "module" and not is_aside(unit.path) and _start_of(unit) is not None:
                try:
                    need = self._need(unit, _start_of(unit))
                except _Unclear:
                    continue
                if need is not None:
                    yield Needed(need.call, unit, need.sure)

    def is_only_for(self, unit: Unit) -> bool:
        """Whether a function only runs in programs that make no group: those are known, and none comes to what does."""
        while unit.outer is not None and unit.outer.code.kind == "function":
            unit = unit.outer
        ways = self.queries.reaching({unit})
        programs = [each for each in ways if each.code.kind == "module" and _start_of(each) is not None]
        return bool(programs) and self.making.isdisjoint(programs) and unit not in self.making

    def _need(self, unit: Unit, start: int | None) -> _Need | None:
        """The first call that needs the group in a unit, and whether it comes to one on every way; what comes behind is
        not looked at."""
        if unit in self._needed:
            return self._needed[unit]
        self._needed[unit] = None  # a circle
        found: list[_Need] = []
        leaves = False
        stack, seen = [start or 0], {start or 0}
        while stack:
            number = stack.pop()
            block = unit.code.blocks[number]
            need = self._need_among(unit, number)
            if need is not None:
                found.append(need)
            elif block.end[0] in ("return", "open"):
                leaves = True
            else:
                following = [each for each in block.successors() if each not in seen]
                seen.update(following)
                stack += following
        first = min(found, key=lambda each: each.call.at, default=None)
        sure = not leaves and all(each.sure for each in found)
        self._needed[unit] = first._replace(sure=sure) if first is not None else None
        return self._needed[unit]

    def _need_among(self, unit: Unit, block: int) -> _Need | None:
        for number in unit.code.blocks[block].values:
            call = Place(self.flow, unit, number)
            if call.value.op != "call":
                continue
            if call.method in self.names:
                raise _Unclear
            need = _Need(call, True) if needs_group(call) and not _is_caught(call) else self._need_of_called(call)
            if need is not None and not any(map(_asks_for_others, call.tests_inside)):
                return need
            if self._may_make(call):
                raise _Unclear
        return None

    def _need_of_called(self, call: Place) -> _Need | None:
        targets = self.queries.targets(call)
        if len(targets) != 1 or call.hands_on or _is_caught(call):
            return None
        unit = targets[0]
        runs = unit.code.kind == "function" and not (unit.code.is_generator or unit.code.is_async)
        plain = all(map(self._only_calls, self.queries.decorators(unit)))
        return self._need(unit, None) if runs and plain else None

    def _may_make(self, call: Place) -> bool:
        """Whether a call may make the group, itself or in what it runs."""
        if call.method in self.names:
            return True
        targets = self.queries.targets(call)
        if targets:
            return any(self._is_unclear(unit) for unit in targets)
        callee, known = call.operand(0).root, call.operand(0).closed.each
        if callee.value.op == "name" and callee.value.data in _BUILTINS:
            return False
        names = [str(o[1]) for o in known if o[0] in ("ext", "made")]
        if any(name.partition(".")[0] not in ("~", "") and not self._is_apart(name) for name in names):
            return True
        # what nobody knows may be anything, but for a method: that would have the name of one that makes it
        return call.receiver is None and not known

    def _is_apart(self, name: str) -> bool:
        """Whether a function of a library surely makes no group."""
        return self.flow.models.named(name) not in self.setup and self.is_plain(name)

    def _is_unclear(self, unit: Unit) -> bool:
        """Whether a function, or what wraps it, may make the group: all that it may come to is asked."""
        known = self._unclear.get(unit)
        if known is None:
            self._unclear[unit] = False  # a circle
            known = unit in self.making or any(not self._only_calls(each) for each in self.queries.decorators(unit))
            known = known or any(self._may_make(call) for call in self.queries.calls_in(unit))
            self._unclear[unit] = known
        return known

    def _only_calls(self, decorator: Place) -> bool:
        """Whether a decorator only calls what it is given."""
        callee = decorator.operand(0) if decorator.value.op == "call" else decorator
        made = callee.closed.each
        if callee.root.value.op == "name" and callee.root.value.data in _BUILTINS:
            return True
        return bool(made) and all(o[0] == "ext" and (self._is_apart(str(o[1]))) for o in made)


def _start_of(unit: Unit) -> int | None:
    """The block of a file that runs where it is started as a program."""
    for block in unit.code.blocks:
        if block.end[0] == "branch":
            test = unit.code.values[block.end[1]]
            sides = [unit.code.values[number] for number in test.args] if test.op == "compare" else []
            asked = {str(side.data) for side in sides if side.op in ("name", "const")}
            if test.data == "Eq" and asked == {"__name__", "__main__"}:
                return int(block.end[2])
    return None


def _asks_for_others(test: Place) -> bool:
    """Whether a condition asks whether there is a group, or how many processes there are."""
    asked = any(part.closed.of("size") or part.closed.of("several") for part in test.parts)
    return asked or any("distributed" in word or "initialized" in word or "available" in word for word in test.words)


def _is_caught(call: Place) -> bool:
    return call.is_tried or any("suppress" in call.value_at(number).words for number in call.unit.managers(call.number))
