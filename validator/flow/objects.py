"""What of the project a value may be: which functions a call reaches, of which classes an object is.

The answers are those of the flow (`Place.closed`): through factories and tables of classes, fields, partials, handles
of actors, and what callers pass. An answer is *complete* where nothing else can be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.binding import keeps_signature, parameters
from validator.definitions import ClassDef, Method, Module
from validator.effects.choices import possible
from validator.effects.variants import Variants
from validator.facts.model import Argument, At, Call, Param
from validator.flow.annotations import classes_of, declared
from validator.flow.callgraph.callers import CALLED, called
from validator.flow.callgraph.indirect_calls import handed_over, kept_as_hook
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.constructors import REMOTE, Constructors
from validator.flow.narrowing import OBJECTS, told_apart, without
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.named_choices import named_choice
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.pure_functions import computed
from validator.flow.values import BOTTOM, NONE_OBJ, TOP, UNKNOWN, Obj, Val, join2, picked
from validator.project import Project

_MODULES = "torch.nn.Module"
_OWNERS = frozenset({"inst", "class"})
_HANDING = ("remote", "super", "__init__", "__call__")  # what is called stands before
_SPELLED = frozenset({"attr", "name", "param", "free"})


class Callee(NamedTuple):
    """Something that a call reaches: what readers call it, its parameters as callers fill them, where it stands.

    `given`: arguments that a `partial` passes before those of the call.
    """

    name: str
    params: tuple[Param, ...]
    place: Method | ClassDef
    given: tuple[Argument, ...] = ()


class Reached(NamedTuple):
    """What a call may reach, as far as it is known, and whether it is all."""

    callees: tuple[Callee, ...]
    complete: bool


class Held(NamedTuple):
    """The classes of the project of which a value may be an object, and whether it can be nothing else.

    `below`: those of which it may as well be an object of a class below.
    """

    classes: frozenset[ClassDef]
    below: frozenset[ClassDef]
    complete: bool


class Objects:
    """Answers for one project; asked for with `project.analysis(Objects)`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)
        self.flow = self.queries.flow
        self.constructors = project.analysis(Constructors)
        self.variants = project.analysis(Variants)
        self._calls: dict[Module, dict[At, Place]] = {}
        self._links: dict[Module, dict[tuple[int, int], list[Place]]] = {}
        self._spelled: dict[Module, dict[At, tuple[Method, Call]]] = {}
        self._run: dict[tuple[Unit, int], tuple[Method, ...]] = {}
        self._callers: dict[Method, tuple[tuple[Method, Call], ...]] = {}
        self._keeps: dict[tuple[ClassDef, str], frozenset[ClassDef]] = {}

    # -- places --------------------------------------------------------------------------------------------

    def call_at(self, module: Module, at: At) -> Place | None:
        """The call that stands at a place of a file."""
        known = self._calls.get(module)
        if known is None:
            known = self._calls[module] = {place.at: place for place in self._places(module, "call", "part")}
        return known.get(at)

    def spelled(self, place: Place) -> tuple[Method, Call] | None:
        """A call as a fact, with the function in which it stands."""
        module = place.unit.module
        known = self._spelled.get(module)
        if known is None:
            functions = module.functions.values()
            known = self._spelled[module] = {call.at: (each, call) for each in functions for call in each.facts.calls}
        return known.get(place.at)

    def links(self, module: Module, at: At, path: str) -> list[tuple[int, Place]]:
        """The reads of attributes in a chain (`a.b.c`) that begins at a place: with the number of the link, from 1.

        A part that was read before, and is still the same, is no read of its own.
        """
        known = self._links.get(module)
        if known is None:
            known = self._links[module] = {}
            for place in self._places(module, "attr"):
                known.setdefault(place.at[:2], []).append(place)
            for places in known.values():
                places.sort(key=lambda place: place.at[2:])
        names = [link.partition("(")[0].partition("[")[0] for link in path.split(".")]
        found, index = [], 0
        for place in known.get(at[:2], ()):
            index = next((i for i in range(index + 1, len(names)) if names[i] == place.value.data), 0)
            if not index:
                break
            found.append((index, place))
        return found

    def _places(self, module: Module, *ops: str) -> Iterator[Place]:
        units = sorted(self.flow.units_of(module).values(), key=lambda unit: bool(unit.code.part_of))  # its own is last
        for unit in units:
            for number, value in enumerate(unit.code.values):
                if value.op in ops:
                    yield Place(self.flow, unit, number)

    # -- objects -------------------------------------------------------------------------------------------

    def held(self, place: Place, user: Place | None = None) -> Held:
        """The classes of which a value may be an object; None is left out, nothing can be asked of it anyway. `user`:
        where it is asked, behind tests of its class."""
        objs = self._closed(place).objs - {NONE_OBJ}
        for classes, holds in place.unit.class_tests.around(place.number, user.value.block) if user is not None else ():
            objs = told_apart(objs, place.value_at(classes).closed, holds)
        if user is not None and len(objs) > 1 and (there := possible(place, user)) is not None:
            objs &= there
        objs = self.variants.there(objs, user) if user is not None else objs
        exact = frozenset(o[1] for o in objs if o[0] in OBJECTS)
        below = frozenset(o[1] for o in objs if o[0] == "self")
        known = bool(exact) and all(o[0] in OBJECTS for o in objs) and not (user and _is_of_unknown_class(place, user))
        return Held(exact, below, known and not may_be_data(place))

    def groups(self, place: Place) -> dict[frozenset[ClassDef], ClassDef | None]:
        """The classes of the objects that come to a place together: those that one object keeps under an attribute,
        with the class of that object, or those that a variable may hold."""
        given = computed(self.flow, place.root.unit, place.root.number)  # `Strategy.get()` gives `cls._strategy`
        root = place._replace(unit=given.unit, number=given.number).root if given is not None else place.root
        if root.value.op == "phi":  # one of several attributes: each by itself
            each_way = ways(root)
            if all(way.value.op == "attr" for way in each_way):
                return {made: owner for way in each_way for made, owner in self.groups(way).items()}
        if root.value.op != "attr":
            return {_made(self._closed(place)): None}
        found: dict[frozenset[ClassDef], ClassDef | None] = {}
        for o in self._closed(root.operand(0)).each:
            for cls in (o[1], *o[1].descendants()) if o[0] == "self" else (o[1],) if o[0] in _OWNERS else ():
                if not is_test(cls.path) and (o[0] != "self" or self._runs(cls, root)):
                    found.setdefault(self._kept(cls, root.value.data), cls)
        return found

    @staticmethod
    def _runs(cls: ClassDef, place: Place) -> bool:
        """Whether objects of just this class run the method in which a place is."""
        method = place.unit.scope
        if method.cls is None or not place.unit.is_receiver(place.root.operand(0).number):
            return True
        return not cls.is_abstract and cls.runs(method)

    def _kept(self, cls: ClassDef, name: str) -> frozenset[ClassDef]:
        """The classes of what objects of just this class keep under an attribute, but for what callers pass: each
        object gets one of those, which suits it."""
        known = self._keeps.get((cls, name))
        if known is None:
            found = Val()
            for each in self.flow.fields.stores(cls, name, set(cls.mro)):
                own = each.unit.method if each.unit.cls is not None and each.unit.cls in cls.mro else None
                if each.is_here and not each.is_passed and (own is None or cls.runs(own)):
                    found = join2(found, each.value)
            known = self._keeps[cls, name] = _made(found)
        return known

    def receivers(self, function: Method, call: Call) -> frozenset[ClassDef]:
        """The classes of which the object may be whose method a call in a function names; of actors too."""
        receiver = self._receiver(function, call)
        return self._coming(receiver) if receiver is not None else frozenset()

    def open_receivers(self, function: Method, call: Call) -> frozenset[ClassDef]:
        """Those of them of which it may as well be an object of a class below."""
        receiver = self._receiver(function, call)
        return self.held(receiver).below if receiver is not None else frozenset()

    def _receiver(self, function: Method, call: Call) -> Place | None:
        place = self.call_at(function.module, call.at)
        receiver = place.receiver if place is not None else None
        if receiver is not None and call.target.endswith(".remote"):
            receiver = receiver.operand(0) if receiver.value.op == "attr" else None
        return receiver

    def owners(self, function: Method, at: At, path: str) -> frozenset[ClassDef]:
        """The classes of which the object may be that is asked for the last name of a path which begins at a place."""
        last = path.count(".")
        place = next((place for index, place in self.links(function.module, at, path) if index == last), None)
        return self._coming(place.operand(0)) if place is not None else frozenset()

    def _coming(self, place: Place) -> frozenset[ClassDef]:
        """The classes of the objects that come to a place; of what subclasses keep under the same attribute only what
        those keep that run the method in which it is read."""
        held, made = self.held(place), frozenset().union(*self.groups(place))
        return frozenset(c for c in held.classes if not made or c in made or c in held.below)

    def _closed(self, place: Place) -> Val:
        """A value with what callers pass; a parameter that is declared to be of the project's classes is nothing else,
        whoever may call, unless the program itself passes objects of classes that have nothing to do with these, or
        one of the classes itself."""
        closed, root = place.closed, place.root
        named = named_choice(root) if len(closed.objs) > 1 else None
        if named is not None and named <= closed.objs:
            return Val(named)
        said = self.flow.parameters.declared(root.unit, root.value.data[1]) if root.value.op == "param" else BOTTOM
        if not said.objs and (not closed.objs or TOP in closed.objs):
            said = self._annotated(root)
        if not said.objs or TOP in said.objs:
            return closed
        classes = classes_of(said)
        if any(_contradicts(o, classes) for o in closed.objs):
            return self._passed(root) if root.value.op == "param" else closed
        kept = frozenset(o for o in closed.objs if o[0] in ("inst", "self") and not classes.isdisjoint(o[1].mro))
        return Val(kept or said.objs) if classes else UNKNOWN

    def _passed(self, parameter: Place) -> Val:
        """What callers pass for a parameter, whatever its annotation says."""
        passed: Val = self.flow.solver.settled(("argument", parameter.unit, parameter.value.data[0]))
        return passed

    def _annotated(self, place: Place) -> Val:
        """What the annotation of the local variable says that a value is stored in: `args: Args = self.args`."""
        function = place.unit.method
        if function is None:
            return BOTTOM
        names = {name for name, numbers in place.unit.code.definitions.items() if place.number in numbers}
        said = [row.annotation for row in function.facts.assigns if row.target in names]
        return declared(self.project, function, said[0]) if len(said) == 1 and said[0] else BOTTOM

    def named(self, function: Method, path: str) -> frozenset[ClassDef]:
        """The classes of which the objects may be that a function knows by a path."""
        unit = self.flow.unit_of(function)
        last = path.rpartition(".")[2]
        numbers = dict.fromkeys(unit.code.definitions.get(path, ()) if unit is not None else ())
        for number, value in enumerate(unit.code.values if unit is not None else ()):
            name = value.data[1] if value.op in ("param", "free") else value.data
            if unit is not None and value.op in _SPELLED and name == last and unit.text(value.at) == path:
                numbers[number] = None
        places = (Place(self.flow, unit, number) for number in numbers if unit is not None)
        return frozenset().union(*(self.held(place).classes for place in places))

    def kept(self, cls: ClassDef, name: str) -> frozenset[ClassDef]:
        """The classes of the objects that those of a class, and of classes below it, keep under an attribute."""
        held: Val = self.flow.solver.settled(("field", cls, name, False))
        return frozenset(o[1] for o in held.each if o[0] in OBJECTS)

    def results(self, function: Method) -> frozenset[ClassDef]:
        """The classes of the objects that a function may return: as it is written, else as it is annotated."""
        unit = self.flow.unit_of(function)
        returned = self.flow.close(self.flow.result(unit).returned, unit) if unit is not None else BOTTOM
        made = frozenset(o[1] for o in returned.each if o[0] in OBJECTS)
        return made or classes_of(declared(self.project, function, function.facts.returns_annotation))

    # -- calls ---------------------------------------------------------------------------------------------

    def targets(self, function: Method, call: Call) -> tuple[Method, ...]:
        """The functions and methods of the project that a call may run, in its process or in another."""
        return self.run_at(function.module, call.at)

    def run_at(self, module: Module, at: At) -> tuple[Method, ...]:
        """The same of the call that stands at a place of a file."""
        place = self.call_at(module, at)
        return self.run_by(place) if place is not None else ()

    def run_by(self, place: Place) -> tuple[Method, ...]:
        """The same of a call as a value."""
        known = self._run.get((place.unit, place.number))
        if known is None:
            callee = place.operand(0)
            found = list(_run(callee.closed))
            if not found and callee.value.op == "attr":
                found = [m for cls in self.held(callee.operand(0)).classes if (m := cls.find(callee.value.data))]
            found.sort(key=lambda m: (m.path, m.facts.at))
            known = self._run[place.unit, place.number] = tuple(dict.fromkeys(found))
        return known

    def run_for(self, place: Place, call: Call) -> tuple[Place, Call]:
        """What a call runs with which arguments: of one that a library is given a function and its arguments
        (`checkpoint(layer, x)`, `spawn(work, args=(x,))`) that function, called with them; of one that keeps a function
        as a hook that function, called as the library calls it; of others what they call."""
        callee = place.operand(0)
        if place.value.op != "call" or place.method not in self.lending:
            return callee, call
        return handed_over(place, call) or kept_as_hook(place, call) or (callee, call)

    @cached_property
    def lending(self) -> frozenset[str]:
        """The names of the calls that have a library call a function which they are given."""
        return self.flow.models.running | self.flow.models.hooks.keys()

    def reaches_only(self, caller: Method, call: Call, function: Method) -> bool:
        """Whether a call runs a function, and nothing else."""
        place = self.call_at(caller.module, call.at)
        reached = self.reached_by(place.operand(0), place) if place is not None else None
        return reached is not None and reached.complete and {each.place for each in reached.callees} == {function}

    def callers(self, function: Method) -> tuple[tuple[Method, Call], ...]:
        """The calls that may run a function, with the functions in which they stand; those of tests are left out."""
        known = self._callers.get(function)
        if known is None:
            unit = self.flow.unit_of(function)
            names = frozenset(called(unit)) if unit is not None else frozenset()
            sites = [
                (caller, number)
                for caller in (self.flow.callers(unit) if unit is not None else ())
                for number, value in enumerate(caller.code.values)
                if value.op == "call" and self._may_run(caller, value.args[0], names)
            ]
            if unit is not None and unit.cls is not None and unit.name in CALLED:  # `self.block(x)`
                sites += self.flow.calls_by_name.objects.calls(unit.cls)
            places = (Place(self.flow, *site) for site in dict.fromkeys(sites))
            found = (self.spelled(place) for place in places if function in self.run_by(place))
            known = self._callers[function] = tuple(row for row in found if row is not None)
        return known

    def _may_run(self, caller: Unit, callee: int, names: frozenset[str]) -> bool:
        """Whether calling a value may run what is called by some names: a function may be stored under another name,
        and come by any variable."""
        value = caller.code.values[callee]
        if value.op == "attr":
            return value.data in names or value.data in _HANDING or value.data in self.flow.stores.written
        return value.op != "name" or value.data in names or self.flow.symbol(caller, value) is None

    def reached_by(self, callee: Place, user: Place) -> Reached:
        """What calling a value may run at a place, behind tests that compare it (`if cls is Adam`). What somebody
        stored in an object of unknown class is not sure to be there."""
        value = self._or_class(callee, _or_below(callee, self._closed(callee)))
        for other, same in callee.unit.class_tests.compared(callee.number, user.value.block):
            value = without(value, callee.value_at(other).closed, same)
        there = self.variants.there(value.objs, user)
        value = value if there == value.objs else Val(there)
        found = self._reached(value, ())
        owners = self.held(callee.operand(0)).classes if callee.value.op == "attr" else ()
        own = all(any(callee.value.data in each.attributes for each in cls.relatives) for cls in owners)
        left = not owners or bool(self.held(callee.operand(0), user).classes)  # behind tests of its class
        known = not owners or not _is_of_unknown_class(callee.operand(0), user)
        return found if own and left and known else found._replace(complete=False)

    def _or_class(self, callee: Place, value: Val) -> Val:
        """What is called: of a parameter that its annotation alone tells the class itself too, whose name many write
        where they mean `type[…]`."""
        root = callee.root
        if root.value.op != "param" or any(o[0] in OBJECTS for o in self._passed(root).objs):
            return value
        said = classes_of(self.flow.parameters.declared(root.unit, root.value.data[1]))
        return Val(value.objs | {("class", cls) for cls in said}) if value.objs else value

    def _reached(self, callee: Val, given: tuple[Argument, ...]) -> Reached:
        found: list[Callee] = []
        complete = bool(callee.objs)
        wrapping = any(picked(o[1], "module").objs for o in callee.of("keeping"))
        for o in callee.each:
            if wrapping and o[0] == "made":
                continue  # it hands everything on to the module that it keeps
            known = self._of(o, given)
            complete = complete and known is not None and known.complete
            found += known.callees if known is not None else ()
        return Reached(tuple(dict.fromkeys(found)), complete)

    def _of(self, o: Obj, given: tuple[Argument, ...]) -> Reached | None:
        """What calling one object reaches; None where that is not known."""
        kind = o[0]
        if kind == "unit":
            return self._function(o[1], bound=o[1].method is not None and o[1].method.facts.is_classmethod, given=given)
        if kind == "bound":
            return self._function(o[1], bound=True, given=given)
        if kind == "class":
            return self._constructor(o[1], given) if not _is_actor(o[1]) else None
        if kind in ("inst", "self"):
            return self._called_object(o[1], given)
        if kind == "partial":
            return self._reached(o[1], (*given, *_placed(o[2], o[3])))
        if kind == "keeping":
            return self._reached(picked(o[1], "module"), given)
        if kind == "remote":
            return self._remote(o[1], given)
        return None

    def _remote(self, inner: Val, given: tuple[Argument, ...]) -> Reached:
        """`Actor.remote(…)`, `handle.method.remote(…)`, `task.remote(…)`."""
        found = [
            self._constructor(o[1], given) if o[0] == "class" else self._function(o[1], o[0] == "bound", given)
            for o in inner.each
            if o[0] in ("class", "bound", "unit")
        ]
        complete = len(found) == len(inner.objs) and all(each is not None and each.complete for each in found)
        return Reached(tuple(callee for each in found if each is not None for callee in each.callees), complete)

    def _function(self, unit: Unit, bound: bool, given: tuple[Argument, ...]) -> Reached | None:
        """A function, in every version that the file has of it."""
        method = unit.method
        if method is None or unit.code.kind != "function":
            return None
        versions = [each for each in _versions(method) if not each.facts.is_overload]
        if not all(_is_callable(each) for each in versions) or is_bound_again(method):
            return None
        shown = method.name if method.cls is None else f"{method.cls.name}.{method.name}"
        found = [
            Callee(
                shown, parameters(each, bound=bound and (not each.facts.is_static or bool(unit.entrances))), each, given
            )
            for each in versions
        ]
        return Reached(tuple(found), True)

    def _constructor(self, cls: ClassDef, given: tuple[Argument, ...]) -> Reached | None:
        params = self.constructors.of(cls)
        place = cls.find("__init__") or cls
        return Reached((Callee(cls.name, params, place, given),), True) if params is not None else None

    def _called_object(self, cls: ClassDef, given: tuple[Argument, ...]) -> Reached | None:
        """`model(…)`: `__call__`, or of a module of a network `forward`."""
        is_module = any(self.flow.models.named(base) == _MODULES for base in cls.external_bases)
        name = "__call__" if cls.find("__call__") is not None else "forward" if is_module else ""
        if any(self.flow.fields.stores(cls, name, {*cls.mro, *cls.descendants()})):
            return None  # `encoder.forward = encoder.forward_chunk`
        methods = dict.fromkeys(m for m in cls.find_below(name).values() if m is not None) if name else {}
        units = [self.flow.unit_of(method) for method in methods]
        found = [self._function(unit, True, given) for unit in units if unit is not None]
        if not found or None in found or len(found) != len(methods):
            return None
        return Reached(tuple(callee for each in found if each is not None for callee in each.callees), True)


