"""Which units may call the objects of a class, or enter them: where they are made, by what names they go from there.

`self.block(x)` says nothing of `Block.forward`, nor `with self.timer:` of `Timer.__exit__`. Names alone tell where such
an object may be: it is made where its class is spoken of, kept under an attribute, handed to a function, given back by
one. This follows names and not values, so that it is known before anything is solved; too many callers do no harm, for
what a call runs is asked of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from validator.definitions import ClassDef, Method
from validator.flow.callgraph.name_index import name_of
from validator.flow.containers import GROWING
from validator.flow.queries.outside_program import is_test
from validator.ir.expressions import MADE_UP

if TYPE_CHECKING:
    from validator.flow.callgraph.callers import Callers
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit

# What gives back what it was given, or a part of that.
_HANDED_ON = frozenset(
    {"mut", "phi", "item", "iter", "next", "unpack", "tuple", "list", "set", "dict", "collect", "await", "enter"}
)
_OF_FIRST = frozenset({"mut", "item"})  # it is their first operand that they give back, or a part of it
# Methods of containers, and of modules, that give what is in them; the attribute under which wrappers keep a module.
_GIVING = frozenset({"values", "items", "get", "pop", "copy", "children"})
_KEEPING = frozenset({"module"})
_TAKING = GROWING | {"setdefault"}
_MADE, _MAKER, _OUTER = 0, 1, 2  # an object; what makes one when it is called; what gives such a maker, or any further


Site = tuple["Unit", int]  # a call in a unit
_T = TypeVar("_T")


class Name(NamedTuple):
    """Under this name objects of a class are found, or what makes them. `owner`: the class whose objects have it as an
    attribute, None of anything else; `unit`: the function whose variable it is, or (`result`) that gives it back."""

    name: str
    level: int
    owner: ClassDef | None = None
    unit: Unit | None = None
    result: bool = False


class _Step(NamedTuple):
    """The calls of what is found under a name, as an object or as what makes one, where it is entered or left, and the
    names by which it goes on from there; all by their numbers, of which sets are quickly made."""

    calling: frozenset[int]
    making: frozenset[int]
    entering: frozenset[int]
    names: frozenset[int]


class _Numbered(Generic[_T]):
    """Things by numbers of their own, in the order in which they were met."""

    def __init__(self) -> None:
        self.rows: list[_T] = []
        self._numbers: dict[_T, int] = {}

    def of(self, things: Iterable[_T]) -> frozenset[int]:
        found = []
        for each in things:
            number = self._numbers.setdefault(each, len(self.rows))
            if number == len(self.rows):
                self.rows.append(each)
            found.append(number)
        return frozenset(found)


class CalledObjects:
    """Answers for one project; what tests do with its objects is left out."""

    def __init__(self, flow: Flow, names: Callers) -> None:
        self.flow, self.names = flow, names
        self._known: dict[int, _Step] = {}
        self._names: _Numbered[Name] = _Numbered()
        self._sites: _Numbered[Site] = _Numbered()

    def calls(self, cls: ClassDef) -> list[Site]:
        """The calls of what may be an object of a class, or of one below it."""
        return self._in_order(step.calling for step in self._steps(cls))

    def makers(self, cls: ClassDef) -> list[Site]:
        """The calls of what may be a class itself, or one below it."""
        return self._in_order(step.making for step in self._steps(cls))

    def entering(self, cls: ClassDef) -> list[Site]:
        """Where `with` enters or leaves what may be an object of a class, or of one below it."""
        return self._in_order(step.entering for step in self._steps(cls))

    def _steps(self, cls: ClassDef) -> Iterator[_Step]:
        seen = set(self._names.of(Name(each.name, _MAKER) for each in (cls, *cls.descendants())))
        queue = [*seen]
        while queue:
            step = self._step(queue.pop())
            yield step
            queue += step.names - seen
            seen |= step.names

    def _in_order(self, rows: Iterator[frozenset[int]]) -> list[Site]:
        found = [self._sites.rows[number] for number in frozenset[int]().union(*rows)]
        return sorted(found, key=lambda site: (site[0].place, site[1]))

    def _step(self, number: int) -> _Step:
        known = self._known.get(number)
        if known is None:
            name = self._names.rows[number]
            calling: set[Site] = set()
            making: set[Site] = set()
            entering: set[Site] = set()
            names: set[Name] = set()
            for unit, numbers in self._spoken(name):
                if not is_test(unit.path):
                    way = _Way(self.flow, self.names, unit)
                    way.follow(numbers, name.level)
                    names |= way.names
                    calling.update((unit, call) for call in way.calls)
                    making.update((unit, call) for call in way.makes)
                    entering.update((unit, place) for place in way.enters)
            sites = self._sites
            known = _Step(sites.of(calling), sites.of(making), sites.of(entering), self._names.of(names))
            self._known[number] = known
        return known

    def _spoken(self, name: Name) -> Iterator[tuple[Unit, list[int]]]:
        """The values that stand for a name."""
        if name.unit is not None and name.result:
            found: dict[Unit, list[int]] = {}
            for mention in self.names.naming(name.unit):
                found.setdefault(mention.caller, []).append(mention.number)
            yield from found.items()
            return
        if name.unit is not None:
            yield from _variable(self.flow, name.unit, name.name)
            return
        if name.name == MADE_UP:
            yield from _made_up(self.flow)
            return
        for unit in self.flow.mentions.naming(name.name):
            spoken = (n for each in self.flow.mentions.also((name.name,)) for n in unit.named.get(each, ()))
            numbers = [n for each in spoken for n in _read(unit, each) if self._may_be(unit, n, name.owner)]
            if numbers:
                yield unit, numbers

    def _may_be(self, unit: Unit, number: int, owner: ClassDef | None) -> bool:
        """Whether a value that a name stands for may be an attribute of objects of a class."""
        value = unit.code.values[number]
        if value.op in ("param", "free"):
            return False
        if owner is None or value.op != "attr":
            return owner is None
        return unit.cls is None or not unit.is_receiver(value.args[0]) or self.names.related(unit.cls, owner)


class _Way:
    """Where what some values of a unit hold goes in it, and by what names it leaves."""

    def __init__(self, flow: Flow, callers: Callers, unit: Unit) -> None:
        self.flow, self.callers, self.unit, self.values = flow, callers, unit, unit.code.values
        self.names: set[Name] = set()
        self.calls: set[int] = set()
        self.makes: set[int] = set()
        self.enters: set[int] = set()
        self._levels: dict[int, int] = {}
        self._queue: list[int] = []

    def follow(self, numbers: list[int], level: int) -> None:
        for number in numbers:
            self._reach(number, level)
        while self._queue:
            number = self._queue.pop()
            for user in self.unit.users.get(number, ()):
                self._used(number, user, self._levels[number])
        self._leave()

    def _reach(self, number: int, level: int) -> None:
        if level > self._levels.get(number, -1):
            self._levels[number] = level
            self._queue.append(number)

    def _leave(self) -> None:
        """The names that values have beyond the unit: variables that functions inside read, what is given back."""
        code, levels = self.unit.code, self._levels
        if self.flow.mentions.inner(self.unit):
            for name, numbers in code.definitions.items():
                kept = [levels[number] for number in numbers if number in levels]
                self.names.update(Name(name, level, unit=self.unit) for level in kept)
        if code.kind not in ("function", "lambda"):
            return
        method = self.unit.method
        further = 0 if method is not None and method.facts.is_property else 1
        returned = (levels[number] for number in code.returned if number in levels)
        self.names.update(self._result(level + further) for level in returned)

    def _used(self, number: int, user: int, level: int) -> None:
        value = self.values[user]
        if value.op in _OF_FIRST and value.args[0] != number:
            return  # `args`, changed by a call, is not what the call gives; a key is not what lies under it
        if value.op in ("enter", "leave") and level != _MAKER:
            self.enters.add(user)
        if value.op in _HANDED_ON or value.op == "attr" and value.data in _KEEPING:
            self._reach(user, level)
        elif value.op == "attr" and (value.data in _GIVING or value.data in self.flow.models.handing):
            self._reach(user, min(level + 1, _OUTER))
        elif value.op == "call":
            self._called(number, user, level)
        elif value.op == "store_attr" and value.args[1] == number:
            self.names.add(Name(value.data, level, self._owner(value.args[0])))
        elif value.op == "store_item" and value.args[2] == number:
            self._put(value.args[0], level)
        elif value.op in ("store_global", "store_class"):
            self.names.add(Name(value.data, level))
        elif value.op in ("yield", "yield from"):
            self.names.add(self._result(level + 1))

    def _result(self, level: int) -> Name:
        return Name(self.unit.name, min(level, _OUTER), unit=self.unit, result=True)

    def _owner(self, number: int) -> ClassDef | None:
        return self.unit.cls if self.unit.is_receiver(number) else None

    def _put(self, container: int, level: int) -> None:
        """Put it into a container: what reads that finds it there."""
        root = self.unit.root(container)
        value = self.values[root]
        if value.op == "attr":
            self.names.add(Name(value.data, level, self._owner(value.args[0])))
        elif value.op in ("name", "free"):
            self.names.add(Name(name_of(value), level))
        self._reach(root, level)

    def _called(self, number: int, user: int, level: int) -> None:
        value = self.values[user]
        callee = value.args[0]
        if callee == number:
            if level != _MAKER:
                self.calls.add(user)
            if level != _MADE:
                self.makes.add(user)
                self._reach(user, _OUTER if level == _OUTER else _MADE)
            return
        spoken = self.values[self.unit.root(callee)]
        if spoken.op == "attr" and spoken.data in _TAKING:
            self._put(spoken.args[0], level)  # `self.layers.append(block)`
        of_project = self._handed(self.unit.root(callee), number, user, level)
        if not of_project and name_of(spoken) in self.flow.models.handing:
            self._reach(user, level)

    def _handed(self, callee: int, number: int, call: int, level: int) -> bool:
        """Whether what is called may be of the project; what its parameters get is noted."""
        units, classes = self._meant(callee)
        _, *given = self.values[call].args
        places = [place for place, each in enumerate(given) if each == number]
        for keyword, place in ((self.values[call].data.names[place], place) for place in places):
            for unit in units:
                names = _parameters(unit, keyword, place + int(unit.has_receiver))
                self.names.update(Name(each, level, unit=unit) for each in names)
            if keyword is not None:  # a field of a data class
                self.names.update(Name(keyword, level, cls) for cls in classes if cls.find("__init__") is None)
        return bool(units or classes)

    def _meant(self, number: int) -> tuple[list[Unit], list[ClassDef]]:
        """The functions, and the constructors of the classes, that may be called; these classes."""
        callee = self.values[number]
        if callee.op in ("name", "import"):
            symbol = self.flow.symbol(self.unit, callee)
            cls = symbol if isinstance(symbol, ClassDef) else None
            method = cls.find("__init__") if cls is not None else symbol
            unit = self.flow.unit_of(method) if isinstance(method, Method) else None
            return [unit] if unit is not None else [], [cls] if cls is not None else []
        own = self.unit.cls if self.unit.is_receiver(number) else None
        if own is not None:  # `cls(encoder)` makes an object of the class, or of one below it
            classes = [own, *own.descendants()]
            made = (method for cls in classes if (method := cls.find("__init__")) is not None)
            return list(dict.fromkeys(self.flow.units(made))), classes
        units, classes = self.flow.defined(name_of(callee)) if callee.op == "attr" else ([], [])
        return [each for each in units if self.callers.may_be(self.unit, number, each)], classes


def _parameters(unit: Unit, keyword: str | None, place: int) -> list[str]:
    """The parameters that may get an argument."""
    params = unit.code.params
    if keyword is not None and keyword not in ("*", "**", "@"):
        return [name for name, kind in params if name == keyword or kind == "**"]
    return [name for index, (name, kind) in enumerate(params) if index == place or kind == "*" or keyword == "*"]


def _variable(flow: Flow, unit: Unit, name: str) -> Iterator[tuple[Unit, list[int]]]:
    """The values of a variable of a function: its parameter, and what functions inside of it read."""
    inside = [(unit, "param"), *((each, "free") for each in flow.mentions.inner(unit))]
    while inside:
        each, op = inside.pop()
        numbers = [n for n in each.named.get(name, ()) if each.code.values[n].op == op]
        if numbers:
            yield each, numbers
        if op == "free":
            inside += ((inner, op) for inner in flow.mentions.inner(each))


def _made_up(flow: Flow) -> Iterator[tuple[Unit, list[int]]]:
    """The attributes that are asked for by a name which the program makes up: `getattr(self, f"block{i}")`."""
    for unit in flow.mentions.naming("getattr"):
        values = unit.code.values
        calls = (user for number in unit.named["getattr"] for user in unit.users.get(number, ()))
        asking = [n for n in calls if values[n].op == "call" and len(values[n].args) > 2]
        if made_up := [n for n in asking if values[values[n].args[2]].op != "const"]:
            yield unit, made_up


def _read(unit: Unit, number: int) -> list[int]:
    """What stands for a name where it is spoken of: `getattr(self, "block")` is an attribute."""
    values = unit.code.values
    if values[number].op != "const":
        return [number]
    calls = (user for user in unit.users.get(number, ()) if values[user].op == "call")
    return [call for call in calls if values[values[call].args[0]].data == "getattr"]
