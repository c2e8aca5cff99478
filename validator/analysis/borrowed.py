"""Objects that take over the members of a class given to their constructor, as groups of workers do.

    class WorkerGroup:
        def __init__(self, pool, worker_class):
            for name in dir(worker_class):
                setattr(self, name, self._bind(name))

What `WorkerGroup(pool, CriticWorker)` has is known: its own members and those of `CriticWorker`. The same holds of a
group whose `__getattr__` asks the objects that `__init__` made of that class.
"""

from __future__ import annotations

import ast
import re
from functools import cached_property

from validator.analysis.binding import bind
from validator.analysis.members import Members, fills, own_object
from validator.analysis.places import within
from validator.facts.model import Assign, Call
from validator.facts.text import path_of
from validator.flow.objects import Objects
from validator.project import ClassDef, Method, Project

_LOOP = re.compile(r"\(?(\w+)(?:, \w+\)?)? in (?:(?:dir|vars|(?:inspect\.)?getmembers)\((\w+)[,)]|(\w+)\.__dict__\b)")


class Borrowed:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.members = project.analysis(Members)

    def lacking(self, function: Method, receiver: str, name: str) -> tuple[ClassDef, ...]:
        """The classes that could give the object `receiver` a member `name`, if all are known and none has it."""
        if not self._lending or name in self.members.written or name.startswith("__"):
            return ()
        classes = self.project.analysis(Objects).named(function, receiver)
        cls = next(iter(classes)) if len(classes) == 1 else None
        if cls is None or cls not in self._lending or name in cls.attributes:
            return ()
        lenders = self._lenders(function, receiver, cls)
        lacking = lenders and all(self.members.lacks(each, name) for each in lenders)
        return (*sorted(lenders, key=lambda c: (c.module.name, c.qualname)), cls) if lacking else ()

    def _lenders(self, function: Method, receiver: str, cls: ClassDef) -> frozenset[ClassDef]:
        """The classes whose members the object took over; empty where one is not known."""
        found = {self._given(method, row, cls, self._lending[cls]) for method, row in self._sources(function, receiver)}
        return frozenset(each for each in found if each is not None) if None not in found else frozenset()

    @cached_property
    def _lending(self) -> dict[ClassDef, str]:
        """Per class whose objects take over members the parameter of `__init__` whose members they are."""
        rows = ((cls, self._find_param(cls)) for cls in self.project.classes() if "__init__" in cls.methods)
        return {cls: param for cls, param in rows if param}

    def _find_param(self, cls: ClassDef) -> str:
        made = cls.methods.get("__init__")
        if made is None or cls.subclasses or len(cls.mro) > 1:
            return ""
        if "__getattr__" in cls.methods:
            return _asked(made, cls.methods["__getattr__"]) if _plain(cls) and not fills(cls) else ""
        filling = fills(cls)
        if len(filling) != 1 or filling[0][0] is not made or not self.members.closed_but_for_itself(cls):
            return ""
        return _copied(made, filling[0][1])

    def _sources(self, function: Method, receiver: str) -> list[tuple[Method, Assign]]:
        head, _, name = receiver.rpartition(".")
        if not head:
            if any(param.name == name for param in function.facts.params):
                return []
            return [(function, row) for row in function.facts.assigns if row.target == name and row.kind != "none"]
        if (
            head != own_object(function)
            or function.cls is None
            or function.cls.subclasses
            or name in self.members.written
        ):
            return []
        methods = [method for owner in function.cls.mro for method in owner.every_method()]
        rows = ((m, row) for m in methods for row in m.facts.assigns if row.target == f"{m.own_object}.{name}")
        return [(m, row) for m, row in rows if row.kind != "none"]

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


def _plain(cls: ClassDef) -> bool:
    """Whether nothing but `__getattr__` gives objects of a class members that its source does not list."""
    others = ("__getattribute__", "__setattr__", "__dict__")
    return not (cls.facts.bases or cls.facts.decorators or cls.facts.keywords or any(n in cls.methods for n in others))


def _asked(made: Method, getter: Method) -> str:
    """The parameter of which `__init__` makes the objects that `__getattr__` asks for every name alike."""
    if len(getter.facts.params) != 2 or getter.node is None or made.node is None:
        return ""
    name = getter.facts.params[1].name
    mentions = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(getter.node))
    if not mentions or mentions != sum(_allowed(n, name) for n in ast.walk(getter.node)):
        return ""
    params = {p.name for p in made.facts.params[1:]} - {row.target for row in made.facts.assigns}
    classes = {param for call in made.facts.calls if (param := _made_of(call)) in params}
    return classes.pop() if len(classes) == 1 else ""


def _allowed(node: ast.AST, name: str) -> int:
    """How often a node asks another object for the name, or looks whether it is a private one."""
    if not isinstance(node, ast.Call):
        return 0
    if path_of(node.func) == "getattr" and len(node.args) == 2 and path_of(node.args[0]) != "self":
        return int(path_of(node.args[1]) == name)
    return int(path_of(node.func) == f"{name}.startswith")


def _made_of(call: Call) -> str:
    """`worker_class` of `ray.remote(worker_class)`, `worker_class.remote(…)` and `worker_class.options(…)`."""
    if call.target == "ray.remote" and len(call.args) == 1:
        return call.args[0].value
    head, dot, _ = call.target.partition(".")
    return head if dot and call.target in (f"{head}.remote", f"{head}.options", f"{head}.options().remote") else ""


def _copied(made: Method, call: Call) -> str:
    """The parameter whose members a `setattr(self, name, …)` goes through."""
    name = call.args[1].value if call.target == "setattr" and len(call.args) > 1 else ""
    loops = (_LOOP.match(guard.text) for guard in call.guards if guard.kind == "loop")
    params = [loop[2] or loop[3] for loop in loops if loop is not None and loop[1] == name]
    if len(params) != 1 or any(row.target == params[0] for row in made.facts.assigns):
        return ""
    return params[0] if any(p.name == params[0] for p in made.facts.params) else ""