def _contradicts(o: Obj, classes: frozenset[ClassDef]) -> bool:
    """Whether an object is a class, or of a class of the program that is neither above nor below any declared one."""
    if o[0] not in (*OBJECTS, "class") or is_test(o[1].path) or not classes:
        return False
    return o[0] == "class" or not any(cls in o[1].mro or o[1] in cls.mro for cls in classes)


def _or_below(callee: Place, value: Val) -> Val:
    """What is called: by the receiver of a class method (`cls(…)`) the class, or one below it that is not abstract."""
    if not callee.unit.is_receiver(callee.number):
        return value
    below = {("class", each) for o in value.each if o[0] == "class" for each in o[1].descendants()}
    return Val(value.objs | {o for o in below if not o[1].is_abstract}) if below else value


def _run(callee: Val) -> Iterator[Method]:
    """The functions that calling a value runs."""
    for o in callee.each:
        if o[0] in ("unit", "bound") and o[1].method is not None:
            yield o[1].method
        elif o[0] in ("partial", "remote"):
            yield from _run(o[1])
        elif o[0] in ("class", "inst", "self"):
            names = ("__init__",) if o[0] == "class" else ("__call__", "forward")
            method = next((m for name in names if (m := o[1].find(name)) is not None), None)
            yield from [method] if method is not None else ()


