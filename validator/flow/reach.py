"""Which units may issue collectives: found from the names of the tables outwards, so that the others are never solved.

A unit is asked for what it does only if it mentions a name that leads to a collective: that of a call in the tables, of
a unit that was found to issue one, or a name under which such a function or object is kept. Names here only choose whom
to ask; what a call does is answered by the solver.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from validator.definitions import ClassDef
from validator.domains.placement import WRAPPING
from validator.flow.holders import Index, argument_of
from validator.ir.model import Value

if TYPE_CHECKING:
    from validator.flow.program import Flow, Unit

# What the language calls without naming it.
_IMPLICIT = frozenset({
    "__call__", "forward", "__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__next__", "__len__",
    "__getitem__", "__del__",
})  # fmt: skip
_MAKING = frozenset({"__init__", "__new__", "__post_init__"})
_ON_WRAPPED = ("backward", "state_dict", "full_state_dict")  # methods that are collectives of a wrapped model
_PARTS = frozenset({
    "phi", "mut", "tuple", "list", "set", "dict", "collect", "item", "unpack", "iter", "next", "enter", "await",
})  # fmt: skip
_CONTAINING = frozenset({
    "list", "tuple", "dict", "set", "zip", "enumerate", "iter", "next", "reversed", "sorted", "map", "filter",
    "partial", "copy", "deepcopy", "super",
})  # fmt: skip
_REFERRING = frozenset({"name", "import", "closure", "attr"})
_STORES = frozenset({"store_attr", "store_global", "store_free", "store_class"})


class Kept:
    """Values that may be, or hold, certain functions and objects: through variables, stores, arguments and results.

    Attributes, module variables and functions are known by their names everywhere; a local variable or a parameter is
    followed in its own unit alone.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.index = Index(flow)
        self.held: dict[str, None] = {}  # functions, attributes and module variables that may be it
        self.made: dict[str, None] = {}  # to call what is called so may give it
        self.marked: dict[Unit, set[int]] = {}
        self._names: list[str] = []
        self._values: list[tuple[Unit, int]] = []

    def hold(self, name: str) -> None:
        """What is called so may be it."""
        self._add(self.held, name)

    def make(self, name: str) -> None:
        """What a call of this name gives may be it."""
        self._add(self.made, name)

    def mark(self, unit: Unit, number: int) -> None:
        """A value of a unit may be it."""
        known = self.marked.setdefault(unit, set())
        if number not in known:
            known.add(number)
            self._values.append((unit, number))

    def close(self) -> None:
        """Follow until nothing is new."""
        while self._names or self._values:
            if self._values:
                self._follow(*self._values.pop())
            else:
                self._find(self._names.pop())

    def _add(self, names: dict[str, None], name: str) -> None:
        if name and name not in names:
            names[name] = None
            self._names.append(name)

    def _find(self, name: str) -> None:
        """Where a name stands for it."""
        for unit in self.flow.mentions.naming(name):
            values = unit.code.values
            for number in unit.named.get(name, ()):
                if values[number].op not in _REFERRING:
                    continue
                calls = [u for u in unit.users.get(number, ()) if _calls(values[u], number)]
                if name in self.held and len(calls) < len(unit.users.get(number, ())):
                    self.mark(unit, number)
                if name in self.made:
                    for call in calls:
                        self.mark(unit, call)

    def _follow(self, unit: Unit, number: int) -> None:
        code, values = unit.code, unit.code.values
        for user in unit.users.get(number, ()):
            value = values[user]
            if value.op == "call" and number in value.args[1:]:
                self._passed(unit, user, number)
            if value.op in _PARTS or value.op == "call" and number in value.args[1:] and _keeps(unit, value):
                self.mark(unit, user)
            elif value.op in _STORES and value.args[-1] == number:
                self.hold(value.data)
            elif value.op == "store_item" and value.args[2] == number:
                root = unit.root(value.args[0])
                self.mark(unit, root)
                if values[root].op in ("attr", "name"):
                    self.hold(values[root].data)
        for variable, numbers in code.definitions.items():
            if number in numbers:
                for inner, free in self.index.free(unit, variable):
                    self.mark(inner, free)
        if any(block.end[0] == "return" and block.end[1] == number for block in code.blocks):
            self.make(unit.name)

    def _passed(self, unit: Unit, call: int, number: int) -> None:
        """The parameters of units of the project that get it."""
        values = unit.code.values
        for target in self.flow.called_as(unit.known_as(values[call].args[0])):
            for each, value in enumerate(target.code.values):
                if value.op == "param" and argument_of(unit, call, target, value.data[0]) == number:
                    self.mark(target, each)
        self._stored(unit, values[call], number)

    def _stored(self, unit: Unit, call: Value, number: int) -> None:
        """The attribute of a data class that its constructor stores it in."""
        callee = unit.code.values[call.args[0]]
        cls = unit.module.project.lookup(unit.scope, callee.data) if callee.op == "name" else None
        if isinstance(cls, ClassDef) and cls.find("__init__") is None:
            fields = self.flow.fields_of(cls)
            for position, keyword in enumerate(call.data.names):
                if call.args[position + 1] == number and (keyword or position < len(fields)):
                    self.hold(keyword or fields[position])


