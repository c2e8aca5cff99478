"""The calls of a function by its name, as the two revisions have them, and what each may reach.

A call is looked at by what stands before the name: an object whose class is known reaches that class's methods, one of
which nothing is known may reach every method of that name in the project. Calls through Ray handles, partials and
dispatchers that are given the name as a text count as calls with what they pass on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from typing import NamedTuple

from validator.analysis.commands.same_names import words
from validator.analysis.interfaces.binding import misfit_of, parameters
from validator.definitions import ClassDef, External, Method, Module
from validator.drift.change import Side
from validator.drift.interfaces.callbacks import calls_made_with
from validator.drift.names.occurrences import Occurrence
from validator.facts.model import Argument, Assign, Call, Param
from validator.flow.callgraph.spelled_arguments import call_of, origins
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.ir.model import Value
from validator.models.members import of_libraries
from validator.source import SourceFile

_WRAPPERS = frozenset({"remote", "options", "delay", "submit"})
_MAKERS = frozenset({"dataclass", "dataclasses.dataclass"})

RUN_UNNAMED = ("forward", "__call__")  # methods that run by calling the object


class Site(NamedTuple):
    """A call of something by a name: the unit, the value of the call, what it passes, what it may reach.

    `how`: `call`, `text` (a dispatcher is given the name). `sure`: nothing else can be meant. `each`: all of `reached`
    are called, each where a module imports the name from its place.
    """

    unit: Unit
    number: int
    call: Call
    reached: tuple[Method | ClassDef, ...]
    how: str
    sure: bool
    bound: bool = True
    each: bool = False

    @property
    def text(self) -> str:
        return self.unit.text(self.unit.code.values[self.number].at)

    def is_in(self, side: Side) -> bool:
        """Whether the same call stands in the same function of the other revision."""
        unit = side.twin(self.unit)
        if unit is None:
            return False
        text = self.text
        return any(value.op == "call" and unit.text(value.at) == text for value in unit.code.values)


def sites(
    side: Side,
    name: str,
    among: Container[SourceFile] | None = None,
    wanted: Callable[[Unit, int], bool] | None = None,
) -> Iterator[Site]:
    """The calls of functions, methods and classes of a name; `among`: only in these files; `wanted`: which calls of
    attributes count (to know of which class an object is takes far longer than to look at the call)."""
    taken = tuple(before + name.encode() for before in (b".", b'"', b"'"))
    for source in side.mentioning(name):
        module = side.project.modules.get(source.absolute)
        if module is None or is_foreign(source.path) or among is not None and source not in among:
            continue
        if any(text in source.data for text in taken):
            for row in side.of_file(source).get(name, ()):
                yield from _at(side, row, wanted)
        if _is_bound(module, name):
            for unit in side.units(module).values():
                for number in unit.named.get(name, ()):
                    if unit.code.values[number].op in ("name", "import"):
                        yield from _called(side, unit, number, name)


def unnamed(side: Side, methods: Collection[Method]) -> Iterator[Site]:
    """The calls that run one of some methods of one name without naming it, as far as the flow knows what is called:
    `model(x)`, `checkpoint(layer, x)`."""
    objects = side.project.analysis(Objects)
    names = {method.name for method in methods}
    for caller in _units(side) if methods else ():
        for number, value in enumerate(caller.code.values):
            if value.op != "call" or not _may_be_object(side, caller, value):
                continue
            callee, call = objects.run_for(Place(side.flow, caller, number), call_of(caller, number))
            if callee.value.op == "attr" and callee.value.data in names:
                continue
            reached = objects.reached_by(callee, callee.value_at(number))
            run = tuple(each.place for each in reached.callees if isinstance(each.place, Method))
            if not set(run).isdisjoint(methods):
                yield Site(caller, number, call, run, "call", reached.complete)


def _units(side: Side) -> Iterator[Unit]:
    for module in side.project.modules.values():
        if not is_foreign(module.source.path) and not is_test(module.source.path):
            yield from side.units(module).values()


def _may_be_object(side: Side, unit: Unit, call: Value) -> bool:
    """Whether what is called, or passed to be called first, may be an object: no function or class that a name means,
    and no attribute that nothing is stored under."""
    callee = unit.code.values[unit.root(call.args[0])]
    symbol = side.flow.symbol(unit, callee) if callee.op in ("name", "import") else None
    if isinstance(symbol, External):
        row = side.flow.models.call(symbol.path)
        return row is not None and row.runs is not None
    if callee.op == "attr":
        return callee.data in side.flow.stores.written
    return symbol is None and callee.op != "const"


def _at(side: Side, row: Occurrence, wanted: Callable[[Unit, int], bool] | None) -> Iterator[Site]:
    """The calls by the name of an attribute, or through a dispatcher that is given the name as a text."""
    if row.unit is None or row.number < 0:
        return
    value = row.unit.code.values[row.number]
    if value.op == "attr" and row.role == "asks":
        yield from _called(side, row.unit, row.number, row.name, wanted=wanted)
    elif value.op == "const" and row.role == "spells":
        yield from _dispatched(side, row.unit, row.number, row.name)


def _is_bound(module: Module, name: str) -> bool:
    """Whether a name may stand by itself in a file: it is defined on its top level, or imported."""
    facts = module.facts
    return (
        name in facts.names
        or bool(facts.star_imports)
        or any(name in (row.bound_as, row.name, row.module.rpartition(".")[2]) for row in facts.imports)
        or any(each.name == name and "<locals>" in each.qualname for each in facts.functions)
    )


def _called(
    side: Side,
    unit: Unit,
    number: int,
    name: str,
    chosen: tuple[int, ...] = (),
    wanted: Callable[[Unit, int], bool] | None = None,
) -> Iterator[Site]:
    """`chosen`: the choices (`f if a else g`, `f or g`) out of which the callee comes, the last one first."""
    values = unit.code.values
    for user in unit.users.get(number, ()) if not chosen else unit.users.get(chosen[0], ()):
        value = values[user]
        if value.op == "phi" and not value.data and user not in chosen:
            yield from _called(side, unit, number, name, (user, *chosen))
        elif chosen and value.op == "call" and value.args[0] == chosen[0]:
            reached, _ = _reached(side, unit, _root(unit, number), name)
            if reached:
                yield Site(unit, user, call_of(unit, user), reached, "call", False)
        elif chosen:
            continue
        elif value.op == "attr" and value.data in _WRAPPERS:
            yield from _called(side, unit, user, name)
        elif value.op == "call" and "target" in value.data.names and number in value.args[1:]:
            yield from _started(side, unit, number, user, name)
        elif _is_partial(unit, value, number):
            yield from _of_partial(side, unit, number, user, name)
        elif value.op == "call" and number in value.args[1:]:
            reached, _ = _reached(side, unit, _root(unit, number), name)
            for call in calls_made_with(side, unit, user, number) if reached else ():
                yield Site(unit, user, call, reached, "call", False)  # it may be one of several that are made there
        elif value.op == "call" and value.args[0] == number:
            if values[number].op == "attr" and values[number].data == "options":
                yield from _wrapped(side, unit, user, name)
                continue
            if wanted is not None and not wanted(unit, user):
                continue
            root = _root(unit, number)
            reached, sure = _reached(side, unit, root, name)
            if reached:
                bound, each = not _is_of_class(side, unit, root), unit.code.values[root].op == "name"
                yield Site(unit, user, call_of(unit, user), reached, "call", sure, bound, each)


def _is_partial(unit: Unit, value: Value, number: int) -> bool:
    """Whether a call is `partial(f, …)` of a function."""
    if value.op != "call" or value.args[1:2] != (number,):
        return False
    callee = unit.code.values[value.args[0]]
    return callee.op in ("name", "attr") and callee.data == "partial"


def _of_partial(side: Side, unit: Unit, number: int, made: int, name: str) -> Iterator[Site]:
    """The calls of a partial in the unit that makes it, with what the partial passes."""
    reached, sure = _reached(side, unit, _root(unit, number), name)
    given = call_of(unit, made)
    for user in unit.users.get(made, ()):
        value = unit.code.values[user]
        if reached and value.op == "call" and value.args[0] == made:
            call = call_of(unit, user)
            fresh = {argument.keyword for argument in call.args} - {None}
            kept = [argument for argument in given.args[1:] if argument.keyword not in fresh]
            positional = [a for a in (*kept, *call.args) if a.keyword in (None, "*")]
            keywords = [a for a in (*kept, *call.args) if a.keyword not in (None, "*")]
            yield Site(unit, user, call._replace(args=(*positional, *keywords)), reached, "call", sure)


def _started(side: Side, unit: Unit, number: int, user: int, name: str) -> Iterator[Site]:
    """The call that a thread or a process makes: `Process(target=f, args=(a, b))`."""
    given = dict(zip(unit.code.values[user].data.names, unit.code.values[user].args[1:], strict=True))
    reached, sure = _reached(side, unit, _root(unit, number), name)
    if given["target"] != number or "args" not in given or "kwargs" in given or not reached:
        return
    made = unit.code.values[unit.root(given["args"])]
    if made.op == "tuple" and not made.data:
        elements = [unit.code.values[each] for each in made.args]
        args = tuple(Argument(None, "other", unit.text(each.at), unit.at(each.at)) for each in elements)
        yield Site(unit, user, call_of(unit, user)._replace(args=args), reached, "call", sure)


def _is_of_class(side: Side, unit: Unit, number: int) -> bool:
    """Whether a method is taken from its class, so that the object is an argument like the others."""
    value = unit.code.values[number]
    if value.op != "attr":
        return False
    owner = unit.code.values[unit.root(value.args[0])]
    return owner.op in ("name", "import") and isinstance(side.flow.symbol(unit, owner), ClassDef)


def _wrapped(side: Side, unit: Unit, number: int, name: str) -> Iterator[Site]:
    """`f.options(…).remote(…)`."""
    for user in unit.users.get(number, ()):
        if unit.code.values[user].op == "attr" and unit.code.values[user].data == "remote":
            yield from _called(side, unit, user, name)


def _root(unit: Unit, number: int) -> int:
    """The value that bears the name, before `.remote` and `.options(…)`."""
    value = unit.code.values[number]
    while value.op == "attr" and value.data in _WRAPPERS or value.op == "call":
        number = value.args[0]
        value = unit.code.values[number]
    return number


def _dispatched(side: Side, unit: Unit, number: int, name: str) -> Iterator[Site]:
    """A call that is given the name of a method as a text and passes its keywords on."""
    methods = tuple(m for m in side.methods.get(name, ()) if m.cls is not None and _may_serve(unit, m))
    if not methods or "_" not in name.strip("_"):
        return
    for user in unit.users.get(number, ()):
        value = unit.code.values[user]
        if value.op == "call" and number in value.args[1:]:
            call = call_of(unit, user)
            kept = tuple(a for a in call.args if a.keyword not in (None, "*") and not _is_text(a, name))
            yield Site(unit, user, call._replace(args=kept), methods, "text", False)


def _is_text(argument: Argument, name: str) -> bool:
    return argument.value.strip("\"'") == name


def _reached(side: Side, unit: Unit, number: int, name: str) -> tuple[tuple[Method | ClassDef, ...], bool]:
    """What a name at a place may mean, and whether it can mean nothing else."""
    value = unit.code.values[number]
    if value.op in ("name", "import"):
        meant = side.flow.meanings(unit, value)
        known = tuple(each for each in meant if isinstance(each, Method | ClassDef))
        return known, len(known) == len(meant) == 1
    if value.op != "attr":
        return (), False  # a parameter that bears the name
    mention = side.mention(unit, number)
    if mention is None or isinstance(mention.symbol, External) or side.is_of_library(unit, number):
        return (), False
    if isinstance(mention.symbol, Module):
        symbol = mention.symbol.member(name)
        return ((symbol,), True) if isinstance(symbol, Method | ClassDef) else ((), False)
    if isinstance(mention.symbol, Method):
        return (mention.symbol,), True
    if mention.cls is not None:
        below = mention.cls.find_below(name)
        found = [m for cls, m in below.items() if m is not None and _may_serve(unit, m) and _runs(cls, unit, value)]
        return tuple(dict.fromkeys(found)), bool(found)
    named = side.project.lookup(unit.scope, path) if (path := _path(unit, number)) else None
    if isinstance(named, ClassDef) or isinstance(named, Method) and named.cls is None:
        return (named,), True
    classes = side.classes_of(unit, number)
    typed = [m for cls in classes for m in cls.find_below(name).values() if m is not None]
    if classes:
        return tuple(dict.fromkeys(m for m in typed if _may_serve(unit, m))), False
    if _is_wrapped(unit, number, name) or side.is_made_by_library(unit, number):
        return (), False
    of_project = [m for m in side.methods.get(name, ()) if m.cls is not None and _may_serve(unit, m)]
    if name in of_libraries():  # how the object is called, and that the method is registered, tell whose it is
        called = [each for each in named_alike(_name_of(unit, value.args[0]), of_project) if each.facts.decorators]
        of_project = called if len(called) < len(of_project) else []
    return tuple(of_project), False


def _name_of(unit: Unit, number: int) -> str:
    """How an object is called: the last name of what it is asked for, or its variable."""
    value = unit.code.values[unit.root(number)]
    return str(value.data[1] if value.op in ("param", "free") else value.data) if value.op != "call" else ""


def named_alike(name: str, methods: Collection[Method]) -> list[Method]:
    """The methods of classes whose names have a word of the name of an object: `critic_group` for a `CriticWorker`."""
    called = set(words(name))
    return [each for each in methods if each.cls is not None and called & set(words(each.cls.name))]


def _runs(cls: ClassDef, unit: Unit, asked: Value) -> bool:
    """Whether the object of a class may be the one in whose method it is asked for something."""
    return unit.method is None or not unit.is_receiver(asked.args[0]) or cls.runs(unit.method)


def handed(side: Side, unit: Unit, callee: int) -> list[Method]:
    """The functions that callers hand in for a parameter out of which a callee comes."""
    values = [unit.code.values[each] for each in origins(unit, callee)]
    names = [str(value.data[1]) for value in values if value.op == "param"]
    found: list[Method] = []
    for site in sites(side, unit.name) if names and unit.method is not None else ():
        if unit.method in site.reached and site.how == "call":
            for name in names:
                found += _passed(side, site, unit.method, name)
    return found


def _passed(side: Side, site: Site, method: Method, name: str) -> Iterator[Method]:
    """The functions that a call passes for a parameter."""
    shape = site.unit.code.values[site.number]
    params = params_of(method, site) or ()
    positional = [p.name for p in params if p.kind in ("pos", "any")]
    place = positional.index(name) if name in positional else -1
    for index, (keyword, operand) in enumerate(zip(shape.data.names, shape.args[1:], strict=True)):
        if keyword == name or keyword is None and index == place:
            value = site.unit.code.values[site.unit.root(operand)]
            symbol = side.flow.symbol(site.unit, value) if value.op in ("name", "import") else None
            if isinstance(symbol, Method):
                yield symbol


def taken_over(side: Side, unit: Unit, number: int) -> Iterator[tuple[Unit, int]]:
    """The parameters that a value becomes where it is handed to a function, and nothing else can be meant."""
    for user in unit.users.get(number, ()):
        value = unit.code.values[user]
        if value.op != "call" or number not in value.args[1:] or "*" in value.data.names:
            continue
        callee = unit.code.values[value.args[0]]
        if callee.op not in ("name", "import", "attr"):
            continue
        reached, sure = _reached(side, unit, value.args[0], str(callee.data))
        method = reached[0] if sure and len(reached) == 1 else None
        target = side.unit_of(method) if isinstance(method, Method) else None
        if method is None or target is None:
            continue
        params = taken(method, not _is_of_class(side, unit, value.args[0])) or ()
        index = value.args[1:].index(number)
        positional = [param.name for param in params if param.kind in ("pos", "any")]
        name = value.data.names[index] or (positional[index] if index < len(positional) else "")
        rows = enumerate(target.code.values)
        yield from ((target, place) for place, each in rows if each.op == "param" and each.data[1] == name)


def _path(unit: Unit, number: int) -> str:
    """A row of attributes behind the name of a module, as it is written: `package.module.Class`; else empty."""
    value, names = unit.code.values[number], []
    while value.op == "attr":
        names.append(str(value.data))
        value = unit.code.values[value.args[0]]
    return ".".join([str(value.data), *reversed(names)]) if value.op == "name" and names else ""


def _may_serve(unit: Unit, method: Method) -> bool:
    """Whether a method may be reached from a unit: what tests define is for tests."""
    return is_test(unit.path) or not is_test(method.path)


def _is_wrapped(unit: Unit, number: int, name: str) -> bool:
    """Whether a class that has a method of this name calls it on an object that it holds: the one that it wraps."""
    values = unit.code.values
    owner = values[unit.root(values[number].args[0])]
    if unit.name != name and (unit.cls is None or unit.cls.find(name) is None):
        return False
    return owner.op == "attr" or owner.op == "param" and owner.data[0] > 0


def misfit(side: Side, target: Method | ClassDef, site: Site) -> str | None:
    """Why a call cannot be bound to what it reaches; an empty text where it can, None where that is not known."""
    params = None if isinstance(target, Method) and side.is_property(target) else params_of(target, site)
    if params is None:
        return None
    found = misfit_of(params, site.call, partial=site.how == "text")
    return found.message if found is not None else ""


def params_of(target: Method | ClassDef, site: Site) -> tuple[Param, ...] | None:
    """The parameters that a call fills; None where they are not known."""
    return taken(target, site.bound)


def taken(target: Method | ClassDef, bound: bool) -> tuple[Param, ...] | None:
    """The parameters that a call of an object's method fills, or (not bound) of one that is taken from its class."""
    if isinstance(target, ClassDef):
        return constructor(target)
    if target.facts.is_property:
        return None
    return parameters(target, bound=None if bound or target.facts.is_classmethod else False)


