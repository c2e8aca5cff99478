"""Which files and units mention a name at all: what mentions none of the names that a question is about is never read.

The words of a file are those of its names and of the texts that it passes on, so that a name that reaches a call
through `getattr` or a dotted text is a word as well. They come from its facts: only files with a word are lowered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from validator.definitions import Module
from validator.ir.model import Value

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit

_TEXT = 200
_WORD = re.compile(r"\w+")


class Mentions:
    """The words of a project."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._indexes: dict[tuple[bool, Module], dict[str, tuple[Unit, ...]]] = {}
        self._inner: dict[Module, dict[Unit, list[Unit]]] = {}
        self._answers: dict[tuple[bool, tuple[str, ...]], tuple[Unit, ...]] = {}

    @cached_property
    def _modules(self) -> dict[str, list[Module]]:
        found: dict[str, list[Module]] = {}
        for module in self.flow.project.modules.values():
            for word in frozenset(_WORD.findall(" ".join(_spoken(module)))):
                found.setdefault(word, []).append(module)
        return found

    def speaks(self, *names: str) -> bool:
        """Whether any file speaks of one of the names."""
        return any(name in self._modules for name in names)

    def containing(self, part: str) -> list[str]:
        """The words of all files that contain a text, in small letters."""
        return [word for word in self._modules if part in word.lower()]

    def libraries(self, *names: str) -> bool:
        """Whether the project imports one of some libraries."""
        wanted = frozenset(names)
        modules = self.flow.project.modules.values()
        return any(row.module.partition(".")[0] in wanted for module in modules for row in module.facts.imports)

    def calling(self, *names: str) -> tuple[Unit, ...]:
        """The units that call something by one of the names."""
        found: dict[Unit, None] = {}
        for method, _ in self.flow.project.calls(*self.also(names)):
            unit = self.flow.unit_of(method)
            unit = self.flow.standing(unit) if unit is not None else None
            if unit is not None and unit not in found:
                found[unit] = None
                found.update(dict.fromkeys(self._inside(unit)))
        return tuple(sorted(found, key=lambda unit: unit.place))

    def _inside(self, unit: Unit) -> list[Unit]:
        """The lambdas of a unit: what they call counts as called by it."""
        return [each for each in self.inner(unit) if each.code.kind == "lambda"]

    def inner(self, unit: Unit) -> list[Unit]:
        """The functions and lambdas that are made in a unit."""
        known = self._inner.get(unit.module)
        if known is None:
            known = self._inner[unit.module] = {}
            for each in self.flow.units_of(unit.module).values():
                if each.code.kind in ("lambda", "function") and each.outer is not None:
                    known.setdefault(each.outer, []).append(each)
        return known.get(unit, [])

    def modules(self, *names: str) -> Iterator[Module]:
        """The modules that speak of one of the names, in the order of their paths."""
        found = {module: None for name in names for module in self._modules.get(name, ())}
        yield from sorted(found, key=lambda m: m.path)

    def spelling(self, *words: str) -> Iterator[Module]:
        """The modules in whose text one of the words stands, as a key in brackets too."""
        for module in sorted(self.flow.project.modules.values(), key=lambda m: m.path):
            if any(word in module.source.text for word in words):
                yield module

    def units(self, *names: str) -> tuple[Unit, ...]:
        """The units that mention one of the names at all, under another one too where an import gives it that."""
        return self._known(False, names)

    def naming(self, *names: str) -> tuple[Unit, ...]:
        """The units in which one of the names stands for a value: read, not stored or passed by keyword."""
        return self._known(True, names)

    def _known(self, values: bool, names: tuple[str, ...]) -> tuple[Unit, ...]:
        known = self._answers.get((values, names))
        if known is None:
            known = self._answers[values, names] = tuple(self._found(values, names))
        return known

    def _found(self, values: bool, names: Iterable[str]) -> list[Unit]:
        wanted = self.also(names)
        found: dict[Unit, None] = {}
        for module in self.modules(*wanted):
            known = self._index(values, module)
            for name in wanted:
                found.update(dict.fromkeys(known.get(name, ())))
        return sorted(found, key=lambda unit: unit.place)

    def within(self, module: Module, words: Iterable[str]) -> frozenset[Unit]:
        """The units of a module that mention one of some words, as they are spelled there."""
        known = self._index(False, module)
        return frozenset(unit for word in words for unit in known.get(word, ()))

    def also(self, names: Iterable[str]) -> list[str]:
        """Names, and those that imports anywhere give to what is called so."""
        found = dict.fromkeys(names)
        queue = list(found)
        while queue:
            for name in self._renamed.get(queue.pop(), ()):
                if name not in found:
                    found[name] = None
                    queue.append(name)
        return list(found)

    @cached_property
    def _renamed(self) -> dict[str, dict[str, None]]:
        """By name the other names that imports give it."""
        found: dict[str, dict[str, None]] = {}
        for module in self.flow.project.modules.values():
            for row in module.facts.imports:
                name = row.name or row.module.rpartition(".")[2]
                if row.asname and row.asname != name:
                    found.setdefault(name, {})[row.asname] = None
        return found

    def _index(self, values: bool, module: Module) -> dict[str, tuple[Unit, ...]]:
        known = self._indexes.get((values, module))
        if known is None:
            found: dict[str, list[Unit]] = {}
            for unit in self.flow.whole_units(module):
                for word in unit.named if values else unit.words:
                    found.setdefault(word, []).append(unit)
            rows: dict[tuple[Unit, ...], tuple[Unit, ...]] = {}  # one object for equal ones
            every = ((word, tuple(units)) for word, units in found.items())
            known = self._indexes[values, module] = {word: rows.setdefault(units, units) for word, units in every}
        return known


def _spoken(module: Module) -> Iterator[str]:
    """The names of a file and the texts that it passes on."""
    facts = module.facts
    yield from facts.texts
    for row in facts.imports:
        yield f"{row.module} {row.name} {row.asname}"
    for cls in facts.classes:
        yield cls.name
        yield from cls.bases
        yield from (name for name, _ in cls.attributes)
    for function in facts.functions:
        yield function.name
        yield from function.decorators
        yield from function.bound
        yield from (param.name for param in function.params)
        yield from (ref.path for ref in function.refs)
        for call in function.calls:
            yield call.target
            yield from (f"{argument.keyword} {argument.value}" for argument in call.args)
        for assign in function.assigns:
            yield assign.target
            yield assign.value


def name_of(value: Value) -> str:
    """The name by which an instruction speaks of something; empty where it has none."""
    op, data = value.op, value.data
    if op in ("attr", "name", "const"):
        return data if isinstance(data, str) else ""
    if op in ("param", "free"):
        return str(data[1])
    if op == "closure":
        return str(data).removesuffix(".<class>").rpartition(".")[2]
    if op == "import":
        return str(data[1] or data[0]).rpartition(".")[2]
    return ""


def words_of(data: Iterable[object]) -> Iterator[str]:
    """The words in what instructions carry with them: names, keywords, texts."""
    for each in data:
        if isinstance(each, str):
            if each.isidentifier():
                yield each
            elif len(each) <= _TEXT:  # no documentation
                yield from _WORD.findall(each)
        elif isinstance(each, tuple):
            yield from words_of(each)
