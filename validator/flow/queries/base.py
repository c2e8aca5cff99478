"""What rules ask of the flow: calls by what they reach, collectives, arguments, and where a value comes from or goes.

A `Place` is a value of a unit: `place.val` is what it may be (`Val`: objects, and by which causes it varies),
`place.at` where it stands. Functions give places in the order of files and lines.
"""

from __future__ import annotations

import builtins
import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from validator.definitions import ClassDef, External, Method
from validator.domains.axes import UNKNOWN as UNKNOWN_AXIS
from validator.domains.axes import WHOLE, Axes, axes_of, meets
from validator.domains.spmd import NONE, UNIFORM, Causes, only, rank, varying
from validator.facts.model import At
from validator.flow.calls.groups import axes_in
from validator.flow.control import reachable
from validator.flow.merging.conditions import truth_of
from validator.flow.program.answers import Operation, Result, Target
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit, Users
from validator.flow.queries.outside_program import is_test
from validator.flow.substitution import instantiated
from validator.flow.values import BOTTOM, TOP, UNKNOWN, Val, join
from validator.ir.model import Code, Value
from validator.project import Project

Constants = tuple[tuple[int, Val], ...]  # what some parameters of a function are, by position
_STANDARD = frozenset({*dir(builtins), "builtins", *sys.stdlib_module_names})
_OF_CLASSES = frozenset({"isinstance", "issubclass", "type", "__class__"})
_ASKING = _OF_CLASSES | {"hasattr"}
_SIGNATURES = frozenset({"signature", "getfullargspec", "getargspec", "__code__"})
_MISSING = frozenset({"AttributeError", "ImportError", "ModuleNotFoundError"})
_CALLED = frozenset({"attr", "name", "param", "free", "import"})


