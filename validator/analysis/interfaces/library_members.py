"""Places that ask an object of a library's class for a member which no release of the library gives it."""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.members import Members
from validator.flow import Flow
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.flow.values import NONE_OBJ
from validator.models.members.classes import members_of, set_outside
from validator.project import Project

_BESIDE = frozenset({"keeping"})  # what stands beside such an object, and says more of it


def asked_in_vain(project: Project) -> Iterator[tuple[Place, tuple[str, ...]]]:
    """Every such place that reads, with the classes of which the object may be."""
    flow, members = project.analysis(Flow), project.analysis(Members)
    for module in project.modules.values():
        if is_test(module.path):
            continue
        for unit in flow.whole_units(module):
            for number, value in enumerate(unit.code.values):
                if value.op == "attr" and not members.is_given_outside(value.data):
                    place = Place(flow, unit, number)
                    classes = _made(place.operand(0))
                    if classes and all(lacks(each, value.data) for each in classes) and not place.may_lack(value.data):
                        yield place, classes


def lacks(cls: str, name: str) -> bool:
    """Whether no release of a library gives objects of just this class a member."""
    members = members_of(cls)
    return members is not None and name not in members and name not in set_outside(cls)


def _made(place: Place) -> tuple[str, ...]:
    """The classes of libraries of which an object is that the project made; none where it may be something else."""
    objs = [o for o in place.closed.each if o != NONE_OBJ and o[0] not in _BESIDE]
    if not objs or not all(o[0] == "made" and len(o) == 2 for o in objs):
        return ()
    return tuple(sorted(o[1] for o in objs))
