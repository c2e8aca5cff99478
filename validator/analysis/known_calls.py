"""What the project's own calls pass to its functions, where these are all the calls that there can be.

A function that only direct calls mention gets nothing but what they pass, and a constant that all of them pass decides
the tests of it: the way that it rules out nobody takes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from validator.analysis.interfaces.members import fills
from validator.definitions import ClassDef, Method
from validator.flow.control import reached
from validator.flow.program.symbols import is_plain
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_test
from validator.flow.values import Obj, const_obj
from validator.ir.model import Value

if TYPE_CHECKING:
    from validator.analysis.usage import Usage

Constants = frozenset[Obj]
Call = tuple[Unit, int]

_MOST = 8  # so many constants that a value may be are told apart
_STORING = frozenset({"store_global", "store_class", "store_free"})
_ASKING = frozenset({"isinstance", "issubclass"})
_OBJECTS = frozenset({"inst", "self"})
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt,
    "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge, "Is": operator.is_, "IsNot": operator.is_not,
}  # fmt: skip
_UNARY: dict[str, Callable[[Any], Any]] = {"Not": operator.not_, "USub": operator.neg, "UAdd": operator.pos}
_IDENTITY = frozenset({"Eq", "NotEq", "Is", "IsNot"})
_NUMBERS = (int, float)


class KnownCalls:
    """Answers for one project, remembered."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.flow = usage.flow
        self._calls: dict[Unit, tuple[Call, ...] | None] = {}
        self._constants: dict[tuple[Unit, int], Constants | None] = {}
        self._held: dict[tuple[ClassDef, str], Constants | None] = {}

    # -- ways ----------------------------------------------------------------------------------------------

    def reached(self, unit: Unit) -> set[int]:
        """The blocks of a unit to which some way leads that the calls of the project leave open."""
        return reached(unit.code, lambda number: self.truth(unit, number))

    def truth(self, unit: Unit, number: int) -> bool | None:
        """What a test always is; None where it may be both."""
        held = self.constants(unit, number)
        truths = {bool(o[2]) if o[0] == "const" else True for o in held} if held else set()
        return truths.pop() if len(truths) == 1 else None

    def literal(self, unit: Unit, number: int) -> bool | None:
        """What a test always is that is a constant where it stands; None of others."""
        value = unit.code.values[number]
        return bool(value.data) if value.op == "const" and not self._is_set_elsewhere(unit, number) else None

    # -- constants -----------------------------------------------------------------------------------------

    def constants(self, unit: Unit, number: int) -> Constants | None:
        """All that a value may be, where that is a few constants, classes and functions; None where it is not known."""
        key = (unit, unit.root(number))
        if key not in self._constants:
            self._constants[key] = None  # until then: of a value that is made of itself nothing is known
            found = self._value(*key)
            self._constants[key] = found if found is not None and len(found) <= _MOST else None
        return self._constants[key]

    def _value(self, unit: Unit, number: int) -> Constants | None:
        value = unit.code.values[number]
        if self._is_set_elsewhere(unit, number):
            return None
        if value.op == "const":
            return frozenset({const_obj(value.data)})
        if value.op == "param":
            return self._parameter(unit, *value.data)
        if value.op == "phi":
            ways = [each for each in value.args if unit.code.values[each].op != "undefined"]
            return self._united(self.constants(unit, each) for each in ways)
        if value.op == "free":
            return self._from_around(unit, *value.data)
        if value.op in ("name", "import"):
            return self._defined(unit, value)
        if value.op == "attr":
            return self._attribute(unit, value)
        if value.op in ("binary", "compare", "unary"):
            return self._computed(unit, value)
        return None

    def _from_around(self, unit: Unit, distance: int, name: str) -> Constants | None:
        """What a variable of a function around may be, that only that function itself sets."""
        outer = unit.above(distance)
        numbers = outer.code.definitions.get(name, ()) if outer is not None else ()
        return self._united(self.constants(outer, number) for number in numbers) if outer is not None else None

    def _is_set_elsewhere(self, unit: Unit, number: int) -> bool:
        """Whether a function inside, or another one of the file, sets the variable in which a value is meanwhile."""
        name = unit.variables.get(number, "")
        return bool(name) and name in self._set_from_inside(unit)

    def _set_from_inside(self, unit: Unit) -> frozenset[str]:
        known = self._inside.get(unit)
        if known is None:
            others = (each for each in self.flow.units_of(unit.module).values() if each is not unit)
            values = (value for each in others if not each.code.part_of for value in each.code.values)
            op = "store_global" if unit.code.kind == "module" else "store_free"
            known = self._inside[unit] = frozenset(value.data for value in values if value.op == op)
        return known

    @cached_property
    def _inside(self) -> dict[Unit, frozenset[str]]:
        return {}

    @staticmethod
    def _united(rows: Iterator[Constants | None]) -> Constants | None:
        found: set[Obj] = set()
        for row in rows:
            if row is None:
                return None
            found |= row
        return frozenset(found) or None

    def _defined(self, unit: Unit, value: Value) -> Constants | None:
        """A class or a function by its name. A variable of a file is a setting: people change it there."""
        symbol = self.flow.symbol(unit, value)
        if isinstance(symbol, ClassDef):
            return frozenset({("class", symbol)})
        defined = self.flow.unit_of(symbol) if isinstance(symbol, Method) else None
        return frozenset({("unit", defined)}) if defined is not None else None

    def _computed(self, unit: Unit, value: Value) -> Constants | None:
        parts = [self.constants(unit, number) for number in value.args]
        rows: list[tuple[Obj, ...]] = [()]
        for part in parts:
            if part is None:
                return None
            rows = [(*row, o) for row in rows for o in part]
        computed = [_computed(value, row) for row in rows]
        return frozenset(each for each in computed if each is not None) if None not in computed else None

    def _parameter(self, unit: Unit, position: int, name: str) -> Constants | None:
        kind = unit.code.params[position][1]
        calls = self.calls(unit) if kind in ("pos", "any", "kw") and not (position == 0 and unit.has_receiver) else None
        if calls is None:
            return None
        rows = [self._passed(unit, position, name, *call) for call in calls]
        if self._is_made_by_files(unit):  # which pass what they spell
            rows.append(None if name in self.usage.names.in_files else self._default(unit, name))
        return self._united(iter(rows))

    def _is_made_by_files(self, unit: Unit) -> bool:
        """Whether files that are no code may call a function or make objects of its class."""
        names = [unit.name, *((each.name for each in unit.cls.relatives) if unit.cls is not None else ())]
        return not self.usage.names.in_files.isdisjoint(names)

    def _default(self, unit: Unit, name: str) -> Constants | None:
        number = unit.code.defaults.get(name)
        return self.constants(unit.outer, number) if number is not None and unit.outer is not None else None

    def _passed(self, unit: Unit, position: int, name: str, caller: Unit, number: int) -> Constants | None:
        """What one call passes for a parameter."""
        given = argument_of(caller, number, unit, position)
        if given is not None:
            return self.constants(caller, given)
        spread = not {"*", "**"}.isdisjoint(caller.code.values[number].data.names)
        return None if spread else self._default(unit, name)

    def _attribute(self, unit: Unit, value: Value) -> Constants | None:
        owners = Place(self.flow, unit, value.args[0]).closed.each
        if not owners or any(o[0] not in _OBJECTS for o in owners):
            return None
        classes = dict.fromkeys(o[1] for o in owners)
        return self._united(self._kept(cls, value.data) for cls in classes)

    def _kept(self, cls: ClassDef, name: str) -> Constants | None:
        """What the objects of a class keep under a name."""
        if (cls, name) not in self._held:
            self._held[cls, name] = None
            self._held[cls, name] = self._united(self._stored(cls, name))
        return self._held[cls, name]

    def _stored(self, cls: ClassDef, name: str) -> Iterator[Constants | None]:
        family = cls.relatives
        spelled_out = all(not each.fields_are_parameters and not fills(each) for each in family)
        if not spelled_out or name in self._set_by_name or any(name in each.methods for each in family):
            yield None
        for owner in family:
            body = self.flow.body_of(owner)
            yield from self._stores(body, name, "store_class") if body is not None else ()
        for method in self.flow.stores.writers(name):
            unit = self.flow.unit_of(method)
            if unit is not None and not is_test(unit.path):
                yield from self._stores(unit, name, "store_attr", frozenset(family))

    def _stores(
        self, unit: Unit, name: str, op: str, family: frozenset[ClassDef] = frozenset()
    ) -> Iterator[Constants | None]:
        for value in unit.code.values:
            if value.op == op and value.data == name:
                owners = Place(self.flow, unit, value.args[0]).closed.each if op == "store_attr" else ()
                other = owners and all(o[0] in _OBJECTS and o[1] not in family for o in owners)
                if not other:
                    yield self.constants(unit, value.args[-1])

    @cached_property
    def _set_by_name(self) -> frozenset[str]:
        """The texts of functions that set attributes by name."""
        setting = self.flow.mentions.units("setattr", "__dict__", "__setattr__")
        texts = (value.data for unit in setting for value in unit.code.values if value.op == "const")
        return frozenset(text for text in texts if isinstance(text, str))

    # -- calls ---------------------------------------------------------------------------------------------

    def calls(self, unit: Unit) -> tuple[Call, ...] | None:
        """The calls that run a function, where there can be no others; None where that is not known."""
        if unit not in self._calls:
            self._calls[unit] = None
            known = unit.code.kind == "function" and not self._is_open(unit)
            found = self._found(unit) if known else None
            self._calls[unit] = tuple(dict.fromkeys(found)) if found is not None else None
        return self._calls[unit]

    def _is_open(self, unit: Unit) -> bool:
        """Whether others than the project's own code may use a unit, but for files that spell its name."""
        if unit.outer is not None and unit.outer.code.kind in ("function", "lambda"):
            return unit.method is not None and not is_plain(unit.method.facts.decorators)  # nobody else can name it
        return self.usage.is_begun_in_code(unit) or self.usage.is_for_users(unit)

    def _found(self, unit: Unit) -> list[Call] | None:
        made = unit.cls if unit.name == "__init__" else None
        if made is None and self.usage.is_hook(unit):
            return None
        called: list[Unit] = [unit]
        if made is not None:  # its class is called, or one below it that has no constructor of its own
            heirs = (each for each in made.relatives if each is made or each.find("__init__") is unit.method)
            bodies = [self.flow.body_of(each) for each in (*heirs, *made.descendants())]
            called += [body for body in bodies if body is not None]
            if any(body is None or self._is_open(body) for body in bodies):
                return None
        calls: list[Call] = []
        for each in dict.fromkeys(called):
            for user, number in self.usage.mentions(each):
                found = self._calls_by(user, number, unit) if number >= 0 and not is_test(user.path) else []
                if found is None:
                    return None
                calls += found
        return calls

    def _calls_by(self, user: Unit, number: int, unit: Unit) -> list[Call] | None:
        """The calls of a unit that a mention of its name is for; None where it may be for something else."""
        values = user.code.values
        value = values[number]
        if value.op == "const":
            return None if value.data == unit.name or unit.cls is not None and value.data == unit.cls.name else []
        users = [each for each in user.users.get(number) if values[each].op not in _STORING]
        if value.op in ("closure", "import"):
            users = [each for each in users if values[each].op != "mut"]
            users = [each for each in users if values[each].op != "phi" or user.users.get(each)]  # else nobody reads it
        found: list[Call] = []
        for each in users:
            asked = values[each]
            if asked.op == "call" and asked.args[0] == number and number not in asked.args[1:]:
                if not self._runs(user, each, unit):
                    return None
                found += [(user, each)] if self._is_run(user, each, unit) else []
            elif not _is_harmless(values, asked):
                return None
        return found

    def _is_run(self, user: Unit, number: int, unit: Unit) -> bool:
        rows = self.flow.result(user).passed.get(unit, ())
        return any(row.site == number and not row.away for row in rows)

    def _runs(self, user: Unit, number: int, unit: Unit) -> bool:
        """Whether it is known what a call runs: the unit, or something else."""
        if self._is_run(user, number, unit):
            return True
        callee = Place(self.flow, user, user.code.values[number].args[0]).closed.each
        return bool(callee) and all(o[0] in ("unit", "bound", "class", "ext") and o[1] is not unit for o in callee)


def _is_harmless(values: list[Value], user: Value) -> bool:
    """Whether what is done with a class or function runs it nowhere: its class is asked for, it is compared."""
    if user.op == "call":
        callee = values[user.args[0]]
        return callee.op == "name" and callee.data in _ASKING
    return user.op in ("compare", "attr", "closure")


def _computed(value: Value, operands: tuple[Obj, ...]) -> Obj | None:
    """An operator on constants; of classes and functions only whether they are the same."""
    if any(o[0] != "const" for o in operands):
        if value.op != "compare" or value.data not in _IDENTITY:
            return None
        return const_obj((operands[0] == operands[1]) is (value.data in ("Eq", "Is")))
    held = [o[2] for o in operands]
    numbers = all(isinstance(each, _NUMBERS) for each in held)
    try:
        if value.op == "unary":
            return const_obj(_UNARY[value.data](*held))
        if value.op == "binary" and not numbers:
            return None
        return const_obj(_BINARY[value.data](*held))
    except (KeyError, TypeError, ArithmeticError, ValueError):
        return None