class Place(NamedTuple):
    """A value of a unit."""

    flow: Flow
    unit: Unit
    number: int

    def value_at(self, number: int) -> Place:
        """Another value of the same unit."""
        return Place(self.flow, self.unit, number)

    @property
    def value(self) -> Value:
        """The instruction."""
        return self.unit.code.values[self.number]

    @property
    def result(self) -> Result:
        return self.flow.result(self.unit)

    @property
    def val(self) -> Val:
        """What the value may be, in terms of the unit's parameters."""
        return self.result.vals[self.number]

    @property
    def closed(self) -> Val:
        """What the value may be with what callers pass."""
        return self.flow.close(self.val, self.unit)

    @property
    def likely(self) -> Val:
        """What the value may be with what callers pass; a parameter of unknown callers is what its name says."""

        def argument(position: int) -> Val:
            passed: Val = self.flow.solver.settled(("argument", self.unit, position))
            return self.flow.parameters.assumed(self.unit, position) if passed in (BOTTOM, UNKNOWN) else passed

        return instantiated(self.val, argument)

    @property
    def at(self) -> At:
        return self.unit.at(self.value.at)

    @property
    def text(self) -> str:
        """The source, white space folded."""
        value = self.root.value
        named = self.hint if value.op in ("param", "free", "name", "phi") else ""
        return named or self.unit.text(value.at)

    @property
    def where(self) -> str:
        """For messages: ` in ` and the function; nothing at the top of a file."""
        return "" if self.unit.code.kind == "module" else f" in `{self.unit.qualname}`"

    @property
    def root(self) -> Place:
        """The value before the calls that were given it: `x` for `x` behind `f(x)`."""
        number = self.unit.root(self.number)
        return self if number == self.number else self.value_at(number)

    @property
    def is_tried(self) -> bool:
        """Whether an `except` may take what is raised here; a `finally` takes nothing."""
        return bool(self._clauses)

    @property
    def after_missing_name(self) -> bool:
        """Whether it runs in an `except` clause alone that takes what a missing name or module raises."""
        code, control = self.unit.code, self.unit.control
        if self.value.block in control.without_exceptions:
            return False
        clauses = (
            value for value in code.values if value.op == "caught" and any(name in str(value.data) for name in _MISSING)
        )
        return any(self.value.block in reachable(code, start=value.block) for value in clauses)

    @property
    def _clauses(self) -> list[Value]:
        """The `except` clauses that may take what is raised here."""
        blocks, values = self.unit.code.blocks, self.unit.code.values
        found = (values[n] for handler in blocks[self.value.block].handlers for n in blocks[handler].values)
        return [value for value in found if value.op == "caught"]

    def catches(self, *names: str) -> bool:
        """Whether an exception of one of some classes that is raised here is caught, or suppressed."""
        said = [str(value.data) for value in self._clauses]
        managers = [self.value_at(number) for number in self.unit.managers(self.number)]
        said += [place.text for place in managers if place.value.op == "call" and place.method == "suppress"]
        return any(text == "*" or any(name in text for name in names) for text in said)

    def may_lack(self, name: str) -> bool:
        """Whether what is tested or caught around the place reckons with an object that has no such member."""
        asking = _ASKING | {name}
        return (
            self.catches("AttributeError", "Exception")
            or self.is_switched_off
            or any(self._may_be_asked(test, asking) for test in self.tests)
            or any(_is_predicate(call) for call in self._calls_about)
            or not asking.isdisjoint(self._words_of_helpers)
        )

    def asks_what_is_taken(self, name: str) -> bool:
        """Whether conditions around a call ask for a parameter by its name, or what is called for its signature:
        `"mask" in inspect.signature(f).parameters`; or what refuses the argument is caught."""
        parts = [part.value for test in self.tests for part in test.parts]
        named = any(value.op == "const" and value.data == name for value in parts)
        asked = any(value.op in ("attr", "name") and value.data in _SIGNATURES for value in parts)
        return named or asked or self.catches("TypeError")

    def _may_be_asked(self, test: Place, asking: frozenset[str]) -> bool:
        """Whether a test has one of some words, and, where it only asks for a class (`type(x) == list`), may ask for
        that of the object whose attribute the place reads. In other units that goes by other names."""
        words = frozenset(test.words)
        if asking.isdisjoint(words):
            return False
        if test.unit is not self.unit or self.value.op != "attr" or not (asking - _OF_CLASSES).isdisjoint(words):
            return True
        made_of = {part.root.key for part in self.operand(0).parts}
        return any(each.root.key in made_of for part in test.parts for each in part.asked_for_class)

    @property
    def asked_for_class(self) -> Iterator[Place]:
        """The objects that the value asks for their class: `isinstance(x, T)`, `type(x)`, `x.__class__`."""
        if self.value.op == "call" and self.method in _OF_CLASSES and len(self.value.args) > 1:
            yield self.operand(1)
        elif self.value.op == "attr" and self.value.data in _OF_CLASSES:
            yield self.operand(0)

    @property
    def settled_tests(self) -> Iterator[tuple[Place, bool]]:
        """The tests that can only have come out one way where this runs, and whether they held."""
        for branch, way in self.unit.control.settled(self.value.block):
            kind, test, *ways = self.unit.code.blocks[branch].end
            if kind == "branch":
                yield self.value_at(test), way == ways[0]

    @property
    def tests_before(self) -> Iterator[tuple[Place, bool]]:
        """The same, with those that raise where they come out otherwise: `assert size == 1`."""
        for branch, block in enumerate(self.unit.code.blocks):
            for way in block.end[2:] if block.end[0] == "branch" else ():
                if self.unit.control.leads(self.value.block, branch, way):
                    yield self.value_at(block.end[1]), way == block.end[2]

    @property
    def entries(self) -> dict[str, Place]:
        """Of a dictionary that is written out what stands under each text."""
        pairs = zip(self.value.args[::2], self.value.args[1::2], strict=True) if self.value.op == "dict" else ()
        named = ((self.value_at(key).val.constant(), held) for key, held in pairs if key >= 0)
        return {key: self.value_at(held) for key, held in named if isinstance(key, str)}

    def asserted(self, holds: bool) -> tuple[Place, bool]:
        """A test without `not`, and how it comes out."""
        place = self.root
        while place.value.op == "unary" and place.value.data == "Not":
            place, holds = place.operand(0).root, not holds
        return place, holds

    def is_none(self, holds: bool) -> bool:
        """Whether the value is `x is None` that holds, or `x is not None` that does not."""
        asked = ("Is", "Eq") if holds else ("IsNot", "NotEq")
        return self.value.op == "compare" and self.value.data in asked and self.operand(1).val.is_const(None)

    @property
    def is_switched_off(self) -> bool:
        """Whether a test around the place asks for an attribute that is the same constant in all objects, and leads
        elsewhere: `if self.flag: …` where `__init__` sets `self.flag = False`, and nobody anything else."""
        blocks = self.unit.code.blocks
        for branch in self.unit.control.deciding(self.value.block):
            kind, test, *ways = blocks[branch].end
            if kind != "branch" or ways[0] == ways[1]:
                continue
            asked, (holds, fails) = self.value_at(test), ways
            while asked.value.op == "unary" and asked.value.data == "Not":
                asked, holds, fails = asked.operand(0), fails, holds
            constants = asked.constants_of_attribute
            taken = {holds if constant else fails for constant in constants}
            left = [way for way in (holds, fails) if way not in taken] if taken else []
            if any(self.unit.control.leads(self.value.block, branch, way) for way in left):
                return True
        return False

    @property
    def constants_of_attribute(self) -> list[Any]:
        """Of an attribute the constants that it holds in all objects which may be asked for it; none where something
        else may be there, such as what callers choose."""
        if self.value.op != "attr":
            return []
        name, held = self.value.data, self.closed.each
        owners = self.operand(0).closed.each
        if not owners or any(o[0] not in ("inst", "self") for o in owners) or any(o[0] != "const" for o in held):
            return []
        for cls in {o[1] for o in owners}:
            family = {*cls.mro, *cls.descendants()}
            if any(each.fields_are_parameters for each in family):
                return []
            if any(each.is_passed for each in self.flow.fields.stores(cls, name, family)):
                return []
        return [o[2] for o in held]

    @property
    def _calls_about(self) -> list[Place]:
        """The calls in the conditions around the place that are given the object whose attribute it is."""
        if self.value.op != "attr":
            return []
        asked = self.operand(0).key
        calls = [part for test in self.tests_inside for part in test.parts if part.value.op == "call"]
        return [call for call in calls if any(call.operand(i).key == asked for i in range(1, len(call.value.args)))]

    @property
    def _words_of_helpers(self) -> Iterator[str]:
        """The words of what functions of the project give that are asked around the place about the object whose
        attribute it is: `is_parallel(model)` of `model.module`."""
        seen: set[Unit] = set()
        queue = self._calls_about
        while queue:
            call = queue.pop()
            site = call.result.sites.get(call.number)
            for unit in {target.unit: None for target in site.targets} if site is not None else ():
                if unit not in seen:
                    seen.add(unit)
                    for place in _decisive(self.flow, unit):
                        yield from place.words
                        queue += [part for part in place.parts if part.value.op == "call"]

    def asked_about(self, value: Place) -> bool:
        """Whether a condition around the place asks something of another value of its unit (`len(x) == 2`,
        `isinstance(x, T)`, `x[0]`): it is less there than it may be elsewhere. A test for None says nothing more."""
        asked = value.root.key
        return any(
            part.value.op in ("call", "item", "attr")
            and any(part._replace(number=n).root.key == asked for n in part.value.args if n >= 0)
            for test in self.tests_inside
            for part in test.parts
        )

    @property
    def origin(self) -> Place:
        """The value that this one is: before calls that were given it, and of functions that only give it back."""
        from validator.flow.queries.pure_functions import origin

        return self.value_at(origin(self.flow, self.unit, self.number))

    @property
    def key(self) -> tuple[Any, ...]:
        """What the value computes, as a tree: equal for two values that are equal where they stand."""
        from validator.effects.condition_keys import keys_of

        return keys_of(self.flow, self.unit).of(self.number)

    @property
    def condition(self) -> tuple[tuple[Any, ...], bool]:
        """The key of a condition without negations, and whether the condition holds where the key does."""
        from validator.effects.condition_keys import stripped

        return stripped(self.key)

    def seen_from(self, user: Place) -> At:
        """Where a reader meets the value: where it is written inside its user, else at the user."""
        first, last, here = user.at[:2], user.at[2:], self.root.at
        return here if first <= here[:2] and here[2:] <= last else user.at

    def operand(self, index: int) -> Place:
        return self.value_at(self.value.args[index])

    def argument(self, name: str, position: int = -1) -> Place | None:
        """The argument of a call by its keyword or its position (from 0, without a receiver)."""
        for place, keyword in enumerate(self.value.data.names):
            if keyword == name or (keyword is None and place == position):
                return self.value_at(self.value.args[place + 1])
        return None

    def passed(self, name: str, position: int = -1) -> Val | None:
        """What a call passes for an argument, also in a dictionary that it spreads; BOTTOM where it surely passes
        nothing, None where that is not known."""
        written = self.argument(name, position)
        if written is not None:
            return written.closed
        if "*" in self.value.data.names and position >= 0:
            return None
        named = zip(self.value.data.names, self.value.args[1:], strict=True)
        spread = [
            o for keyword, number in named if keyword == "**" for o in self.value_at(number).closed.each or (TOP,)
        ]
        if any(o[0] != "dict" or o[2] is not None for o in spread):
            return None
        return join(value for o in spread for key, value in o[1] if key == name)

    @property
    def calls_unknown_library(self) -> bool:
        """Whether the value is a call of a function of a library that is not at hand and that no table tells of."""
        named = self.unit.beginning(self.value.args[0])
        symbol = self.flow.symbol(self.unit, named) if named.op in ("name", "import") else None
        package = symbol.path.partition(".")[0] if isinstance(symbol, External) else ""
        return bool(package) and package not in _STANDARD and not self.flow.models.tells_of(package)

    @property
    def hands_on(self) -> bool:
        """Whether the value is a call of a library that calls a function which it is passed."""
        if self.value.op != "call":
            return False
        rows = (self.flow.models.call(o[1]) for o in self.operand(0).val.of("ext"))
        return any(row is not None and row.runs is not None for row in rows)

    @property
    def iterable(self) -> Place | None:
        """Of the element of a loop's round: what the loop goes through."""
        return self.value_at(self.value.args[0]).gone_through if self.value.op == "next" else None

    @property
    def gone_through(self) -> Place:
        """What an iterator goes through."""
        return self.operand(0) if self.value.op == "iter" else self

    @property
    def receiver(self) -> Place | None:
        """The object on which a method is called."""
        callee = self.unit.code.values[self.value.args[0]]
        return self.value_at(callee.args[0]) if callee.op == "attr" else None

    @property
    def method(self) -> str:
        """The name by which something is called: of an attribute, a parameter, a global or local name.

        What is imported has the name that it has where it comes from, whatever this file calls it.
        """
        callee = self.unit.code.values[self.value.args[0]]
        return self.unit.known_as(self.value.args[0]) if callee.op in _CALLED else ""

    @property
    def under(self) -> Causes:
        """By which causes ranks differ about whether they get here: by branches around it and around calls of it."""
        calls: Causes = self.flow.solver.settled(("under", self.unit)).v
        return only(calls | self.around(), "rank", "member", "data")

    def around(self, but: frozenset[int] = frozenset()) -> Causes:
        """By what the branches of its unit around it differ between ranks, without those of some blocks."""
        found: Causes = NONE
        vals, blocks = self.result.vals, self.unit.code.blocks
        for branch in self.unit.control.deciding(self.value.block) - but:
            test = self.flow.close(Val(v=truth_of(vals[blocks[branch].end[1]])), self.unit).v
            found |= NONE if UNIFORM in test else test or self.value_at(blocks[branch].end[1]).named_rank()
        return found

    def named_rank(self) -> Causes:
        """What a condition likely depends on that asks for something by the name of a rank of which nothing is known:
        an actor's own, say, which another process makes from a class that is handed on."""
        compared = self.value.args if self.value.op == "compare" else (self.number,)
        for place in (self.value_at(n).root for n in compared):
            name, ranks = place.hint, self.flow.models.ranks
            if place.value.op == "attr" and name in ranks["names"] | ranks["attributes"] and place.closed == BOTTOM:
                return rank(axes_of(name) - WHOLE or WHOLE, sure=False)
        return NONE

    @property
    def words(self) -> Iterator[str]:
        """The names and texts of which an expression is made; they rank candidates and prove nothing. What the calls
        are about that may have changed an object before is none of them."""
        for place in self.parts:
            value = place.value
            if value.op in ("attr", "name", "const") and isinstance(value.data, str):
                yield value.data
            elif value.op in ("param", "free"):
                yield str(value.data[1])
            elif value.op == "import":
                yield str(value.data[1] or value.data[0])

    @property
    def sources(self) -> Iterator[Place]:
        """The values of the unit from which this one is computed, itself among them."""
        return self._made_of(lambda value: value.args)

    @property
    def parts(self) -> Iterator[Place]:
        """The values from which this one is computed, without calls that were given one of them for something else."""
        return self._made_of(lambda value: value.args[:1] if value.op == "mut" else value.args)

    def _made_of(self, parts: Callable[[Value], tuple[int, ...]]) -> Iterator[Place]:
        values, stack, seen = self.unit.code.values, [self.number], {self.number}
        while stack:
            number = stack.pop()
            yield self.value_at(number)
            for part in parts(values[number]):
                if part >= 0 and part not in seen:
                    seen.add(part)
                    stack.append(part)

    def varies(self, *kinds: str) -> Causes:
        """By which causes of some kinds the value differs between ranks; none where it is known to be the same."""
        causes = self.likely.v
        return NONE if UNIFORM in causes else only(causes, *kinds)

    @property
    def tests(self) -> Iterator[Place]:
        """The conditions around the value: in its unit, in those that hold it, and around the only call of it."""
        place: Place | None = self
        seen: set[Unit] = set()
        while place is not None and place.unit not in seen:
            seen.add(place.unit)
            yield from (test.origin for test in place.tests_inside)
            place = place.outside

    @property
    def tests_inside(self) -> list[Place]:
        """The conditions around the value in its unit."""
        blocks = self.unit.code.blocks
        deciding = sorted(self.unit.control.deciding(self.value.block))
        return [Place(self.flow, self.unit, blocks[branch].end[1]) for branch in deciding]

    @property
    def outside(self) -> Place | None:
        """Where the unit of the value is made, or called, if that is one place."""
        unit, outer = self.unit, self.unit.outer
        if outer is not None and (outer.code.kind in ("function", "lambda") or unit.code.kind == "lambda"):
            made = (n for n, v in enumerate(outer.code.values) if v.op == "closure" and v.data == unit.code.key)
            number = next(made, None)
            return Place(self.flow, outer, number) if number is not None else None
        call = self.flow.only_call(unit) if unit.code.kind == "function" else None
        return Place(self.flow, *call) if call is not None else None

    @property
    def is_called(self) -> bool:
        """Whether the value is what some call calls."""
        return any(user.value.op == "call" and user.value.args[0] == self.number for user in self.users)

    @property
    def owner(self) -> Method | None:
        """Of an attribute: the method whose own object (or class) it is read of; a nested function sees that too."""
        base = self.operand(0).root
        unit: Unit | None = base.unit
        if base.value.op == "free":
            unit = unit.above(base.value.data[0]) if unit is not None else None
            found = unit.code.definitions.get(base.value.data[1], ()) if unit is not None else ()
            return unit.method if unit is not None and len(found) == 1 and unit.is_receiver(found[0]) else None
        return base.unit.method if base.unit.is_receiver(base.number) else None

    @property
    def users(self) -> list[Place]:
        """The values that have this one as an operand."""
        return [self.value_at(n) for n in users_of(self.unit).get(self.number, ())]

    @property
    def taken_by(self) -> list[Place]:
        """The users, without the variables that a call may change which gives this value."""
        return [user for user in self.users if user.value.op != "mut" or user.value.args[0] == self.number]

    @property
    def group(self) -> Axes:
        """Of a collective: the axes of its group, with what callers pass; `?` where it is not known."""
        found: Axes = frozenset()
        for operation in self.operations:
            found |= axes_in(self.flow.close(operation.group, self.unit))
        return found

    @property
    def hint(self) -> str:
        """The name by which the source knows the value; it ranks candidates and proves nothing."""
        value = self.root.value
        if value.op in ("param", "free"):
            return str(value.data[1])
        if value.op == "phi" and not value.data:  # of `a or b`, `a if c else b`: what it is called then
            return self.unit.variables.get(self.root.number, "")
        if value.op in ("attr", "phi", "name"):
            return str(value.data)
        if value.op != "call":
            return ""
        asked = self.root.receiver if self.root.method == "get_group" else None  # `pp_mesh.get_group()`
        return asked.hint if asked is not None else self.root.operand(0).hint

    @property
    def called(self) -> str:
        """The last link of the path by which the source calls the value: of what a call gave, the variable's name."""
        names, root = self.unit.variables, self.root
        return names.get(self.number, names.get(root.number, "")) if root.value.op == "call" else self.hint

    @property
    def spanned(self) -> tuple[Axes, bool]:
        """Of a value that is a group: its axes, and whether they are known for certain or only by its name."""
        return spanned(self.closed, self.hint)

    @property
    def is_made_once(self) -> bool:
        """Whether the value is only made by who asks for something first: `if _GROUP is None: _GROUP = new_group()`."""
        from validator.effects.made_once import made_already

        branches = self.unit.control.settled(self.value.block)
        return any(made_already(self.flow, self.unit, branch) not in (None, way) for branch, way in branches)

    def reached(self) -> Iterator[tuple[Operation, Place]]:
        """The collectives that run when this does, nearest first: its own, and those of what it calls; not those for
        which a constant that is passed on the way switches off what they stand under."""
        queue: list[tuple[Place, Constants]] = [(self, ())]
        seen, given = set[tuple[Unit, Constants]](), set[Place]()
        for place, known in queue:
            site = place.result.sites.get(place.number)
            if site is None or site.away or place in given:
                continue
            if site.operations:
                given.add(place)
            for operation in site.operations:
                yield operation, place
            for target in site.targets:
                passed = _constants(self.flow, target, dict(known))
                if target.unit is not self.unit and (target.unit, passed) not in seen:
                    seen.add((target.unit, passed))
                    inner = self.flow.result(target.unit).sites
                    places = [Place(self.flow, target.unit, number) for number in sorted(inner)]
                    queue += [(each, passed) for each in places if not each.is_made_once and not each.is_off(passed)]

    def is_off(self, known: Constants) -> bool:
        """Whether this does not run where some parameters of its function are constants that are known."""
        given = dict(known)
        tests = (test.asserted(holds) for test, holds in self.settled_tests) if given else ()
        asked = ((test.value.data[0], holds) for test, holds in tests if test.value.op == "param")
        return any(position in given and bool(given[position].constant()) is not holds for position, holds in asked)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The collectives that a call is."""
        site = self.result.sites.get(self.number)
        return site.operations if site is not None else ()


def _constants(flow: Flow, target: Target, known: dict[int, Val]) -> Constants:
    """The parameters of a function that a call gives one constant; those of the function around it are `known`."""
    found = []
    for position, (name, _) in enumerate(target.unit.code.params):
        passed = target.argument(position)
        if passed is None:
            passed = flow.parameters.default(target.unit, name)
        value = instantiated(passed, lambda each: known.get(each, UNKNOWN))
        if len(value.objs) == 1 and value.of("const"):
            found.append((position, value))
    return tuple(found)


def _is_predicate(call: Place) -> bool:
    """Whether a call asks a library what an object is: `torch.is_tensor(x)`, `dataclasses.is_dataclass(x)`."""
    return any(o[0] == "ext" and o[1].rpartition(".")[2].startswith("is") for o in call.operand(0).val.each)


def _decisive(flow: Flow, unit: Unit) -> Iterator[Place]:
    """What a function gives back, and the conditions that decide which of its returns is taken."""
    for block in unit.code.in_order():
        if unit.code.blocks[block].end[0] == "return":
            place = Place(flow, unit, unit.code.blocks[block].end[1])
            yield place
            deciding = sorted(unit.control.deciding(block))
            yield from (place._replace(number=unit.code.blocks[branch].end[1]) for branch in deciding)


class Queries:
    """Answers for one project; asked for with `project.analysis(Queries)`.

    What is asked for by names of libraries gives nothing in a project that has no collectives and no ranks.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._calls: dict[Unit, list[Place]] = {}

    def mentioning(self, *names: str) -> tuple[Unit, ...]:
        """The units in which one of the names stands: as a variable, an attribute, a keyword or a text."""
        return self.flow.mentions.units(*names) if self.flow.is_distributed else ()

    def beside(self, *words: str) -> Iterator[Unit]:
        """All units of the files in whose text one of the words stands."""
        for module in self.flow.mentions.modules(*words) if self.flow.is_distributed else ():
            yield from sorted(self.flow.whole_units(module), key=lambda unit: unit.place)

    def spelling(self, *words: str) -> Iterator[Unit]:
        """The units that mention one of the words, in files in whose text it stands: as a key in brackets too."""
        for module in self.flow.mentions.spelling(*words) if self.flow.is_distributed else ():
            yield from sorted(self.flow.mentions.within(module, words), key=lambda unit: unit.place)

    def called(self, *names: str) -> list[Unit]:
        """The functions and methods of the project that are called so."""
        wanted = frozenset(names)
        methods = sorted((m for m in self.project.functions() if m.name in wanted), key=lambda m: (m.path, m.facts.at))
        return list(self.flow.units(iter(methods)))

    def calls_of(self, unit: Unit) -> list[Place]:
        """The calls in the project that run a unit in the same process."""
        known = self._calls.get(unit)
        if known is None:
            calls = self.flow.calls_of(unit)
            known = self._calls[unit] = [Place(self.flow, caller, passed.site) for caller, passed in calls]
        return known

    def reaching(self, units: Iterable[Unit], *, handed_on: bool = True) -> frozenset[Unit]:
        """Units, and those that call them, however deep below; `handed_on`: also through calls of libraries which are
        passed a function to call."""
        found = set(units)
        stack = list(found)
        while stack:
            calls = (call for call in self.calls_of(stack.pop()) if handed_on or not call.hands_on)
            for caller in {call.unit for call in calls} - found:
                found.add(caller)
                stack.append(caller)
        return frozenset(found)

    def reached(self, units: Iterable[Unit], but: Collection[ClassDef] = ()) -> list[Unit]:
        """Units with all that they run in the same process, nearest first, without methods of some classes."""
        found = dict.fromkeys(units)
        queue = list(found)
        for unit in queue:
            for _, site in sorted(self.flow.result(unit).sites.items()):
                for target in site.targets if not site.away else ():
                    if target.unit not in found and target.unit.cls not in but:
                        found[target.unit] = None
                        queue.append(target.unit)
        return queue

    def collectives(self, *names: str) -> Iterator[Place]:
        """The collectives of the given names (`all_reduce`), or all of them: calls that have their arguments, not those
        of what runs them (`to_thread(dist.broadcast, tensor)`)."""
        for unit in self.flow.effectful():
            yield from self._collectives_of(unit, names)

    def collectives_with_parts(self, *names: str) -> Iterator[Place]:
        """The same, and those of the functions whose bodies stand in their callers where they are defined, too."""
        for unit in self.flow.effectful():
            known = self.flow.units_of(unit.module)
            for each in (unit, *(known[key] for key in unit.code.parts if key in known)):
                yield from self._collectives_of(each, names)

    def _collectives_of(self, unit: Unit, names: tuple[str, ...]) -> Iterator[Place]:
        for number, site in sorted(self.flow.result(unit).sites.items()):
            place = Place(self.flow, unit, number)
            if any(not names or o.name in names for o in site.operations) and not place.hands_on:
                yield place

    def calls(self, *dotted: str) -> Iterator[Place]:
        """The calls of things outside the project, by full names as in the tables (`torch.optim.AdamW`); none where
        nothing is distributed."""
        return self.calls_anywhere(*dotted) if self.flow.is_distributed else iter(())

    def calls_anywhere(self, *dotted: str) -> Iterator[Place]:
        """The same in every project."""
        wanted = frozenset(dotted)
        aliases = (alias for alias, name in self.flow.models.aliases.items() if name in wanted)
        last = tuple(dict.fromkeys(name.rpartition(".")[2] for name in (*dotted, *aliases)))
        for place in _named(self.flow, self.flow.mentions.calling(*last), last):
            callee = place.operand(0).val
            if any(o[0] == "ext" and (o[1] in wanted or self.flow.models.named(o[1]) in wanted) for o in callee.each):
                yield place

    def prefixed(self, *prefixes: str) -> Iterator[Place]:
        """The calls of things outside the project whose full names begin so (`torch.optim.`), which make objects."""
        heads = {prefix.partition(".")[0] for prefix in prefixes}
        for unit in self.beside(*heads):
            for number in _calls_of(unit):
                place = Place(self.flow, unit, number)
                made = place.method[:1].isupper() or place.operand(0).value.op == "import"
                if made and any(o[0] == "ext" and o[1].startswith(prefixes) for o in place.operand(0).val.each):
                    yield place

    def values(self, unit: Unit, *ops: str) -> Iterator[Place]:
        """The values of a unit that some kinds of instruction make."""
        for number in numbers_of(unit, ops):
            yield Place(self.flow, unit, number)

    def of_program(self) -> Iterator[Unit]:
        """The units of all files that rules look into but tests, which put others in the place of real objects."""
        for module in self.project.modules.values():
            if not is_test(module.path):
                yield from self.flow.whole_units(module)

    def called_in_program(self, names: frozenset[str]) -> Iterator[Place]:
        """The calls of the program itself by some names."""
        found = [row for name in names for row in self._called_in_program.get(name, ())]
        for _, unit, number in sorted(found, key=itemgetter(0)):
            yield Place(self.flow, unit, number)

    @cached_property
    def _called_in_program(self) -> dict[str, list[tuple[int, Unit, int]]]:
        """By the name that is called: (number of the call in the program, unit, value)."""
        found: dict[str, list[tuple[int, Unit, int]]] = {}
        calls = (place for unit in self.of_program() for place in self.calls_in(unit))
        for order, place in enumerate(calls):
            found.setdefault(place.method, []).append((order, place.unit, place.number))
        return found

    def calls_in(self, unit: Unit) -> Iterator[Place]:
        for number in _calls_of(unit):
            yield Place(self.flow, unit, number)

    def decorators(self, unit: Unit) -> Iterator[Place]:
        """The decorators of a function, as values of the unit around it."""
        if (outer := unit.outer) is not None:
            for number in outer.decorating(unit):
                yield Place(self.flow, outer, outer.code.values[number].args[0])

    def targets(self, call: Place) -> list[Unit]:
        """The units of the project that a call may run."""
        site = call.result.sites.get(call.number)
        return [target.unit for target in site.targets] if site is not None else []

    def attributes(self, name: str) -> Iterator[Place]:
        """Where an attribute of that name is read."""
        for unit in self.mentioning(name):
            for number, value in enumerate(unit.code.values):
                if value.op == "attr" and value.data == name:
                    yield Place(self.flow, unit, number)

    def named(self, *names: str) -> Iterator[Place]:
        """The calls by the name that is called, on whatever object; none where nothing is distributed."""
        return _named(self.flow, self.flow.calling(*names), names)

    def named_anywhere(self, *names: str) -> Iterator[Place]:
        """The same in every project."""
        return _named(self.flow, self.flow.mentions.calling(*names), names)


