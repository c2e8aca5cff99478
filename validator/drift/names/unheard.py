"""Values that are given, since a change, under a name by which nothing asks for them.

A setting, an attribute or a key that is stored for others has readers that look for it by its name, mostly with a
default (`getattr(config, "use_flash", False)`): nothing fails where nobody gives it any more. So a change that gives a
value another name is told wrong by what it left: who asks for the old name still, or all others who give the same kind
of thing the old one, while nothing in the project asks for the new one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.binding import bind
from validator.analysis.interfaces.handed_on import HandedOn, functions_run
from validator.analysis.interfaces.swallowed import keys_read
from validator.definitions import ClassDef, Method
from validator.drift.change import Change
from validator.drift.interfaces.calls import constructor
from validator.drift.names.asked_settings import AskedSettings, owner_text
from validator.drift.names.given import Given, GivenOtherwise
from validator.drift.names.neighbours import passes_to_library
from validator.drift.names.occurrences import Occurrence, variable_or_link
from validator.drift.names.removed import Names, asked_of
from validator.drift.names.texts import Replaced, Texts
from validator.drift.statements.drops import Drops
from validator.facts.config_files import settings_of
from validator.flow.objects import Objects
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.models.members import is_telling, of_libraries

_READING = frozenset({"asks", "tries"})
_GIVING = frozenset({"attribute", "key", "keyword", "setting"})
_ASKED = frozenset({"key", "getattr", "attribute"})
_TAKING = frozenset({"parameter", "field", "option", "function", "class", "variable"})
_BESIDE = 2  # other names given at one place that a reader asks of the same object
_OTHERS = 2  # places of one kind that all say the old name


class Unheard(NamedTuple):
    """A value under a name that nothing asks for. `readers`: where the old name is asked for; `others`: where what is
    of the same kind is given the old one; `takers`: the functions whose parameter the keyword was, and that drop it."""

    given: Given
    readers: tuple[Occurrence, ...] = ()
    others: tuple[Occurrence, ...] = ()
    takers: tuple[Method, ...] = ()


class UnheardNames:
    """The values that a change gives in vain."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after
        self.asked: AskedSettings = change.analysis(AskedSettings)

    @cached_property
    def rows(self) -> list[Unheard]:
        told = {lost.name for lost in (*self.change.analysis(Names).lost, *self.asked.lost) if not lost.kept}
        texts = {(row.old, row.new) for row in self.change.analysis(Texts).rows if row.sought}
        found: dict[tuple[str, str, str], Unheard] = {}
        for given in self.change.analysis(GivenOtherwise).rows:
            key = (given.old, given.new.name, given.new.path)
            if key in found or given.old in told or key[:2] in texts or self._is_given_too(given):
                continue
            row = self._dropped(given) or self._asked_otherwise(given)
            if row is not None:
                found[key] = row
        return list(found.values())

    def _asked_otherwise(self, given: Given) -> Unheard | None:
        if self._is_passed_to_library(given.new):
            return None
        readers = tuple(self._readers(given))
        link = _link(given.new)
        of_one = link if any(self._is_called_alike(given.new, row) for row in readers) else ""
        if self._is_heard(given, of_one):
            return None
        if readers:
            return Unheard(given, readers)
        others = tuple(self._others(given))
        return Unheard(given, others=others) if others else None

    # -- who asks by another name --------------------------------------------------------------------------

    @cached_property
    def ungiven(self) -> list[Replaced]:
        """The texts by which an attribute is asked for since the change (`getattr(config, "use_flash", False)`), and
        that nothing gives, while what was asked for before is stored still in what is called like the object."""
        found: dict[tuple[str, str], Replaced] = {}
        for drop in self.change.analysis(Drops).drops:
            old, new = (each.value if isinstance(each, ast.Constant) else None for each in (drop.old, drop.new))
            if drop.kind != "text" or not isinstance(old, str) or not isinstance(new, str) or (old, new) in found:
                continue
            if not is_telling(old) or not is_telling(new) or is_foreign(drop.pair.new.path):
                continue
            at = drop.pair.new.module.source_text.at(drop.new)
            rows = [row for row in self.after.occurrences(new) if not is_test(row.path)]
            asking = next((row for row in rows if row.path == drop.pair.new.path and row.at == at), None)
            if asking is None or asking.kind != "getattr" or any(self.change.before.occurrences(new)):
                continue
            link = _link(asking)
            stored = [
                (row.path, row.at[0])
                for row in self.after.occurrences(old)
                if row.role == "defines" and row.kind == "attribute" and _link(row) == link and not is_test(row.path)
            ]
            if link and stored and all(row.kind == "getattr" for row in rows):
                found[old, new] = Replaced(drop.pair.new, at, old, new, tuple(stored))
        return list(found.values())

    # -- keywords ------------------------------------------------------------------------------------------

    def _dropped(self, given: Given) -> Unheard | None:
        """A keyword for which no function has a parameter that the call may run, or that gets it handed on, while one
        has it of the old name; their `**` drops it."""
        if given.new.kind != "keyword" or given.new.unit is None:
            return None
        call = Place(self.after.flow, given.new.unit, given.new.number)
        if {"*", "**", given.old} & set(call.value.data.names):
            return None
        callee = called_with(call)
        ends = self._handed_on.ends(callee)
        first = [each for each in functions_run(callee) if each is not None]
        if first and ends is None:
            return None
        takers, on_the_way = (ends.takers, ends.on_the_way) if first and ends is not None else (None, set[str]())
        takers = self._named_like(call, given.old) if takers is None else takers
        taking = tuple(each for each in dict.fromkeys((*first, *takers)) if given.old in _params(each))
        for taker in takers:
            keys = keys_read(self.after.flow, taker)
            if keys is None or given.new.name in keys | on_the_way | _params(taker):
                return None
        return Unheard(given, takers=taking) if taking else None

    def _named_like(self, call: Place, old: str) -> list[Method]:
        """The methods of the project that a call of an object of which nothing is known may run, as the keyword of
        before tells: those of the name that take it."""
        callee = call.operand(0)
        mention = self.after.mention(callee.unit, callee.number) if callee.value.op == "attr" else None
        if mention is None or mention.symbol is not None or not is_telling(old):
            return []
        found = self.after.methods.get(str(callee.value.data), ())
        return [each for each in found if each.cls is not None and old in _params(each)]

    @cached_property
    def _handed_on(self) -> HandedOn:
        found: HandedOn = self.after.project.analysis(HandedOn)
        return found

    def _is_passed_to_library(self, row: Occurrence) -> bool:
        return row.kind == "keyword" and row.unit is not None and passes_to_library(self.after, row.unit, row.number)

    # -- the new name --------------------------------------------------------------------------------------

    def _is_heard(self, given: Given, link: str) -> bool:
        """Whether anything may ask for the new name, or gave it before the change. `link`: what the object is called
        that is given it and is asked for the old one; others that are called otherwise have names of their own."""
        name, own = given.new.name, (given.new.path, given.new.at)
        if given.new.kind == "attribute" and name in of_libraries():
            return True
        before = [row for row in self.change.before.occurrences(name) if not is_test(row.path)]
        after = [row for row in self.after.occurrences(name) if not is_test(row.path) and (row.path, row.at) != own]
        rows = [*before, *(row for row in after if _may_ask(row))]
        return any(not (link and _is_of_another(row, link)) and self._is_of_kind(row, given.new) for row in rows)

    def _is_of_kind(self, row: Occurrence, given: Occurrence) -> bool:
        """Whether a place where a name stands may be about what is given: not what a function calls its parameter, or
        an object its own attribute, where a mapping is given that nothing hands on as a whole."""
        if given.kind == "attribute":
            return row.kind != "parameter" or self.asked.is_filled(row)
        if row.kind == "parameter":
            return self.asked.is_filled(row) or self._is_made_by_name(given)
        if row.kind in ("attribute", "variable", "function", "class"):
            return row.kind == given.kind or row.role != "defines" and not self.asked.is_own(row)
        return row.kind != "keyword" or given.kind == "keyword" or self._is_of_mapping(row)

    def _is_made_by_name(self, given: Occurrence) -> bool:
        """Whether the mapping that has a setting, or the one around it, names a class that it is for."""
        if given.unit is not None:
            return bool(self._kind(given))
        for each in settings_of(self.after.project.files[given.path]).settings:
            near = each.path[:-1] in (given.above, given.above[:-1])
            if near and isinstance(each.value, str) and (self._is_defined(each.value) or "." in each.value):
                return True
        return False

    def _is_of_mapping(self, row: Occurrence) -> bool:
        """Whether a keyword goes into a mapping, or may: the function that is called has no parameter of the name."""
        call = _owner(row)
        name = row.unit.known_as(row.unit.code.values[call].args[0]) if row.unit is not None and call >= 0 else ""
        taken = [_params(method) for method in self.after.methods.get(name, ())]
        taken += [{p.name for p in constructor(cls) or ()} for cls in self._classes.get(name, ())]
        return not any(row.name in names for names in taken)

    def _is_given_too(self, given: Given) -> bool:
        """Whether the function, or the mapping, that gives the new name gives the old one as well."""
        for row in self.after.occurrences(given.old):
            if row.role == "defines" and row.path == given.new.path and row.unit is given.new.unit:
                same = row.above == given.new.above if row.unit is None else _owner(row) == _owner(given.new)
                if same and row.kind == given.new.kind:
                    return True
        return False

    # -- who asks for the old one --------------------------------------------------------------------------

    def _readers(self, given: Given) -> Iterator[Occurrence]:
        """Where the program asks for the old name what it may have been given here."""
        alone = self._is_only_given_here(given)
        beside, source = self._beside(given.new), _source(given)
        for row in self._asking(given.old):
            if given.new.kind == "attribute" and row.kind == "key" or not self._may_be_one(given.new, row):
                continue
            if (given.new.kind == "environment") != _is_of_environment(row) and given.new.kind != "key":
                continue
            if given.new.kind == "environment":
                yield row
                continue
            if source is not None and _link(row) == source:
                continue  # it is asked there for what is given here
            near = self._is_called_alike(given.new, row) or self._is_in_callee(given.new, row)
            if alone or near or len(beside & self._asked_beside(row)) >= min(_BESIDE, len(beside) or _BESIDE):
                yield row

    def _is_called_alike(self, given: Occurrence, row: Occurrence) -> bool:
        """Whether the object that is asked is called what the one is called that is given the value: there, or where
        callers pass it."""
        link = _link(given)
        if not link or link == _link(row):
            return link != ""
        unit, number = row.unit, asked_of(row.unit, row) if row.unit is not None and row.number >= 0 else -1
        held = unit.code.values[unit.root(number)] if unit is not None and number >= 0 else None
        if unit is None or unit.method is None or held is None or held.op != "param" or given.kind != "attribute":
            return False
        return link in self._passed_as(unit.method, str(held.data[1]))

    def _passed_as(self, method: Method, name: str) -> set[str]:
        """What callers call the object that they pass for a parameter, through parameters of their own."""
        objects: Objects = self.after.project.analysis(Objects)
        waiting, found = [(method, name)], set[str]()
        for function, param in waiting:  # grows
            for caller, call in objects.callers(function):
                passed = bind(function, call).get(param)
                if passed is None or passed.kind != "path":
                    continue
                found.add(passed.value.rpartition(".")[2])
                further = (caller, passed.value)
                if passed.value in _params(caller) and further not in waiting:
                    waiting.append(further)
        return found

    def _is_in_callee(self, given: Occurrence, row: Occurrence) -> bool:
        """Whether a key is asked for in the `**` of a function that the call runs which passes a keyword."""
        if given.kind != "keyword" or given.unit is None or row.unit is None or row.kind != "key":
            return False
        number = asked_of(row.unit, row)
        held = row.unit.code.values[row.unit.root(number)] if number >= 0 else None
        if held is None or held.op != "param" or dict(row.unit.code.params).get(str(held.data[1])) != "**":
            return False
        return row.unit.method in functions_run(called_with(Place(self.after.flow, given.unit, given.number)))

    def _asking(self, name: str) -> Iterator[Occurrence]:
        for row in self.after.occurrences(name):
            if row.unit is None or row.role not in _READING and not _is_of_environment(row):
                continue
            if row.kind not in _ASKED and row.role != "spells":
                continue
            if not is_test(row.path) and not is_foreign(row.path) and not self._is_of_module(row):
                yield row

    def _is_of_module(self, row: Occurrence) -> bool:
        mention = self.after.mention(row.unit, row.number) if row.unit is not None and row.kind == "attribute" else None
        return mention is not None and mention.symbol is not None and not isinstance(mention.symbol, ClassDef)

    def _may_be_one(self, given: Occurrence, row: Occurrence) -> bool:
        """Whether the object that is asked may be the one that is given the value, as far as their classes tell."""
        if given.kind != "attribute" or row.kind != "attribute" or given.unit is None or row.unit is None:
            return True
        if given.unit.code.values[given.number].op != "store_attr":
            return True  # `setattr(config, …)`
        stored, asked = (set(self.after.classes_of(each.unit, each.number)) for each in (given, row))
        kin = {each for cls in stored for each in cls.relatives}
        return not stored or not asked or bool(kin & asked)

    def _is_only_given_here(self, given: Given) -> bool:
        """Whether nothing gave the old name but what the change altered, and no library's object has it."""
        name, kinds = given.old, _GIVING | _TAKING
        if name in of_libraries() or len(name) < 4:
            return False
        rows = [row for row in self.after.occurrences(name) if not is_test(row.path) and row.role == "defines"]
        return not any(row.kind in kinds for row in rows)

    def _beside(self, given: Occurrence) -> frozenset[str]:
        """The names that are given together with one."""
        if given.kind == "variable" and given.unit is not None:
            stores = (value for value in given.unit.code.values if value.op == "store_global")
            return frozenset(str(value.data) for value in stores) - {given.name}
        if given.unit is None:
            rows = settings_of(self.after.project.files[given.path]).settings
            return frozenset(each.path[-1] for each in rows if each.path[:-1] == given.above) - {given.name}
        return frozenset(name for name, _ in _together(given)) - {given.name}

    def _asked_beside(self, row: Occurrence) -> frozenset[str]:
        """The keys and attributes that a file asks of what it calls as the object that is asked at a place."""
        assert row.unit is not None
        owner = owner_text(row.unit, row)
        here = self.after.of_file(row.unit.module.source)
        found = set()
        for name, places in here.items() if owner else ():
            for each in places:
                if each.role in _READING and each.kind in _ASKED and each.number >= 0 and each.unit is not None:
                    found.update([name] if owner_text(each.unit, each) == owner else ())
        return frozenset(found)

    # -- what others of the kind say -----------------------------------------------------------------------

    def _others(self, given: Given) -> Iterator[Occurrence]:
        """Where what is made of the same class or by the same function is given the old name: everywhere else."""
        kind = self._kind(given.new)
        if not kind or given.new.kind == "attribute":
            return
        rows = [row for row in self.after.occurrences(given.old) if row.role == "defines" and row.kind in _GIVING]
        alike = [row for row in rows if not is_test(row.path) and self._kind(row) == kind]
        if len(alike) >= _OTHERS:
            yield from alike

    def _kind(self, row: Occurrence) -> str:
        """The class or function of the project for which a mapping holds the arguments, as one of its values says, or
        that a call runs."""
        if row.unit is None:
            rows = settings_of(self.after.project.files[row.path]).settings
            texts = [each.value for each in rows if each.path[:-1] == row.above]
        else:
            values = row.unit.code.values
            call = _owner(row) if row.kind == "keyword" else -1
            runs = row.unit.known_as(values[call].args[0]) if call >= 0 else ""
            if runs in self._classes or runs in self.after.methods:
                return runs
            texts = [values[number].data for _, number in _together(row) if values[number].op == "const"]
        said = {text.rpartition(".")[2] for text in texts if isinstance(text, str) and self._is_defined(text)}
        return said.pop() if len(said) == 1 else ""

    def _is_defined(self, text: str) -> bool:
        name = text.rpartition(".")[2]
        return name[:1].isupper() and name in self._classes

    @cached_property
    def _classes(self) -> dict[str, list[ClassDef]]:
        found: dict[str, list[ClassDef]] = {}
        for cls in self.after.project.classes():
            found.setdefault(cls.name, []).append(cls)
        return found


