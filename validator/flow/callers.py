"""Who may call a unit: the units in which its name stands for something that may be it.

Names alone would make every `x.step()` a call of every `step`. What stands before the name often shows that something
else is meant, without solving anything: `self` of another family of classes, a library, a literal, a variable that the
module binds to another function. Such a mention is left out; what nothing speaks against is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from validator.definitions import ClassDef, External, Method, Module, Symbol
from validator.flow.aside import is_test
from validator.ir.model import Value

if TYPE_CHECKING:
    from validator.flow.program import Flow, Unit

_MAKING = ("__init__", "__new__", "__post_init__", "__call__")
# Results of instructions that are no object of a class of the project.
_BUILT = frozenset({"const", "tuple", "list", "set", "dict", "collect", "join", "slice", "compare"})
_OF_FUNCTIONS = ("remote", "options", "bind", "__func__", "__wrapped__")
# What is done with a value that is no function.
_PARTING = frozenset({"item", "iter", "binary", "unary", "compare", "join", "more", "store_item", "unpack", "slice"})


class Callers:
    """The callers of the units of one project."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._known: dict[tuple[Unit, bool], tuple[Unit, ...]] = {}
        self._families: dict[ClassDef, frozenset[ClassDef]] = {}

    def of(self, unit: Unit, tests: bool = False) -> tuple[Unit, ...]:
        """The units that may call a unit; what tests do with code that is no test is not how it is used."""
        known = self._known.get((unit, tests))
        if known is None:
            known = self._known[unit, tests] = tuple(self._found(unit, tests))
        return known

    def is_spoken_of(self, unit: Unit) -> bool:
        """Whether its name stands anywhere at all outside of tests."""
        return unit.code.kind == "lambda" or any(True for _ in self._naming(unit, False))

    def _naming(self, unit: Unit, tests: bool) -> Iterator[Unit]:
        """The units in which its name stands."""
        tests = tests or is_test(unit.path)
        return (each for each in self.flow.mentions.naming(*called(unit)) if tests or not is_test(each.path))

    def _found(self, unit: Unit, tests: bool) -> dict[Unit, None]:
        names = called(unit)
        found = {
            caller: None
            for caller in self._naming(unit, tests)
            if any(self._may_mean(unit, caller, number) for number in self._standing(caller, names))
        }
        if unit.name.startswith("__") and unit.cls is not None:  # `super().__init__()`
            below = (c.methods[unit.name] for c in unit.cls.descendants() if unit.name in c.methods)
            found.update(dict.fromkeys(self.flow.units(below)))
        if unit.outer is not None and unit.code.kind == "lambda":
            found[unit.outer] = None
        return found

    def _standing(self, caller: Unit, names: list[str]) -> list[int]:
        return [number for name in self.flow.mentions.also(names) for number in caller.named.get(name, ())]

    def _may_mean(self, unit: Unit, caller: Unit, number: int) -> bool:
        """Whether a mention of its name may run the unit, or make objects of its class."""
        value = caller.code.values[number]
        if value.op == "const":
            return "getattr" in caller.named
        if value.op == "closure":
            return caller is unit.outer
        users = [caller.code.values[user] for user in caller.users.get(number, ())]
        if value.op == "attr":
            return (_is_property(unit) or is_taken(users)) and self._may_be_attribute(unit, caller, value)
        if is_method(unit) and unit.name not in _MAKING:
            return value.op == "param"
        if value.op == "import":
            return not all(user.op.startswith("store_") for user in users)
        if value.op == "name":
            return self._is_meant(unit, self.flow.symbol(caller, value))
        return value.op == "param" or caller.module is unit.module or str(value.data[1]) in caller.module.facts.names

    def _is_meant(self, unit: Unit, symbol: Symbol | object) -> bool:
        """Whether what a global name stands for may be the unit."""
        if isinstance(symbol, Method):
            return symbol is unit.method or unit.cls is not None and unit.name in _MAKING
        if isinstance(symbol, ClassDef):
            return unit.cls is not None and self._related(symbol, unit.cls)
        return not isinstance(symbol, External | Module)

    def _may_be_attribute(self, unit: Unit, caller: Unit, value: Value) -> bool:
        owner = caller.code.values[caller.root(value.args[0])]
        if owner.op in _BUILT:
            return False
        if owner.op in ("name", "import"):
            symbol = self.flow.symbol(caller, owner)
            if isinstance(symbol, External):
                return False
            if isinstance(symbol, ClassDef):
                return unit.cls is not None and self._related(symbol, unit.cls)
            if isinstance(symbol, Module):
                return not is_method(unit) or unit.name in _MAKING
        made = self._made_class(caller, owner)
        if made is not None:
            return unit.cls is not None and self._related(made, unit.cls) or self._stores(made, value.data)
        if is_method(unit) and unit.name not in _MAKING:
            cls = _receiver_class(caller, owner)
            return cls is None or unit.cls is None or self._related(cls, unit.cls) or self._stores(cls, value.data)
        # Functions and classes are attributes of modules; of other things where something makes them that.
        return owner.op in ("name", "import", "attr") or value.data in self._attributes

    def _stores(self, cls: ClassDef, name: str) -> bool:
        """Whether objects of a class keep something else under the name of a method."""
        return any(writer.cls is None or self._related(writer.cls, cls) for writer in self.flow.writers(name))

    def _made_class(self, caller: Unit, owner: Value) -> ClassDef | None:
        """The class whose object a call makes here."""
        if owner.op != "call":
            return None
        callee = caller.code.values[owner.args[0]]
        symbol = self.flow.symbol(caller, callee) if callee.op in ("name", "import") else None
        return symbol if isinstance(symbol, ClassDef) else None

    @cached_property
    def _attributes(self) -> frozenset[str]:
        """The names of attributes that something is stored under, in objects or in the bodies of classes."""
        classes = (name for cls in self.flow.project.classes() for name, _ in cls.facts.attributes)
        nested = (cls.name for cls in self.flow.project.classes() if "." in cls.qualname)
        return frozenset((*self.flow.written, *classes, *nested))

    def _related(self, one: ClassDef, other: ClassDef) -> bool:
        """Whether an object may be of both classes."""
        return one is other or not self._below(one).isdisjoint(self._below(other))

    def _below(self, cls: ClassDef) -> frozenset[ClassDef]:
        """A class and those that inherit from it."""
        known = self._families.get(cls)
        if known is None:
            known = self._families[cls] = frozenset((cls, *cls.descendants()))
        return known