def _named(flow: Flow, units: Iterable[Unit], names: Collection[str]) -> Iterator[Place]:
    for unit in units:
        for number in _calls_of(unit):
            place = Place(flow, unit, number)
            if place.method in names:
                yield place


def ways_back(place: Place, stops: Callable[[Place], bool]) -> Iterator[Place | None]:
    """What runs before a value in its function, on every way, back to where `stops` holds, that one included; None
    where a way comes from the start of the function."""
    code = place.unit.code
    seen: set[int] = set()
    stack = [(place.value.block, place.number)]
    while stack:
        block, before = stack.pop()
        for number in sorted((n for n in code.blocks[block].values if n < before), reverse=True):
            each = place.value_at(number)
            yield each
            if stops(each):
                break
        else:
            if not code.blocks[block].preds:
                yield None
            following = [each for each, raised in code.blocks[block].preds if not raised and each not in seen]
            seen.update(following)
            stack += [(each, len(code.values)) for each in following]


def blocks_of(code: Code, header: int) -> list[int]:
    """The blocks of a loop, those of loops inside it too, without its test."""
    found = []
    for number, block in enumerate(code.blocks):
        around, seen = block.loop, set()
        while around >= 0 and around not in seen and around != header:
            seen.add(around)
            around = code.blocks[_before(code, around)].loop
        if around == header and number != header:
            found.append(number)
    return found


