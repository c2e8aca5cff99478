"""Sections of configuration files that code lays over the options of a command line: `setattr(args, key, value)` for
each key, `vars(args).update(config)`, `parser.set_defaults(**config)`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.options.namespaces import Namespaces
from validator.analysis.options.parsers import Options, Parser
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project

_SETTING = ("setattr", "__setattr__", "update")
_DEFAULTS = "set_defaults"


class LaidOver(NamedTuple):
    """The call that lays a section over the options of some parsers, and the value that it sets under a key, where it
    does so one by one. `typed`: the parser reads texts as it reads those of the command line."""

    call: Place
    parsers: tuple[Parser, ...]
    section: Place
    value: Place | None
    typed: bool


def laid_over(project: Project) -> Iterator[LaidOver]:
    queries, namespaces = project.analysis(Queries), project.analysis(Namespaces)
    for call in queries.named_anywhere(*_SETTING, _DEFAULTS):
        if is_aside(call.unit.path):
            continue
        if call.method == _DEFAULTS:
            parsers, section, value = _parsers(project, call), _unpacked(call), None
        else:
            owner, section, value = _set_on(call, namespaces)
            parsers = {held.parser for held in namespaces.held(owner)} if owner is not None else set()
        if section is not None and parsers:
            ordered = tuple(sorted(parsers, key=lambda each: (each.function.path, each.at)))
            yield LaidOver(call, ordered, section, value, typed=call.method == _DEFAULTS)


def _parsers(project: Project, call: Place) -> set[Parser]:
    """The parsers whose defaults a call sets."""
    made = project.analysis(Options).made
    held = call.receiver.closed.of("parser") if call.receiver is not None else []
    return {parser for o in held if (parser := made.get(o[1])) is not None}


def _unpacked(call: Place) -> Place | None:
    """What a call unpacks, where it is all that the call gets."""
    return call.operand(1) if call.value.data.names == ("**",) else None


def _set_on(call: Place, namespaces: Namespaces) -> tuple[Place | None, Place | None, Place | None]:
    """An object, the section of which a call sets all keys as its attributes, and the value that it sets."""
    if call.method == "update":
        owner = namespaces.shown(call)
        given = call.operand(1) if len(call.value.args) == 2 and call.value.data.names == (None,) else None
        return owner, given, None
    numbers = call.value.args[1:] if call.method == "setattr" else (call.value.args[0], *call.value.args[1:])
    if len(numbers) != 3:
        return None, None, None
    owner = call.value_at(numbers[0]) if call.method == "setattr" else call.receiver
    key, value = call.value_at(numbers[1]).root, call.value_at(numbers[2])
    if key.value.op == "unpack" and key.value.data[0] == 0:
        gone = key.operand(0).root.iterable
        items = gone.root if gone is not None else None
        is_items = items is not None and items.value.op == "call" and items.method == "items"
        return owner, items.receiver if is_items and items is not None else None, value
    return owner, key.iterable, value
