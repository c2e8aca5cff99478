"""What else the code asks an object for: the names by which it is known of which class the object is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.members import method_of
from validator.definitions import ClassDef
from validator.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.models.members import is_telling
from validator.project import Project

Path = tuple[str, ...]
_SHARE = 4  # names that an object's class has for one that it lacks


class Known(NamedTuple):
    """A class of the project, and the telling names by which an object is known to be of it."""

    cls: ClassDef
    names: frozenset[str]


class Company:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._asked: dict[Unit, dict[Path, set[str]]] = {}
        self._own: dict[ClassDef, frozenset[str]] = {}
        self._owners: dict[str, list[ClassDef]] = {}
        for cls in project.classes():
            if not is_test(cls.path):
                for name in self._of_its_own(cls):
                    self._owners.setdefault(name, []).append(cls)

    def _of_its_own(self, cls: ClassDef) -> frozenset[str]:
        """What a class gives a name of its own: not what its objects keep of others under the name that it has there
        (`self.width = config.width`)."""
        known = self._own.get(cls)
        if known is None:
            kept = {name for unit in self._units_of(cls) for name in _copied(unit)}
            known = self._own[cls] = cls.own_attributes - (kept - {name for name, _ in cls.facts.attributes})
        return known

    def _units_of(self, cls: ClassDef) -> Iterator[Unit]:
        for method in cls.every_method():
            for inside in (method, *self.project.nested(method)):
                if (unit := self.flow.unit_of(inside)) is not None:
                    yield unit

    def of(self, place: Place) -> Known | None:
        """A class that has nearly all other telling names for which code asks the object that is asked at a place: of
        an attribute in all classes of the family, of a variable in its function."""
        path = path_of(place.unit, place.operand(0).number)
        if not path:
            return None
        asked = {name for unit in self._around(place, path) for name in self._asked_in(unit).get(path, ())}
        names = frozenset(name for name in asked - {place.value.data} if is_telling(name))
        classes = dict.fromkeys(cls for name in sorted(names) for cls in self._owners.get(name, ()))
        found = [Known(cls, names & self._of_family(cls)) for cls in classes]
        found = [known for known in found if len(known.names) >= _SHARE * len(names - known.names)]
        return max(found, key=lambda known: (len(known.names), known.cls.qualname)) if found else None

    def _of_family(self, cls: ClassDef) -> frozenset[str]:
        return frozenset().union(*(self._of_its_own(each) for each in cls.relatives))

    def _around(self, place: Place, path: Path) -> Iterator[Unit]:
        """The functions in which a path means the same object."""
        method = method_of(place.unit.scope)
        if len(path) == 1 or method.cls is None or path[0] != method.own_object:
            return iter((place.unit,))
        return (unit for cls in method.cls.relatives for unit in self._units_of(cls))

    def _asked_in(self, unit: Unit) -> dict[Path, set[str]]:
        known = self._asked.get(unit)
        if known is None:
            known = self._asked[unit] = {}
            for value in unit.code.values:
                if value.op in ("attr", "store_attr") and (path := path_of(unit, value.args[0])):
                    known.setdefault(path, set()).add(value.data)
        return known


def _copied(unit: Unit) -> Iterator[str]:
    values = unit.code.values
    for value in values:
        given = values[unit.root(value.args[1])] if value.op == "store_attr" else None
        if given is not None and (given.op, given.data) == ("attr", value.data):
            yield value.data


def path_of(unit: Unit, number: int) -> Path:
    """The names by which the source knows an object: a variable, or attributes of one."""
    links: list[str] = []
    while True:
        root = unit.root(number)
        value = unit.code.values[root]
        if value.op in ("param", "free"):
            return (value.data[1], *reversed(links))
        name = unit.variables.get(root) or unit.variables.get(number)
        if name is not None:
            return (name, *reversed(links))
        if value.op == "name":
            return (value.data, *reversed(links))
        if value.op != "attr":
            return ()
        links.append(value.data)
        number = value.args[0]
