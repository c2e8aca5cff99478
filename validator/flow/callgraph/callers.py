"""Who may call a unit: the units in which its name stands for something that may be it.

Names alone would make every `x.step()` a call of every `step`. What stands before the name often shows that something
else is meant, without solving anything: `self` of another family of classes, a library, a literal, a variable that the
module binds to another function. Such a mention is left out; what nothing speaks against is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from validator.definitions import ClassDef, External, Method, Module, Symbol
from validator.definitions import Value as Variable
from validator.flow.callgraph.called_objects import CalledObjects
from validator.flow.queries.outside_program import is_test
from validator.ir.model import Value

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit

# What a call of an object runs.
CALLED = ("__call__", "forward")
# What `with` runs of one.
_ENTERED = ("__enter__", "__exit__", "__aenter__", "__aexit__")
_MAKING = ("__init__", "__new__", "__post_init__", "__call__")
# Results of instructions that are no object of a class of the project.
_BUILT = frozenset({"const", "tuple", "list", "set", "dict", "collect", "join", "slice", "compare"})
_OF_FUNCTIONS = ("remote", "options", "bind", "__func__", "__wrapped__")
# What is done with a value that is no function.
_PARTING = frozenset({"item", "iter", "binary", "unary", "compare", "join", "more", "store_item", "unpack", "slice"})

# What gives a value on that it is made of, and takes one out of what holds it.
_HOLDING = frozenset({"phi", "mut", "dict", "list", "tuple", "set", "item", "iter", "next", "unpack"})
_OUT_OF_TABLES = frozenset({"get", "pop", "values", "items", "setdefault"})
_CALLS = -1


_Step = tuple["Unit", int]  # who gets a value of a unit, by its number; `_CALLS`: who calls the unit


class Mention(NamedTuple):
    """What the place where a name stands shows of what it may mean, whichever function is asked about.

    `kind`: `text` (for `getattr`), `own` (made here), `attribute`, `global`, `variable`. `cls`: the class to whose
    objects an attribute belongs, or that a global name is; `symbol`: what the name, or the owner of an attribute, is
    known to mean; `is_taken`: whether it is called or handed on.
    """

    caller: Unit
    kind: str
    name: str
    is_taken: bool = True
    cls: ClassDef | None = None
    symbol: Symbol | None = None
    owner: str = ""  # the instruction that gives the owner of an attribute
    number: int = -1  # the value that stands there


class Callers:
    """The callers of the units of one project."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._known: dict[tuple[Unit, bool], tuple[Unit, ...]] = {}
        self._families: dict[ClassDef, frozenset[ClassDef]] = {}
        self._mentions: dict[str, list[Mention]] = {}
        self._straight: dict[ClassDef, bool] = {}
        self._steps: dict[tuple[_Step, bool], tuple[list[Unit], list[_Step]]] = {}
        self.objects = CalledObjects(flow, self)

    def of(self, unit: Unit, tests: bool = False) -> tuple[Unit, ...]:
        """The units that may call a unit; what tests do with code that is no test is not how it is used."""
        known = self._known.get((unit, tests))
        if known is None:
            found = self._reached(unit, tests or is_test(unit.path))
            known = self._known[unit, tests] = tuple(sorted(found, key=lambda each: each.place))
        return known

    def is_spoken_of(self, unit: Unit) -> bool:
        """Whether its name stands anywhere at all outside of tests."""
        inside = is_test(unit.path)
        speaking = self.flow.mentions.naming(*called(unit))
        return unit.code.kind == "lambda" or any(inside or not is_test(each.path) for each in speaking)

    def naming(self, unit: Unit) -> Iterator[Mention]:
        """Where a name of a unit stands that may mean it."""
        makes, a_property = unit.name in _MAKING, unit.method is not None and unit.method.facts.is_property
        for name in called(unit):
            for mention in self._mentioned(name):
                if (mention.is_taken or a_property) and self._may_mean(unit, makes, mention):
                    yield mention

    def may_be(self, caller: Unit, number: int, unit: Unit) -> bool:
        """Whether a value with the name of a unit may mean it."""
        mention = self.mention(caller, number)
        return mention is not None and self._may_mean(unit, unit.name in _MAKING, mention)

    def _reached(self, unit: Unit, tests: bool) -> dict[Unit, None]:
        """The callers of a unit, and those who get it handed on and may call it: ways on which it goes round in a
        circle are gone once."""
        found: dict[Unit, None] = {}
        queue: list[_Step] = [(unit, _CALLS)]
        seen = set(queue)
        for step in queue:
            callers, further = self._next(step, tests)
            found.update(dict.fromkeys(callers))
            fresh = [each for each in further if each not in seen]
            seen.update(fresh)
            queue += fresh
        return found

    def _next(self, step: _Step, tests: bool) -> tuple[list[Unit], list[_Step]]:
        known = self._steps.get((step, tests))
        if known is None:
            unit, number = step
            known = self._calling(unit, tests) if number == _CALLS else self._given(unit, number, tests)
            self._steps[step, tests] = known
        return known

    def _calling(self, unit: Unit, tests: bool) -> tuple[list[Unit], list[_Step]]:
        """Who calls a unit by its name, and where it is handed on."""
        mentions = [each for each in self.naming(unit) if tests or not is_test(each.caller.path)]
        callers = [mention.caller for mention in mentions]
        further = [(each.caller, each.number) for each in mentions if each.kind in ("global", "import", "own")]
        if unit.name.startswith("__") and unit.cls is not None:  # `super().__init__()`
            below = (c.methods[unit.name] for c in unit.cls.descendants() if unit.name in c.methods)
            callers += self.flow.units(below)
        if unit.cls is not None and unit.name in CALLED:  # `self.block(x)`
            callers += [caller for caller, _ in self.objects.calls(unit.cls)]
        if unit.cls is not None and unit.name in _ENTERED:  # `with self.timer:`
            callers += [caller for caller, _ in self.objects.entering(unit.cls)]
        if unit.outer is not None and unit.code.kind == "lambda":
            callers.append(unit.outer)
        if unit.outer is not None and _is_given_back(unit.outer, unit):
            further.append((unit.outer, _CALLS))  # `@register(name)` calls what `register` gives back
        return callers, further

    def _given(self, unit: Unit, number: int, tests: bool) -> tuple[list[Unit], list[_Step]]:
        """Who gets a value of a unit that may be called there: the callers of a function that gives it back, and those
        who read the variable of a module, or of the body of a class, in which it is kept, be it in a table."""
        holding = _holding(unit, number)
        further: list[_Step] = []
        if unit.code.kind == "function" and not holding.isdisjoint(unit.code.returned):
            further.append((unit, _CALLS))
        values = unit.code.values
        stores = (values[n] for n in {user for each in holding for user in unit.users.get(each, ())})
        names = sorted({str(each.data) for each in stores if each.op in ("store_global", "store_class")})
        reads = [step for name in names for step in self._reads(unit, name) if tests or not is_test(step[0].path)]
        return [reader for reader, _ in reads], further + reads

    def _reads(self, unit: Unit, name: str) -> Iterator[_Step]:
        """Where a variable of a module is read, or one of the body of a class as an attribute."""
        inside = unit.code.kind == "class"
        for reader in self.flow.mentions.naming(name):
            for number in reader.named.get(name, ()):
                value = reader.code.values[number]
                if value.op == "attr":
                    owner = reader.code.values[reader.root(value.args[0])]
                    symbol = self.flow.symbol(reader, owner) if owner.op in ("name", "import") else None
                    if symbol is unit.module or inside and not isinstance(symbol, Module | External):
                        yield reader, number
                elif value.op in ("name", "import") and not inside:
                    symbol = self.flow.symbol(reader, value)
                    if isinstance(symbol, Variable) and (symbol.module, symbol.name) == (unit.module, name):
                        yield reader, number

    # -- mentions ------------------------------------------------------------------------------------------

    def _mentioned(self, name: str) -> list[Mention]:
        """Where a name stands for something that may be a function or a class."""
        known = self._mentions.get(name)
        if known is None:
            names = self.flow.mentions.also((name,))
            found = (
                (self.mention(caller, number), number)
                for caller in self.flow.mentions.naming(name)
                for each in names
                for number in caller.named.get(each, ())
            )
            known = [mention._replace(number=number) for mention, number in found if mention is not None]
            self._mentions[name] = known
        return known

    def mention(self, caller: Unit, number: int) -> Mention | None:
        """What one place shows; None where it can be no function."""
        values = caller.code.values
        value = values[number]
        if value.op == "const":
            return Mention(caller, "text", value.data) if "getattr" in caller.named else None
        if value.op == "closure":
            cls = caller.module.classes.get(str(value.data).removesuffix(".<class>"))
            return Mention(caller, "own", value.data, cls=cls)
        users = [values[user] for user in caller.users.get(number, ())]
        if value.op == "attr":
            return self._attribute(caller, value, is_taken(users))
        if value.op == "name":
            symbol = self.flow.symbol(caller, value)
            cls = symbol if isinstance(symbol, ClassDef) else None
            return None if isinstance(symbol, External | Module) else Mention(
                caller, "global", value.data, cls=cls, symbol=symbol
            )  # fmt: skip
        if value.op == "import" and all(user.op.startswith("store_") for user in users):
            return None
        return Mention(caller, value.op, str(value.data[1]))

    def _attribute(self, caller: Unit, value: Value, taken: bool) -> Mention | None:
        owner = caller.code.values[caller.root(value.args[0])]
        if owner.op in _BUILT:
            return None
        symbol = self.flow.symbol(caller, owner) if owner.op in ("name", "import") else None
        if isinstance(symbol, External) or owner.op == "attr" and self._is_of_library(caller, value.args[0]):
            return None
        cls = symbol if isinstance(symbol, ClassDef) else self._made_class(caller, owner)
        if cls is None:
            cls = _receiver_class(caller, owner)
            symbol = self._above(cls, value.data) if cls is not None and owner.op == "call" else symbol
        return Mention(caller, "attribute", value.data, taken, cls, symbol, owner.op)

    def _is_of_library(self, caller: Unit, number: int) -> bool:
        """Whether a row of attributes begins with a module or an object of a library: `torch.distributed`."""
        owner = caller.beginning(number)
        return owner.op in ("name", "import") and isinstance(self.flow.symbol(caller, owner), External)

    def _above(self, cls: ClassDef, name: str) -> Method | None:
        """The method that `super()` has in a class, where nothing below it has several bases."""
        if cls not in self._straight:
            self._straight[cls] = all(len(each.facts.bases) < 2 for each in self._below(cls))
        owners = (each for each in cls.mro[1:] if name in each.methods)
        owner = next(owners, None) if self._straight[cls] else None
        return owner.methods[name] if owner is not None else None

    def _made_class(self, caller: Unit, owner: Value) -> ClassDef | None:
        """The class whose object a call makes here."""
        if owner.op != "call":
            return None
        callee = caller.code.values[owner.args[0]]
        symbol = self.flow.symbol(caller, callee) if callee.op in ("name", "import") else None
        return symbol if isinstance(symbol, ClassDef) else None

    # -- what they may mean --------------------------------------------------------------------------------

    def _may_mean(self, unit: Unit, makes: bool, mention: Mention) -> bool:
        """Whether a mention of its name may run the unit, or make objects of its class (where it `makes` them)."""
        kind = mention.kind
        if kind == "text":
            return True
        if kind == "own" and mention.cls is not None:
            return makes and unit.cls is not None and self.related(mention.cls, unit.cls)
        if kind == "own":
            return mention.caller is unit.outer
        method = is_method(unit) and not makes
        if kind == "attribute":
            return self._may_be_attribute(unit, method, mention)
        if method:
            return kind == "param"
        if kind == "global":
            if mention.cls is not None:
                return unit.cls is not None and self.related(mention.cls, unit.cls)
            return not isinstance(mention.symbol, Method) or mention.symbol is unit.method or makes
        here = mention.caller.module
        return kind in ("param", "import") or here is unit.module or mention.name in here.facts.names

    def _may_be_attribute(self, unit: Unit, method: bool, mention: Mention) -> bool:
        if isinstance(mention.symbol, Module):
            return not method
        if isinstance(mention.symbol, Method):
            return mention.symbol is unit.method
        if mention.cls is not None:
            related = unit.cls is not None and self.related(mention.cls, unit.cls)
            return related or method and unit.cls is None or self._stores(mention.cls, mention.name)
        # Functions and classes are attributes of modules; of other things where something makes them that.
        return method or mention.owner in ("name", "import", "attr") or mention.name in self._attributes

    def _stores(self, cls: ClassDef, name: str) -> bool:
        """Whether objects of a class keep something else under the name of a method."""
        return any(writer.cls is None or self.related(writer.cls, cls) for writer in self.flow.stores.writers(name))

    @cached_property
    def _attributes(self) -> frozenset[str]:
        """The names of attributes that something is stored under, in objects or in the bodies of classes."""
        classes = (name for cls in self.flow.project.classes() for name, _ in cls.facts.attributes)
        nested = (cls.name for cls in self.flow.project.classes() if "." in cls.qualname)
        return frozenset((*self.flow.stores.written, *classes, *nested))

    def related(self, one: ClassDef, other: ClassDef) -> bool:
        """Whether an object may be of both classes."""
        return one is other or not self._below(one).isdisjoint(self._below(other))

    def _below(self, cls: ClassDef) -> frozenset[ClassDef]:
        """A class and those that inherit from it."""
        known = self._families.get(cls)
        if known is None:
            known = self._families[cls] = frozenset((cls, *cls.descendants()))
        return known


