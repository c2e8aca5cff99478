"""What the attributes of objects hold: what functions store there, constructors pass and annotations say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from validator.definitions import ClassDef
from validator.domains.spmd import NONE, only, unsure
from validator.flow.annotations import declared, objects_of
from validator.flow.program.answers import Makers
from validator.flow.program.stores import is_of_tests, on_all_ranks
from validator.flow.program.unit import Unit
from validator.flow.values import BOTTOM, MORE, NONE_OBJ, NOT_YET, TOP, UNKNOWN, Obj, Val, join, join_origins
from validator.ir.expressions import MADE_UP

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow

SELVES = ("self", "inst")  # kinds of objects of the project's classes
_OWNERS = ("self", "inst", "class")


class Stored(NamedTuple):
    """One store of an attribute: in which unit, and what."""

    unit: Unit
    value: Val
    is_passed: bool = False  # whether it depends on what callers pass
    is_here: bool = True  # whether the object is known to be one of those that are asked about
    is_of_class: bool = False  # whether it is set on a class: a function there is a method of its objects


class Fields:
    """What the attributes of the objects of a program hold."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._declared: dict[tuple[ClassDef, str], Val] = {}

    def field(self, cls: ClassDef, name: str, exact: bool) -> Val:
        """What an attribute of the objects of a class holds, in closed form; BOTTOM where nothing stores it."""
        family = set(cls.mro) if exact else {*cls.mro, *cls.descendants()}
        stored = list(self.stores(cls, name, family))
        found = [each.value for each in stored if each.is_here]
        found += self.flow.stores.fillings(
            name, lambda o: o[0] in _OWNERS and related(o, family, cls), cls.path, family
        )
        for owner in cls.mro if exact else (*cls.mro, *cls.descendants()):
            assigned = name not in owner.methods and any(n == name for n, _ in owner.facts.attributes)
            body = self.flow.body_of(owner) if assigned else None
            if body is not None:
                rows = self.flow.part(("unit", body), ("class_names", name))
                found += rows if rows is not None else (NOT_YET,)
        if any(each.fields_are_parameters for each in cls.mro):
            found += self._constructed(cls, name, exact)
        is_known = any(value.objs - {NONE_OBJ} for value in found)
        found += (_perhaps(each.value, is_known) for each in stored if not each.is_here)
        chosen = ((each.unit.name, only(each.value.p, "rank", "member", "data")) for each in stored)
        first = all((writer == "__init__") is not bool(tested) for writer, tested in chosen)
        return _there_if_any(found, join_origins(found), first)

    def stores(self, cls: ClassDef, name: str, family: set[ClassDef]) -> Iterator[Stored]:
        """What functions of the project store in an attribute of objects of a class, or of a family of it."""
        for method in self.flow.stores.writers(name):
            unit = self.flow.unit_of(method)
            if unit is None or is_of_tests(unit, cls.path) or unit.keeps_for_itself(name, family):
                continue
            if name == MADE_UP and unit.cls not in family:
                continue
            rows = self.flow.part(("unit", unit), ("stored", name))
            if rows is None:
                yield Stored(unit, NOT_YET)
            for owner, value in rows or ():
                owner = self.flow.close(owner, unit)
                if owner is NOT_YET:
                    yield Stored(unit, NOT_YET)
                if any(o[0] in _OWNERS and related(o, family, cls) for o in owner.each):
                    kept = on_all_ranks(self.flow.close(value, unit))
                    yield Stored(unit, kept, value.symbolic, is_of_class={o[0] for o in owner.each} == {"class"})
                elif not any(o[0] in SELVES for o in owner.each) and TOP in owner.objs:
                    yield Stored(unit, self.flow.close(value, unit), value.symbolic, is_here=False)

    def is_set_on_classes(self, cls: ClassDef, name: str, exact: bool) -> bool:
        """Whether functions of the project set an attribute on classes alone, never on objects of these."""
        stored = list(self.stores(cls, name, set(cls.mro) if exact else {*cls.mro, *cls.descendants()}))
        return bool(stored) and all(each.is_of_class for each in stored)

    def has_made_up(self, cls: ClassDef) -> bool:
        """Whether methods of a class, or of one above or below it, store attributes whose names they make up."""
        return not self._making_up.isdisjoint((*cls.mro, *cls.descendants()))

    @cached_property
    def _making_up(self) -> frozenset[ClassDef | None]:
        """The classes whose methods store attributes under made-up names."""
        return frozenset(method.cls for method in self.flow.stores.writers(MADE_UP))

    def declared(self, cls: ClassDef, name: str) -> Val:
        """What the annotations of a class and of those above it say of an attribute; BOTTOM where none does."""
        known = self._declared.get((cls, name))
        if known is None:
            rows = ((owner, text) for owner in cls.mro for n, text in owner.facts.attributes if n == name and text)
            known = join(declared(self.flow.project, owner, text) for owner, text in rows)
            self._declared[cls, name] = known
        return known

    def _constructed(self, cls: ClassDef, name: str, exact: bool) -> Iterator[Val]:
        """What is passed for a field where objects of a data class are made."""
        family = (cls,) if exact else (cls, *cls.descendants())
        if name in self.flow.fields_of(cls) and not any(map(self.is_spoken_of, family)):
            said = self.declared(cls, name)
            yield said if objects_of(said) else UNKNOWN
        for each in family:
            for unit in self.flow.part(("makers", each.name), ("units", each)):
                if is_of_tests(unit, each.path):
                    continue
                made = self.flow.part(("unit", unit), ("made", each))
                if made is None:
                    yield NOT_YET
                for rows in made or ():
                    yield from (self.flow.close(value, unit) for field, value in rows if field == name)

    def is_spoken_of(self, cls: ClassDef) -> bool:
        """Whether anything names a class outside of its definition: only then may objects of it be made."""
        units = self.flow.mentions.naming(cls.name)
        return any(
            unit.is_used(number) and not _is_exported(unit, number)
            for unit in units
            for number in unit.named.get(cls.name, ())
        )

    def makers(self, name: str) -> Makers:
        """The units that make objects of the data classes of a name."""
        found: dict[ClassDef, tuple[Unit, ...]] = {}
        for unit in dict.fromkeys((*self.flow.mentions.naming(name), *self._class_methods.get(name, ()))):
            for cls in self.flow.part(("unit", unit), "makes"):
                if cls.name == name:
                    found[cls] = (*found.get(cls, ()), unit)
        return Makers(found)

    @cached_property
    def _class_methods(self) -> dict[str, list[Unit]]:
        """The class methods of the data classes of a name, which may make objects without naming it: `cls(…)`."""
        found: dict[str, list[Unit]] = {}
        for cls in self.flow.project.classes():
            if cls.fields_are_parameters:
                methods = (method for method in cls.every_method() if method.facts.is_classmethod)
                found.setdefault(cls.name, []).extend(self.flow.units(methods))
        return found

    def held(self, holder: Any, name: str) -> Val:
        """What a namespace is made with, and functions of the project set, as an attribute; BOTTOM where none does.

        Where it is an option too, what stood on the command line may still be there, which is the same on all ranks.
        """
        optional = len(holder) == 3 or self._fills_what_it_is_given  # else no command line comes into it
        found = [UNKNOWN] if optional and name in self._options and name not in self.flow.models.ranks["names"] else []
        parsed = len(found)
        writers = filter(None, map(self.flow.unit_of, self.flow.stores.writers(name)))
        foreign = (unit for unit in writers if name in unit.foreign and not is_of_tests(unit, holder[2].path))
        for unit in dict.fromkeys((holder[2], *foreign)):
            rows = self.flow.part(("unit", unit), ("stored", name))
            if rows is None:
                found.append(NOT_YET)
            for owner, value in rows or ():
                is_holder = self._may_be(owner, unit, holder, set())
                if is_holder is not False:
                    found.append(NOT_YET if is_holder is None else on_all_ranks(self.flow.close(value, unit)))
        return _there_if_any(found, join_origins(found)) if len(found) > parsed else BOTTOM

    def _may_be(self, value: Val, unit: Unit, wanted: Obj, seen: set[tuple[Unit, int]]) -> bool | None:
        """Whether a value of a unit may be an object; None where that is not known yet. A parameter that gets more
        objects than are told apart is followed to each call."""
        closed = self.flow.close(value, unit)
        if closed is NOT_YET:
            return None
        if wanted in closed.objs or MORE not in closed.objs:
            return wanted in closed.objs
        answers: set[bool | None] = set()
        for _, position in value.of("param"):
            if (unit, position) in seen:
                continue
            seen.add((unit, position))
            for caller in self.flow.callers(unit):
                rows = self.flow.passed(caller, unit)
                answers |= {None} if rows is None else set()
                given = (passed.argument(position) for passed in rows or ())
                answers |= {self._may_be(each, caller, wanted, seen) for each in given if each is not None}
        return True if True in answers else None if None in answers else False

    @cached_property
    def _options(self) -> frozenset[str]:
        """The names under which parsers of the project put what they read."""
        texts = (a.value for _, call in self.flow.project.calls("add_argument") for a in call.args if a.kind == "const")
        return frozenset(text.strip("'\"").lstrip("-").replace("-", "_") for text in texts)

    @cached_property
    def _fills_what_it_is_given(self) -> bool:
        """Whether some parser of the project puts what it reads into an object that it is passed."""
        parsing = ("parse_args", "parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args")
        calls = (call for _, call in self.flow.project.calls(*parsing))
        return any(len(call.positional) > 1 or call.keyword("namespace") is not None for call in calls)


