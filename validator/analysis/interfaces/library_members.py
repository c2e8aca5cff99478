"""Places that ask an object of a library's class for a member which no release of the library gives it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.analysis.interfaces.members import Members
from validator.flow import Flow
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.objects import may_be_data
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.flow.values import NONE_OBJ
from validator.models.members.classes import members_of, set_outside
from validator.project import Project

_BESIDE = frozenset({"keeping"})  # what stands beside such an object, and says more of it


class LibraryObjects:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self.members = project.analysis(Members)

    def asked_in_vain(self) -> Iterator[tuple[Place, tuple[str, ...]]]:
        """Every place that reads what is not there, with the classes of which the object may be."""
        for place in self._places("attr"):
            name = place.value.data
            if is_test(place.unit.path) or self.members.is_given_outside(name) or _is_of_another_class(place):
                continue
            classes = self._made(place.operand(0))
            if classes and all(lacks(each, name) for each in classes) and not place.may_lack(name):
                yield place, classes

    def _made(self, place: Place) -> tuple[str, ...]:
        """The classes of which an object is that the project made; none where it may be something else."""
        classes = _classes(place)
        return () if classes and self._may_be_wrapped(place, classes) else classes

    def _may_be_wrapped(self, place: Place, classes: tuple[str, ...]) -> bool:
        """Whether an object of some classes, or the one of which it is an attribute, may be one of a library around it
        by now."""
        if not self._are_made_here(place) and not self._wrapped.isdisjoint(classes):
            return True
        owners = [way.operand(0) for way in self._ways(place) if way.value.op == "attr"]
        known = [(owner, _classes(owner)) for owner in owners]
        return any(held and self._may_be_wrapped(owner, held) for owner, held in known)

    @staticmethod
    def _ways(place: Place) -> list[Place]:
        """The values that a variable may hold."""
        return [place.value_at(number).root for number in origins(place.unit, place.root.number)]

    def maker(self, place: Place) -> str:
        """The class of which an object is an attribute that the library filled itself, as nothing was passed for it;
        empty where it is none."""
        call = self.flow.models.call
        for way in self._ways(place):
            for each in _classes(way.operand(0)) if way.value.op == "attr" else ():
                if (row := call(each)) is not None and way.value.data in row.otherwise:
                    return each
        return ""

    def _are_made_here(self, place: Place) -> bool:
        """Whether a variable holds just what calls of classes gave in the same function."""
        return all(way.value.op == "call" and not _is_handed_on(way) for way in self._ways(place))

    @cached_property
    def _wrapped(self) -> frozenset[str]:
        """The classes of objects that calls of libraries hand on, in an object of their own perhaps: `tqdm(loader)`."""
        calls = (place for place in self._places("call") if _is_handed_on(place))
        return frozenset(each for place in calls for each in _classes(place))

    def _places(self, op: str) -> Iterator[Place]:
        for module in self.project.modules.values():
            for unit in self.flow.whole_units(module):
                for number, value in enumerate(unit.code.values):
                    if value.op == op:
                        yield Place(self.flow, unit, number)


def _is_of_another_class(place: Place) -> bool:
    """Whether the object has been found to be of a class before: of one of the project that has the member, too."""
    return any(holds for _, holds in place.unit.class_tests.around(place.value.args[0], place.value.block))


def lacks(cls: str, name: str) -> bool:
    """Whether no release of a library gives objects of just this class a member."""
    members = members_of(cls)
    return members is not None and name not in members and name not in set_outside(cls)


def _classes(place: Place) -> tuple[str, ...]:
    """The classes of libraries of which a value may be an object; none where it may be something else."""
    objs = [o for o in place.closed.each if o != NONE_OBJ and o[0] not in _BESIDE]
    told = all(o[0] == "made" and len(o) == 2 and "." in o[1] for o in objs)
    return tuple(sorted(o[1] for o in objs)) if told and not may_be_data(place) else ()


def _is_handed_on(call: Place) -> bool:
    """Whether the result of a call is not what calling a class gives whose name is called."""
    made, named = _classes(call), call.flow.models.named
    called = {named(o[1]) for o in call.operand(0).closed.each if o[0] == "ext"}
    return bool(made) and called.isdisjoint(map(named, made))
