"""Texts that lead to a model's parameters (`"module.encoder.fc"`, `if "fc" in name`), of which a part is gone.

A state names each parameter by the attributes that lead to it, behind the prefixes of wrappers (`module.`). Who looks
for some of them by a text finds none any more where such an attribute goes by another name; nothing is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.drift.change import Change
from validator.drift.names.occurrences import Occurrence
from validator.drift.names.removed import Lost, Names
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.flow.queries.training.saved_states import WRAPPERS
from validator.models.members import is_telling

_MODULE = "torch.nn.Module"
_NAMING = frozenset({"named_parameters", "named_modules", "named_buffers", "named_children", "state_dict"})
_SEEKING = frozenset({"startswith", "endswith", "find", "count", "index"})


class ParameterPaths:
    """The attributes of modules that a change took away, with the texts that still lead to their parameters."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.names: Names = change.analysis(Names)

    @cached_property
    def lost(self) -> list[Lost]:
        found = []
        for name, rows in sorted(self.names.removed.items()):
            kept = [row for row in rows if row.kind == "attribute" and self._is_of_module(row)]
            now = self.change.after.occurrences(name) if kept else ()
            stored = any(row.role == "defines" and row.kind == "attribute" for row in now)
            stale = tuple(self._led_by(name)) if kept and not stored else ()
            if stale:
                new = self.names.renamed(kept[0])
                found.append(Lost(name, "path", kept[0], new.name if new is not None else "", new, stale))
        return found

    def _is_of_module(self, row: Occurrence) -> bool:
        """Whether an attribute was one of a module's objects."""
        cls = row.unit.cls if row.unit is not None else None
        models = self.change.before.flow.models
        return cls is not None and any(models.named(base) == _MODULE for base in cls.external_bases)

    def _led_by(self, name: str) -> Iterator[Occurrence]:
        """The texts that the change left and whose path begins with a name."""
        side = self.change.after
        for module in side.flow.mentions.spelling(name):
            if is_test(module.path) or is_foreign(module.path):
                continue
            for unit in side.units(module).values():
                for number, value in enumerate(unit.code.values):
                    if value.op != "const" or not isinstance(value.data, str):
                        continue
                    asks = value.data.strip(".") == name and _is_sought(Place(side.flow, unit, number))
                    if asks or begins_with(value.data, name):
                        at = unit.at(value.at)
                        if not self.change.wrote(unit.path, at[0]):
                            yield Occurrence(name, "spells", "text", unit, number, unit.path, at)


def _is_sought(text: Place) -> bool:
    """Whether a text is looked for in the names of parameters: `for name, p in model.named_parameters(): if "fc" in
    name`."""
    for user in text.users:
        if user.value.op == "compare" and user.value.data in ("In", "NotIn", "Eq", "NotEq"):
            asked = [user.operand(1), user.operand(0)]
        elif user.value.op == "call" and user.method in _SEEKING and user.receiver is not None:
            asked = [user.receiver]
        else:
            continue
        if any(_names_parameter(each.root) for each in asked if each.number != text.number):
            return True
    return False


def _names_parameter(name: Place) -> bool:
    """Whether a value is one of the names that a model gives its parameters, or the parts of its state."""
    if name.value.op == "unpack" and name.value.data[0] == 0:
        name = name.operand(0).root
    if name.value.op != "next":
        return False
    through = name.operand(0).root
    through = through.operand(0).root if through.value.op == "iter" else through
    while through.value.op == "call" and through.method in ("items", "keys") and through.receiver is not None:
        through = through.receiver.root
    return through.value.op == "call" and through.method in _NAMING


def begins_with(text: str, name: str) -> bool:
    """Whether a text is a path of parameters that begins with a name, behind the prefixes of wrappers. Without these a
    name of one word may be any library's."""
    links = text.split(".")
    if len(links) < 2 or not all(link.isidentifier() or link.isdigit() for link in links if link):
        return False
    wrapped = [link for link in links if link in WRAPPERS]
    inner = links[len(wrapped) :]
    return links[: len(wrapped)] == wrapped and inner[:1] == [name] and (bool(wrapped) or is_telling(name))
