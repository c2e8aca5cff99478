"""Exceptions: which classes a handler takes, and what may fail on one rank while the others go on.

A class of exceptions is the names of the class and its bases (`("OutOfMemoryError", "RuntimeError", …)`); libraries
export one class under many paths, so the last part of a name is what counts.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import ClassDef
from validator.domains.axes import WORLD
from validator.domains.spmd import NONE, Cause, Causes, only
from validator.flow.merging.conditions import truth_of
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.values import Val
from validator.models import Models

Classes = tuple[str, ...]
FAILURE: Causes = frozenset({Cause("failure", WORLD, False)})
_EVERYTHING: Classes = ("Exception", "BaseException")


class Handler(NamedTuple):
    """An `except` clause, or `finally` (no `caught`). `names`: the classes that it takes; empty for all."""

    block: int
    caught: int
    names: frozenset[str]

    @property
    def is_finally(self) -> bool:
        return self.caught < 0

    @property
    def is_broad(self) -> bool:
        return not self.names or not self.names.isdisjoint(_EVERYTHING)


def handler(flow: Flow, unit: Unit, block: int) -> Handler:
    """The handler that begins with a block."""
    for number in unit.code.blocks[block].values:
        value = unit.code.values[number]
        if value.op == "caught":
            names = frozenset(n for a in value.args for n in _named(flow, unit, a))
            return Handler(block, number, names or frozenset({"?"} if value.args else ()))
    return Handler(block, -1, frozenset())


def _named(flow: Flow, unit: Unit, number: int) -> Iterator[str]:
    """The last parts of the names of the classes that an expression stands for."""
    value = unit.code.values[number]
    if value.op in ("tuple", "list"):
        for each in value.args:
            yield from _named(flow, unit, each)
        return
    for o in flow.result(unit).vals[number].each:
        if o[0] == "class":
            yield o[1].name
        elif o[0] == "ext":
            yield o[1].rpartition(".")[2]
        elif o[0] == "tuple":
            yield from (n[1].rpartition(".")[2] for part in o[1] for n in part.objs if n[0] == "ext")


def takes(handler: Handler, classes: Classes) -> bool | None:
    """Whether an exception comes to a handler; None where it cannot be told. `finally` sees them all."""
    if handler.is_finally or handler.is_broad:
        return True
    if not classes or "?" in handler.names:
        return None
    return not handler.names.isdisjoint(classes)


def raised(flow: Flow, unit: Unit, number: int) -> Classes:
    """The class of what a `raise` statement raises; empty where it is not known."""
    if number < 0:
        return ()
    value = unit.code.values[number]
    if value.op == "call":
        number = value.args[0]
    found = flow.result(unit).vals[number].objs
    if len(found) != 1:
        return ()
    (o,) = found
    if o[0] == "class":
        return lineage(o[1], flow.models)
    return lineage(o[1], flow.models) if o[0] == "ext" else ()


def lineage(name: str | ClassDef, models: Models) -> Classes:
    """A class of exceptions with its bases."""
    if isinstance(name, ClassDef):
        own = tuple(c.name for c in name.mro)
        outside = [n for base in name.external_bases for n in lineage(base, models)]
        return tuple(dict.fromkeys((*own, *outside)))
    cls = getattr(builtins, name, None)
    if isinstance(cls, type) and issubclass(cls, BaseException):
        return tuple(c.__name__ for c in cls.__mro__ if c is not object)
    base = models.exceptions.get(name)
    return (name.rpartition(".")[2], *(lineage(base, models) if base else _EVERYTHING))


class Point(NamedTuple):
    """A place where a unit may fail on one rank alone.

    `classes`: what is raised; empty for a call of which nothing is known. `inside`: it may fail before it has done what
    it does. `others`: of a `raise` statement the edge that the ranks take which do not raise. `sure`: seen to differ.
    """

    number: int
    block: int
    classes: Classes
    causes: Causes
    inside: bool = False
    others: tuple[int, int] | None = None

    @property
    def differs(self) -> bool:
        """Whether it is known that ranks differ here: by rank, or by the data of each."""
        return any(c.kind in ("rank", "member", "data") for c in self.causes)


class Failures:
    """Where the units of a project may fail on one rank alone, and what leaves them."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.models = flow.models
        self._points: dict[Unit, tuple[Point, ...]] = {}
        self._handlers: dict[tuple[Unit, int], Handler] = {}

    @cached_property
    def own(self) -> frozenset[str]:
        """The last parts of the names of exceptions that happen to one rank at a time."""
        return frozenset(name.rpartition(".")[2] for name in self.models.failures["own"])

    @cached_property
    def alike(self) -> frozenset[str]:
        return self.models.failures["alike"]

    @cached_property
    def _by_call(self) -> dict[str, list[tuple[Classes, bool]]]:
        """By name of a call: what it may raise on one rank, and whether only where its arguments differ."""
        found: dict[str, list[tuple[Classes, bool]]] = {}
        for table, of_data in ((self.models.raises, False), (self.models.raises_of_data, True)):
            for name, calls in table.items():
                for call in calls:
                    found.setdefault(call, []).append((lineage(name, self.models), of_data))
        return found

    def handler(self, unit: Unit, block: int) -> Handler:
        known = self._handlers.get((unit, block))
        if known is None:
            known = self._handlers[unit, block] = handler(self.flow, unit, block)
        return known

    def is_own(self, classes: Classes) -> bool:
        return bool(classes) and classes[0] not in self.alike and not self.own.isdisjoint(classes)

    # -- places of one unit --------------------------------------------------------------------------------

    def points(self, unit: Unit) -> tuple[Point, ...]:
        known = self._points.get(unit)
        if known is None:
            found = [*self._calls(unit), *self._raises(unit)]
            known = self._points[unit] = tuple(sorted(found, key=lambda p: (p.number, p.classes)))
        return known

    def _calls(self, unit: Unit) -> Iterator[Point]:
        result = self.flow.result(unit)
        for number, value in enumerate(unit.code.values):
            if value.op == "item":
                causes = self._varying(unit, Val(v=result.vals[value.args[1]].v))
                if causes and any(o[0] in ("dict", "tuple", "seq") for o in result.vals[value.args[0]].each):
                    for classes, _ in self._by_call["[]"]:
                        yield Point(number, value.block, classes, causes)
            elif value.op == "call":
                yield from self._call(unit, number)

    def _call(self, unit: Unit, number: int) -> Iterator[Point]:
        result, value = self.flow.result(unit), unit.code.values[number]
        site = result.sites.get(number)
        if site is not None and site.away:
            return
        callee = result.vals[value.args[0]]
        for o in callee.each:
            if o[0] != "ext":
                continue
            rows = self._by_call.get(o[1]) or self._by_call.get(self.models.named(o[1])) or []
            given = [result.vals[a] for a in value.args[1:]]
            lengths: Causes = frozenset().union(*(each.n for each in given))
            contents: Causes = frozenset().union(*(each.v for each in given))
            for classes, of_data in rows:
                # batches differ in what they hold, iterators end where the loaders are of different length
                causes = lengths if "StopIteration" in classes else lengths | contents
                causes = self._varying(unit, Val(v=causes)) if of_data else FAILURE
                if causes:
                    yield Point(number, value.block, classes, causes)
        if site is not None and any(o.name in self.models.failures["computing"] for o in site.operations):
            yield Point(number, value.block, lineage("torch.OutOfMemoryError", self.models), FAILURE, True)
        elif (site is None or not (site.operations or site.targets)) and self._is_unknown(callee):
            yield Point(number, value.block, (), FAILURE)

    @staticmethod
    def _is_unknown(callee: Val) -> bool:
        return not callee.objs or any(o[0] in ("top", "param", "made", "inst", "self") for o in callee.each)

    def _raises(self, unit: Unit) -> Iterator[Point]:
        """The `raise` statements that only some ranks come to."""
        for block, each in enumerate(unit.code.blocks):
            if each.end[0] != "raise" or each.end[1] < 0:
                continue
            classes = raised(self.flow, unit, each.end[1])
            edge = self._branch(unit, block)
            if not classes or edge is None:
                continue
            causes = self._tested(unit, edge[0])
            if not causes and self.is_own(classes):
                causes = FAILURE
            if causes:
                yield Point(each.end[1], block, classes, causes, others=edge)

    def _branch(self, unit: Unit, block: int) -> tuple[int, int] | None:
        """The branch that leads to a block in one way only, with its other target."""
        while True:
            preds = [p for p, raising in unit.code.blocks[block].preds if not raising]
            if len(preds) != 1:
                return None
            end = unit.code.blocks[preds[0]].end
            if end[0] == "branch":
                return preds[0], end[3] if end[2] == block else end[2]
            block = preds[0]

    def _tested(self, unit: Unit, branch: int) -> Causes:
        """By which causes ranks differ about a branch, or about those around it."""
        vals, blocks = self.flow.result(unit).vals, unit.code.blocks
        around = [branch, *unit.control.deciding(branch)]
        above = self._branch(unit, branch)  # `if a and b: raise`
        while above is not None and above[0] not in around:
            around.append(above[0])
            above = self._branch(unit, above[0])
        tests = (truth_of(vals[blocks[b].end[1]]) for b in around)
        return frozenset().union(*(self._varying(unit, Val(v=test)) for test in tests))

    def _varying(self, unit: Unit, value: Val) -> Causes:
        """By which causes a value differs between ranks, with what callers pass; none where it is known to be equal."""
        closed = self.flow.close(value, unit).v
        return NONE if any(c.kind == "uniform" for c in closed) else only(closed, "rank", "member", "data")

    # -- what leaves a unit --------------------------------------------------------------------------------

    def escapes(self, unit: Unit, point: Point) -> bool:
        """Whether no handler of the unit takes what is raised at a place."""
        blocks = unit.code.blocks[point.block].handlers
        return not any(self.stops(self.handler(unit, block), point.classes) for block in blocks)

    def stops(self, handler: Handler, classes: Classes) -> bool:
        """Whether a handler may take an exception; of one of which nothing is known: whether it is for what ranks have
        of their own."""
        if handler.is_finally:
            return False
        if classes:
            return takes(handler, classes) is not False
        return handler.is_broad or not handler.names.isdisjoint(self.own | {"RuntimeError"})

    @cached_property
    def escaping(self) -> dict[Unit, dict[Classes, Causes]]:
        """By unit what may leave it on one rank alone, itself raised or by what it calls."""
        units = [unit for module in self.flow.project.modules.values() for unit in self.flow.whole_units(module)]
        found: dict[Unit, dict[Classes, Causes]] = {}
        callers: dict[Unit, dict[Unit, list[int]]] = {}
        for unit in units:
            for number, site in self.flow.result(unit).sites.items():
                for target in site.targets if not site.away else ():
                    callers.setdefault(target.unit, {}).setdefault(unit, []).append(number)
        for unit in units:
            rows = {p.classes: p.causes for p in self.points(unit) if self.escapes(unit, p)}
            if rows:
                found[unit] = rows
        queue = list(found)
        while queue:
            unit = queue.pop()
            for caller, sites in callers.get(unit, {}).items():
                known = found.setdefault(caller, {})
                before = len(known)
                for classes, causes in found[unit].items():
                    if classes not in known and any(self._lets_out(caller, n, classes) for n in sites):
                        known[classes] = causes
                if len(known) > before:
                    queue.append(caller)
        return found

    def _lets_out(self, unit: Unit, site: int, classes: Classes) -> bool:
        return self.escapes(unit, Point(site, unit.code.values[site].block, classes, NONE))
