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
from validator.flow.mentions import name_of
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
    """Names under which something is kept: from the names that make it, through stores, arguments and results."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.defined: dict[str, None] = {}  # functions that are it
        self.held: dict[str, None] = {}  # variables, attributes, parameters that may be it
        self.made: dict[str, None] = {}  # to call what is called so may give it
        self._queue: list[str] = []

    def define(self, name: str) -> None:
        """A function of that name is it: where it is not called but kept, what it is kept under is it too."""
        self._add(self.defined, name)

    def hold(self, name: str) -> None:
        """What is called so may be it."""
        self._add(self.held, name)

    def make(self, name: str) -> None:
        """What a call of this name gives may be it."""
        self._add(self.made, name)

    def _add(self, names: dict[str, None], name: str) -> None:
        if name and name not in names:
            names[name] = None
            self._queue.append(name)

    def close(self) -> None:
        """Follow until no name is new."""
        while self._queue:
            name = self._queue.pop()
            for unit in self.flow.mentions.units(name):
                self.follow(unit, name)

    def follow(self, unit: Unit, name: str) -> None:
        """What becomes in a unit of what is called so."""
        code, values = unit.code, unit.code.values
        marked: set[int] = set()
        stack: list[int] = []
        for number in unit.named.get(name, ()):
            if name in self.held or name in self.defined and values[number].op in _REFERRING:
                stack.append(number)
            if name in self.made:
                users = unit.users.get(number, ())
                stack += [user for user in users if values[user].op == "call" and values[user].args[0] == number]
        while stack:
            number = stack.pop()
            if number in marked:
                continue
            marked.add(number)
            for user in unit.users.get(number, ()):
                value = values[user]
                if value.op == "call" and number in value.args[1:]:
                    self._passed(unit, value, number)
                if value.op in _PARTS or value.op == "call" and number in value.args[1:] and _keeps(unit, value):
                    stack.append(user)
                elif value.op in _STORES and value.args[-1] == number:
                    self.hold(value.data)
                elif value.op == "store_item" and value.args[2] == number:
                    stack.append(unit.root(value.args[0]))
                    self._in_container(unit, unit.root(value.args[0]))
        for variable, numbers in code.definitions.items():
            if not marked.isdisjoint(numbers):
                self.hold(variable)
        if any(block.end[0] == "return" and block.end[1] in marked for block in code.blocks):
            self.make(unit.name)

    def _in_container(self, unit: Unit, root: int) -> None:
        value = unit.code.values[root]
        if value.op in ("attr", "name"):
            self.hold(value.data)

    def _passed(self, unit: Unit, call: Value, number: int) -> None:
        """The parameters of units of the project that get it."""
        callee = unit.code.values[call.args[0]]
        for place, keyword in enumerate(call.data.names):
            if call.args[place + 1] != number:
                continue
            if keyword is None:
                for params in self.flow.parameters.get(name_of(callee), ()):
                    self.hold(params[place] if place < len(params) else "")
            elif keyword.isidentifier():
                self.hold(keyword)


def _keeps(unit: Unit, call: Value) -> bool:
    """Whether what a call gives holds what it was given: containers, what classes make, what decorators wrap."""
    callee = unit.code.values[call.args[0]]
    name = name_of(callee)
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
        if not self.flow.is_distributed:
            return []
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
        rows = (*self.flow.models.calls.values(), *self.flow.models.methods.values())
        names = {r.name for r in rows if r.result_state in WRAPPING or r.state is not None and r.state[2] in WRAPPING}
        return sorted(name for name in names if self.flow.mentions.naming(name))

    @cached_property
    def _first(self) -> list[str]:
        rows = (*self.flow.models.calls.values(), *self.flow.models.methods.values())
        names = {row.name for row in rows if row.is_collective}
        return sorted({*names, *(_ON_WRAPPED if self._placing else ())})

    def _ask(self) -> None:
        for name in (*self._wanted, *self.kept.defined, *self.kept.held, *self.kept.made):
            if name not in self._mentioned:
                self._mentioned.add(name)
                self._asked.update(dict.fromkeys(self.flow.mentions.units(name)))
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
                self.kept.define(each)
        elif cls is not None and unit.name in _IMPLICIT:
            for each in _below(cls):
                self.kept.make(each)
            self._wanted.add(unit.name)
        elif unit.code.kind == "function":
            self.kept.define(unit.name)

    def _of_lambda(self, unit: Unit) -> None:
        """A lambda has no name: the unit that makes it is asked, and what it is kept under there."""
        outer = unit.outer
        if outer is not None:
            self._asked[outer] = None
            self.kept.held[unit.name] = None
            self.kept.follow(outer, unit.name)


def _below(cls: ClassDef) -> list[str]:
    return [each.name for each in (cls, *cls.descendants())]