def called(unit: Unit) -> list[str]:
    """The names by which a unit is called."""
    if unit.name in _MAKING and unit.cls is not None:
        return [c.name for c in (unit.cls, *unit.cls.descendants())]
    return [unit.name]


def is_method(unit: Unit) -> bool:
    return unit.outer is not None and unit.outer.code.kind == "class"


def _is_property(unit: Unit) -> bool:
    return unit.method is not None and unit.method.facts.is_property


def is_taken(users: list[Value]) -> bool:
    """Whether a value is called, or handed on, and not just taken apart as no function is."""
    return any(user.op not in _PARTING and (user.op != "attr" or user.data in _OF_FUNCTIONS) for user in users)


def _receiver_class(unit: Unit, owner: Value) -> ClassDef | None:
    """The class whose methods `self`, `cls` or `super()` have here; None for anything else."""
    if owner.op == "free":
        distance, name = owner.data
        outer: Unit | None = unit
        for _ in range(distance):
            outer = outer.outer if outer is not None else None
        defined = outer.code.definitions.get(name, ()) if outer is not None else ()
        if outer is None or len(defined) != 1:
            return None
        return _receiver_class(outer, outer.code.values[defined[0]])
    if owner.op == "call":
        callee = unit.code.values[owner.args[0]]
        return _enclosing_class(unit) if callee.op == "name" and callee.data == "super" else None
    return unit.cls if owner.op == "param" and owner.data[0] == 0 and unit.has_receiver else None


def _enclosing_class(unit: Unit | None) -> ClassDef | None:
    while unit is not None and unit.cls is None:
        unit = unit.outer
    return unit.cls if unit is not None else None
