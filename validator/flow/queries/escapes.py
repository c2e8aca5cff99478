"""Where a value goes: names, containers, attributes, arguments and results that may hold it, through the project."""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.flow.program.answers import Target
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place, Queries, users_of
from validator.ir.model import Value

Held = tuple[Unit, int]
_PASSING = frozenset({
    "list", "tuple", "set", "dict", "zip", "enumerate", "reversed", "sorted", "iter", "next", "filter",
    "map", "deque", "chain", "tqdm", "copy", "deepcopy",
})  # fmt: skip
_HARMLESS = frozenset({
    "print", "len", "bool", "id", "str", "repr", "any", "all", "float", "int",
})  # fmt: skip
_ASKING = frozenset({"isinstance", "hasattr", "getattr", "type", "callable"})
_GROWING = frozenset({
    "append", "extend", "add", "insert", "update", "appendleft", "put", "setdefault", "put_nowait",
})  # fmt: skip
_TAKING = frozenset({
    "pop", "popleft", "popitem", "get", "values", "items", "copy", "get_nowait", "setdefault", "get_future",
    "then", "__iter__",
})  # fmt: skip
_ELEMENTWISE = frozenset({"list", "tuple", "set", "dict", "deque", "sorted"})  # they take all that there is, once
_FROM_WITHIN = frozenset({"pop", "popleft", "get", "get_nowait", "setdefault"})
_PAIRING = frozenset({"enumerate", "zip", "items"})
_DEEPEST = 3
_DISPLAYS = frozenset({"tuple", "list", "set", "dict", "collect"})
_PARTS = frozenset({"unpack", "item", "next", "iter", "enter", "await", "phi", "binary"})
_FRESH = frozenset({
    "list", "dict", "set", "tuple", "collect", "phi", "binary", "attr", "param", "mut", "free", "item",
    "next", "unpack", "enter", "call",
})  # fmt: skip