def called_with(call: Place) -> Place:
    """What a call runs with its keywords, sooner or later: of `partial(f, …)` that is `f`."""
    is_partial = call.unit.known_as(call.value.args[0]) == "partial" and call.value.data.names[:1] == (None,)
    return call.operand(1 if is_partial else 0)


def _source(given: Given) -> str | None:
    """The last name of the object out of which the value comes that is given, if it has the old name there."""
    held = next((held for name, held in _together(given.new) if name == given.new.name), -1) if given.new.unit else -1
    if held < 0 or given.new.unit is None:
        return None
    values = given.new.unit.code.values
    value = values[given.new.unit.root(held)]
    names = (value.data, *(values[number].data for number in value.args if values[number].op == "const"))
    if value.op not in ("attr", "item", "call") or given.old not in names:
        return None
    number = value.args[0]
    if value.op == "call":  # `args.get("x")`, `getattr(args, "x")`
        callee = values[number]
        number = callee.args[0] if callee.op == "attr" else value.args[1] if len(value.args) > 1 else number
    return variable_or_link(given.new.unit, number)


def _params(method: Method) -> frozenset[str]:
    return frozenset(param.name for param in method.facts.params if param.kind in ("any", "kw"))


def _is_of_environment(row: Occurrence) -> bool:
    """Whether a place asks for a variable of the environment: `os.environ["DEBUG"]`, `os.getenv("DEBUG")`."""
    if row.unit is None or row.number < 0:
        return False
    unit = row.unit
    calls = (unit.code.values[user] for user in unit.users.get(row.number, ()))
    if row.role == "spells":
        return any(call.op == "call" and unit.known_as(call.args[0]) == "getenv" for call in calls)
    return row.kind == "key" and row.role in _READING and _link(row) == "environ"


