"""What a class's own `__getattr__` may give: what somebody has put into a container under that name, or anything."""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.program.flow import Flow
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import Index
from validator.project import ClassDef

_ASKED = frozenset({"get", "pop", "__getitem__", "__contains__"})  # of a container
_PASSED_ON = frozenset({"__getattr__", "__getattribute__"})  # to a base, or to what all objects have
_TOLD = frozenset({"format", "startswith", "endswith", "AttributeError", "KeyError"})
_COMPARED = frozenset({"In", "NotIn", "Eq", "NotEq"})


def looks_up(flow: Flow, cls: ClassDef) -> bool:
    """Whether all that the class's `__getattr__` does with the name is to look for it in containers: nothing is there
    that nobody has put there under that name. It makes no attribute up, and asks no other object for one."""
    getter = flow.unit_of(cls.methods["__getattr__"]) if "__getattr__" in cls.methods else None
    if getter is None or len(getter.code.params) != 2 or Index(flow).free(getter, getter.code.params[1][0]):
        return False
    given = [Place(flow, getter, n) for n, value in enumerate(getter.code.values) if value.op == "param"]
    users = [user for place in given if place.value.data[0] == 1 for user in _users(place)]
    return bool(users) and all(map(_looks, users))


def _users(name: Place) -> Iterator[Place]:
    """What uses a text, before and after calls that were given it and cannot change it."""
    for user in name.taken_by:
        yield from _users(user) if user.value.op == "mut" else (user,)


def _looks(user: Place) -> bool:
    value = user.value
    if value.op == "compare":
        return value.data in _COMPARED
    if value.op == "call":
        passed_on = user.method in _PASSED_ON and user.receiver is not None
        return passed_on or user.method in _ASKED | _TOLD
    return value.op in ("item", "join", "tuple", "binary")
