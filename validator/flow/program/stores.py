"""Who stores something in attributes and variables, or puts it into the containers that these are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from validator.definitions import ClassDef, Method
from validator.domains.spmd import only
from validator.flow.containers import GROWING
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test
from validator.flow.values import NONE_OBJ, NOT_YET, Val
from validator.ir.expressions import MADE_UP, NAMING

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow


class Stores:
    """The functions of a program that store or fill attributes and variables, by the names of these."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._where: dict[str, list[Method]] = {}

    @cached_property
    def _writers(self) -> dict[str, list[Method]]:
        """By name of an attribute: the functions that store it."""
        found: dict[str, dict[Method, None]] = {}
        for function in self.flow.project.functions():
            for ref in function.facts.refs:
                if ref.context == "store" and "." in ref.path:
                    found.setdefault(ref.path.rpartition(".")[2], {})[function] = None
        for function, call in self.flow.project.calls("setattr", *NAMING):
            if len(call.args) > 1:
                key = call.args[-2]
                name = key.value.strip("'\"") if key.kind == "const" else MADE_UP
                found.setdefault(name, {})[function] = None
        return {name: list(rows) for name, rows in found.items()}

    @property
    def written(self) -> Iterable[str]:
        """The names of the attributes that functions store."""
        return self._writers

    def writers(self, name: str) -> list[Method]:
        """The functions that store an attribute of that name."""
        known = self._where.get(name)
        if known is None:
            known = self._where[name] = self.where_they_stand(self._writers.get(name, []))
        return known

    def where_they_stand(self, methods: Iterable[Method]) -> list[Method]:
        """Functions, and instead of those that are parts of others these."""
        units = ((method, self.flow.unit_of(method)) for method in methods)
        return list(dict.fromkeys(self.flow.standing(unit).method or m if unit is not None else m for m, unit in units))

    def fillings(
        self, name: str, is_owner: Callable[[Any], bool], path: str, family: set[ClassDef] | None = None
    ) -> Iterator[Val]:
        """What is put into the container that an attribute (of a family of classes) or a global variable is."""
        for method in self._fillers.get(name, ()):
            unit = self.flow.unit_of(method)
            if unit is None or is_of_tests(unit, path) or family is not None and unit.keeps_for_itself(name, family):
                continue
            rows = self.flow.part(("unit", unit), ("filled", name))
            if rows is None:
                yield NOT_YET
            for owner, value in rows or ():
                if any(map(is_owner, self.flow.close(owner, unit).each)):
                    yield self.flow.close(value, unit)

    @cached_property
    def _fillers(self) -> dict[str, list[Method]]:
        """By name of an attribute or global variable: the functions that put something into the container it is."""
        found: dict[str, dict[Method, None]] = {}
        for function in self.flow.project.functions():
            paths = [row.target.partition("[")[0] for row in function.facts.assigns if row.target.endswith("[]")]
            paths += [call.receiver.partition("[")[0] for call in function.facts.calls if call.method in GROWING]
            for path in paths:
                found.setdefault(path.removesuffix(".setdefault()").rpartition(".")[2], {})[function] = None
        return {name: self.where_they_stand(rows) for name, rows in found.items()}


def on_all_ranks(stored: Val) -> Val:
    """What is stored: of groups that fill the job each rank has one, though it keeps only that to which it belongs."""
    groups = stored.objs - {NONE_OBJ}
    if not only(stored.p, "member") or not all(o[0] == "group" and o[2] == "every" for o in groups) or not groups:
        return stored
    return Val(stored.objs, stored.v, stored.n, stored.p - only(stored.p, "member"), stored.state)


def is_of_tests(unit: Unit, path: str) -> bool:
    """Whether a test stores something in what another file has: not what the program's objects hold."""
    return is_test(unit.path) and not is_test(path)
