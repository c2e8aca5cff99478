"""Which units may issue collectives: from the calls that are collectives outwards, so that the others are never solved.

Asked are the units that mention a collective; who may call one that was found to issue one; and those to whom such a
function, an object that is called, or a wrapped model comes as a value: through an attribute or variable in which it is
stored, as an argument, as a result. What a value is, the solver says; names only choose whom to ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from validator.definitions import ClassDef
from validator.domains.placement import WRAPPING, may, parameters
from validator.flow.callgraph.callers import is_taken
from validator.flow.calls.libraries.containers import LAZY
from validator.flow.merging.phis import AS_LONG
from validator.flow.values import Obj, Val, parts_of

if TYPE_CHECKING:
    from validator.flow.program.answers import Result
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit

# What the language runs of an object without naming it.
_IMPLICIT = frozenset({
    "__call__", "forward", "__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__next__", "__len__",
    "__getitem__", "__del__",
})  # fmt: skip
_ON_WRAPPED = ("backward", "state_dict", "full_state_dict")  # methods that are collectives of a wrapped model
_RUNNING = frozenset({*_ON_WRAPPED, "forward", "module", "remote", "options"})
_WRAPPED = "wrapped"  # a model whose forward is a collective

_UNFOLLOWED = frozenset({"ext", "top", "param", "made"})
# Of whose result the elements are taken one by one: who gets that runs a generator in it.
_GOING_ON = LAZY | AS_LONG | {"next", "dict", "tqdm.auto.tqdm"}

Thing = Any  # a `Unit`, a `ClassDef` whose objects run something, or `_WRAPPED`
Goal = tuple[str, Any]  # ("name", attribute or variable), ("callers", unit) or ("unit", unit): who gets a value


class Carried:
    """By whom functions, objects and wrapped models are met as values, followed through the units that were solved."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.goals: dict[Thing, dict[Goal, None]] = {}  # by thing who may have it
        self._arguments: dict[tuple[Unit, int], dict[Thing, None]] = {}
        self._rows: dict[Unit, list[tuple[Goal, Val, tuple[Unit, int] | None]]] = {}

    def follow(self, units: Iterable[Unit]) -> None:
        """Take in what some units do with values."""
        queue = list(units)
        for unit in queue:
            self._rows[unit] = list(self._handed_on(unit))
        while queue:
            unit = queue.pop()
            for goal, value, parameter in self._rows.get(unit, ()):
                things = dict.fromkeys(self._things(unit, value))
                for thing in things:
                    self.goals.setdefault(thing, {})[goal] = None
                if parameter is not None and not things.keys() <= self._arguments.setdefault(parameter, {}).keys():
                    self._arguments[parameter].update(things)
                    if parameter[0] in self._rows:
                        queue.append(parameter[0])

    def _handed_on(self, unit: Unit) -> Iterator[tuple[Goal, Val, tuple[Unit, int] | None]]:
        """The values that leave a unit, with who gets them."""
        result = self.flow.solver.final["unit", unit]
        for rows in (result.globals, result.class_names):
            yield from ((("name", name), value, None) for name, values in rows.items() for value in values)
        for kept in (result.stored, result.filled):
            yield from ((("name", name), value, None) for name, rows in kept.items() for _, value in rows)
        for objects in result.made.values():
            yield from ((("name", name), value, None) for rows in objects for name, value in rows)
        values = unit.code.values
        for value in values:
            root = unit.root(value.args[0]) if value.op == "store_item" else -1
            if root >= 0 and values[root].op in ("attr", "name"):
                yield ("name", values[root].data), result.vals[value.args[2]], None
        for value in (result.returned, result.yielded):
            yield ("callers", unit), value, None
        for target, calls in result.passed.items():
            for passed in calls:
                yield from ((("unit", target), value, (target, position)) for position, value in passed.bindings)

    def _things(self, unit: Unit, value: Val) -> Iterator[Thing]:
        """What a value is or holds, that something may run."""
        if may(value.state, *WRAPPING):
            yield _WRAPPED
        if any(_WRAPPED in self._arguments.get((unit, position), ()) for position in parameters(value.state)):
            yield _WRAPPED
        for o in value.each:
            if o[0] == "param":
                yield from self._arguments.get((unit, o[1]), ())
            yield from _thing(o)
            for part in parts_of(o):
                yield from self._things(unit, part)


def _thing(o: Obj) -> Iterator[Thing]:
    if o[0] in ("unit", "bound", "generator", "inst", "class"):
        yield o[1]
    elif o[0] == "self":
        yield from (o[1], *o[1].descendants())