class Holders:
    """All values that may hold one value, and what is done with it.

    `called`: calls of its methods, by name. `given`: calls of what nobody knows that get it. `escapes`: it goes where
    it cannot be followed. `gathered`: it lies in a container; `kept`: the names under which it is kept.

    `whole`: what it gives element by element is not it, nor are its parts: of a loader the batches and the sampler.
    `gone_through`: where it is gone through then; `parts`: its attributes that are read.
    """

    def __init__(self, flow: Flow, index: Index, unit: Unit, number: int, whole: bool = False) -> None:
        self.flow = flow
        self.index = index
        self.whole = whole
        self.gone_through: list[Held] = []
        self.parts: list[tuple[Unit, int, str]] = []
        self.held: dict[Held, None] = {}
        self.called: list[tuple[Unit, int, str]] = []
        self.given: list[Held] = []
        self.shown: list[Held] = []  # where its contents are read by something that keeps nothing
        self.asked = False  # whether something asks what kind of thing it is
        self.escapes = False
        self.gathered = False
        self.attributes: dict[str, None] = {}
        self._filled: set[tuple[Unit, int, int]] = set()
        self._queue: list[Held] = []
        self._at: dict[Held, frozenset[int] | None] = {}  # of tuples: at which positions it lies; None: anywhere
        self._depth: dict[Held, int] = {}  # in how many containers it lies there, one in another
        self._add(unit, number, 0)
        while self._queue:
            self._follow(*self._queue.pop())

    def _add(self, unit: Unit, number: int, depth: int, at: frozenset[int] | None = None) -> None:
        held = (unit, number)
        depth = min(max(depth, 0), _DEEPEST)
        if held in self.held:
            known, deepest = self._at[held], self._depth[held]
            if depth <= deepest and (known is None or at is not None and at <= known):
                return
            at = None if at is None or known is None else at | known
            depth = max(depth, deepest)
        self.held[held] = None
        self._at[held] = at
        self._depth[held] = depth
        self._queue.append(held)

    def _within(self, depth: int) -> int:
        """The depth in an element of a container."""
        return depth - 1 if depth < _DEEPEST else depth

    def _follow(self, unit: Unit, number: int) -> None:
        depth = self._depth[unit, number]
        for user in users_of(unit).get(number, ()):
            self._used(unit, number, user, unit.code.values[user])
        for name, values in unit.code.definitions.items():
            if number in values:
                for inner, free in self.index.free(unit, name):
                    self._add(inner, free, depth)
        for block in unit.code.blocks:
            if block.end[0] == "return" and block.end[1] == number:
                self._returned(unit, depth, self._at[unit, number])

    def _used(self, unit: Unit, number: int, user: int, value: Value) -> None:
        op, depth = value.op, self._depth[unit, number]
        if op == "mut":
            if value.args[0] == number:
                self._add(unit, user, depth, self._at[unit, number])
        elif op in _DISPLAYS:
            if op != "collect" or number in value.args[: value.data[1]]:
                self.gathered = self.gathered or op != "tuple"
                exact = op == "tuple" and not value.data
                at = frozenset(i for i, a in enumerate(value.args) if a == number) if exact else None
                self._add(unit, user, depth + 1, at)
        elif op in _PARTS:
            self._part(unit, number, user, value)
        elif op in ("join", "compare"):
            self.shown.append((unit, user))
        elif op == "attr":
            self._method(unit, user, value.data, depth)
        elif op == "store_attr" and value.args[1] == number:
            self._kept_in(unit, value.args[0], value.data, depth)
        elif op == "store_item" and value.args[2] == number:
            self._into(unit, value.args[0], user, depth + 1)
        elif op == "yield":
            self._yielded(unit, depth, self._at[unit, number])
        elif op in ("store_global", "store_free", "store_class", "yield from"):  # module variables, generators
            self.escapes = True
        elif op == "call" and number in value.args[1:]:
            self._passed(unit, number, user, value)

    def _part(self, unit: Unit, number: int, user: int, value: Value) -> None:
        op, depth, at = value.op, self._depth[unit, number], self._at[unit, number]
        if op in ("phi", "await", "enter"):
            self._add(unit, user, depth, None if op == "enter" else at)
        elif self.whole and not depth:
            if op == "iter":
                self.gone_through.append((unit, user))
        elif op == "unpack":
            if at is None or value.data[2] >= 0 or value.data[0] in at:
                self._add(unit, user, self._within(depth))
        else:
            self._add(unit, user, depth if op in ("iter", "binary") else self._within(depth))
            if depth and op == "binary" and value.data == "Add" and value.args[1] == number:
                self._into(unit, value.args[0], user, depth)  # `works += [work]`

    def _method(self, unit: Unit, attr: int, name: str, depth: int) -> None:
        within = self.whole and not depth
        if within:
            self.parts.append((unit, attr, name))
        for call in users_of(unit).get(attr, ()):
            made = unit.code.values[call]
            self.called.append((unit, call, name))
            if made.op == "call" and made.args[0] == attr:
                if name in _TAKING and not within:
                    self._add(unit, call, self._taken(name, depth))
            elif not within:  # a part of it, or a method that is called later
                self._add(unit, attr, depth)

    def _taken(self, name: str, depth: int) -> int:
        """The depth in what a method of a container, or a function that is given one, gives of it."""
        if name in _PAIRING:
            return depth + 1
        return self._within(depth) if name in _FROM_WITHIN or name == "next" else depth

    def _kept_in(self, unit: Unit, owner: int, name: str, depth: int) -> None:
        self.attributes[name] = None
        owners = self._classes(unit, owner)
        for reader, number in self.index.loads(name):
            value = reader.code.values[number]
            read = self._classes(reader, value.args[value.op == "call"])
            if not owners or not read or not owners.isdisjoint(read):
                self._add(reader, number, depth)

    def _classes(self, unit: Unit, number: int) -> frozenset[ClassDef]:
        """The classes of the project of which something may be an object; none where it may be something else."""
        objs = Place(self.flow, unit, number).closed.each
        if any(o[0] not in ("inst", "self") for o in objs):
            return frozenset()
        return frozenset(each for o in objs for each in (o[1], *o[1].descendants()))

    def _into(self, unit: Unit, container: int, by: int, depth: int) -> None:
        """It lies in a container: all other names of that hold it too."""
        self.gathered = True
        if (unit, container, by) in self._filled:
            return
        self._filled.add((unit, container, by))
        for user in users_of(unit).get(by, ()):
            if unit.code.values[user].op == "mut":
                self._add(unit, user, depth)
        values = unit.code.values
        root = container
        while values[root].op in ("mut", "item"):
            root = values[root].args[0]
        value = values[root]
        self._add(unit, root, depth)
        if value.op == "attr":
            self._kept_in(unit, value.args[0], value.data, depth)
        elif value.op == "phi":
            for each in value.args:
                if (unit, each) not in self.held and values[each].op in _FRESH:
                    self._into(unit, each, by, depth)
        elif value.op == "enter":
            self._into_entered(unit, root, depth)
        elif value.op == "param":
            self._from_callers(unit, value.data[0], depth)
        elif value.op == "free":
            outer, name = unit.above(value.data[0]), value.data[1]
            if outer is not None:
                for each in outer.code.definitions.get(name, ()):
                    self._into(outer, each, each, depth)
        elif value.op == "call":
            made = values[value.args[0]]
            if made.data not in ("deque", "defaultdict", "OrderedDict", *_PASSING, *_TAKING):
                self.escapes = True
        elif value.op not in _FRESH:
            self.escapes = True

    def _into_entered(self, unit: Unit, entered: int, depth: int) -> None:
        """It lies in a container that a context manager gave: what `__enter__` returns, or a generator yields."""
        targets = self._targets(unit, entered)
        self.escapes = self.escapes or not targets
        for target in targets:
            for given in given_by(target.unit):
                self._into(target.unit, given, given, depth)

    def _from_callers(self, unit: Unit, position: int, depth: int) -> None:
        sites = list(self.index.sites(unit))
        self.escapes = self.escapes or not sites
        for caller, call, _ in sites:
            given = argument_of(caller, call, unit, position)
            if given is not None:
                self._into(caller, given, call, depth)

    def _returned(self, unit: Unit, depth: int, at: frozenset[int] | None) -> None:
        sites = list(self.index.sites(unit))
        self.escapes = self.escapes or not sites
        for caller, call, _ in sites:
            self._add(caller, call, depth, at)

    def _yielded(self, unit: Unit, depth: int, at: frozenset[int] | None) -> None:
        """Of a context manager, what is yielded is what `with` gives; what else goes through a generator is not
        followed."""
        sites = list(self.index.sites(unit))
        self.escapes = self.escapes or not sites
        for caller, entered, _ in sites:
            if caller.code.values[entered].op == "enter":
                self._add(caller, entered, depth, at)
            else:
                self.escapes = True

    def _passed(self, unit: Unit, number: int, call: int, value: Value) -> None:
        depth = self._depth[unit, number]
        callee = unit.code.values[value.args[0]]
        name = str(callee.data) if callee.op in ("name", "attr", "import") else ""
        if targets := self._targets(unit, call):
            for target in targets:
                self._bound(unit, number, call, target, depth)
        elif callee.op == "attr" and name in _GROWING:
            self._into(unit, callee.args[0], call, depth + 1)
        elif self.whole and not depth and name in _ELEMENTWISE:
            self.gone_through.append((unit, call))
        elif name in _PASSING:
            self._passing(unit, number, call, value, name, depth)
        elif name in _ASKING:
            self.asked = True
            asked = unit.code.values[value.args[2]] if name == "getattr" and len(value.args) > 2 else value
            if asked.op == "const" and value.args[1] == number:
                self._method(unit, call, str(asked.data), depth)
        elif name in _HARMLESS:
            self.shown.append((unit, call))
        else:
            self.given.append((unit, call))

    def _passing(self, unit: Unit, number: int, call: int, value: Value, name: str, depth: int) -> None:
        if not self.whole or depth:
            self._add(unit, call, self._taken(name, depth))
        elif name != "next":
            self._add(unit, call, 0)
        if name in ("filter", "map") and value.args[1] != number:
            self._each_of(unit, call, unit.code.values[value.args[1]])

    def _targets(self, unit: Unit, call: int) -> tuple[Target, ...]:
        """What a call runs, and the generators that it makes, which run where they are gone through."""
        result = self.flow.result(unit)
        site = result.sites.get(call)
        if site is not None and site.targets:
            return site.targets
        made = result.vals[call].each
        return tuple(Target(o[1], o[2]) for o in made) if all(o[0] == "generator" for o in made) else ()

    def _each_of(self, unit: Unit, call: int, function: Value) -> None:
        """What a mapped function does with each element, done at the call: `map(lambda x: x.wait(), …)`."""
        made = self.flow.units_of(unit.module).values() if function.op == "closure" else ()
        inner = next((each for each in made if each.code.key == function.data), None)
        for number, value in enumerate(inner.code.values) if inner is not None else ():
            if inner is not None and value.op == "attr" and inner.code.values[value.args[0]].op == "param":
                users = (inner.code.values[user] for user in users_of(inner).get(number, ()))
                self.called += [
                    (unit, call, value.data) for user in users if user.op == "call" and user.args[0] == number
                ]

    def _bound(self, unit: Unit, number: int, call: int, target: Target, depth: int) -> None:
        for position, _ in enumerate(target.unit.code.params):
            if argument_of(unit, call, target.unit, position) == number:
                for inner, value in enumerate(target.unit.code.values):
                    if value.op == "param" and value.data[0] == position:
                        self._add(target.unit, inner, depth)
                return
        self.given.append((unit, call))