def ways(root: Place) -> list[Place]:
    """The values that a variable may be, before the calls that were given them."""
    seen, queue, found = {root.number}, [root], list[Place]()
    for each in queue:
        for way in (each.value_at(number).root for number in origins(each.unit, each.number)):
            if way.number not in seen:
                seen.add(way.number)
                (queue if way.value.op == "phi" else found).append(way)
    return found


def may_be_data(place: Place) -> bool:
    """Whether one of the ways to a variable gives it what a library computes: no object that could be told."""
    unit, vals = place.unit, place.result.vals
    roots = {unit.root(number) for number in origins(unit, place.number)}
    if any(unit.code.values[root].op == "enter" and may_be_data(place.value_at(root).operand(0)) for root in roots):
        return True
    ways = {number for root in roots for number in origins(unit, root) if unit.code.values[number].op == "call"}
    return any(not vals[number].objs for number in ways)


def _made(value: Val) -> frozenset[ClassDef]:
    """The classes of the objects that a value is known to be; none of those of tests."""
    return frozenset(o[1] for o in value.objs if o[0] == "inst" and not is_test(o[1].path))


def _is_of_unknown_class(place: Place, user: Place) -> bool:
    """Whether a test has found a value to be of a class that is not known, where it is asked for something: what the
    flow knows of it may be what does not get there."""
    tests = place.unit.class_tests.around(place.number, user.value.block)
    asked = (place.value_at(classes).closed for classes, holds in tests if holds)
    return any(not classes.objs or TOP in classes.objs for classes in asked)


