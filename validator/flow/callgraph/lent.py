"""Objects that take over the members of a class given to their constructor, as groups of workers do.

    class WorkerGroup:
        def __init__(self, pool, worker_class):
            for name in dir(worker_class):
                setattr(self, name, self._bind(name))

What `WorkerGroup(pool, CriticWorker)` has is known: its own members and those of `CriticWorker`. The same holds of a
group whose `__getattr__` asks the objects that `__init__` made of that class.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import Index, argument_of
from validator.flow.queries.origins import makers
from validator.project import Project

_LISTING = frozenset({"dir", "vars", "getmembers", "__dict__"})
_OTHER_WAYS = ("__getattribute__", "__setattr__", "__dict__")


class Lent:
    """Answers for one project; asked for with `project.analysis(Lent)`."""

    def __init__(self, project: Project) -> None:
        self.flow = project.analysis(Flow)
        self._params: dict[ClassDef, int | None] = {}

    def lenders(self, place: Place) -> frozenset[ClassDef]:
        """The classes whose members the object at a place took over; empty where it took none, or one is unknown."""
        classes = {o[1] for o in place.closed.each if o[0] in ("inst", "self")}
        if len(classes) != 1 or (position := self.param(cls := classes.pop())) is None:
            return frozenset()
        made, unit = makers(place), self.flow.unit_of(cls.methods["__init__"])
        found: set[ClassDef] = set()
        for call in made or ():
            number = argument_of(call.unit, call.number, unit, position) if unit is not None else None
            given = call.value_at(number).closed if number is not None else None
            if given is None or not given.objs or any(o[0] != "class" for o in given.each):
                return frozenset()
            found.update(o[1] for o in given.each)
        return frozenset(found)

    def param(self, cls: ClassDef) -> int | None:
        """The parameter of `__init__` whose members the objects of a class take over."""
        if cls not in self._params:
            self._params[cls] = self._find(cls)
        return self._params[cls]

    def _find(self, cls: ClassDef) -> int | None:
        made = self.flow.unit_of(cls.methods["__init__"]) if "__init__" in cls.methods else None
        if made is None or cls.subclasses or len(cls.mro) > 1 or cls.facts.bases or cls.facts.keywords:
            return None
        getter = self.flow.unit_of(cls.methods["__getattr__"]) if "__getattr__" in cls.methods else None
        found = {row.value.data[0] for row in (self._asked(made) if getter is not None else self._copied(made))}
        if getter is not None and (any(n in cls.methods for n in _OTHER_WAYS) or not self._asks_others(getter)):
            return None
        return found.pop() if len(found) == 1 else None

    def _copied(self, made: Unit) -> Iterator[Place]:
        """The parameters through whose members a `setattr(self, name, …)` goes."""
        for place in self._calls(made, "setattr"):
            if len(place.value.args) == 4 and made.is_receiver(place.value.args[1]):
                sources = list(place.operand(2).sources)
                listed = any(each.hint in _LISTING or each.value.data in _LISTING for each in sources)
                yield from (each for each in sources if listed and each.value.op == "param")

    def _asked(self, made: Unit) -> Iterator[Place]:
        """The parameters of which `__init__` makes actors: `worker_class.remote(…)`, `ray.remote(worker_class)`."""
        for place in (*self._calls(made, "remote"), *self._calls(made, "options")):
            of_ray = ("ext", "ray.remote") in place.operand(0).val.objs
            given = place.operand(1) if of_ray and len(place.value.args) == 2 else place.receiver
            if given is not None and given.root.value.op == "param":
                yield given.root

    def _asks_others(self, getter: Unit) -> bool:
        """Whether a `__getattr__` asks other objects for every name alike; private names may be left out."""
        if len(getter.code.params) != 2:
            return False
        name = getter.code.params[1][0]
        params = [(getter, n) for n, v in enumerate(getter.code.values) if v.op == "param" and v.data[0] == 1]
        read = [Place(self.flow, *held) for held in (*params, *Index(self.flow).free(getter, name))]
        users = [user for place in read for user in place.users if user.value.op != "mut"]
        asked = [user for user in users if user.value.op == "call" and user.method == "getattr"]
        others = (user for user in users if user not in asked)
        alike = all(len(user.value.args) == 3 and not user.unit.is_receiver(user.value.args[1]) for user in asked)
        return (
            bool(asked)
            and alike
            and all(user.value.op == "attr" and user.value.data == "startswith" for user in others)
        )

    def _calls(self, unit: Unit, name: str) -> Iterator[Place]:
        places = (Place(self.flow, unit, number) for number, value in enumerate(unit.code.values) if value.op == "call")
        return (place for place in places if place.method == name)