def _may_ask(row: Occurrence) -> bool:
    return row.role not in ("defines", "is set", "sets") or row.kind in _TAKING


def _is_of_another(row: Occurrence, link: str) -> bool:
    """Whether a place gives or asks for an attribute of an object that is called otherwise."""
    if row.unit is None or row.number < 0 or row.kind not in ("attribute", "getattr"):
        return False
    return _link(row) not in ("", link)


def _link(row: Occurrence) -> str:
    """The last name before a name, of what is given it or asked for it."""
    number = _owner(row) if row.role == "defines" else -1
    if row.unit is None or row.number < 0:
        return row.link
    number = number if number >= 0 else asked_of(row.unit, row)
    return variable_or_link(row.unit, number) if number >= 0 and not row.unit.is_receiver(number) else ""


def _owner(row: Occurrence) -> int:
    """The object to which a place gives a value; the call that passes it; -1 outside of Python."""
    if row.unit is None:
        return -1
    unit, values = row.unit, row.unit.code.values
    if row.kind == "keyword":
        if row.number >= 0:
            return row.number
        return next((n for n, v in enumerate(values) if v.op == "call" and _passes(row, v.data.names, v.args)), -1)
    if row.number < 0:
        return -1  # a parameter, a key of `locals()`
    value = values[row.number]
    if value.op == "store_attr":
        return unit.root(value.args[0])
    for user in unit.users.get(row.number, ()):
        made = values[user]
        if made.op == "dict" and row.number in made.args[::2]:
            return user
        if made.op == "store_item" and made.args[1] == row.number:
            return unit.root(made.args[0])
        if made.op == "call" and len(made.args) == 4 and made.args[2] == row.number:
            return unit.root(made.args[1])
    return -1


