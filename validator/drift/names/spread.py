"""Settings that are handed on as a whole: `Model(**vars(args))`, `run(**asdict(config))`.

Who is called takes from them what its parameters name, also where a comprehension leaves out what it does not take. A
parameter that had its value from an option or a field which the change took away, or renamed, has its default from then
on; so has one that the change gave another name than the option or field has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.handed_on import items_copied, items_put
from validator.analysis.options.namespaces import Namespaces
from validator.analysis.options.parsers import Options, Parser
from validator.definitions import ClassDef, Method
from validator.drift.change import Change, Side
from validator.drift.interfaces.calls import annotated
from validator.drift.names.occurrences import Occurrence
from validator.drift.names.removed import Lost, Names
from validator.facts.model import Param
from validator.flow.objects import Callee, Objects
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test

_SHOWING = frozenset({"vars", "asdict"})  # functions that make a dictionary of an object's attributes
_SHOWN_BY = frozenset({"to_dict", "model_dump", "_asdict"})  # methods that do
_WORDS = tuple(word.encode() for word in (*_SHOWING, *_SHOWN_BY, "__dict__"))
_TAKING = ("any", "kw")


class Unfilled(NamedTuple):
    """A call that hands settings on as a whole, and the parameter that gets nothing of them since the change."""

    lost: Lost
    callee: Callee


class Unnamed(NamedTuple):
    """A parameter that was called as a field or an option is, which `call` hands on, and is called otherwise since the
    change."""

    old: str
    new: Param
    callee: Callee
    call: Place


class Spread:
    """The parameters that a change left without the option or field which filled them; for one side or the other."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.names: Names = change.analysis(Names)

    @cached_property
    def unfilled(self) -> list[Unfilled]:
        taken = {param.name for function in self.change.after.project.functions() for param in function.facts.params}
        taken |= {name for cls in self.change.after.project.classes() for name in annotated(cls)}
        gone = {name: row for name, row in self._gone.items() if name in taken}
        return list(self._found(gone)) if gone else []  # what an object holds takes a walk through what made it

    @cached_property
    def unnamed(self) -> list[Unnamed]:
        """The parameters that the change gave a name which nothing that fills them has."""
        found: dict[tuple[Method | ClassDef, str], Unnamed] = {}
        objects = self.change.after.project.analysis(Objects)
        for place, shown in self._spreading() if self._renamed else ():
            names, given = self._now_in(shown), set(place.value.data.names)
            for callee in objects.reached_by(place.operand(0), place).callees if names - given else ():
                old, new = self._renamed.get(callee.place, ("", None))
                if new is not None and old in names - given and new.name not in names | given:
                    found.setdefault((callee.place, new.name), Unnamed(old, new, callee, place))
        return list(found.values())

    @cached_property
    def _renamed(self) -> dict[Method | ClassDef, tuple[str, Param]]:
        """By function, or class of fields, that the change gave one parameter another name: the old name, and the
        parameter."""
        found: dict[Method | ClassDef, tuple[str, Param]] = {}
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path) or is_foreign(new.path):
                continue
            for name, method in new.functions.items():
                was = old.functions.get(name)
                before = {p.name for p in was.facts.params if p.kind in _TAKING} if was is not None else set()
                after = {p.name: p for p in method.facts.params if p.kind in _TAKING}
                gone, came = before - after.keys(), after.keys() - before
                if len(gone) == len(came) == 1:
                    found[method] = (gone.pop(), after[came.pop()])
        return found

    def _now_in(self, shown: Place) -> frozenset[str]:
        """The options or fields of an object, where they are known."""
        parsers = {
            each.parser for each in self.change.after.project.analysis(Namespaces).held(shown) if not each.prefix
        }
        classes = self.change.after.project.analysis(Objects).held(shown).classes
        if any(parser.open for parser in parsers) or any(cls.is_opaque for cls in classes):
            return frozenset()
        named = [*(parser.dests for parser in parsers), *(annotated(cls) for cls in classes)]
        return frozenset().union(*named)

    @cached_property
    def _gone(self) -> dict[str, Occurrence]:
        """The options and fields that changed files define no longer."""
        found: dict[str, Occurrence] = {}
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path) or is_foreign(new.path):
                continue
            now = self.change.after.of_file(new.source)
            for name, rows in self.change.before.of_file(old.source).items():
                was = next((row for row in rows if row.kind in ("option", "field") and row.role == "defines"), None)
                if was is not None and all(row.kind != was.kind for row in now.get(name, ())):
                    found[name] = was
        return found

    def _found(self, gone: dict[str, Occurrence]) -> Iterator[Unfilled]:
        objects = self.change.after.project.analysis(Objects)
        for place, shown in self._spreading():
            names = self._lost_by(shown) & gone.keys()
            given = set(place.value.data.names)
            for callee in objects.reached_by(place.operand(0), place).callees if names - given else ():
                for param in callee.params:
                    if param.name in names - given and param.kind in _TAKING:
                        lost = self._lost(gone[param.name], place)
                        if lost.renamed or param.default is None:  # else what went may be set nowhere on purpose
                            yield Unfilled(lost, callee)

    def _spreading(self) -> Iterator[tuple[Place, Place]]:
        """The calls that get all attributes of an object as keywords, with that object."""
        side = self.change.after
        for module in side.project.modules.values():
            if not any(word in module.source.data for word in _WORDS) or is_test(module.path):
                continue
            for unit in side.units(module).values():
                for number, value in enumerate(unit.code.values):
                    if value.op == "call" and "**" in value.data.names:
                        place = Place(side.flow, unit, number)
                        for name, index in zip(value.data.names, range(1, len(value.args)), strict=True):
                            if name == "**" and (shown := _shown(place.operand(index).root)) is not None:
                                yield place, shown

    def _lost_by(self, shown: Place) -> frozenset[str]:
        """What an object had before the change and has not now: options of its parsers, fields of its classes."""
        after, before = self.change.after, self.change.before
        held = after.project.analysis(Namespaces).held(shown)
        kept: set[str] = set()
        had: set[str] = set()
        for parser in {each.parser for each in held if not each.prefix}:
            earlier = _twin(before, parser)
            if earlier is None or parser.open:
                return frozenset()
            kept |= parser.dests
            had |= earlier.dests
        for cls in after.project.analysis(Objects).held(shown).classes:
            module = before.module(cls.module.source.absolute)
            was = module.classes.get(cls.qualname) if module is not None else None
            if was is None or cls.is_opaque:
                return frozenset()
            kept |= annotated(cls)
            had |= annotated(was)
        namespaces = after.project.analysis(Namespaces)
        return frozenset(name for name in had - kept if not namespaces.is_written(held, name))

    def _lost(self, old: Occurrence, place: Place) -> Lost:
        renamed = self.names.renamed(old)
        stale = Occurrence(old.name, "asks", "parameter", place.unit, place.number, place.unit.path, place.at)
        return Lost(old.name, old.kind, old, renamed.name if renamed is not None else "", renamed, (stale,))


def _shown(made: Place) -> Place | None:
    """The object of whose attributes a value is the dictionary; `{k: v for k, v in vars(x).items() if …}` has some."""
    items = max(items_copied(made.unit, made.number), items_put(made.unit, made.number))
    if items >= 0:
        return _shown(made.value_at(items).operand(0).root)
    if made.value.op == "attr" and made.value.data == "__dict__":
        return made.operand(0)
    if made.value.op != "call":
        return None
    if made.method in _SHOWING and len(made.value.args) > 1:
        return made.operand(1)
    return made.receiver if made.method in _SHOWN_BY and made.receiver is not None else None


def _twin(side: Side, parser: Parser) -> Parser | None:
    """The parser that the same function made before the change."""
    parsers = side.project.analysis(Options).parsers
    return next((each for each in parsers if _place(each) == _place(parser)), None)


def _place(parser: Parser) -> tuple[str, str]:
    return parser.module.source.absolute, parser.function.qualname
