"""Tables that texts are looked up in: dictionaries of functions and classes, decorators that register them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test
from validator.ir.model import Value
from validator.project import ClassDef, Module, Project

_NAMES = 3  # that a table must have before values are held against it
_MADE = frozenset({"name", "attr", "closure", "import"})  # what a table of things holds


class Registry(NamedTuple):
    """The names of one table, and where it stands."""

    names: frozenset[str]
    path: str
    line: int


class Registries:
    """The tables of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._registered: dict[ClassDef, frozenset[str]] = {}

    def names(self, classes: Iterable[ClassDef]) -> frozenset[str]:
        """The texts under which decorators register some classes: `@OptimizerConfig.register_subclass("adam")`."""
        return frozenset().union(*(self._names_of(cls) for cls in classes))

    def _names_of(self, cls: ClassDef) -> frozenset[str]:
        if cls not in self._registered:
            body = self.flow.body_of(cls) if any(each.endswith("()") for each in cls.facts.decorators) else None
            outer = body.outer if body is not None else None
            makers = _makers(outer, outer.decorating(body)) if outer is not None and body is not None else ()
            given = (text for maker in makers if outer is not None for text in _texts(outer, maker))
            self._registered[cls] = frozenset(text for text in given if text is not None)
        return self._registered[cls]

    @cached_property
    def all(self) -> tuple[Registry, ...]:
        found = [each for module in self._modules() for each in self._literal(module)]
        found += self._decorated()
        return tuple(each for each in found if len(each.names) >= _NAMES)

    def _modules(self) -> list[Module]:
        return [module for module in self.project.modules.values() if not is_test(module.path)]

    def _literal(self, module: Module) -> Iterator[Registry]:
        """Dictionaries of the top level of a module whose keys are texts and whose values are things that are made."""
        unit = self.flow.unit_of(module.top) if b"{" in module.source.data else None
        for value in unit.code.values if unit is not None else ():
            names = _keys(unit, value) if unit is not None and value.op == "dict" else None
            if unit is not None and names is not None:
                yield Registry(names, module.path, unit.at(value.at)[0])

    def _decorated(self) -> Iterator[Registry]:
        """The texts that are given to one decorator, wherever it is used: `@register_estimator("grpo")`."""
        found: dict[str, set[str]] = {}
        places: dict[str, tuple[str, int]] = {}
        for module in self._modules():
            for unit in self.flow.whole_units(module) if b"@" in module.source.data else ():
                for name, text, line in _given(unit):
                    found.setdefault(name, set()).add(text)
                    places.setdefault(name, (module.path, line))
        for name, texts in found.items():
            yield Registry(frozenset(texts), *places[name])


def _keys(unit: Unit, table: Value) -> frozenset[str] | None:
    """The keys of a dictionary of things by text; None for others."""
    values = unit.code.values
    keys = [values[each].data if each >= 0 and values[each].op == "const" else None for each in table.args[::2]]
    held = [values[each] for each in table.args[1::2]]
    if not keys or not all(isinstance(key, str) for key in keys):
        return None
    made = all(each.op in _MADE or each.op == "call" and values[each.args[0]].op in _MADE for each in held)
    return frozenset(str(key) for key in keys) if made else None


def _given(unit: Unit) -> Iterator[tuple[str, str, int]]:
    """The decorators of a unit's functions and classes that are given a text: their names, the text, the line."""
    values = unit.code.values
    decorating = (n for n, value in enumerate(values) if value.op == "call" and value.data.names == ("@",))
    for maker in _makers(unit, decorating):
        if values[maker.args[0]].op in _MADE and maker.data.names[:1] == (None,):
            text = _texts(unit, maker)[0]
            if text is not None:
                yield unit.text(maker.at).partition("(")[0], text, unit.at(maker.at)[0]


def _makers(unit: Unit, decorating: Iterable[int]) -> Iterator[Value]:
    """The calls that make decorators (`register("grpo")`), of those that are put on something."""
    values = unit.code.values
    made = (values[values[number].args[0]] for number in decorating)
    return (each for each in made if each.op == "call")


def _texts(unit: Unit, call: Value) -> list[str | None]:
    """What a call is given by position, None for what is no text."""
    given = [unit.code.values[arg] for arg, name in zip(call.args[1:], call.data.names, strict=True) if name is None]
    return [each.data if each.op == "const" and isinstance(each.data, str) else None for each in given]