def given_by(unit: Unit) -> list[int]:
    """What a function returns; of a generator what it yields."""
    if not unit.code.is_generator:
        return list(unit.code.returned)
    return [value.args[0] for value in unit.code.values if value.op == "yield" and value.args]


def argument_of(caller: Unit, call: int, unit: Unit, position: int) -> int | None:
    """The value that a call passes for a parameter; for `self` the receiver, or the object that is made.

    Of what `with` runs: the object that is entered or left, and what was passed where the generator was made.
    """
    value = caller.code.values[call]
    if value.op in ("enter", "leave"):
        manager = caller.root(value.args[0])
        if not unit.code.is_generator:
            return value.args[0] if position == 0 else None
        value, call = caller.code.values[manager], manager
    if value.op != "call":
        return None
    shift = implicit(caller, value, unit)
    callee = caller.code.values[value.args[0]]
    if shift and position == 0:
        if unit.name == "__init__" and callee.data != "__init__":
            return call
        return callee.args[0] if callee.op == "attr" else value.args[0]
    name = unit.code.params[position][0]
    for place, keyword in enumerate(value.data.names):
        if keyword == name or (keyword in (None, "@") and place + shift == position):
            return value.args[place + 1]
    return None


def parameters_given(queries: Queries, call: Place, given: Place) -> Iterator[Place]:
    """The parameters of functions of the project that a call may run for which it passes a value."""
    for unit in queries.targets(call):
        for inner in queries.values(unit, "param"):
            if argument_of(call.unit, call.number, unit, inner.value.data[0]) == given.number:
                yield inner


