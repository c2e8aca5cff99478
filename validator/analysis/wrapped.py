"""Which names and attributes hold models that FSDP, DDP or DeepSpeed has taken, followed through the whole project.

A model is followed from the call that wraps it through other names, attributes (`self.model = model`), arguments,
results (`model = strategy.prepare(model)`) and helpers that shard their parameter in place. What holds a wrapped model
at one caller of a function is taken to hold one: the answer is of what may be, never of what is so for every caller.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.binding import bind
from validator.analysis.places import within
from validator.analysis.sharding import Sharding
from validator.analysis.uses import is_test
from validator.facts.model import Assign, At, Call, Return
from validator.project import ClassDef, Method, Project

SHARDED, FSDP, DDP, ENGINE = "fully_shard", "FSDP", "DDP", "engine"

_MAKERS = {"FSDP": FSDP, "FullyShardedDataParallel": FSDP, "DDP": DDP, "DistributedDataParallel": DDP}
_BEFORE: At = (0, 0, 0, 0)
_AFTER: At = (sys.maxsize, 0, sys.maxsize, 0)
_WHOLE = -1  # the result of a call itself, not an element of it
_SAME = frozenset({"to", "cuda", "cpu", "train", "eval", "requires_grad_", "float", "bfloat16"})  # return their model


class Held(NamedTuple):
    """A wrapped model under a name. `at`: since where; `where`, `call`: the function and call that wrap it."""

    kind: str
    at: At
    where: Method
    call: Call


class Given(NamedTuple):
    """A model that a call wraps. `path`: its name where the call stands. `kind`: `SHARDED` or `FSDP`."""

    call: Call
    path: str
    kind: str


class Wrapped:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._held: dict[Method, dict[str, list[Held]]] = {}
        self._attributes: dict[tuple[ClassDef, str], list[Held]] = {}
        self._sources: dict[tuple[ClassDef, str], set[tuple[Method, At]]] = {}  # bindings known to hold a model
        self._queue: list[tuple[Method, str, Held]] = []
        self._results: dict[Method, dict[int, list[Held]]] = {}
        self._shares: dict[Method, dict[str, Held]] = {}

    # -- questions -----------------------------------------------------------------------------------------

    def at(self, function: Method, path: str, at: At) -> list[Held]:
        """What a path may hold at a place: wrapped models, the latest first; empty where nothing says so."""
        self._facts  # noqa: B018 - followed when first asked for
        own = function.own_object
        if own is not None and function.cls is not None and path.startswith(f"{own}."):
            here = self._valid(function, path, at)
            return here or self._attribute(function.cls, path.removeprefix(f"{own}."))
        return self._valid(function, path, at)

    @cached_property
    def names(self) -> frozenset[str]:
        """The last links of all paths that ever hold a wrapped model: a path with another one holds none."""
        self._facts  # noqa: B018
        paths = (path for held in self._held.values() for path in held)
        return frozenset(path.rpartition(".")[2] for path in (*paths, *(name for _, name in self._attributes)))

    def given(self, function: Method) -> Iterator[Given]:
        """The calls of a function by which FSDP takes a model: of wrappers and of helpers alike."""
        self._facts  # noqa: B018
        for call in function.facts.calls:
            yield from self._wraps(function, call)

    def givers(self) -> list[Method]:
        """Every function that has such calls."""
        self._facts  # noqa: B018
        direct = [function for function, _ in self._wrappers]
        return list(dict.fromkeys([*direct, *(f for helper in self._shares for f, _ in self._callers(helper))]))

    def ever(self, function: Method, path: str) -> list[Held]:
        """What a path may hold when a function is left."""
        return self.at(function, path, _AFTER)

    def makes_engines(self, cls: ClassDef) -> bool:
        """Whether a class, or a base of it, makes DeepSpeed engines."""
        return any(owner in self._engine_classes for owner in cls.mro)

    # -- where models are wrapped --------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> bool:
        for function, call in self._wrappers:
            held = Held(self._kinds[function, call.at], call.at, function, call)
            self._wrap(function, call, held)
        self._drain()
        done: set[tuple[ClassDef, str]] = set()
        while fresh := [key for key in self._attributes if key not in done and self._only_held(*key)]:
            for key in fresh:
                done.add(key)
                self._spread(*key)
            self._drain()
        return True

    @cached_property
    def _kinds(self) -> dict[tuple[Method, At], str]:
        found: dict[tuple[Method, At], str] = {}
        for function, call in self.project.calls("initialize", *_MAKERS):
            if call.method in _MAKERS:
                found[function, call.at] = _MAKERS[call.method]
            elif self.project.dotted(function, call.target) == "deepspeed.initialize":
                found[function, call.at] = ENGINE
        for function, calls in self.project.analysis(Sharding).direct.items():
            found.update({(function, call.at): SHARDED for call in calls})
        return found

    @cached_property
    def _wrappers(self) -> list[tuple[Method, Call]]:
        places = dict.fromkeys(function for function, _ in self._kinds if not is_test(function.path))
        return [(f, call) for f in places for call in f.facts.calls if (f, call.at) in self._kinds]

    @cached_property
    def _engine_classes(self) -> frozenset[ClassDef]:
        rows = ((function, kind) for (function, _), kind in self._kinds.items())
        return frozenset(f.cls for f, kind in rows if kind == ENGINE and f.cls is not None)

    def _wrap(self, function: Method, call: Call, held: Held) -> None:
        """A wrapper was called: what it was given (where it works in place) and what it returns are wrapped."""
        if held.kind in (SHARDED, FSDP) and call.args and call.args[0].kind == "path":
            follow = self._in_place if held.kind == SHARDED else self._share
            follow(function, call.args[0].value, held)
        self._result(function, call, 0 if held.kind == ENGINE else _WHOLE, held)

    def _wraps(self, function: Method, call: Call) -> Iterator[Given]:
        """The models that a call is given and that FSDP takes in it."""
        kind = self._kinds.get((function, call.at))
        if kind in (SHARDED, FSDP) and call.args and call.args[0].kind == "path":
            yield Given(call, call.args[0].value, kind)
        elif kind is None and call.method in self._sharers:
            for target in self._targets(function, call):
                arguments = bind(target, call)
                for name, held in self._shares.get(target, {}).items():
                    if name in arguments and arguments[name].kind == "path":
                        yield Given(call, arguments[name].value, held.kind)

    @cached_property
    def _sharers(self) -> frozenset[str]:
        return frozenset(method.name for method in self._shares)

    # -- how they are followed -----------------------------------------------------------------------------

    def _add(self, function: Method, path: str, held: Held) -> None:
        rows = self._held.setdefault(function, {}).setdefault(path, [])
        if not any(row.kind == held.kind and row.at == held.at for row in rows):
            rows.append(held)
            self._queue.append((function, path, held))

    def _drain(self) -> None:
        while self._queue:
            function, path, held = self._queue.pop()
            for row in function.facts.assigns:
                if row.kind == "path" and row.value == path and self._reaches(function, path, held, row.at):
                    self._add(function, row.target, held._replace(at=row.at))
                if row.target == path and (row.at == held.at or within(held.at, row.at)):
                    self._bound(function, row, held)
            own = function.own_object
            if own is None or not path.startswith(f"{own}."):
                self._hand_over(function, path, held)
                if held.at != _BEFORE:
                    self._return(function, path, held)

    def _bound(self, function: Method, row: Assign, held: Held) -> None:
        """An attribute was given a wrapped model."""
        name = self._own(function, row.target)
        if name and function.cls is not None:
            self._sources.setdefault((function.cls, name), set()).add((function, row.at))
            self._attributes.setdefault((function.cls, name), []).append(held)

    def _in_place(self, function: Method, path: str, held: Held) -> None:
        """A model was sharded in place: all names that it has are of a sharded model."""
        for name in (path, *_names(function, path, held.at)):
            self._add(function, name, held)
            own = self._own(function, name)
            if own and function.cls is not None:
                self._keep(function, function.cls, own, held)
        self._share(function, path, held)

    def _share(self, function: Method, path: str, held: Held) -> None:
        """A function wraps its parameter, so that its callers' models are wrapped."""
        if path in self._shares.get(function, {}) or not any(p.name == path for p in function.facts.params):
            return
        self._shares.setdefault(function, {})[path] = held
        for caller, call in self._callers(function):
            argument = bind(function, call).get(path)
            if argument is not None and argument.kind == "path":
                follow = self._in_place if held.kind == SHARDED else self._share
                follow(caller, argument.value, held._replace(at=call.at))

    def _keep(self, function: Method, cls: ClassDef, name: str, held: Held) -> None:
        """An attribute was sharded in place, after what its object, or the function, had bound to it."""
        self._attributes.setdefault((cls, name), []).append(held)
        for method, row in _bindings(cls, name):
            if row.at < held.at if method is function else method.name == "__init__":
                self._sources.setdefault((cls, name), set()).add((method, row.at))

    def _hand_over(self, function: Method, path: str, held: Held) -> None:
        """Calls that are given a wrapped model: the parameter holds it, and so does what is returned unchanged."""
        for call in function.facts.calls:
            if any(a.value == path and a.kind == "path" for a in call.args) and self._reaches(
                function, path, held, call.at
            ):
                self._pass(function, path, held, call)

    def _pass(self, function: Method, path: str, held: Held, call: Call) -> None:
        if (function, call.at) in self._kinds:
            return
        for target in self._targets(function, call):
            if target is function:
                continue
            for name, argument in bind(target, call).items():
                if argument.kind == "path" and argument.value == path:
                    self._add(target, name, held._replace(at=_BEFORE))
                    for index in _returned(target, name, _BEFORE):
                        self._result(function, call, index, held)

    def _return(self, function: Method, path: str, held: Held) -> None:
        """A function that wraps a model returns it: its callers' names hold it."""
        for index in _returned(function, path, held.at):
            self._give(function, index, held)

    def _give(self, function: Method, index: int, held: Held) -> None:
        rows = self._results.setdefault(function, {}).setdefault(index, [])
        if any(row.kind == held.kind for row in rows):
            return
        rows.append(held)
        for caller, call in self._callers(function):
            self._result(caller, call, index, held)

    def _result(self, function: Method, call: Call, index: int, held: Held) -> None:
        """What a call returns, or one element of it, is a wrapped model."""
        held = held._replace(at=call.at)
        if call.use == "return":
            self._give(function, index, held)
        for row in function.facts.assigns:
            if within(call.at, row.at) and row.value.startswith(call.target):
                whole = row.kind == "call" and index == _WHOLE
                if whole or (index != _WHOLE and row.kind.startswith(f"unpack:{index}/")):
                    self._add(function, row.target, held)

    def _spread(self, cls: ClassDef, name: str) -> None:
        """The methods of a class hand on what an attribute holds."""
        for owner in (*cls.mro, *cls.descendants()):
            for method in owner.every_method():
                if method.own_object is not None:
                    for held in self._attributes[cls, name][:2]:
                        self._hand_over(method, f"{method.own_object}.{name}", held._replace(at=_BEFORE))

    # -- what is known -------------------------------------------------------------------------------------

    def _valid(self, function: Method, path: str, at: At) -> list[Held]:
        rows = [row for row in self._held.get(function, {}).get(path, ()) if row.at < at]
        return [
            row for row in sorted(rows, key=lambda row: row.at, reverse=True) if self._reaches(function, path, row, at)
        ]

    def _reaches(self, function: Method, path: str, held: Held, at: At) -> bool:
        """Whether a name holds at a place still what it held before."""
        if at <= held.at:
            return False
        return not any(
            row.target == path and held.at < row.at < at and not within(at, row.at) and not _keeps(row, path)
            for row in function.facts.assigns
        )

    def _attribute(self, cls: ClassDef, name: str) -> list[Held]:
        found: list[Held] = []
        for owner in cls.mro:
            if (owner, name) in self._attributes and self._only_held(owner, name):
                found += self._attributes[owner, name]
        return found or self._of_mixin(cls, name)

    def _of_mixin(self, cls: ClassDef, name: str) -> list[Held]:
        """What the classes that are made of a mixin keep in an attribute that it does not set itself."""
        if name not in self._attribute_names or next(_bindings(cls, name), None) is not None:
            return []
        users = [low for low in cls.descendants() if any((owner, name) in self._attributes for owner in low.mro)]
        owners = dict.fromkeys(owner for low in users for owner in low.mro if (owner, name) in self._attributes)
        held = all(self._only_held(owner, name) for owner in owners)
        return [row for owner in owners for row in self._attributes[owner, name]] if held else []

    @cached_property
    def _attribute_names(self) -> frozenset[str]:
        return frozenset(name for _, name in self._attributes)

    def _only_held(self, cls: ClassDef, name: str) -> bool:
        """Whether every binding of an attribute in its class gives it a wrapped model, or nothing."""
        known = self._sources.get((cls, name), set())
        return all(row.value == "None" or (method, row.at) in known for method, row in _bindings(cls, name))

    def _own(self, function: Method, path: str) -> str:
        own = function.own_object
        name = path.removeprefix(f"{own}.") if own is not None and path.startswith(f"{own}.") else ""
        return name if "." not in name and "[" not in name else ""

    def _targets(self, function: Method, call: Call) -> list[Method]:
        """The functions that a call may reach, in an order that every run has."""
        return sorted(self.project.types.targets(function, call), key=lambda m: (m.path, m.qualname))

    def _callers(self, function: Method) -> Iterable[tuple[Method, Call]]:
        """The calls of a function, those through objects whose class is known included."""
        if function.name.startswith("<"):
            return
        types = self.project.types
        if function.cls is None or function.name == "__init__":
            rows: Iterable[tuple[Method, Call]] = types.callers.get(function, ())
        else:
            rows = (row for row in self.project.calls(function.name) if function in types.targets(*row))
        yield from (row for row in rows if not is_test(row[0].path))


