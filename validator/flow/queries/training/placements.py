"""What rules ask about placement: the calls that place models, where parameters come from, what follows what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.domains.placement import SPREADING
from validator.effects.condition_keys import Key, assume
from validator.flow.access_paths import Path, paths_of
from validator.flow.containers import GROWING
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.values import Val
from validator.ir.model import Value
from validator.project import Project

_ASKING = frozenset({"hasattr", "isinstance", "getattr", "issubclass", "callable"})
Point = tuple[int, int]  # a block, and how many of its values come before


class Event(NamedTuple):
    """A call that places a model or a part of it, itself or by what it calls: `path` is that of the part."""

    call: Place
    path: Path
    given: Place
    step: str


class Placings:
    """Answers for one project; asked for with `project.analysis(Placings)`."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self.flow: Flow = self.queries.flow

    def of(self, unit: Unit, *steps: str) -> list[tuple[Place, Place, str]]:
        """The calls of a unit that take one of the steps with an argument: (call, argument, step)."""
        found = []
        for (call, position), taken in sorted(self.flow.result(unit).steps.items()):
            value = unit.code.values[call]
            for step in taken:
                if step in steps and value.op == "call":
                    given = self._operand(unit, call, position)
                    if given is not None:
                        found.append((Place(self.flow, unit, call), Place(self.flow, unit, given), step))
        return found

    def events(self, unit: Unit, *steps: str) -> list[Event]:
        """The calls of a unit by which a model or a part of it takes one of the steps, in the order of the source."""
        return [event for event in self._events(unit) if event.step in steps]

    def _events(self, unit: Unit) -> list[Event]:
        known = self._known.get(unit)
        if known is None:
            known = self._known[unit] = []  # where it calls itself
            found = {}
            for call, given, step in self.of(unit, *SPREADING):
                found[call.number, self.path(given), step] = Event(call, self.path(given), given, step)
            for number, site in self.flow.result(unit).sites.items():
                if not site.away and unit.code.values[number].op == "call":
                    for event in self._inner(unit, number, [target.unit for target in site.targets]):
                        found.setdefault((number, event.path, event.step), event)
            known += [event for _, event in sorted(found.items(), key=lambda row: row[0][0])]
        return known

    def _inner(self, unit: Unit, call: int, targets: list[Unit]) -> Iterator[Event]:
        """What the units that are called do to parts of what they are given."""
        for target in targets:
            for event in self._events(target):
                root = event.path[0]
                value = target.code.values[root] if isinstance(root, int) else None
                given = (
                    argument_of(unit, call, target, value.data[0])
                    if value is not None and value.op == "param"
                    else None
                )
                if given is not None:
                    place = Place(self.flow, unit, given)
                    yield Event(Place(self.flow, unit, call), (*self.path(place), *event.path[1:]), place, event.step)

    def path(self, place: Place) -> Path:
        """The path of a value, where what a wrapper returns is the model that it was given."""
        found = whole(place)
        seen: set[int] = set()
        while isinstance(found[0], int) and found[0] not in seen:
            seen.add(found[0])
            found = (*self._origin(place.value_at(found[0])), *found[1:])
        return found

    def _origin(self, place: Place) -> Path:
        value, taken = place.value, self.flow.result(place.unit).steps
        if value.op == "call":
            for position in range(len(value.args) - 1):
                if (place.number, position) in taken:
                    return whole(place.value_at(value.args[position + 1]))
        if value.op == "phi" and place.number not in self._active:
            self._active.add(place.number)
            different = {self.path(place.value_at(each)) for each in value.args} - {(place.number,)}
            self._active.discard(place.number)
            if len(different) == 1:
                return different.pop()
        return (place.number,)

    @cached_property
    def _known(self) -> dict[Unit, list[Event]]:
        return {}

    @cached_property
    def _active(self) -> set[int]:
        return set()

    @staticmethod
    def _operand(unit: Unit, call: int, position: int) -> int | None:
        value = unit.code.values[call]
        if position >= 0:
            return value.args[position + 1]
        callee = unit.code.values[value.args[0]]
        return callee.args[0] if callee.op == "attr" else None

    def units(self, *steps: str) -> list[Unit]:
        """The units that take one of the steps with something, themselves or in what they call."""
        return sorted(self.queries.reaching(self.flow.placing(*steps)), key=lambda unit: unit.place)

    def everywhere(self, *steps: str) -> Iterator[tuple[Place, Place, str]]:
        for unit in self.units(*steps):
            yield from self.of(unit, *steps)

    def of_class(self, unit: Unit, *steps: str) -> Iterator[tuple[Place, Place, str]]:
        """The same of all methods of the class that a unit belongs to; of the unit alone where it is none."""
        if unit.cls is None:
            yield from self.of(unit, *steps)
            return
        for owner in unit.cls.mro:
            for method in owner.every_method():
                own = self.flow.unit_of(method)
                if own is not None:
                    yield from self.of(own, *steps)

    def where(self, place: Place, *steps: str) -> Place | None:
        """The call that placed a value so: in its unit, in its class, else any that does it to what it may be."""
        here = [call for call, given, _ in self.of(place.unit, *steps) if related(given, place)]
        return (
            next(iter(here), None)
            or next((c for c, _, _ in self.of_class(place.unit, *steps)), None)
            or self._any(steps)
        )

    def _any(self, steps: tuple[str, ...]) -> Place | None:
        key = frozenset(steps)
        if key not in self._first:
            self._first[key] = next((call for call, _, _ in self.everywhere(*steps)), None)
        return self._first[key]

    @cached_property
    def _first(self) -> dict[frozenset[str], Place | None]:
        return {}


