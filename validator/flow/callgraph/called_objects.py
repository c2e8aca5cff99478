"""Which units call objects of a class (`model(x)`), by where such objects are kept and handed on.

Nothing is solved: from the places that make objects of a class they are followed through variables, attributes by their
names, containers, wrappers of libraries, parameters and results of functions by the functions' names. What is found may
be an object of another class kept under the same name; the flow decides.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from validator.definitions import ClassDef, External

if TYPE_CHECKING:
    from validator.flow.program import Flow, Unit

_GROWING = frozenset({"append", "extend", "insert", "add", "add_module", "register_module", "update", "setdefault"})
_PARTS = frozenset(
    {"phi", "next", "iter", "unpack", "enter", "await", "mut", "tuple", "list", "set", "dict", "collect"}
)
RUN_BY_CALLING = ("forward", "__call__")  # methods that calling an object runs
_READ = frozenset({"attr", "name", "free"})


class CalledObjects:
    """Answers for one project. All classes are followed together, each as one bit of a number."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._known: dict[ClassDef, tuple[Unit, ...]] = {}
        self._calling: dict[Unit, int] = {}
        self._seen: dict[tuple[Unit, int, bool], int] = {}
        self._names: dict[str, int] = {}
        self._pending: dict[tuple[Unit, int, bool], int] = {}  # classes that came, and were not handed on yet

    def of(self, cls: ClassDef) -> tuple[Unit, ...]:
        """The units that may call an object of a class, or of one below it."""
        known = self._known.get(cls)
        if known is None:
            bits = sum(self._bits.get(each, 0) for each in {cls, *cls.descendants()})
            known = self._known[cls] = tuple(unit for unit, found in self._calling.items() if found & bits)
        return known

    @cached_property
    def _bits(self) -> dict[ClassDef, int]:
        """By class its bit; its objects have been followed."""
        classes = [cls for cls in self.flow.project.classes() if any(cls.find(name) for name in RUN_BY_CALLING)]
        bits = {cls: 1 << place for place, cls in enumerate(classes)}
        for cls, bit in bits.items():
            for unit in self.flow.mentions.naming(cls.name):
                for number in unit.named.get(cls.name, ()):
                    if unit.code.values[number].op in ("name", "import", "attr"):
                        self._add(unit, number, False, bit)
        while self._pending:
            key = next(iter(self._pending))  # the oldest: meanwhile more classes come to it
            self._follow(*key, self._pending.pop(key))
        return bits

    @cached_property
    def _named(self) -> dict[str, list[Unit]]:
        """The functions of the project by name; constructors by the name of the class."""
        found: dict[str, list[Unit]] = {}
        for function in self.flow.project.functions():
            name = function.cls.name if function.name == "__init__" and function.cls is not None else function.name
            if not name.startswith("<") and (unit := self.flow.unit_of(function)) is not None:
                found.setdefault(name, []).append(unit)
        return found

    def _add(self, unit: Unit, number: int, made: bool, bits: int) -> None:
        """`made`: it is an object, and not the class itself."""
        key = (unit, number, made)
        known = self._seen.get(key, 0)
        if bits & ~known:
            self._seen[key] = known | bits
            self._pending[key] = self._pending.get(key, 0) | bits & ~known

    def _fresh(self, name: str, bits: int) -> int:
        """Those of some classes whose objects were not known under a name."""
        known = self._names.get(name, 0)
        self._names[name] = known | bits
        return bits & ~known

    def _follow(self, unit: Unit, number: int, made: bool, bits: int) -> None:
        values = unit.code.values
        for user in unit.users.get(number, ()):
            value = values[user]
            if value.op == "call":
                self._called(unit, number, user, made, bits)
            elif value.op in _PARTS or value.op == "item" and value.args[0] == number:
                self._add(unit, user, made, bits)
            elif value.op == "store_attr" and value.args[1] == number:
                self._kept(str(value.data), bits)
            elif value.op == "store_item" and value.args[2] == number:
                self._owner(unit, value.args[0], bits)
            elif value.op == "store_global":
                self._kept(str(value.data), bits)
            elif value.op == "attr" and made and (value.data == "module" or value.data in self.flow.models.placed):
                self._add(unit, user, made, bits)
        if number in unit.code.returned:
            self._given_back(unit, made, bits)
        name = next((name for name, numbers in unit.code.definitions.items() if number in numbers), "")
        if name and self.flow.mentions.inner(unit):
            self._kept(name, bits, free=True)

    def _called(self, unit: Unit, number: int, call: int, made: bool, bits: int) -> None:
        value, values = unit.code.values[call], unit.code.values
        callee = values[value.args[0]]
        if value.args[0] == number:
            if values[number].op == "attr" and values[number].data in self.flow.models.placed:
                self._add(unit, call, made, bits)  # `.to(device)` gives the object back
            elif made:
                self._calling[unit] = self._calling.get(unit, 0) | bits
            else:
                self._add(unit, call, True, bits)
            return
        if callee.op == "attr" and callee.data in _GROWING:
            self._owner(unit, callee.args[0], bits)
        if self._is_of_library(unit, value.args[0]):
            self._add(unit, call, made, bits)  # a wrapper, a container
        for place, (keyword, operand) in enumerate(zip(value.data.names, value.args[1:], strict=True)):
            if operand == number:
                self._passed(str(callee.data), place, keyword, made, bits)

    def _is_of_library(self, unit: Unit, number: int) -> bool:
        """Whether a callee is a library's, or a method that nothing in the project bears."""
        value = unit.code.values[number]
        if value.op == "attr" and value.data not in self._named:
            return True
        while value.op == "attr":
            value = unit.code.values[unit.root(value.args[0])]
        return value.op in ("name", "import") and isinstance(self.flow.symbol(unit, value), External)

    def _passed(self, function: str, place: int, keyword: str | None, made: bool, bits: int) -> None:
        for unit in self._named.get(function, ()):
            shift = int(unit.has_receiver)
            for number, value in enumerate(unit.code.values):
                if value.op == "param" and (
                    value.data[0] == place + shift if keyword is None else value.data[1] == keyword
                ):
                    self._add(unit, number, made, bits)

    def _owner(self, unit: Unit, number: int, bits: int) -> None:
        """What it is put in: a variable, or an attribute of any object."""
        values = unit.code.values
        root = unit.root(number)
        while values[root].op in ("mut", "item") and values[root].args[0] != root:
            root = unit.root(values[root].args[0])
        self._add(unit, root, True, bits)
        if values[root].op == "attr":
            self._kept(str(values[root].data), bits)

    def _kept(self, name: str, bits: int, free: bool = False) -> None:
        """It is kept under a name: as an attribute, in a module, or as a variable that inner functions read."""
        bits = self._fresh(f"free {name}" if free else name, bits)
        for unit in self.flow.mentions.naming(name) if bits else ():
            for number in unit.named.get(name, ()):
                op = unit.code.values[number].op
                if op == "free" if free else op in _READ:
                    self._add(unit, number, True, bits)

    def _given_back(self, unit: Unit, made: bool, bits: int) -> None:
        """What a function returns is what its calls give."""
        bits = self._fresh(f"return {unit.name} {made}", bits) if not unit.name.startswith("<") else 0
        for caller in self.flow.mentions.naming(unit.name) if bits else ():
            for number in caller.named.get(unit.name, ()):
                for user in caller.users.get(number, ()):
                    if caller.code.values[user].op == "call" and caller.code.values[user].args[0] == number:
                        self._add(caller, user, made, bits)
