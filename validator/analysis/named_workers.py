"""The classes of the objects that a library makes where a text names their class, and whose methods it runs by name:
`LLM(worker_extension_cls="rl.workers.WorkerExtension")`, then `llm.collective_rpc("update_weight", …)`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from validator.analysis.interfaces.members import Members
from validator.analysis.named import Named
from validator.definitions import PLAIN_BASES, ClassDef
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project


class NamedWorkers:
    """Answers for one project, remembered; asked for with `project.analysis(NamedWorkers)`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._queries: Queries = project.analysis(Queries)
        self.of = cache(self._of)

    def _of(self, library: str) -> frozenset[ClassDef]:
        """The classes of the workers of a library; none where some of them are not known, or none are named."""
        row = self._queries.flow.models.workers.get(library)
        named = self.project.analysis(Named)
        found: set[ClassDef] = set()
        for place in self._given(row.keys) if row is not None else ():
            text = place.closed.constant()
            symbol = named.of(text) if isinstance(text, str) else None
            if not isinstance(symbol, ClassDef):
                return frozenset()
            found.add(symbol)
        return frozenset(found)

    def _given(self, keys: tuple[str, ...]) -> Iterator[Place]:
        """What the program gives under one of some keywords, keys or attributes, each with a text that it may be."""
        for unit in self._queries.spelling(*keys):
            if is_test(unit.path):
                continue
            for place in self._queries.values(unit, "call", "dict", "store_item", "store_attr"):
                yield from _under(place, keys)

    def lacks(self, library: str, name: str) -> frozenset[ClassDef]:
        """The classes of the workers of a library, if objects of none of them have a method of that name."""
        row, classes = self._queries.flow.models.workers.get(library), self.of(library)
        if row is None or name in row.methods:
            return frozenset()
        return classes if all(self._lacks(cls, library, name) for cls in classes) else frozenset()

    def _lacks(self, cls: ClassDef, library: str, name: str) -> bool:
        members = self.project.analysis(Members)
        if name in cls.attributes or members.is_given_outside(name) or not members.closed_but_for_libraries(cls):
            return False
        return all(base in PLAIN_BASES or base.startswith(f"{library}.") for base in cls.external_bases)


def _under(place: Place, keys: tuple[str, ...]) -> Iterator[Place]:
    """What stands under the keys in a call, a dictionary or an assignment."""
    value = place.value
    if value.op == "call":
        for number, keyword in zip(value.args[1:], value.data.names, strict=True):
            if keyword in keys:
                yield place.value_at(number)
    elif value.op == "dict":
        for key, number in zip(value.args[::2], value.args[1::2], strict=True):
            if key >= 0 and place.value_at(key).root.value.data in keys:
                yield place.value_at(number)
    elif value.op == "store_attr":
        if value.data in keys:
            yield place.operand(1)
    elif place.operand(1).root.value.data in keys:
        yield place.operand(2)