def _is_exported(unit: Unit, number: int) -> bool:
    """Whether a mention only says what a module shows: an import, or a text in `__all__`."""
    values = unit.code.values
    users = unit.users.get(number, ())
    if values[number].op == "import":
        return all(values[user].op.startswith("store_") for user in users)
    stores = (
        [values[each] for user in users for each in unit.users.get(user, ())] if values[number].op == "const" else []
    )
    return bool(stores) and all(store.op == "store_global" and store.data == "__all__" for store in stores)


def _perhaps(value: Val, is_known: bool) -> Val:
    """What is stored in an object of unknown class, which may be of this one. An object with members of its own is
    believed to be another's where it `is_known` what this class holds; else it may be that, or something else."""
    if value is NOT_YET:
        return value
    own = frozenset(o for o in value.objs if o[0] in _OWNERS)
    objs = value.objs - own - {TOP} if is_known else value.objs | {TOP} if own else value.objs - {TOP}
    return Val(objs, unsure(value.v), unsure(value.n), unsure(value.p), value.state)


def _there_if_any(stores: list[Val], held: Val, first: bool = False) -> Val:
    """What an attribute holds: no test of ranks decides whether it is there if one store stands under none, and no
    store is of None. Which of them it is differs then, for certain where those under no test come `first`."""
    chosen = only(held.p, "rank", "member", "data")
    if not chosen or held.may_be_none() or all(each.p for each in stores):
        return held
    return Val(held.objs, held.v | (chosen if first else unsure(chosen)), held.n, NONE, held.state)


def related(o: Any, family: set[ClassDef], cls: ClassDef) -> bool:
    """Whether an object whose attribute is stored may be one of a family: `self` also stands for classes below."""
    return o[1] in family or (o[0] == "self" and o[1] in cls.mro)
