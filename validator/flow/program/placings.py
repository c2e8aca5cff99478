"""Which units move, shard or switch to evaluation what an attribute holds, where it lies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from validator.definitions import ClassDef, Method
from validator.domains.placement import SPREADING, after
from validator.flow.program.fields import SELVES, related
from validator.flow.program.unit import Unit
from validator.flow.values import BOTTOM, NOT_YET, Val

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow


class Placings:
    """The units of a program that place otherwise what attributes hold."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def on_entry(self, cls: ClassDef, name: str, exact: bool, asking: Unit) -> Val:
        """What an attribute holds when a unit is entered: placed as the other units place it, which ran before."""
        held: Val = self.flow.get("field", cls, name, exact)
        if name not in self._names or held is BOTTOM or held is NOT_YET:
            return held
        state = held.state
        rows = [o for o in self.flow.get("placed", cls, name).objs if o[0] == "placing"]
        for _, unit, _, step in sorted(rows, key=lambda o: (o[1].path, o[1].code.at, o[2])):
            if unit is asking and step in SPREADING:
                continue  # it comes later, or the value says so
            state = after(state, step) if step in SPREADING else state | after(state, step)
        return held.placed(state)

    def placed(self, cls: ClassDef, name: str) -> Val:
        """The steps by which units place otherwise what an attribute holds, where it lies: as objects."""
        found = set()
        family = {*cls.mro, *cls.descendants()}
        for method in self._names.get(name, ()):
            unit = self.flow.unit_of(method)
            if unit is None:
                continue
            for order, (owner, attribute, step) in enumerate(self.flow.get("unit", unit).placings):
                owners = self.flow.close(owner, unit).objs if attribute == name else frozenset()
                if any(o[0] in SELVES and related(o, family, cls) for o in owners):
                    found.add(("placing", unit, order, step))
        return Val(frozenset(found))

    @cached_property
    def _names(self) -> dict[str, list[Method]]:
        """By name of an attribute: the functions that may place otherwise what it holds."""
        found: dict[str, dict[Method, None]] = {}
        for function in self.flow.project.functions():
            for name in self._attributes(function):
                found.setdefault(name, {})[function] = None
        return {name: self.flow.stores.where_they_stand(rows) for name, rows in found.items()}

    def _attributes(self, function: Method) -> Iterator[str]:
        """Attributes that a function may place otherwise: `fully_shard(self.model)`, `self.model.eval()`."""
        for call in function.facts.calls:
            if call.method in self.flow.models.steps:
                if "." in call.receiver:
                    yield call.receiver.rpartition(".")[2]
            elif call.method in self._placing:
                yield from (a.value.rpartition(".")[2] for a in call.args if a.kind == "path" and "." in a.value)

    @cached_property
    def _placing(self) -> frozenset[str]:
        """The names of functions that may place an argument otherwise: of the tables, and what hands a parameter on."""
        rows = self.flow.models.calls.values()
        found = set(self.flow.mentions.also(row.name for row in rows if row.state is not None))
        calls: dict[str, dict[Method, None]] = {}
        for function in self.flow.project.functions():
            params = {p.name for p in function.facts.params}
            for call in function.facts.calls:
                if any(a.kind == "path" and a.value in params for a in call.args):
                    calls.setdefault(call.method, {})[function] = None
        queue = list(found)
        while queue:
            for function in calls.get(queue.pop(), ()):
                more = [name for name in self.flow.mentions.also((function.name,)) if name not in found]
                found.update(more)
                queue += more
        return frozenset(found)
