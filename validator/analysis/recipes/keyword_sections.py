"""Dictionaries that are made by keywords, one of which names what the others are arguments of.

`config.augment = Keys(class_name="training.augment.Pipe", p=0.1)`, and later `config.augment.update(rotate=1)`. Such a
keyword is one that a function of the project takes beside anything else (`def construct(class_name, **kwargs)`), with
the dotted path of a function or class of the project.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.named import Named, is_path
from validator.definitions import ClassDef, Method
from validator.facts.model import At
from validator.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.project import Project


class KeywordSection(NamedTuple):
    """What is named, where, and the other keys."""

    made: str
    at: At
    keys: tuple[tuple[str, At], ...]


class KeywordSections:
    """Asked for with `project.analysis(KeywordSections)`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)

    @cached_property
    def naming(self) -> frozenset[str]:
        """The parameters of functions of the project that take any keyword beside them."""
        rows = (function.facts.params for function in self.project.functions())
        return frozenset(each.name for row in rows if any(p.kind == "**" for p in row) for each in row)

    def found(self) -> Iterator[tuple[Unit, KeywordSection]]:
        """The sections of the project, with the units in which they are made; of others nothing is worked out."""
        for function in self.project.functions() if self.naming else ():
            unit = self.flow.unit_of(function) if self._names_something(function) else None
            if unit is not None:
                yield from ((unit, section) for section in self._of_unit(unit))

    def _names_something(self, function: Method) -> bool:
        """Whether a call in a function has a dotted path as such a keyword."""
        given = (argument for call in function.facts.calls for argument in call.args)
        return any(each.keyword in self.naming and is_path(each.value.strip("'\"")) for each in given)

    def _of_unit(self, unit: Unit) -> Iterator[KeywordSection]:
        for number, value in enumerate(unit.code.values):
            if value.op != "call" or self.naming.isdisjoint(value.data.names):
                continue
            call = Place(self.flow, unit, number)
            given = [(name, call.value_at(each)) for name, each in zip(value.data.names, value.args[1:], strict=True)]
            named = [(name, each) for name, each in given if name in self.naming and self._is_named(each)]
            if len(named) != 1 or any(name is None for name, _ in given) or not _is_dictionary(call):
                continue
            (key, text), added = named[0], list(_added(call))
            keys = tuple((name, each.at) for name, each in [*given, *added] if name not in (key, "*", "**", None))
            yield KeywordSection(str(text.value.data), text.at, keys)

    def _is_named(self, place: Place) -> bool:
        value = place.value
        if value.op != "const" or not is_path(value.data):
            return False
        return isinstance(self.project.analysis(Named).of(value.data), ClassDef | Method)


def _is_dictionary(call: Place) -> bool:
    """Whether a call makes a dictionary of its keywords, and of nothing else."""
    callee = call.operand(0)
    if callee.value.op == "name" and callee.value.data == "dict":
        return True
    made = callee.closed.each
    classes = [
        o[1] for o in made if o[0] == "class" and "dict" in o[1].external_bases and "__init__" not in o[1].methods
    ]
    return bool(classes) and len(classes) == len(made)


def _added(call: Place) -> Iterator[tuple[str, Place]]:
    """The keys that the unit gives the dictionary afterwards, by `update`, where it is kept under one name."""
    unit = call.unit
    kept = [each for each in call.users if each.value.op == "store_attr" and each.value.args[1] == call.number]
    texts = {f"{each.operand(0).text}.{each.value.data}" for each in kept}
    stores = [v for v in unit.code.values if v.op == "store_attr" and kept and v.data == kept[0].value.data]
    for number, value in enumerate(unit.code.values):
        place = call.value_at(number)
        if number < call.number or value.op != "call" or place.method != "update" or place.receiver is None:
            continue
        of_name = place.receiver.root.number == call.number
        if of_name or len(stores) == 1 and place.receiver.text in texts:
            for name, each in zip(value.data.names, value.args[1:], strict=True):
                yield name or "*", place.value_at(each)
