"""Of which models a tensor may be a parameter: followed back through pairs, lists, dictionaries, by position."""

from __future__ import annotations

from typing import NamedTuple

from validator.flow.access_paths import Path, paths_of
from validator.flow.containers import GROWING
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import Index, argument_of

_ASKED = frozenset({"parameters", "named_parameters"})
_SAME = frozenset({  # calls that give what they are given, or the same elements of it
    "list", "tuple", "sorted", "reversed", "iter", "filter", "set", "detach", "view", "values", "tqdm", "copy", "cast",
})  # fmt: skip
_VIEWS = frozenset({"data", "ds_tensor"})
_ANY = -1
Way = tuple[int, ...]  # which parts are asked for, outermost last: positions, or any element


class Owner(NamedTuple):
    """A model in one unit: what `parameters()` was asked of, or a part of it (`head.weight`)."""

    unit: Unit
    path: Path
    model: Place

    def origins(self) -> set[Path]:
        """The paths of the model and of what the calls were given that it is the result of: it may be one of them."""
        found: set[Path] = set()
        stack = [self.model]
        while stack:
            place = stack.pop()
            path = paths_of(self.unit).place(place.number)
            if path in found or place.value.op == "const":
                continue
            found.add(path)
            root = place.value_at(path[0]) if isinstance(path[0], int) else place
            if root.value.op == "call":
                given = root.value.args[1:]
                wrapped = [each for i, each in enumerate(given) if (root.number, i) in root.result.steps]
                stack += [root.value_at(each) for each in wrapped or given]
            elif root.value.op == "phi":
                stack += [root.value_at(each) for each in root.value.args]
        return found


class Owners:
    """The models that own a tensor; `known`: whether they are all that may."""

    def __init__(self, flow: Flow, index: Index, place: Place, way: Way = ()) -> None:
        self.flow = flow
        self.index = index
        self.found: dict[tuple[Unit, Path], Owner] = {}
        self.known = True
        self._seen: set[tuple[Unit, int, Way]] = set()
        self._stack = [(place, way)]
        while self._stack:
            here, asked = self._stack.pop()
            key = (here.unit, here.number, asked)
            if key not in self._seen and len(asked) < 6:
                self._seen.add(key)
                self._back(here, asked)
        self.known = self.known and bool(self.found)

    def apart(self, other: Owners) -> bool:
        """Whether the models of both are known, in one unit, and none is a part of another."""
        if not (self.known and other.known) or len({unit for unit, _ in (*self.found, *other.found)}) != 1:
            return False
        mine, others = ({path for owner in each.found.values() for path in owner.origins()} for each in (self, other))
        return not any(a[: len(b)] == b[: len(a)] for a in mine for b in others)

    def _on(self, here: Place, way: Way, *numbers: int) -> None:
        self._stack += [(here.value_at(each), way) for each in numbers if each >= 0]

    def _back(self, here: Place, way: Way) -> None:
        value = here.value
        op, args = value.op, value.args
        if op in ("phi", "binary"):
            self._on(here, way, *args)
        elif op == "mut":
            self._changed(here, way)
        elif op == "next":
            self._on(here, (_ANY, *way), args[0])
        elif op in ("iter", "await"):
            self._on(here, way, args[0])
        elif op == "unpack":
            self._on(here, (value.data[0], *way), args[0])
        elif op == "item":
            key = here.operand(1).value
            exact = key.op == "const" and isinstance(key.data, int)
            self._on(here, (key.data if exact else _ANY, *way), args[0])
        elif op in ("tuple", "list", "set"):
            self._display(here, way)
        elif op == "dict":
            self._on(here, way[1:], *args[1::2])
        elif op == "collect":
            if value.data[0] == "dict":
                args = args[1:]
            self._on(here, way[1:], *args[:1])
        elif op == "attr":
            if value.data in _VIEWS:
                self._on(here, way, args[0])
            else:
                self._own(here, here)
        elif op == "call":
            self._called(here, way)
        elif op == "param":
            self._passed(here, way)
        elif op == "free":
            self._around(here, way)
        else:
            self.known = False

    def _own(self, here: Place, model: Place) -> None:
        """A model, or what lies in it."""
        path = paths_of(here.unit).place(model.number)
        self.found.setdefault((here.unit, path), Owner(here.unit, path, model))

    def _changed(self, here: Place, way: Way) -> None:
        self._on(here, way, here.value.args[0])
        call = here.operand(1)
        if call.value.op == "call" and here.value.data == -1 and call.method in GROWING:
            self._on(here, way if call.method in ("extend", "update") else way[1:], *call.value.args[1:])

    def _display(self, here: Place, way: Way) -> None:
        args, starred = here.value.args, here.value.data or ()
        if way and way[0] >= 0 and not starred:
            args = args[way[0] : way[0] + 1]
        for position, each in enumerate(args):
            self._on(here, way if position in starred else way[1:], each)

    def _called(self, here: Place, way: Way) -> None:
        args, method = here.value.args[1:], here.method
        if method in _ASKED and here.receiver is not None:
            if method == "parameters" or way[1:2] != (0,):
                self._own(here, here.receiver)
        elif method == "dict" and args:
            self._on(here, (way[0], 1, *way[1:]) if way else way, args[0])
        elif method == "items" and here.receiver is not None:
            if way[1:2] != (0,):
                self._on(here, way[:1] + way[2:], here.receiver.number)
        elif method == "zip" and way[1:2] and way[1] < len(args):
            self._on(here, way[:1] + way[2:], *(args if way[1] < 0 else args[way[1] : way[1] + 1]))
        elif method == "enumerate" and way[1:2] == (1,):
            self._on(here, way[:1] + way[2:], *args[:1])
        elif method in ("get", "pop") and here.receiver is not None:
            self._on(here, (_ANY, *way), here.receiver.number)
        elif method in _SAME:
            self._on(here, way, *(args[-1:] if args else (here.receiver.number,) if here.receiver else ()))
        elif method not in ("list", "dict", "set", "defaultdict") or args:
            self._given_back(here, way)

    def _given_back(self, here: Place, way: Way) -> None:
        """What functions of the project give back; of a generator its elements are not followed."""
        site = here.result.sites.get(here.number)
        targets = site.targets if site is not None and not site.others else ()
        self.known = self.known and bool(targets)
        for target in targets:
            returned = target.unit.code.returned
            self.known = self.known and bool(returned)
            self._stack += [(Place(self.flow, target.unit, number), way) for number in returned]

    def _passed(self, here: Place, way: Way) -> None:
        """What callers pass; where nobody is known to call, the parameter itself."""
        rows = list(self.index.sites(here.unit))
        if not rows or here.unit.has_receiver and here.value.data[0] == 0:
            self._own(here, here)
            self.known = False
        for caller, number, _ in rows:
            given = argument_of(caller, number, here.unit, here.value.data[0])
            if given is None:
                self.known = False
            else:
                self._stack.append((Place(self.flow, caller, given), way))

    def _around(self, here: Place, way: Way) -> None:
        distance, name = here.value.data
        outer = here.unit.above(distance)
        if outer is None:
            self.known = False
            return
        for number in outer.code.definitions.get(name, ()):
            self._stack.append((Place(self.flow, outer, number), way))