def _calls(value: Value, callee: int) -> bool:
    return value.op == "call" and value.args[0] == callee and callee not in value.args[1:]


def _keeps(unit: Unit, call: Value) -> bool:
    """Whether what a call gives holds what it was given: containers, what classes make, what decorators wrap."""
    callee = unit.code.values[call.args[0]]
    name = unit.known_as(call.args[0])
    return name[:1].isupper() or name in _CONTAINING or callee.op == "call" or call.data.names == ("@",)


class Reach:
    """The units that issue collectives, themselves or through what they call."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.kept = Kept(flow)
        self._asked: dict[Unit, None] = {}
        self._mentioned: set[str] = set()
        self._wanted: set[str] = set()

    def units(self) -> list[Unit]:
        self._wanted.update(self._first)
        for name in self._placing:
            self.kept.make(name)
        found: dict[Unit, None] = {}
        while True:
            self.kept.close()
            self._ask()
            new = [unit for unit in self._effectful() if unit not in found]
            if not new:
                return sorted(found, key=lambda unit: unit.place)
            for unit in new:
                found[unit] = None
                self._leads_to(unit)

    @cached_property
    def _placing(self) -> list[str]:
        """The calls that wrap a model: to run it is a collective."""
        return sorted(name for name in self.flow.models.placing(WRAPPING) if self.flow.mentions.naming(name))

    @cached_property
    def _first(self) -> list[str]:
        names = {row.name for row in self.flow.models.rows if row.is_collective}
        return sorted({*names, *(_ON_WRAPPED if self._placing else ())})

    def _ask(self) -> None:
        for name in (*self._wanted, *self.kept.held, *self.kept.made):
            if name not in self._mentioned:
                self._mentioned.add(name)
                self._asked.update(dict.fromkeys(self.flow.mentions.naming(name)))
        self._asked.update(dict.fromkeys(self.kept.marked))
        for unit in self._asked:
            self.flow.solver.get(("unit", unit))
        self.flow.solver.settle()

    def _effectful(self) -> list[Unit]:
        """Those of the units that were asked that issue collectives now."""
        callers: dict[Unit, list[Unit]] = {}
        found: dict[Unit, None] = {}
        for unit in self._asked:
            for site in self.flow.solver.values["unit", unit].sites.values():
                if site.away:
                    continue
                if site.operations:
                    found[unit] = None
                for target in site.targets:
                    callers.setdefault(target.unit, []).append(unit)
        queue = list(found)
        while queue:
            for caller in callers.get(queue.pop(), ()):
                if caller not in found:
                    found[caller] = None
                    queue.append(caller)
        return list(found)

    def _leads_to(self, unit: Unit) -> None:
        """The names by which an effectful unit is called."""
        cls = unit.cls
        if unit.code.kind == "lambda":
            self._of_lambda(unit)
        elif cls is not None and unit.name in _MAKING:
            self._wanted.update(_below(cls))
            for each in _below(cls):
                self.kept.hold(each)
        elif cls is not None and unit.name in _IMPLICIT:
            for each in _below(cls):
                self.kept.make(each)
            self._wanted.add(unit.name)
        elif unit.code.kind == "function":
            self.kept.hold(unit.name)

    def _of_lambda(self, unit: Unit) -> None:
        """A lambda has no name: what it is kept under where it is made."""
        outer = unit.outer
        for number, value in enumerate(outer.code.values if outer is not None else ()):
            if outer is not None and value.op == "closure" and value.data == unit.code.key:
                self.kept.mark(outer, number)


def _below(cls: ClassDef) -> list[str]:
    return [each.name for each in (cls, *cls.descendants())]