def _placed(values: tuple[Val, ...], keywords: tuple[tuple[str, Val], ...]) -> tuple[Argument, ...]:
    """The arguments that a `partial` keeps."""
    nowhere = (1, 1, 1, 1)
    names = [None] * len(values) + [name for name, _ in keywords]
    return tuple(Argument(name, "other", "", nowhere) for name in names)


def with_given(call: Call, callee: Callee) -> Call:
    """A call with the arguments that a `partial` passes before its own; a keyword is what was said last."""
    if not callee.given:
        return call
    said = {argument.keyword for argument in call.args} - {None}
    kept = [argument for argument in callee.given if argument.keyword not in said]
    first = [a for a in (*kept, *call.args) if a.keyword in (None, "*")]
    return call._replace(args=(*first, *(a for a in (*kept, *call.args) if a.keyword not in (None, "*"))))


def is_passed(place: Place) -> bool:
    """Whether a value is, or is a part of, something that callers pass: which way they take is not known."""
    sources = (each for each in place.sources if each.value.op == "param")
    return any(not each.unit.is_receiver(each.number) for each in sources)


def is_of_unknown(objects: Objects, callee: Place) -> bool:
    """Whether a method is asked for of an object of which nothing is known: no library's, no class of the project."""
    if callee.value.op != "attr":
        return False
    owner = callee.operand(0)
    known = any(o[0] in ("ext", "made", "module", "class", "unit") for o in owner.closed.each)
    return not known and not objects.held(owner, callee).classes


def _is_actor(cls: ClassDef) -> bool:
    return not REMOTE.isdisjoint(cls.facts.decorators)


def _is_callable(method: Method) -> bool:
    """Whether a function is sure to be called as it is written."""
    return not method.facts.is_property and (keeps_signature(method) or REMOTE.issuperset(method.facts.decorators))


def _versions(method: Method) -> list[Method]:
    """The definitions that a name has in its class, or in its file: one of them is there when it is called."""
    if method.cls is not None:
        return method.cls.definitions[method.name]
    facts = [each for each in method.module.facts.functions if each.qualname == method.qualname]
    return [Method(method.module, each, None) for each in facts] if len(facts) > 1 else [method]


def is_bound_again(method: Method) -> bool:
    """Whether the name of a function means something else as well: an import, an assignment, a wrapper."""
    module, name = method.module, method.name
    if method.cls is not None:
        body = module.functions.get(f"{method.cls.qualname}.<class>")
        return body is not None and any(row.target == name for row in body.facts.assigns)
    outer = method.enclosing or module.top
    return (outer.qualname, name) in module.imports or any(row.target == name for row in outer.facts.assigns)