def path(place: Place) -> Path:
    return paths_of(place.unit).path(place.number)


def whole(place: Place) -> Path:
    """The path with what it is an element of."""
    return paths_of(place.unit).place(place.number)


def members(place: Place, seen: frozenset[Unit] = frozenset()) -> Path:
    """The steps by which a value is reached, those in front of the only call of its function too; no variable at the
    front, so of two such paths nothing can be said but their steps."""
    found = whole(place)
    root = place.unit.code.values[found[0]] if isinstance(found[0], int) else None
    call = place.flow.only_call(place.unit) if root is not None and root.op == "param" else None
    if root is None or call is None or place.unit.has_receiver and root.data[0] == 0:
        return found[1:]
    given = argument_of(call[0], call[1], place.unit, root.data[0])
    if given is None or call[0] in seen:
        return found[1:]
    return (*members(Place(place.flow, call[0], given), seen | {place.unit}), *found[1:])


def related(one: Place, other: Place) -> bool:
    """Whether two values of a unit are the same thing, or one is a part of the other."""
    a, b = whole(one), whole(other)
    shorter = min(len(a), len(b))
    return one.unit is other.unit and a[:shorter] == b[:shorter]


def follows(first: Place, last: Place) -> bool:
    """Whether a way leads from one value of a unit to another."""
    return leads(first.unit, point(first), point(last))


def point(place: Place) -> Point:
    block = place.value.block
    return block, place.unit.code.blocks[block].values.index(place.number)


def leads(unit: Unit, first: Point, last: Point) -> bool:
    """Whether a way leads from one point to another."""
    if first[0] == last[0] and first[1] < last[1]:
        return True
    blocks = unit.code.blocks
    seen: set[int] = set()
    stack = list(blocks[first[0]].successors())
    while stack:
        at = stack.pop()
        if at == last[0]:
            return True
        if at not in seen:
            seen.add(at)
            stack += blocks[at].successors()
    return False


def sources(place: Place) -> Iterator[Place]:
    """The values that a value is made of, itself first; calls that nobody knows are made of their arguments."""
    values = place.unit.code.values
    seen: dict[int, None] = {place.number: None}
    stack = [place.number]
    while stack:
        number = stack.pop()
        yield place.value_at(number)
        value = values[number]
        for each in _made_of(place.unit, value) if value.op == "mut" else value.args:
            if each >= 0 and each not in seen:
                seen[each] = None
                stack.append(each)


