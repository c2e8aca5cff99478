"""Where parameters were taken from a model: an optimizer holds those that the model had at that moment.

A list, a comprehension, a loop, a helper that returns groups take the parameters where they stand; a generator,
`filter` or `map` where they are used up.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from validator.flow.access_paths import Path, paths_of
from validator.flow.containers import GROWING
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.training.placements import Placings, Point, leads, point

_ASKED = frozenset({"parameters", "named_parameters", "trainable_parameters"})
_LAZY = frozenset({"filter", "map", "chain", "from_iterable", "iter", "zip", "enumerate", "islice", "reversed"})
_PARTS = frozenset({"items", "values", "copy", "get", "pop"})
_NAMED = frozenset({"named_parameters", "items", "enumerate"})
MAKING = ("__init__", "__post_init__")
_START = -1  # where a block is entered from the point before: nothing lies between


class Stretch(NamedTuple):
    """What taken parameters pass in one unit, while the model lies at `path`: from the first point to the last."""

    unit: Unit
    path: Path
    points: tuple[Point, ...]

    def meets(self, place: Place) -> bool:
        """Whether a call of the unit may run while the parameters pass."""
        here = point(place)
        ways = ((first, last) for first, last in itertools.pairwise(self.points) if last[1] != _START)
        return any(leads(self.unit, first, here) and leads(self.unit, here, last) for first, last in ways)


class Taking(NamedTuple):
    """Parameters were taken at `place` from a `model`, which may stand in a function that is called."""

    place: Place
    model: Place
    stretches: tuple[Stretch, ...]  # the last one in the unit that uses the parameters

    @property
    def path(self) -> Path:
        return self.stretches[-1].path


class _Step(NamedTuple):
    """A value on the way back from the use: where it was taken, and the points that it passed since."""

    number: int
    place: Place
    points: tuple[Point, ...]
    lazy: bool = False  # an element of a generator, which takes nothing until it is used up


def takings(placings: Placings, place: Place, at: Place) -> list[Taking]:
    """The takings of the parameters that lie in a value, which is used up at a call."""
    search = _Search(placings, place, at, frozenset())
    return search.asked or search.given


class _Search:
    """From a value back to the models whose parameters lie in it.

    `asked`: where they were asked for; `given`: models that were given to helpers of which nothing is known.
    """

    def __init__(self, placings: Placings, place: Place, at: Place, seen: frozenset[Unit]) -> None:
        self.placings = placings
        self.unit = place.unit
        self.values = place.unit.code.values
        self.seen = seen | {place.unit}
        self.asked: list[Taking] = []
        self.given: list[Taking] = []
        self._stack = [_Step(place.number, at, (point(at),))]
        done: set[int] = set()
        while self._stack:
            step = self._stack.pop()
            if step.number not in done:
                done.add(step.number)
                self._back(step, place.value_at(step.number))

    def _back(self, step: _Step, here: Place) -> None:
        value = here.value
        op, args = value.op, value.args
        if op == "phi":
            for (block, _), each in zip(self.unit.code.blocks[value.block].preds, args, strict=False):
                edge = (block, len(self.unit.code.blocks[block].values)), (value.block, _START)
                self._stack.append(step._replace(number=each, points=(*edge, *step.points)))
        elif op == "collect":
            taken = step if value.data[0] == "generator" else _taken(here, step)
            self._on(taken._replace(lazy=True), args[: value.data[1]])
        elif op == "mut":
            self._changed(here, step)
        elif op == "next":
            self._on(step if step.lazy else _taken(here, step), args)
        elif op == "unpack":
            self._on(step, () if _is_name(here) else args)
        elif op == "call":
            self._called(here, step)
        elif op == "dict":
            self._on(step, _groups(here))
        elif op == "attr":
            self._attribute(here, step)
        elif op == "item":
            self._on(step, args[:1])
        elif op in ("list", "tuple", "set"):
            self._on(_taken(here, step) if value.data else step, args)  # `[*model.parameters()]`
        elif op in ("iter", "binary"):
            self._on(step, args)

    def _on(self, step: _Step, numbers: tuple[int, ...]) -> None:
        self._stack += [step._replace(number=each) for each in numbers if each >= 0]

    def _changed(self, here: Place, step: _Step) -> None:
        """A variable behind a call: what it held, and what the call added to it."""
        self._on(step, here.value.args[:1])
        call = here.operand(1)
        if call.value.op == "call" and here.value.data == -1 and call.method in GROWING:
            self._on(_taken(call, step), call.value.args[1:])

    def _called(self, here: Place, step: _Step) -> None:
        if here.method in _ASKED and here.receiver is not None:
            self.asked.append(self._taking(step, here.receiver))
            return
        lazy = here.method in _LAZY
        taken = step if lazy or step.lazy else _taken(here, step)
        if not self._of_helper(here, step):
            arguments = here.value.args[1:]
            self.given += [] if lazy else [self._taking(taken, here._replace(number=each)) for each in arguments]
            self._on(taken, arguments)
        if here.method in _PARTS and here.receiver is not None:
            self._on(step, (here.receiver.number,))

    def _taking(self, step: _Step, model: Place) -> Taking:
        return Taking(step.place, model, (Stretch(self.unit, self.placings.path(model), step.points),))

    def _of_helper(self, here: Place, step: _Step) -> bool:
        """What functions of the project take from a model that they are given, or that their object holds."""
        found = False
        for unit in self.placings.queries.targets(here):
            taken = step if unit.code.is_generator else _taken(here, step)
            for each in self._returned(unit):
                path = self._outside(here, unit, each.path)
                if path is not None:
                    found = True
                    stretch = Stretch(self.unit, path, taken.points)
                    self.asked.append(Taking(taken.place, each.model, (*each.stretches, stretch)))
        return found

    def _returned(self, unit: Unit) -> Iterator[Taking]:
        if unit in self.seen:
            return
        ends = unit.code.returned
        ends += [v.args[0] for v in unit.code.values if v.op in ("yield", "yield from") and v.args]
        for number in ends:
            place = Place(self.placings.flow, unit, number)
            yield from _Search(self.placings, place, place, self.seen).asked

    def _outside(self, call: Place, unit: Unit, path: Path) -> Path | None:
        """A path of a unit that is called, in terms of this one."""
        root = unit.code.values[path[0]] if isinstance(path[0], int) else None
        if root is None or root.op != "param":
            return None
        given = argument_of(self.unit, call.number, unit, root.data[0])
        return None if given is None else (*self.placings.path(call._replace(number=given)), *path[1:])

    def _attribute(self, here: Place, step: _Step) -> None:
        """What was stored in an attribute before, in this unit or where the object was made."""
        stores = _last([s for s in self._stores(here) if leads(self.unit, point(s), step.points[0])], here)
        for store in stores:
            self._on(step._replace(points=(point(store), *step.points)), store.value.args[1:])
        owner = here.operand(0).root
        if not stores and self.unit.cls is not None and owner.number == 0 and self.unit.has_receiver:
            self._made(here, step)

    def _stores(self, here: Place) -> Iterator[Place]:
        paths = paths_of(self.unit)
        owner = paths.place(here.value.args[0])
        for store in self.placings.queries.values(self.unit, "store_attr"):
            if store.value.data == here.value.data and paths.place(store.value.args[0]) == owner:
                yield store

    def _made(self, here: Place, step: _Step) -> None:
        """Parameters that the constructor put into an attribute, of a model that it put into another one."""
        assert self.unit.cls is not None
        for method in self.unit.cls.every_method():
            unit = self.placings.flow.unit_of(method) if method.name.rpartition(".")[2] in MAKING else None
            if unit is None or unit in self.seen:
                continue
            for store in self.placings.queries.values(unit, "store_attr"):
                if store.value.data == here.value.data and store.operand(0).root.number == 0:
                    found = _Search(self.placings, store.operand(1), store, self.seen).asked
                    for each in found:
                        for path in own_names(self.placings, unit, each.path):
                            last = each.stretches[-1]
                            left = last._replace(points=(*last.points, *_ends(unit)))
                            now = Stretch(self.unit, (0, *path), ((0, 0), *step.points))
                            self.asked.append(Taking(each.place, each.model, (*each.stretches[:-1], left, now)))


def own_names(placings: Placings, unit: Unit, path: Path) -> set[Path]:
    """By which attributes of its object a method reaches what lies at a path."""
    names = {path[1:]} if path[0] == 0 else set()
    for store in placings.queries.values(unit, "store_attr"):
        if store.operand(0).root.number == 0 and placings.path(store.operand(1)) == path:
            names.add((f".{store.value.data}",))
    return names


def _taken(here: Place, step: _Step) -> _Step:
    return step._replace(place=here, points=(point(here), *step.points))


def _ends(unit: Unit) -> list[Point]:
    blocks = unit.code.blocks
    return [(number, len(block.values)) for number, block in enumerate(blocks) if block.end[0] == "return"][-1:]


def _is_name(part: Place) -> bool:
    """Whether a part of a pair is the name of a parameter."""
    pair = part.operand(0)
    if part.value.data[:2] != (0, 2) or pair.value.op != "next":
        return False
    asked = pair.operand(0)
    asked = asked.operand(0) if asked.value.op == "iter" else asked
    return asked.value.op == "call" and asked.method in _NAMED


def _groups(display: Place) -> tuple[int, ...]:
    """The values of a dictionary that may hold parameters: of a group those under `params`."""
    args = display.value.args
    keys = [display.unit.code.values[key].data if key >= 0 else None for key in args[::2]]
    if "params" in keys:
        return (args[2 * keys.index("params") + 1],)
    return args[1::2]


def _last(stores: list[Place], here: Place) -> list[Place]:
    """The stores after which no other one surely comes before the read."""
    control = here.unit.control
    around = control.deciding(here.value.block)
    sure = [s for s in stores if control.deciding(s.value.block) <= around]
    return [s for s in stores if not any(leads(s.unit, point(s), point(t)) for t in sure if t != s)]
