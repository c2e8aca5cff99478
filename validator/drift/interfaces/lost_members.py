"""Members that a class had before a change and has no longer, and places that still ask its objects for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.members import Members
from validator.definitions import ClassDef
from validator.drift.change import Change
from validator.flow.objects import Held, Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.models.members import is_known, is_telling

_SEVERAL = 2  # classes that have what one of their kind lost
_ASKING = ("asks", "tries")
# What hands a dictionary on as it is; `_TOLD` only shows it.
_HANDING = frozenset({"store_item", "store_attr", "dict", "tuple", "list", "call", "return", "yield", "phi"})
_TOLD = frozenset({"print", "info", "debug", "warning", "log", "str", "repr", "len", "sorted", "set", "list"})


class Asked(NamedTuple):
    """A place that asks an object which may be of `cls` for `name`. `now`: what the class has instead, if one thing."""

    unit: Unit
    place: Place
    cls: ClassDef
    name: str
    now: str
    only: bool  # whether it can be an object of nothing else
    kin: tuple[ClassDef, ...] = ()  # where nothing is known of the object: classes that stand in for `cls` and have it


class Taken(NamedTuple):
    """A place that takes all that an object of `cls` holds as a dictionary, of which `name` is no part any more.

    `asked`: where the program asks for that key.
    """

    place: Place
    cls: ClassDef
    name: str
    asked: tuple[tuple[str, int], ...]


class LostMembers:
    """The places that a change of members left behind."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after
        self.members = self.after.project.analysis(Members)
        self.objects = self.after.project.analysis(Objects)

    def asked(self) -> Iterator[Asked]:
        lost = self._lost()
        for name in sorted({name for _, name, _ in lost}):
            classes = {cls: now for cls, each, now in lost if each == name}
            for place in self._reads(name):
                held = self.objects.held(place.operand(0), place)
                for cls in sorted(held.classes & classes.keys(), key=lambda c: (c.path, c.qualname)):
                    if _lacks(held, cls, name):
                        yield Asked(
                            place.unit, place, cls, name, classes[cls], held.complete and len(held.classes) == 1
                        )

    def asked_of_kin(self) -> Iterator[Asked]:
        """The places that ask an object of which nothing is known, where one of several classes of a kind lost what
        all the others have."""
        for cls, name, now in self._gone():
            kin = tuple(self._kin(cls))
            if len(kin) < _SEVERAL or not all(name in each.attributes for each in kin):
                continue
            if not is_telling(name) or self.members.is_given_outside(name):
                continue
            own = {cls, *kin}
            for place in self._reads(name):
                held = self.objects.held(place.operand(0), place)
                if not held.classes and not is_test(place.unit.path) and place.unit.cls not in own:
                    yield Asked(place.unit, place, cls, name, now, only=False, kin=kin)

    def _gone(self) -> Iterator[tuple[ClassDef, str, str]]:
        """The classes of changed files with what their objects had before and have no longer."""
        for cls in self.after.project.classes():
            if self.change.is_changed(cls.path) and not is_foreign(cls.path) and not is_test(cls.path):
                yield from ((cls, name, now) for name, now in self._gone_of(cls))

    def _gone_of(self, cls: ClassDef) -> list[tuple[str, str]]:
        """What a class had before and has no longer, with what it has instead, if that is one thing."""
        module = self.change.before.module(cls.module.source.absolute)
        old = module.classes.get(cls.qualname) if module is not None else None
        gone = old.attributes - cls.attributes if old is not None else frozenset()
        come = sorted(cls.attributes - old.attributes) if old is not None and len(gone) == 1 else []
        return [(name, come[0] if len(come) == 1 else "") for name in sorted(gone)]

    def _kin(self, cls: ClassDef) -> list[ClassDef]:
        """The classes that stand in for one another: of one name, or of one base of the project."""
        named = (each for each in self.after.project.classes() if each.name == cls.name)
        beside = (each for base in cls.mro[1:] for each in base.descendants())
        return [each for each in dict.fromkeys([*named, *beside]) if each is not cls and not is_test(each.path)]

    def taken(self) -> Iterator[Taken]:
        """The dictionaries of objects (`control.__dict__`, `vars(control)`) that lack what is computed since the
        change, while its key is still asked for."""
        for cls, name in self._computed():
            rows = (row for row in self.after.occurrences(name) if row.kind == "key" and row.role in _ASKING)
            asked = tuple(dict.fromkeys((row.path, row.at[0]) for row in rows if not is_test(row.path)))
            for place in self._dictionaries(name) if asked else ():
                held = self.objects.held(place.operand(1 if place.value.op == "call" else 0), place)
                if any(cls in each.mro for each in held.classes):
                    yield Taken(place, cls, name, asked)

    def _computed(self) -> Iterator[tuple[ClassDef, str]]:
        """What was an attribute of the objects of a class before, and is a property now."""
        for cls in self.after.project.classes():
            module = self.change.before.module(cls.module.source.absolute) if self.change.is_changed(cls.path) else None
            old = module.classes.get(cls.qualname) if module is not None else None
            if old is not None:
                plain = (name for name, method in cls.methods.items() if "property" in method.facts.decorators)
                yield from ((cls, name) for name in plain if name in old.attributes and name not in old.methods)

    def _dictionaries(self, name: str) -> Iterator[Place]:
        """The places that take all that an object holds and hand it on as it is, without the key itself."""
        for row in self.after.occurrences("__dict__"):
            if row.unit is not None and row.unit.code.values[row.number].op == "attr":
                yield from self._handed_on(Place(self.after.flow, row.unit, row.number), name)
        for unit in self.after.flow.mentions.calling("vars"):
            for call in self.after.project.analysis(Queries).calls_in(unit):
                if call.method == "vars" and len(call.value.args) == len(("vars", "object")):
                    yield from self._handed_on(call, name)

    @staticmethod
    def _handed_on(place: Place, name: str) -> Iterator[Place]:
        unit, values = place.unit, place.unit.code.values
        users = [user for user in place.users if user.value.op != "mut"]
        kept = all(user.value.op in _HANDING and user.method not in _TOLD for user in users)
        put = any(value.op == "const" and value.data == name for value in values)
        if users and kept and not put and not unit.is_receiver(values[place.number].args[-1]):
            yield place

    def _lost(self) -> list[tuple[ClassDef, str, str]]:
        """Classes with what their objects had before and nothing gives them now."""
        found = []
        for cls in self.after.project.classes():
            if not any(self.change.is_changed(each.path) for each in cls.mro) or is_foreign(cls.path):
                continue
            if not self.after.is_made(cls):
                continue
            found += [(cls, name, now) for name, now in self._gone_of(cls) if self._is_lost(cls, name)]
        return found

    def _is_lost(self, cls: ClassDef, name: str) -> bool:
        """Whether nothing else gives objects of just this class the member."""
        if self.members.lacks_where_made(cls, name):
            return True
        bases = [base for base in cls.external_bases if not is_known(base)]
        return not bases and not self.members.is_given_outside(name) and self.members.closed_but_for_libraries(cls)

    def _reads(self, name: str) -> Iterator[Place]:
        """The places that ask an object for a name, and do not reckon with its absence."""
        for row in self.after.occurrences(name):
            if row.unit is not None and row.unit.code.values[row.number].op == "attr":
                place = Place(self.after.flow, row.unit, row.number)
                if not place.may_lack(name):
                    yield place


def _lacks(held: Held, cls: ClassDef, name: str) -> bool:
    """Whether no object that may be there has the member: those of classes below may, where they may be there."""
    return cls not in held.below or not any(name in each.attributes for each in cls.descendants())