def _bindings(cls: ClassDef, name: str) -> Iterator[tuple[Method, Assign]]:
    for owner in cls.mro:
        for method in owner.every_method():
            own = method.own_object
            yield from ((method, row) for row in method.facts.assigns if own and row.target == f"{own}.{name}")


def _names(function: Method, path: str, at: At) -> Iterator[str]:
    """The other names that what a path holds at a place was given before: `self.model = model`, and the reverse."""
    for row in function.facts.assigns:
        if row.kind == "path" and row.at < at and path in (row.target, row.value):
            rebound = (r for r in function.facts.assigns if r.target in (row.target, row.value))
            if not any(row.at < r.at < at for r in rebound):
                yield row.value if row.target == path else row.target


def _keeps(row: Assign, path: str) -> bool:
    """Whether an assignment gives a name the model that it has: `model = model.to(device)`."""
    head, _, method = row.value.rpartition(".")
    return row.kind == "call" and head == path and method in _SAME


def _returned(function: Method, path: str, since: At) -> Iterator[int]:
    """Where a function returns what a name holds since a place: the whole result, or one element of it."""
    for row in function.facts.returns:
        if row.at > since and not any(
            a.target == path and since < a.at < row.at and not _keeps(a, path) for a in function.facts.assigns
        ):
            yield from _places(row, path)


def _places(row: Return, path: str) -> Iterator[int]:
    if row.kind == "path" and row.value == path:
        yield _WHOLE
    elif row.kind == "tuple":
        parts = [part.strip() for part in row.value.strip("()").split(",")]
        yield from (index for index, part in enumerate(parts) if part == path)