def _passes(row: Occurrence, names: tuple[str | None, ...], args: tuple[int, ...]) -> bool:
    assert row.unit is not None
    values = row.unit.code.values
    return any(
        name == row.name and row.unit.at(values[number].at) == row.at
        for name, number in zip(names, args[1:], strict=True)
    )


def _together(row: Occurrence) -> Iterator[tuple[str, int]]:
    """The names that are given with one, each with its value."""
    assert row.unit is not None
    unit, values, owner = row.unit, row.unit.code.values, _owner(row)
    if owner < 0:
        return
    made = values[owner]
    if made.op == "dict":
        pairs = zip(made.args[::2], made.args[1::2], strict=True)
        yield from ((values[key].data, held) for key, held in pairs if key >= 0 and isinstance(values[key].data, str))
    if made.op == "call" and row.kind == "keyword":
        pairs = zip(made.data.names, made.args[1:], strict=True)
        yield from ((name, held) for name, held in pairs if name not in (None, "*", "**"))
    for value in values:
        if value.op == "store_attr" and unit.root(value.args[0]) == owner:
            yield value.data, value.args[1]
        elif (
            value.op == "store_item"
            and unit.root(value.args[0]) == owner
            and isinstance(values[value.args[1]].data, str)
        ):
            yield values[value.args[1]].data, value.args[2]