def _before(code: Code, header: int) -> int:
    """The block from which a loop is entered: where its iterator is made, or what leads to its test."""
    iterator = code.loops[header].iterator
    if iterator >= 0:
        return code.values[iterator].block
    return next((p for p, raised in code.blocks[header].preds if not raised and code.blocks[p].loop != header), header)


def spanned(group: Val, hint: str) -> tuple[Axes, bool]:
    """The axes of a group, and whether they are known for certain or only by the name that it has."""
    axes = axes_in(group)
    if UNKNOWN_AXIS not in axes:
        return axes, True
    return axes_of(hint) or axes, False


def apart(causes: Causes, group: Axes) -> Causes:
    """The causes by which ranks of one group surely differ."""
    return frozenset(c for c in varying(causes) if meets(c.axis, group))


def because(causes: Causes) -> str:
    """Why a value differs between ranks, as the end of a sentence about it."""
    kinds = {c.kind for c in causes}
    if "rank" in kinds or "member" in kinds:
        return "depends on the rank that calls"
    return "depends on data that each rank has of its own"


def users_of(unit: Unit) -> Users:
    """By value the values that have it as an operand."""
    return unit.users


def _calls_of(unit: Unit) -> Sequence[int]:
    return numbers_of(unit, ("call",))


def numbers_of(unit: Unit, ops: tuple[str, ...]) -> Sequence[int]:
    """The values of a unit that some kinds of instruction make, in their order."""
    known: dict[tuple[str, ...], Sequence[int]] = unit.__dict__.setdefault("_numbers_of", {})
    found = known.get(ops)
    if found is None:
        found = known[ops] = array("i", [n for n, value in enumerate(unit.code.values) if value.op in ops])
    return found