def given_away(unit: Unit, result: Result, number: int) -> tuple[Unit, ...]:
    """The functions that a call gets which is not followed, of a library or of unknown objects: it may run them. And
    the generators that any call gets but those that only wrap one: it may go through them."""
    value, site = unit.code.values[number], result.sites.get(number)
    if value.op != "call" or value.data.names == ("@",) or site is not None and site.away:
        return ()
    callee = result.vals[value.args[0]].each
    followed = site is not None and bool(site.targets) or any(o[0] not in _UNFOLLOWED for o in callee)
    goes_on = any(o[0] == "ext" and o[1] in _GOING_ON for o in callee)
    kinds = (() if followed else ("unit", "bound")) + (() if goes_on else ("generator",))
    given = (o[1] for argument in value.args[1:] for o in result.vals[argument].each if o[0] in kinds)
    return tuple(dict.fromkeys(given))


class Reach:
    """The units that issue collectives, themselves or through what they call."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._carried = Carried(flow)
        self._asked: dict[Unit, None] = {}
        self._issuing: dict[Unit, None] = {}  # of the units that were asked, those that issue collectives themselves
        self._callers: dict[Unit, list[Unit]] = {}  # by unit those of them that call it
        self._met: set[tuple[Thing, Goal]] = set()

    def units(self) -> list[Unit]:
        self._ask(self.flow.mentions.naming(*self._first))
        found: dict[Unit, None] = {}
        while True:
            found.update(dict.fromkeys(self._effectful()))
            if not self._ask([unit for thing in self._run(found) for unit in self._who_meets(thing)]):
                return sorted(found, key=lambda unit: unit.place)

    @cached_property
    def _first(self) -> list[str]:
        """The names of collectives, and of calls that wrap a model: to run it is one."""
        mentions = self.flow.mentions
        rows = self.flow.models.collectives.items()
        names = {name for name, packages in rows if not packages or mentions.libraries(*packages)}
        placing = {name for name in self.flow.models.placing(WRAPPING) if mentions.naming(name)}
        return sorted({*names, *placing, *(_ON_WRAPPED if placing else ())})

    def _ask(self, units: Iterable[Unit]) -> list[Unit]:
        """Solve units, and the functions inside them; those that were not asked before."""
        new: dict[Unit, None] = {}
        for unit in units:
            new.update(dict.fromkeys(each for each in self._with_inner(unit) if each not in self._asked))
        for unit in new:
            self.flow.solver.get(("unit", unit))
        self.flow.solver.settle()
        self._asked.update(new)
        self._carried.follow(new)
        self._follow(new)
        return list(new)

    def _with_inner(self, unit: Unit) -> Iterator[Unit]:
        """A unit and the functions inside it, which know its variables."""
        yield unit
        if unit.code.kind in ("function", "lambda"):
            for each in self.flow.mentions.inner(unit):
                yield from self._with_inner(each)

    def _follow(self, units: Iterable[Unit]) -> None:
        """Take in what some units issue, and whom they call."""
        for unit in units:
            result = self.flow.solver.final["unit", unit]
            for site in result.sites.values():
                if site.away:
                    continue
                if site.operations:
                    self._issuing[unit] = None
                for target in (*site.targets, *site.guessed):
                    self._callers.setdefault(target.unit, []).append(unit)
            for number, value in enumerate(unit.code.values):
                for given in given_away(unit, result, number) if value.op == "call" else ():
                    self._callers.setdefault(given, []).append(unit)

    def _effectful(self) -> list[Unit]:
        """Those of the units that were asked that issue collectives now."""
        found = dict(self._issuing)
        queue = list(found)
        while queue:
            for caller in self._callers.get(queue.pop(), ()):
                if caller not in found:
                    found[caller] = None
                    queue.append(caller)
        return list(found)

    def _run(self, found: Iterable[Unit]) -> Iterator[Thing]:
        """What runs a collective when it is called, entered or iterated."""
        yield _WRAPPED
        for unit in found:
            yield unit
            if unit.cls is not None and unit.name in _IMPLICIT:
                yield from (unit.cls, *unit.cls.descendants())

    def _who_meets(self, thing: Thing) -> Iterator[Unit]:
        """The units to which something comes that runs a collective."""
        goals = list(self._carried.goals.get(thing, ()))
        if isinstance(thing, ClassDef):
            goals.append(("name", thing.name))
        elif thing != _WRAPPED:
            goals += [("callers", thing), ("name", thing.name)]
        for kind, which in goals:
            if (kind, which) in self._met:
                continue
            self._met.add((kind, which))
            if kind == "name":
                yield from self._taking(which)
            elif kind == "callers":
                yield from self.flow.calls_by_name.of(which, tests=True)
            else:
                yield which

    def _taking(self, name: str) -> Iterator[Unit]:
        """The units that do more with what is kept under a name than to read a part of it."""
        for unit in self.flow.mentions.naming(name):
            values = unit.code.values
            for number in unit.named.get(name, ()):
                users = [values[user] for user in unit.users.get(number, ())]
                if is_taken(users) or any(user.op == "attr" and user.data in _RUNNING for user in users):
                    yield unit
                    break
