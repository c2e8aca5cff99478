"""Keywords that a function does not name and hands on: `def build(kind, **options): return Engine(**options)`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.binding import keeps_signature
from validator.definitions import Method
from validator.facts.model import Argument, Call
from validator.flow.objects import Objects
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.values import NONE_OBJ
from validator.project import Project

_READING = frozenset({"get", "keys", "items", "values", "copy"})


class Handed(NamedTuple):
    """Keywords that a call passes, and that end in the `**` of the function which it calls, and of those behind it."""

    caller: Method
    call: Call
    arguments: tuple[Argument, ...]


class Ends(NamedTuple):
    """The functions in whose `**` keywords end, the names that calls on the way pass themselves, and the parameters of
    the functions on the way."""

    takers: list[Method]
    passed: set[str]
    on_the_way: set[str]


class HandedOn:
    """Answers for one project; asked for with `project.analysis(HandedOn)`."""

    def __init__(self, project: Project) -> None:
        self.flow = project.analysis(Flow)
        self.objects = project.analysis(Objects)

    def calls(self, function: Method, *, rebuilt: bool = False) -> Iterator[Place]:
        """The calls of a function that pass on all keywords which it was passed and does not name, as they came;
        `rebuilt`: also those that a comprehension chose by their values, or gave others."""
        unit = self.flow.unit_of(function)
        star = next((i for i, p in enumerate(function.facts.params) if p.kind == "**"), -1)
        if unit is None or star < 0 or not keeps_signature(function):
            return
        same = [n for n, value in enumerate(unit.code.values) if value.op == "param" and value.data[0] == star]
        found: dict[int, None] = {}
        for number in same:  # grows: the same dictionary behind the calls that it is unpacked in
            for user in unit.users.get(number, ()):
                value = unit.code.values[user]
                if value.op in ("mut", "phi"):
                    same += [user] if user not in same else []
                elif value.op == "call":
                    names = [name for name, arg in zip(value.data.names, value.args[1:], strict=True) if arg == number]
                    if names != ["**"]:
                        return
                    found[user] = None
                elif not (value.op == "attr" and value.data in _READING or value.op in ("item", "compare")):
                    return  # who takes something out, or puts something in, passes on something else
                elif rebuilt and value.data == "items":
                    same += (each for each in _under_the_same_keys(self.flow, unit, user) if each not in same)
        for user in found:
            yield Place(self.flow, unit, user)

    def ends(self, callee: Place) -> Ends | None:
        """Who may get the keywords of a call for which what it runs has no parameter; None where that is not known.
        `callee`: what is called."""
        found = Ends([], set(), set())
        queue = [callee]
        seen: set[Method] = set()
        for each in queue:
            for method in functions_run(each):
                if method is None or not any(param.kind == "**" for param in method.facts.params):
                    return None
                if method in seen:
                    continue
                seen.add(method)
                further = list(self.calls(method, rebuilt=True))
                if further:
                    found.on_the_way.update(_named(method))
                    names = (name for place in further for name in place.value.data.names)
                    found.passed.update(name for name in names if name not in (None, "*", "**"))
                    queue += [place.operand(0) for place in further]
                else:
                    found.takers.append(method)
        return found

    def received(self, function: Method) -> Iterator[Handed]:
        """What callers pass to a function for its `**`, also through others that hand on theirs."""
        named = {function: _named(function)}
        queue = [function]
        for each in queue:
            for caller, call in self.objects.callers(each):
                if not _is_of_one_object(caller, call, function) or not self.objects.reaches_only(caller, call, each):
                    continue
                extra = (a for a in call.args if a.keyword not in (None, "*", "**") and a.keyword not in named[each])
                if found := tuple(extra):
                    yield Handed(caller, call, found)
                passing = caller not in named and any(a.keyword == "**" for a in call.args)
                if passing and any(place.at == call.at for place in self.calls(caller)):
                    named[caller] = named[each] | _named(caller)
                    queue.append(caller)


def functions_run(callee: Place) -> Iterator[Method | None]:
    """The functions of the project that calling a value may run; None for anything else."""
    for o in callee.closed.each or (None,):
        if o is not None and o[0] == "class":
            yield o[1].find("__init__")
        elif o != NONE_OBJ:
            yield o[1].method if o is not None and o[0] in ("unit", "bound") else None


def _under_the_same_keys(flow: Flow, unit: Unit, items: int) -> Iterator[int]:
    """The dictionaries that comprehensions make of the items of another one, under its keys: of all of them, or of
    those whose values they choose. `items`: where the method is asked for."""
    for number, value in enumerate(unit.code.values):
        if items_copied(unit, number) == items:
            conditions = (Place(flow, unit, each) for each in value.args[3:])
            if not any(part.number == value.args[0] for each in conditions for part in each.parts):
                yield number


def items_copied(unit: Unit, number: int) -> int:
    """Where the method is asked for whose items a comprehension puts into a new dictionary under the same keys, all or
    some of them: `{k: v for k, v in options.items() if …}`; -1 where a value is no such dictionary."""
    values = unit.code.values
    value = values[number]
    if value.op != "collect" or value.data != ("dict", 2, 1):
        return -1
    key = values[value.args[0]]
    is_own = key.op == "unpack" and values[key.args[0]].args[:1] == value.args[2:3]  # not of a loop around
    return _items_with(unit, value.args[0]) if is_own else -1


def items_put(unit: Unit, number: int) -> int:
    """The same of a dictionary that a loop fills: `for k, v in options.items(): chosen[k] = v`."""
    values = unit.code.values
    if values[number].op != "dict" or values[number].args:
        return -1
    stores = [value for value in values if value.op == "store_item" and unit.root(value.args[0]) == number]
    found = {_items_with(unit, value.args[1]) for value in stores}
    return found.pop() if len(found) == 1 else -1


def _items_with(unit: Unit, key: int) -> int:
    """Where the method is asked for of whose items, gone through, a value is the key; -1 where it is none."""
    values = unit.code.values
    value = values[key]
    taken = values[value.args[0]] if value.op == "unpack" and value.data[:2] == (0, 2) else None
    through = values[taken.args[0]] if taken is not None and taken.op == "next" else None
    asked = values[through.args[0]] if through is not None and through.op == "iter" else None
    method = values[asked.args[0]] if asked is not None and asked.op == "call" else None
    if asked is None or method is None or method.op != "attr" or method.data != "items":
        return -1
    return asked.args[0]


def _named(function: Method) -> frozenset[str]:
    return frozenset(p.name for p in function.facts.params if p.kind in ("any", "kw"))


def _is_of_one_object(caller: Method, call: Call, function: Method) -> bool:
    """Whether a call of an object's own method, or of what its base has of it, may come to a method: some class has
    both."""
    if caller.cls is None or function.cls is None or call.receiver not in ("super()", caller.own_object):
        return True
    if call.method != function.name:  # `self.block(x)`: an object that it keeps
        return True
    return any(function.cls in cls.mro for cls in (caller.cls, *caller.cls.descendants()))