def _reads(unit: Unit, name: str) -> Iterator[int]:
    values = unit.code.values
    for number in unit.named.get(name, ()):
        if values[number].op == "attr":
            yield number
        elif values[number].op == "const":
            for user in unit.users.get(number, ()):
                args = values[user].args
                if values[user].op == "call" and args[2:3] == (number,) and values[args[0]].data == "getattr":
                    yield user


class Index:
    """Where attributes are read, where variables of functions around are, and who calls what."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._loads: dict[str, list[Held]] = {}
        self._free: dict[Unit, dict[str, list[Held]]] = {}
        self._sites: dict[Unit, list[tuple[Unit, int, Target]]] = {}
        self._entered: dict[Unit, bool] = {}

    def loads(self, name: str) -> list[Held]:
        """Where an attribute of that name is read, `getattr` by that name included."""
        known = self._loads.get(name)
        if known is None:
            known = self._loads[name] = []
            for unit in self.flow.mentions.naming(name):
                known += [(unit, number) for number in _reads(unit, name)]
        return known

    def free(self, unit: Unit, name: str) -> list[Held]:
        """Where functions inside a unit read a variable of it."""
        known = self._free.get(unit)
        if known is None:
            known = self._free[unit] = {}
            for inner in self.flow.units_of(unit.module).values():
                for number, value in enumerate(inner.code.values):
                    if value.op == "free" and inner.above(value.data[0]) is unit:
                        known.setdefault(value.data[1], []).append((inner, number))
        return known.get(name, [])

    def sites(self, unit: Unit) -> Iterator[tuple[Unit, int, Target]]:
        """The calls of a unit."""
        known = self._sites.get(unit)
        if known is None:
            known = self._sites[unit] = []
            for caller in self.flow.callers(unit):
                for number, site in sorted(self.flow.result(caller).sites.items()):
                    known += [(caller, number, target) for target in site.targets if target.unit is unit]
        return iter(known)

    def is_entered(self, unit: Unit) -> bool:
        """Whether `with` runs a unit: up to its `yield` where it is entered, the rest where it is left."""
        known = self._entered.get(unit)
        if known is None:
            ran = self.sites(unit) if unit.code.is_generator else ()
            known = self._entered[unit] = any(caller.code.values[at].op == "enter" for caller, at, _ in ran)
        return known