def _made_of(unit: Unit, value: Value) -> tuple[int, ...]:
    """What a variable behind a call holds: what it held, and what the call added to it."""
    values = unit.code.values
    call = values[value.args[1]]
    callee = values[call.args[0]] if call.op == "call" and value.data == -1 else None
    grows = callee is not None and callee.op == "attr" and callee.data in GROWING
    return (value.args[0], *call.args[1:]) if grows else value.args[:1]


def models_of(place: Place) -> list[Place]:
    """The models whose parameters lie in a value: what `parameters()` is asked of, else what helpers are given."""
    asked, given = [], []
    for each in sources(place):
        value = each.value
        if value.op != "call":
            continue
        if each.method in ("parameters", "named_parameters", "trainable_parameters") and each.receiver is not None:
            asked.append(each.receiver)
        given += [each.value_at(a) for a in value.args[1:]]
    return asked or given


def decided_by(place: Place) -> Iterator[Place]:
    """The tests that decide whether a value is reached, around the only call of its function too."""
    yield from (test for test in place.tests if test.value.op != "more")


def asks_first(place: Place) -> bool:
    """Whether a test around asks what kind of thing something is, or an exception is caught where it is another."""
    for test in decided_by(place):
        for each in sources(test):
            name = each.value.data if each.value.op == "name" else each.value.data if each.value.op == "attr" else ""
            if name in _ASKING:
                return True
    return place.is_tried


def asks_about(place: Place, owner: Place) -> bool:
    """Whether a test around computes with a value, or with what holds it: it may ask how that is placed
    (`model.module if state.is_wrapped else model`)."""
    held = owner.operand(0) if owner.value.op == "attr" else None
    known = {owner.root.key}
    if held is not None and not (held.root.value.op == "param" and held.root.value.data[0] == 0):
        known.add(held.root.key)
    return any(each.root.key in known for test in decided_by(place) for each in sources(test))


def on_some_ranks(place: Place) -> Place | None:
    """The test of the rank that decides whether a value is reached, if there is one."""
    for test in decided_by(place):
        closed: Val = test.closed
        if any(cause.kind in ("rank", "member") and cause.sure for cause in closed.v | closed.p):
            return test
    return None


def excluded(first: Place, last: Place) -> bool:
    """Whether the tests around two values cannot both hold: of one value against two constants, or the opposite."""
    ones, others = _held(first), _held(last)
    for subject, wanted, holds in ones:
        for subject2, wanted2, holds2 in others:
            if subject != subject2:
                continue
            if wanted == wanted2 and holds != holds2 or wanted != wanted2 and holds and holds2:
                return True
    return False


def _held(place: Place) -> list[tuple[Key, object, bool]]:
    """What is known to hold where a value is reached: (subject, constant, whether they are equal)."""
    found: list[tuple[Key, object, bool]] = []
    for test, holds in place.settled_tests:
        for key, each in assume({}, test.key, holds).items():
            if key[:2] == ("compare", "Eq") and key[3][0] == "const":
                found.append((key[2], repr(key[3]), each))
            else:
                found.append((key, "true", each))
    return found


def computed_from(
    place: Place, cutting: frozenset[str], cuts: Callable[[Place], bool] = lambda call: False
) -> Iterator[Place]:
    """The values of which a number is computed, back to where a method, an attribute or a call like `cuts` cuts it off.

    What a model returns is computed by the model: its call is the last, and what it was given is left out.
    """
    values = place.unit.code.values
    seen, stack = {place.number}, [place.number]
    while stack:
        number = stack.pop()
        value = values[number]
        callee = values[value.args[0]] if value.op == "call" else None
        if value.op == "attr" and value.data in cutting or callee is not None and callee.data in cutting:
            continue
        if callee is not None and cuts(place.value_at(number)):
            continue
        yield place.value_at(number)
        if value.op in ("next", "iter", "compare", "more"):
            continue
        args = value.args[:1] if value.op == "mut" else value.args
        stack += [each for each in args if each >= 0 and each not in seen]
        seen.update(args)


