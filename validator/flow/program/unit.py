"""A unit of code: where it stands, what it belongs to, and what its instructions show without solving anything."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain

from validator.definitions import ClassDef, External, Method, Module, Symbol
from validator.facts.model import Import
from validator.flow.callgraph.name_index import name_of, words_of
from validator.flow.callgraph.wrappers import wrapped_by
from validator.flow.containers import Filled, filled
from validator.flow.control import Control
from validator.flow.narrowing import ClassTests
from validator.flow.program.getters import Got, got
from validator.flow.program.return_tests import ReturnTest, return_tests
from validator.flow.transfer.dispatch import is_evaluated
from validator.flow.worklist import Order
from validator.ir import Code, Value
from validator.ir.model import RawAt, shared
from validator.models import models

_WRITTEN_ALIKE = frozenset({"attr", "item", "const", "name", "free"})


class Users:
    """By value the values of a unit that have it as an operand: one row of numbers, and where each value's begin."""

    __slots__ = ("_first", "_numbers")

    def __init__(self, code: Code) -> None:
        found: list[list[int]] = [[] for _ in code.values]
        for number, value in enumerate(code.values):
            args = value.args
            for operand in args if len(args) < 2 else dict.fromkeys(args):
                if operand >= 0:
                    found[operand].append(number)
        self._numbers = array("i", chain.from_iterable(found))
        self._first = array("i", accumulate(map(len, found), initial=0))

    def get(self, number: int, default: tuple[int, ...] = ()) -> Sequence[int]:
        """The users of a value in their order."""
        first, last = self._first[number : number + 2]
        return self._numbers[first:last] if first < last else default


