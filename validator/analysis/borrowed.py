"""Objects that take over the members of a class given to their constructor, as groups of workers do.

    class WorkerGroup:
        def __init__(self, pool, worker_class):
            for name in dir(worker_class):
                setattr(self, name, self._bind(name))

What `WorkerGroup(pool, CriticWorker)` has is known: its own members and those of `CriticWorker`.
"""

from __future__ import annotations

import re

from validator.analysis.binding import bind
from validator.analysis.members import Members, fills, own_object
from validator.analysis.places import within
from validator.facts.model import Assign, Call
from validator.project import ClassDef, Method, Project

_LOOP = re.compile(r"\(?(\w+)(?:, \w+\)?)? in (?:(?:dir|vars|(?:inspect\.)?getmembers)\((\w+)[,)]|(\w+)\.__dict__\b)")


class Borrowed:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.members = project.analysis(Members)
        self._lending: dict[ClassDef, str] = {}

    def lenders(self, function: Method, receiver: str, cls: ClassDef) -> frozenset[ClassDef]:
        """The classes whose members the object `receiver` of class `cls` took over; empty where one is not known."""
        param = self._param(cls)
        rows = self._sources(function, receiver) if param else []
        found = {self._given(method, row, cls, param) for method, row in rows}
        return frozenset(each for each in found if each is not None) if None not in found else frozenset()

    def _param(self, cls: ClassDef) -> str:
        """The parameter of `__init__` whose members objects of the class take over, if nothing else fills them."""
        if cls not in self._lending:
            self._lending[cls] = self._find_param(cls)
        return self._lending[cls]

    def _find_param(self, cls: ClassDef) -> str:
        made = cls.methods.get("__init__")
        if made is None or cls.subclasses or len(cls.mro) > 1:
            return ""
        filling = fills(cls)
        if len(filling) != 1 or filling[0][0] is not made or not self.members.closed_but_for_itself(cls):
            return ""
        return _copied(made, filling[0][1])

    def _sources(self, function: Method, receiver: str) -> list[tuple[Method, Assign]]:
        head, _, name = receiver.rpartition(".")
        if not head:
            return [(function, row) for row in function.facts.assigns if row.target == name and row.kind != "none"]
        if head != own_object(function) or function.cls is None:
            return []
        return [(m, row) for m, row in self.project.types.set_on(function.cls, name) if row.kind != "none"]

    def _given(self, function: Method, row: Assign, cls: ClassDef, param: str) -> ClassDef | None:
        """The class that a constructor call of `cls` gets for the parameter."""
        if row.kind != "call" or self.project.lookup(function, row.value) is not cls:
            return None
        call = next((c for c in function.facts.calls if c.target == row.value and within(c.at, row.at)), None)
        argument = bind(cls.methods["__init__"], call).get(param) if call is not None else None
        if argument is None or argument.kind != "path":
            return None
        given = self.project.lookup(function, argument.value)
        return given if isinstance(given, ClassDef) else None


def _copied(made: Method, call: Call) -> str:
    """The parameter whose members a `setattr(self, name, …)` goes through."""
    name = call.args[1].value if call.target == "setattr" and len(call.args) > 1 else ""
    loops = (_LOOP.match(guard.text) for guard in call.guards if guard.kind == "loop")
    params = [loop[2] or loop[3] for loop in loops if loop is not None and loop[1] == name]
    if len(params) != 1 or any(row.target == params[0] for row in made.facts.assigns):
        return ""
    return params[0] if any(p.name == params[0] for p in made.facts.params) else ""