def _is_given_back(outer: Unit, unit: Unit) -> bool:
    """Whether a function returns another one that it has made."""
    if outer.code.kind != "function":
        return False
    returned = (outer.code.values[outer.root(number)] for number in outer.code.returned)
    return any(value.op == "closure" and value.data == unit.code.key for value in returned)


def _holding(unit: Unit, number: int) -> set[int]:
    """The values of a unit that may be, or hold, one of them: where ways meet, in tables, taken out of these."""
    values, found, queue = unit.code.values, {number}, [number]
    for each in queue:
        for user in unit.users.get(each, ()):
            value = values[user]
            held = value.op in _HOLDING or value.op == "attr" and value.data in _OUT_OF_TABLES
            called = value.op == "call" and value.args[0] == each and values[each].op == "attr"
            if (held or called and each != number) and user not in found:
                found.add(user)
                queue.append(user)
    return found


def called(unit: Unit) -> list[str]:
    """The names by which a unit is called."""
    if unit.name in _MAKING and unit.cls is not None:
        return [c.name for c in (unit.cls, *unit.cls.descendants())]
    return [unit.name, *unit.entrances]


def is_method(unit: Unit) -> bool:
    return unit.outer is not None and unit.outer.code.kind == "class"


def is_taken(users: list[Value]) -> bool:
    """Whether a value is called, or handed on, and not just taken apart as no function is."""
    return any(user.op not in _PARTING and (user.op != "attr" or user.data in _OF_FUNCTIONS) for user in users)


def _receiver_class(unit: Unit, owner: Value) -> ClassDef | None:
    """The class whose methods `self`, `cls` or `super()` have here; None for anything else."""
    if owner.op == "free":
        distance, name = owner.data
        outer = unit.above(distance)
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
