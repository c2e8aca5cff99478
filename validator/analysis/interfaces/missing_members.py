"""Places that ask an object for a member which none of the classes that it may be of has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from validator.analysis.interfaces.members import Members, fills
from validator.analysis.requirements import Requirements
from validator.facts.model import At
from validator.flow import Flow
from validator.flow.callgraph.lent import Lent
from validator.flow.objects import Held, Objects, is_passed
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.models.members.classes import known_since
from validator.project import ClassDef, Method, Project


class Use(NamedTuple):
    """A place that reads or calls `receiver.name` where none of `classes` has `name`."""

    function: Method
    receiver: str
    name: str
    classes: tuple[ClassDef, ...]
    at: At
    called: bool
    having: tuple[ClassDef, ...] = ()  # siblings that do have it
    said: bool = False  # the classes are what annotations or callers say; they may do otherwise


class Older(NamedTuple):
    """A library of which a project may use older releases than those of which the members of classes are known.
    `surely`: it admits no others."""

    library: str
    first: str
    surely: bool


def older_release(project: Project, classes: Iterable[ClassDef]) -> Older | None:
    """Of the libraries that define the bases of some classes one of which a project may use an older release."""
    requirements, found = project.analysis(Requirements), None
    for cls in classes:
        for library, first in (row for base in cls.external_bases for row in known_since(base)):
            admitted = requirements.admitted(library.replace("_", "-"), cls.module.source.absolute)
            if admitted and all(each.high is not None and each.high <= first for each in admitted):
                return Older(library, ".".join(map(str, first)), True)
            if not any(each.low is not None and each.low >= first for each in admitted):
                found = Older(library, ".".join(map(str, first)), False)
    return found


def uses_of_missing(project: Project) -> Iterator[Use]:
    """Every place that names a member which is not there."""
    flow, members = project.analysis(Flow), project.analysis(Members)
    for module in project.modules.values():
        for unit in flow.whole_units(module):
            for number, value in enumerate(unit.code.values):
                if value.op == "attr" and not members.is_given_outside(value.data):
                    place = Place(flow, unit, number)
                    use = missing(project, place)
                    if use is not None and not place.may_lack(use.name):
                        yield use


def missing(project: Project, place: Place) -> Use | None:
    """A read of an attribute that its object lacks. Only of their own objects tests are taken at their word."""
    own = place.owner
    if own is not None:
        return _own_missing(project, place, own)
    if is_test(place.unit.path):
        return None
    members, name, held = (
        project.analysis(Members),
        place.value.data,
        project.analysis(Objects).held(place.operand(0), place),
    )
    if lacking := _lent(project, place, name):
        return _use(place, lacking)._replace(said=is_passed(place.operand(0)))
    if not held.complete or not all(_lacks(members, held, cls, name) for cls in held.classes):
        return None
    if any(cls.is_abstract and cls.subclasses for cls in held.classes) and place.is_called:
        return None  # what a base class should declare is a matter of its own (MP126)
    found = _use(place, tuple(sorted(held.classes, key=lambda c: (c.module.name, c.qualname))))
    return found._replace(said=bool(held.below) or is_passed(place.operand(0)))


def _lent(project: Project, place: Place, name: str) -> tuple[ClassDef, ...]:
    """The classes whose members the object has that is asked, and its own, where all are known and lack the name."""
    members, lent, owner = project.analysis(Members), project.analysis(Lent), place.operand(0)
    taking = [o[1] for o in owner.closed.each if o[0] in ("inst", "self") and lent.param(o[1]) is not None]
    if len(taking) != 1 or name in taking[0].attributes or not _lists_itself(members, taking[0]):
        return ()
    lenders = sorted(lent.lenders(owner), key=lambda c: (c.module.name, c.qualname))
    return (*lenders, *taking) if lenders and all(members.lacks(cls, name) for cls in lenders) else ()


def _lists_itself(members: Members, cls: ClassDef) -> bool:
    """Whether nothing but what was lent gives objects of a class members that its source does not list."""
    filling = fills(cls)
    if "__getattr__" in cls.methods:
        return not filling and not cls.facts.decorators
    return len(filling) == 1 and filling[0][0].name == "__init__" and members.closed_but_for_itself(cls)


def _lacks(members: Members, held: Held, cls: ClassDef, name: str) -> bool:
    return members.lacks(cls, name) if cls in held.below else members.lacks_where_made(cls, name)


def _use(place: Place, classes: tuple[ClassDef, ...], having: tuple[ClassDef, ...] = ()) -> Use:
    return Use(place.unit.scope, _receiver(place), place.value.data, classes, place.at, place.is_called, having)


def _receiver(place: Place) -> str:
    """The source of the object that is asked."""
    return place.unit.text(place.value.at).rpartition(".")[0].rstrip()


def _own_missing(project: Project, place: Place, method: Method) -> Use | None:
    """`self.name` where the class does not define `name`: nobody below it does, or not everybody."""
    members, cls, name = project.analysis(Members), method.cls, place.value.data
    assert cls is not None
    if not members.closed(cls) or name in cls.attributes:
        return None
    if members.lacks(cls, name):
        return _use(place, (cls,))
    if place.is_called and place.unit.method is method:
        lacking, having = _template(project, method, name)
        if lacking:
            return _use(place, lacking, having)
    return None


def _template(project: Project, method: Method, name: str) -> tuple[tuple[ClassDef, ...], tuple[ClassDef, ...]]:
    """For a method that calls `self.name()`: the classes that run it and lack `name`, and those that have it."""
    members = project.analysis(Members)
    cls = method.cls
    assert cls is not None
    if not cls.subclasses or not members.may_lack(cls, name):
        return (), ()
    heirs = [c for c in cls.descendants() if c.find(method.name) is method]
    having = tuple(c for c in heirs if name in c.attributes)
    if not having:
        return (), ()
    starts = _leading_to(cls, method)
    return tuple(c for c in heirs if members.lacks(c, name) and _is_called_on(project, c, starts)), having


def _is_called_on(project: Project, cls: ClassDef, names: set[str]) -> bool:
    """Whether code outside a class may call one of the named methods on its objects."""
    objects = project.analysis(Objects)
    methods = [method for name in sorted(names) if (method := cls.find(name)) is not None]
    rows = ((caller, call) for method in methods for caller, call in objects.callers(method))
    return any(
        call.receiver not in ("super()", caller.own_object) and cls in objects.receivers(caller, call)
        for caller, call in rows
    )


def _leading_to(cls: ClassDef, method: Method) -> set[str]:
    """The names of the methods of a class that reach `method` through `self`."""
    found = {method.name}
    while True:
        more = {
            each.name
            for each in cls.every_method()
            if any(call.target.startswith("self.") and call.method in found for call in each.facts.calls)
        }
        if more <= found:
            return found
        found |= more