def constructor(cls: ClassDef) -> tuple[Param, ...] | None:
    """The parameters of a class; None where they are not known."""
    made = cls.find("__init__")
    if made is not None:
        return parameters(made)
    if not any(d.removesuffix("()") in _MAKERS for d in cls.facts.decorators) or cls.external_bases:
        return None
    rows: dict[str, Param] = {}
    for each in reversed(cls.mro):
        if not any(d.removesuffix("()") in _MAKERS for d in each.facts.decorators):
            if annotated(each):
                return None
            continue  # a base that has methods alone
        kept = unset(each)
        for row in _body(each):
            if row.annotation and row.target not in kept and "ClassVar" not in row.annotation:
                rows[row.target] = Param(row.target, "any", "…" if row.kind != "none" else None, row.annotation, row.at)
    return tuple(rows.values())


def annotated(cls: ClassDef) -> frozenset[str]:
    """The annotated names of a class and of those above it."""
    return frozenset(name for each in cls.mro for name, annotation in each.facts.attributes if annotation)


def unset(cls: ClassDef) -> frozenset[str]:
    """The fields of a class that are not passed to its constructor: `field(init=False)`."""
    body = cls.module.functions.get(f"{cls.qualname}.<class>")
    calls = [call for call in body.facts.calls if call.method in ("field", "Field")] if body is not None else []
    hidden = [call.at for call in calls if any(a.keyword == "init" and a.value == "False" for a in call.args)]
    return frozenset(row.target for row in _body(cls) if any(row.at[:2] <= at[:2] <= row.at[2:] for at in hidden))


def _body(cls: ClassDef) -> tuple[Assign, ...]:
    """What the body of a class gives names to, in its order."""
    body = cls.module.functions.get(f"{cls.qualname}.<class>")
    return body.facts.assigns if body is not None else ()