class Derived:
    """What becomes of a number: everything that is computed from it, in its unit, in what gets it, where it returns to.

    `shown`: where it is turned to a Python number, printed or decides; `scaling`: where it scales other tensors, which
    it does whatever becomes of it afterwards; `reduced`: a collective
    over an axis that may shard tensors gets it; `leaves`: it goes where it cannot be followed.
    """

    _SHOWING = frozenset({"item", "tolist", "print", "float", "int", "bool", "info", "log", "add_scalar", "debug"})
    _SCALING = frozenset({"mul_", "div_", "_foreach_mul_", "_foreach_div_", "clip_grads_with_norm_"})
    _STAGES = frozenset({"pp"})  # they hold other layers: no axis that tensors are sharded over

    def __init__(self, flow: Flow, start: Place) -> None:
        self.flow = flow
        self.shown: list[Place] = []
        self.scaling: list[Place] = []
        self.reduced = False
        self.leaves = False
        self.all: dict[Place, None] = {}
        self._stack = [start]
        while self._stack:
            place = self._stack.pop()
            if place not in self.all:
                self.all[place] = None
                self._follow(place)

    def _follow(self, place: Place) -> None:
        for user in place.users:
            op = user.value.op
            if op == "call":
                self._call(place, user)
            elif op == "attr":
                self._method(user)
            elif op in ("store_attr", "store_item", "store_global", "store_free", "yield"):
                self.leaves = True
            elif op == "join":
                self.shown.append(user)
            elif op != "mut" or user.value.args[0] == place.number:
                self._stack.append(user)
        for block in place.unit.code.blocks:
            if block.end[0] == "return" and block.end[1] == place.number:
                self._returned(place)
            elif block.end[0] == "branch" and block.end[1] == place.number:
                self.shown.append(place)

    @property
    def used(self) -> list[Place]:
        """Where it is used as what it is, no collective having changed it."""
        if self.reduced:
            return []
        return self.scaling or ([] if self.leaves else self.shown)

    def _returned(self, place: Place) -> None:
        """On where the unit is called; what lies in a tuple with others cannot be told from them."""
        calls = list(self.flow.calls_of(place.unit))
        self.leaves = self.leaves or not calls or place.value.op in ("tuple", "list", "dict")
        self._stack += [Place(self.flow, caller, passed.site) for caller, passed in calls if not self.leaves]

    def _method(self, attribute: Place) -> None:
        for call in attribute.users:
            if call.value.op != "call" or call.value.args[0] != attribute.number:
                continue
            if call.operations:
                self.reduced = self.reduced or not asks_first(call)
            elif attribute.value.data in self._SHOWING:
                self.shown.append(call)
            self._stack.append(call)

    def _call(self, place: Place, call: Place) -> None:
        if call.operations:
            self.reduced = self.reduced or not self._over_stages(call)
        elif call.method in _ASKING:
            return
        elif call.method in self._SHOWING:
            self.shown.append(call)
            self._stack.append(call)
        elif call.method in self._SCALING:
            self.scaling.append(call)
        elif call.origin.number != call.number:  # a function gives back what it was given
            if call.origin.root == place.root:
                self._stack.append(call)
        elif call.receiver is not None and call.method in ("append", "extend", "add"):
            self._stack += [user for user in call.users if user.value.op == "mut" and user.value.data == -1]
        elif (site := call.result.sites.get(call.number)) is not None and site.targets:
            self._passed(place, call)
        elif call.operand(0).closed.of("class"):
            self.leaves = True  # an object keeps it, as one does of which it is made an attribute
        else:
            self._stack.append(call)

    def _over_stages(self, call: Place) -> bool:
        group = call.argument(*call.operations[0].row.group or ("group", -1))
        axes = group.spanned[0] if group is not None else frozenset()
        return bool(axes) and axes <= self._STAGES

    def _passed(self, place: Place, call: Place) -> None:
        for target in call.result.sites[call.number].targets:
            for position, _ in enumerate(target.unit.code.params):
                if argument_of(call.unit, call.number, target.unit, position) == place.number:
                    params = (n for n, v in enumerate(target.unit.code.values) if v.op == "param")
                    mine = [n for n in params if target.unit.code.values[n].data[0] == position]
                    self._stack += [Place(self.flow, target.unit, number) for number in mine]
                    break
            else:
                self.leaves = True
