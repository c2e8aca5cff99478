"""Values that code gives anew to options of a command line, or under keys of a section, whose names it computes.

for name, value in vars(args).items():
    setattr(args, name.replace("-", "_"), number(value))
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.options.namespaces import Namespaces
from validator.analysis.options.parsers import Parser
from validator.flow.callgraph.receivers import meeting
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import Obj
from validator.project import Project

_SETTING = ("setattr", "__setattr__")
_NAMES = frozenset({"next", "unpack", "call", "attr", "param", "join", "binary", "phi"})


class Anew(NamedTuple):
    """The name and the value that code gives; a name is one of several, or computed."""

    name: Place
    value: Place

    @property
    def renames(self) -> bool:
        """Whether the name is made by a call: `name.replace("-", "_")`."""
        return self.name.root.value.op == "call"

    def makes(self, name: str) -> bool:
        """Whether the value under a name is made by a call: of each name, or under a test in which that one stands."""
        return is_made(self.value, name)


class SetAnew:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self.namespaces = project.analysis(Namespaces)

    def of_options(self, parsers: tuple[Parser, ...]) -> Iterator[Anew]:
        """What is given anew to the options of one of some parsers."""
        for held, anew in self._options:
            if not held.isdisjoint(parsers):
                yield anew

    def of_section(self, o: Obj) -> Iterator[Anew]:
        """What is put anew into a section that a call reads, or a part of it."""
        for read, anew in self._sections:
            if read == o[1][-1]:
                yield anew

    @cached_property
    def _options(self) -> list[tuple[frozenset[Parser], Anew]]:
        places = (*self._by_name, *self._by_key, *self._comprehensions)
        held = ((frozenset(each.parser for each in self.namespaces.held(owner)), anew) for owner, anew in places)
        return [(parsers, anew) for parsers, anew in held if parsers]

    @cached_property
    def _sections(self) -> list[tuple[Hashable, Anew]]:
        found = []
        for unit in meeting(self.queries.flow, "section"):
            for store in self.queries.values(unit, "store_item") if not is_aside(unit.path) else ():
                held, name = store.operand(0).closed.of("section"), store.operand(1)
                if held and name.root.value.op in _NAMES:
                    found += [(o[1][-1], Anew(name, store.operand(2))) for o in held]
        return found

    @property
    def _by_name(self) -> Iterator[tuple[Place, Anew]]:
        """The owner, name and value of what `setattr(args, …)` sets."""
        for call in self.queries.named_anywhere(*_SETTING):
            found = attribute_set(call) if not is_aside(call.unit.path) else None
            if found is not None:
                yield found

    @property
    def _by_key(self) -> Iterator[tuple[Place, Anew]]:
        """The same of `vars(args)[…] = …`."""
        for unit in self.queries.flow.mentions.units("vars", "__dict__"):
            for store in self.queries.values(unit, "store_item") if not is_aside(unit.path) else ():
                owner, name = self.namespaces.shown(store.operand(0).root), store.operand(1)
                if owner is not None and name.root.value.op in _NAMES:
                    yield owner, Anew(name, store.operand(2))

    @property
    def _comprehensions(self) -> Iterator[tuple[Place, Anew]]:
        """What dictionaries are made of that go through all options: `{k: float(v) for k, v in vars(args).items()}`."""
        for unit in self.queries.flow.mentions.units("vars", "__dict__"):
            for made in self.queries.values(unit, "collect") if not is_aside(unit.path) else ():
                iterated = made.value_at(made.value.args[-1]) if made.value.data[:2] == ("dict", 2) else None
                items = iterated.operand(0).root if iterated is not None and iterated.value.op == "iter" else None
                if items is None or items.value.op != "call" or items.method != "items" or items.receiver is None:
                    continue
                if (owner := self.namespaces.shown(items.receiver.root)) is not None:
                    yield owner, Anew(made.operand(0), made.operand(1))


def attribute_set(call: Place) -> tuple[Place, Anew] | None:
    """The object, name and value of a call of `setattr` or `object.__setattr__` whose name is not written out."""
    given = [call.value_at(number) for number in call.value.args[1:]]
    owner = given[0] if len(given) == 3 else call.receiver
    if owner is None or len(given) not in (2, 3) or given[-2].root.value.op not in _NAMES:
        return None
    return owner, Anew(given[-2], given[-1])


def is_made(value: Place, name: str) -> bool:
    """Whether a value is made by a call before it is set: whatever its name, or where the name is the one tested."""
    held = value.root
    ways = [value.value_at(number) for number in origins(value.unit, held.number)] if held.value.op == "phi" else [held]
    return any(each.root.value.op == "call" and all(_admits(t, each, name) for t in each.tests_inside) for each in ways)


def _admits(test: Place, value: Place, name: str) -> bool:
    """Whether a test may let a name through to a value: one that names no other, or sorts others out."""
    said = [part.value.data for part in test.parts if part.value.op == "const"]
    texts = [text for text in said if isinstance(text, str)]
    for settled, holds in value.settled_tests:
        if settled == test.origin and settled.value.op == "compare":
            chosen = (settled.value.data in ("Eq", "In")) is holds
            return not texts or (name in texts) is chosen
    return not texts or name in texts
