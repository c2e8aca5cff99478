"""Where a value goes: names, containers, attributes, arguments and results that may hold it, through the project."""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.program.answers import Target
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import users_of
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
_DISPLAYS = frozenset({"tuple", "list", "set", "dict", "collect"})
_PARTS = frozenset({"unpack", "item", "next", "iter", "enter", "await", "phi", "binary"})
_FRESH = frozenset({
    "list", "dict", "set", "tuple", "collect", "phi", "binary", "attr", "param", "mut", "free", "item",
    "next", "unpack",
})  # fmt: skip


class Holders:
    """All values that may hold one value, and what is done with it.

    `called`: calls of its methods, by name. `given`: calls of what nobody knows that get it. `escapes`: it goes where
    it cannot be followed. `gathered`: it lies in a container; `kept`: the names under which it is kept.
    """

    def __init__(self, flow: Flow, index: Index, unit: Unit, number: int) -> None:
        self.flow = flow
        self.index = index
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
        self._add(unit, number)
        while self._queue:
            self._follow(*self._queue.pop())

    def _add(self, unit: Unit, number: int, at: frozenset[int] | None = None) -> None:
        held = (unit, number)
        if held in self.held:
            known = self._at[held]
            if known is None or at is not None and at <= known:
                return
            at = None if at is None else at | known
        self.held[held] = None
        self._at[held] = at
        self._queue.append(held)

    def _follow(self, unit: Unit, number: int) -> None:
        for user in users_of(unit).get(number, ()):
            self._used(unit, number, user, unit.code.values[user])
        for name, values in unit.code.definitions.items():
            if number in values:
                for inner, free in self.index.free(unit, name):
                    self._add(inner, free)
        for block in unit.code.blocks:
            if block.end[0] == "return" and block.end[1] == number:
                self._returned(unit, self._at[unit, number])

    def _used(self, unit: Unit, number: int, user: int, value: Value) -> None:
        op = value.op
        if op == "mut":
            if value.args[0] == number:
                self._add(unit, user, self._at[unit, number])
        elif op in _DISPLAYS:
            if op != "collect" or number in value.args[: value.data[1]]:
                self.gathered = self.gathered or op != "tuple"
                exact = op == "tuple" and not value.data
                self._add(unit, user, frozenset(i for i, a in enumerate(value.args) if a == number) if exact else None)
        elif op == "unpack":
            at = self._at[unit, number]
            if at is None or value.data[2] >= 0 or value.data[0] in at:
                self._add(unit, user)
        elif op in _PARTS:
            self._add(unit, user, self._at[unit, number] if op in ("phi", "await") else None)
        elif op in ("join", "compare"):
            self.shown.append((unit, user))
        elif op == "attr":
            self._method(unit, user, value)
        elif op == "store_attr" and value.args[1] == number:
            self._kept_in(value.data)
        elif op == "store_item" and value.args[2] == number:
            self._into(unit, value.args[0], user)
        elif op in ("store_global", "store_free", "store_class", "yield", "yield from"):  # module variables, generators
            self.escapes = True
        elif op == "call" and number in value.args[1:]:
            self._passed(unit, number, user, value)

    def _method(self, unit: Unit, attr: int, value: Value) -> None:
        for call in users_of(unit).get(attr, ()):
            made = unit.code.values[call]
            if made.op == "call" and made.args[0] == attr:
                self.called.append((unit, call, value.data))
                if value.data in _TAKING:
                    self._add(unit, call)
            else:  # a part of it, or a method that is called later
                self.called.append((unit, call, value.data))
                self._add(unit, attr)

    def _kept_in(self, name: str) -> None:
        self.attributes[name] = None
        for unit, number in self.index.loads(name):
            self._add(unit, number)

    def _into(self, unit: Unit, container: int, by: int) -> None:
        """It lies in a container: all other names of that hold it too."""
        self.gathered = True
        if (unit, container, by) in self._filled:
            return
        self._filled.add((unit, container, by))
        for user in users_of(unit).get(by, ()):
            if unit.code.values[user].op == "mut":
                self._add(unit, user)
        values = unit.code.values
        root = container
        while values[root].op in ("mut", "item"):
            root = values[root].args[0]
        value = values[root]
        self._add(unit, root)
        if value.op == "attr":
            self._kept_in(value.data)
        elif value.op == "phi":
            for each in value.args:
                if (unit, each) not in self.held and values[each].op in _FRESH:
                    self._into(unit, each, by)
        elif value.op == "param":
            self._from_callers(unit, value.data[0])
        elif value.op == "free":
            outer, name = unit.above(value.data[0]), value.data[1]
            if outer is not None:
                for each in outer.code.definitions.get(name, ()):
                    self._into(outer, each, each)
        elif value.op == "call":
            made = values[value.args[0]]
            if made.data not in ("deque", "defaultdict", "OrderedDict", *_PASSING, *_TAKING):
                self.escapes = True
        elif value.op not in _FRESH:
            self.escapes = True

    def _from_callers(self, unit: Unit, position: int) -> None:
        sites = list(self.index.sites(unit))
        self.escapes = self.escapes or not sites
        for caller, call, _ in sites:
            given = argument_of(caller, call, unit, position)
            if given is not None:
                self._into(caller, given, call)

    def _returned(self, unit: Unit, at: frozenset[int] | None) -> None:
        sites = list(self.index.sites(unit))
        self.escapes = self.escapes or not sites
        for caller, call, _ in sites:
            self._add(caller, call, at)

    def _passed(self, unit: Unit, number: int, call: int, value: Value) -> None:
        callee = unit.code.values[value.args[0]]
        name = str(callee.data) if callee.op in ("name", "attr", "import") else ""
        site = self.flow.result(unit).sites.get(call)
        if callee.op == "attr" and name in _GROWING:
            self._into(unit, callee.args[0], call)
        elif site is not None and site.targets:
            for target in site.targets:
                self._bound(unit, number, call, target)
        elif name in _PASSING:
            self._add(unit, call)
            if name in ("filter", "map") and value.args[1] != number:
                self._each_of(unit, call, unit.code.values[value.args[1]])
        elif name in _ASKING:
            self.asked = True
        elif name in _HARMLESS:
            self.shown.append((unit, call))
        else:
            self.given.append((unit, call))

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

    def _bound(self, unit: Unit, number: int, call: int, target: Target) -> None:
        for position, _ in enumerate(target.unit.code.params):
            if argument_of(unit, call, target.unit, position) == number:
                for inner, value in enumerate(target.unit.code.values):
                    if value.op == "param" and value.data[0] == position:
                        self._add(target.unit, inner)
                return
        self.given.append((unit, call))


def argument_of(caller: Unit, call: int, unit: Unit, position: int) -> int | None:
    """The value that a call passes for a parameter; for `self` the receiver, or the object that is made."""
    value = caller.code.values[call]
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


def _reads(unit: Unit, name: str) -> Iterator[int]:
    values = unit.code.values
    for number in unit.named[name]:
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