class Unit:
    """One code unit of the project: its code, where it stands, and what it belongs to."""

    def __init__(self, module: Module, code: Code, outer: Unit | None) -> None:
        self.module = module
        self.code = code
        self.outer = outer
        self.method: Method | None = None
        self.cls: ClassDef | None = None
        if code.kind in ("function", "module"):
            method = module.functions.get(code.qualname)
            if method is not None and (code.kind == "module" or method.facts.at[0] == code.at[0]):
                self.method = method  # not of another definition under the same name
        if code.kind == "class":
            self.cls = module.classes.get(code.qualname.removesuffix(".<class>"))
        elif self.method is not None:
            self.cls = self.method.cls

    def __repr__(self) -> str:
        return f"<Unit {self.module.name}:{self.code.qualname}>"

    def above(self, distance: int) -> Unit | None:
        """The unit so many steps further out, in which a free variable is defined."""
        unit: Unit | None = self
        for _ in range(distance):
            unit = unit.outer if unit is not None else None
        return unit

    @property
    def path(self) -> str:
        return self.module.path

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def qualname(self) -> str:
        return self.code.qualname

    def _is_read(self, number: int) -> bool:
        """Whether a value is more than stored under its name."""
        if self.code.kind in ("function", "lambda"):
            return True
        return any(not self.code.values[user].op.startswith("store_") for user in self.users.get(number, ()))

    def is_used(self, number: int) -> bool:
        """Whether a value is more than defined: read by its name, or, decorated or not, used where it is made."""
        values = self.code.values
        if values[number].op != "closure" and not (values[number].op == "call" and values[number].data.names == ("@",)):
            return True
        users = [user for user in self.users.get(number, ()) if not values[user].op.startswith("store_")]
        return any(values[user].op != "call" or self.is_used(user) for user in users)

    @cached_property
    def place(self) -> tuple[str, RawAt, str]:
        """Where it stands among the units of the project."""
        return (self.module.path, self.code.at, self.code.key)

    @property
    def words(self) -> frozenset[str]:
        """The words in its code: names, attributes, keywords, texts; asked for once, by an index."""
        words = set(words_of(value.data for value in self.code.values))
        words.update(words_of(name for name, _ in self.code.params))
        return frozenset(words)

    @cached_property
    def named(self) -> dict[str, tuple[int, ...]]:
        """By name the values that it stands for; of what is imported also by the name where it comes from."""
        found: dict[str, list[int]] = {}
        for number, value in enumerate(self.code.values):
            if (name := name_of(value)) and (value.op != "closure" or self._is_read(number)):
                found.setdefault(name, []).append(number)
                if (other := self.known_as(number)) != name:
                    found.setdefault(other, []).append(number)
        return {name: shared(row, row) for name, row in ((name, tuple(numbers)) for name, numbers in found.items())}

    def known_as(self, number: int) -> str:
        """The name of what is called, as it is where it comes from: an import may have given it another here."""
        value = self.code.values[number]
        if value.op != "name":
            return name_of(value)
        known = self._known_as.get(value.data)
        if known is None:
            symbol = self.module.project.lookup(self.scope, value.data)
            known = symbol.name if isinstance(symbol, Method | ClassDef) else str(value.data)
            if isinstance(symbol, External):
                known = symbol.path.rpartition(".")[2]
            self._known_as[value.data] = known
        return known

    @cached_property
    def _known_as(self) -> dict[str, str]:
        return {}

    def symbol(self, value: Value) -> Symbol:
        """What a global name or an import means here."""
        project = self.module.project
        if value.op == "name":
            return project.lookup(self.scope, value.data)
        module, name, level = value.data
        row = Import(module, name or None, None if name else "_", level, "<module>", (), (1, 1, 1, 1))
        if not name and "." not in module:
            row = row._replace(asname=None)
        return project.imported(self.module, row)

    @cached_property
    def control(self) -> Control:
        return Control(self.code)

    @cached_property
    def control_to_the_end(self) -> Control:
        """The same for those who stay in the unit to its last return."""
        return Control(self.code, to_the_end=True)

    @cached_property
    def class_tests(self) -> ClassTests:
        return ClassTests(self)

    @cached_property
    def return_tests(self) -> dict[int, tuple[ReturnTest, ...]]:
        """By block the tests of parameters around its returns; empty where none decides at which of them it ends."""
        return return_tests(self)

    @cached_property
    def wraps(self) -> tuple[str, frozenset[int]]:
        """The parameter of the function around it for which it stands in, and the calls of it; empty of others."""
        return wrapped_by(self)

    def managers(self, number: int) -> list[int]:
        """The context managers around a value, outermost first: values as they were entered."""
        return [manager for manager, first, last in self._regions if first < number < last]

    @cached_property
    def _regions(self) -> list[tuple[int, int, int]]:
        """(manager, where it is entered, where it is left last): code is lowered in the order of the source."""
        last: dict[int, int] = {}
        entered = []
        for number, value in enumerate(self.code.values):
            if value.op == "enter":
                entered.append((value.args[0], number))
            elif value.op == "leave":
                last[value.args[0]] = number
        return [(manager, number, last.get(manager, len(self.code.values))) for manager, number in entered]

    @cached_property
    def order(self) -> Order:
        return Order(self.code, is_evaluated)

    @cached_property
    def filled(self) -> list[Filled]:
        """What puts something into containers that others see."""
        return filled(self)

    @cached_property
    def variables(self) -> dict[int, str]:
        """By value the first variable that it is given to."""
        rows = ((number, name) for name, numbers in self.code.definitions.items() for number in numbers)
        return dict(reversed(list(rows)))

    @cached_property
    def gets(self) -> tuple[Got, ...]:
        """What it gives back of its parameters; nothing where it gives back anything else, too."""
        return got(self)

    def keeps_for_itself(self, name: str, family: set[ClassDef]) -> bool:
        """Whether it stores an attribute of that name in nothing but its own object, which is none of a family: what
        it stores need not be asked."""
        return self.cls not in family and name not in self.foreign

    @cached_property
    def stored(self) -> dict[str, tuple[int, ...]]:
        """By attribute the instructions that store it."""
        found: dict[str, tuple[int, ...]] = {}
        for number, value in enumerate(self.code.values):
            if value.op == "store_attr":
                found[value.data] = (*found.get(value.data, ()), number)
        return found

    @cached_property
    def evened(self) -> dict[int, bool]:
        """By step whether the unit leaves nothing over of it: what `even_shares` has found out."""
        return {}

    @cached_property
    def stored_globals(self) -> dict[int, str]:
        """By value the global variable in which it is stored here."""
        return {self.root(value.args[0]): value.data for value in self.code.values if value.op == "store_global"}

    @cached_property
    def overwritten(self) -> frozenset[int]:
        """Where a file stores something in a variable that surely holds another value when its functions run: it stores
        that further below, whatever happens, and runs none of the project's functions in between."""
        values, blocks, regular = self.code.values, self.code.blocks, self.control.without_exceptions
        found: set[int] = set()
        later: set[str] = set()  # what is stored below
        for number in range(len(values) - 1, -1, -1) if self.code.kind == "module" else ():
            value = values[number]
            if value.op == "call" and self._runs_own(value):
                later.clear()
            elif value.op == "store_global":
                if value.data in later:
                    found.add(number)
                block = blocks[value.block]
                always = value.block in regular and not self.control.deciding(value.block)
                if always and block.loop < 0 and not block.handlers:
                    later.add(value.data)
        return frozenset(found)

    def _runs_own(self, call: Value) -> bool:
        """Whether a call, as the file tells it by itself, runs a function of the project."""
        callee = self.code.values[self.root(call.args[0])]
        first = self.beginning(call.args[0])  # what a variable holds is asked for a method of its own, as a rule
        symbol = self.symbol(first) if first.op in ("name", "import") else None
        return callee.op not in ("attr", "name", "import") or isinstance(symbol, Module | Method | ClassDef)

    @cached_property
    def foreign(self) -> frozenset[str]:
        """The names of attributes that are stored, or filled, in other objects than the one on which it is called."""
        rows = [(value.data, value.args[0]) for value in self.code.values if value.op == "store_attr"]
        rows += [(row.name, row.owner) for row in self.filled if isinstance(row.owner, int)]
        own = self.cls is not None and self.method is not None and not self.method.facts.is_classmethod
        return frozenset(name for name, owner in rows if not own or not self.is_receiver(owner))

    def is_augmented(self, value: Value) -> bool:
        """Whether what is stored under a key is made of what was there: `rows[key] += 1` and
        `rows[key].append(1)` put no key."""
        values = self.code.values
        made = values[value.args[2]]
        old = values[made.args[0]] if made.op in ("binary", "mut") else made
        return old.op == "item" and all(self.is_same(*pair) for pair in zip(old.args, value.args, strict=False))

    def is_same(self, one: int, other: int) -> bool:
        """Whether two values are one, or are written alike: attributes, items and constants."""
        one, other = self.root(one), self.root(other)
        a, b = self.code.values[one], self.code.values[other]
        if one == other or a.op != b.op or a.data != b.data or len(a.args) != len(b.args):
            return one == other
        return a.op in _WRITTEN_ALIKE and all(map(self.is_same, a.args, b.args))

    @cached_property
    def users(self) -> Users:
        """By value the values that have it as an operand."""
        return Users(self.code)

    def connective(self, number: int) -> str:
        """Of the value of `a and b`: "and", of `a or b`: "or"; its operands are the parts. Empty for other values."""
        value, blocks, tests = self.code.values[number], self.code.blocks, self.code.tests
        preds = blocks[value.block].preds if value.op == "phi" else []
        if len(preds) < 2 or len(preds) != len(value.args) or any(raised for _, raised in preds):
            return ""
        *firsts, _ = preds
        about = [tests.get(pred) for pred, _ in firsts]
        first = about[0]
        if first is None or first.kind not in ("and", "or"):
            return ""
        same = all(each is not None and (each.kind, each.at) == (first.kind, first.at) for each in about)
        ends = [blocks[pred].end for pred, _ in firsts]
        decided = all(end[0] == "branch" and end[1] == part for end, part in zip(ends, value.args, strict=False))
        return first.kind if same and decided else ""

    def decorating(self, inner: Unit) -> list[int]:
        """The calls of the decorators of a function or class that is made here, the innermost first."""
        values, found = self.code.values, []
        for number, value in enumerate(values):
            if value.op == "call" and value.data.names == ("@",):
                made = values[value.args[1]]
                if value.args[1] in found or made.op == "closure" and made.data == inner.code.key:
                    found.append(number)
        return found

    def root(self, number: int) -> int:
        """The value before the calls that were given it, and inside of `typing.cast`; of a phi the one value to which
        all its ways lead back."""
        return self._roots.get(number, number)

    def beginning(self, number: int) -> Value:
        """The value with which a row of attributes begins: `torch` of `torch.distributed.barrier`."""
        value = self.code.values[self.root(number)]
        while value.op == "attr":
            value = self.code.values[self.root(value.args[0])]
        return value

    @cached_property
    def _roots(self) -> dict[int, int]:
        code = self.code
        copies = [
            v for block in code.in_order() for v in code.blocks[block].values if code.values[v].op in ("mut", "phi")
        ]
        copies += self._casts
        roots: dict[int, int] = {}

        def root(number: int) -> int:
            while number in roots:
                number = roots[number]
            return number

        changed = True
        while changed:
            changed = False
            for number in copies:
                value = code.values[number]
                args = value.args
                operands = args if value.op == "phi" else args[:1] if value.op == "mut" else args[2:]
                found = {root(each) for each in operands} - {number} if number not in roots else ()
                if len(found) == 1:
                    (roots[number],) = found
                    changed = True
        return {number: root(number) for number in roots}

    @property
    def _casts(self) -> list[int]:
        """The calls of `typing.cast`."""
        values, lookup = self.code.values, self.module.project.lookup
        symbols = ((n, lookup(self.scope, "cast")) for n in self.named.get("cast", ()) if values[n].op == "name")
        callees = [n for n, symbol in symbols if isinstance(symbol, External) and symbol.path == "typing.cast"]
        users = (user for n in callees for user in self.users.get(n, ()))
        return [n for n in users if values[n].op == "call" and values[n].data.names == (None, None)]

    @cached_property
    def has_receiver(self) -> bool:
        """Whether the first parameter is the object (or class) on which it is called."""
        if self.method is None:  # of several definitions in a class one that is not known by its name
            return self.code.kind == "function" and self.outer is not None and self.outer.code.kind == "class"
        return self.code.kind == "function" and self.method.is_method

    def is_receiver(self, number: int) -> bool:
        """Whether a value is the object (or class) on which the unit is called."""
        value = self.code.values[self.root(number)]
        return value.op == "param" and value.data[0] == 0 and self.has_receiver

    @cached_property
    def entrances(self) -> dict[str, int]:
        """The names under which a library runs the method, with how many parameters it fills before what the call
        passes: `Function.apply` runs `forward` behind a context."""
        rows = (models().library(base).entrances for base in self.cls.external_bases) if self.cls is not None else ()
        return {
            name: 0 if self.cls is not None and self.cls.find(row["unless"]) else row["before"]
            for each in rows
            for name, row in each.items()
            if row["runs"] == self.name
        }

    @cached_property
    def scope(self) -> Method:
        """The function whose names are visible here, for look-ups in the project."""
        unit: Unit | None = self
        while unit is not None:
            if unit.method is not None:
                return unit.method
            unit = unit.outer
        return self.module.top

    def at(self, raw: RawAt) -> RawAt:
        """A place as findings have it: lines and columns from 1, columns in characters."""
        text = self.module.source_text
        line, column, end_line, end_column = raw
        return (line, text.column(line, column), end_line, text.column(end_line, end_column))

    def text(self, raw: RawAt) -> str:
        """The source at a place, white space folded."""
        return " ".join(self.module.source_text.between(self.at(raw)).split())


def implicit(caller: Unit, call: Value, unit: Unit) -> int:
    """How many parameters a call of a unit fills without naming them: its receiver, but in `Base.__init__(self, …)`, or
    what a library passes first."""
    code = caller.code
    callee = code.values[call.args[0]]
    if callee.op == "attr" and callee.data in unit.entrances:
        return unit.entrances[callee.data]
    if not unit.has_receiver or callee.op != "attr" or callee.data != "__init__":
        return int(unit.has_receiver)
    owner = code.values[caller.root(callee.args[0])]
    return int(owner.op == "call")  # `super()`
