"""Who asks for a name that a change took from a value: whoever may have been given that value under it.

Nothing but the program that runs knows for certain. What tells: the class of the object, what it is called there or by
callers that pass it, the other names that are given and asked for beside, and that nothing else gives the name.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import bind
from validator.analysis.interfaces.handed_on import functions_run
from validator.definitions import ClassDef, Method
from validator.drift.change import Change
from validator.drift.names.given import Given
from validator.drift.names.occurrences import Occurrence, variable_or_link
from validator.drift.names.places import given_with, link_at
from validator.drift.names.removed import asked_of
from validator.drift.settings.asked_settings import owner_text
from validator.facts.config_files import settings_of
from validator.flow.objects import Objects
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.models.members import of_libraries

_READING = frozenset({"asks", "tries"})
_GIVING = frozenset({"attribute", "key", "keyword", "setting"})
_ASKED = frozenset({"key", "getattr", "attribute"})
_TAKING = frozenset({"parameter", "field", "option", "function", "class", "variable"})
_BESIDE = 2  # other names given at one place that a reader asks of the same object


class Readers:
    """Who asks for what a change gives under another name; asked for with `change.analysis(Readers)`."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after

    def of(self, given: Given) -> Iterator[Occurrence]:
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
            if given.new.kind == "option" and self._has_own_option(row):
                continue
            if source is not None and link_at(row) == source:
                continue  # it is asked there for what is given here
            near = self.is_called_alike(given.new, row) or self._is_in_callee(given.new, row)
            if alone or near or len(beside & self._asked_beside(row)) >= min(_BESIDE, len(beside) or _BESIDE):
                yield row

    def _has_own_option(self, row: Occurrence) -> bool:
        """Whether the file that asks for an option defines one of that name itself: another program."""
        here = self.after.of_file(self.after.project.files[row.path])
        return any(each.kind == "option" and each.role == "defines" for each in here.get(row.name, ()))

    def is_called_alike(self, given: Occurrence, row: Occurrence) -> bool:
        """Whether the object that is asked is called what the one is called that is given the value: there, or where
        callers pass it."""
        link = link_at(given)
        if not link or link == link_at(row):
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
                if passed.value in named_parameters(caller) and further not in waiting:
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
        if given.kind != "attribute" or row.kind == "key" or given.unit is None or row.unit is None:
            return True
        stored = set(self.after.classes_of(given.unit, given.number))
        asked = set(self.after.classes_of(row.unit, row.number)) if stored else stored
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
            stores = (value for value in given.unit.code.values if value.op in ("store_global", "store_class"))
            return frozenset(str(value.data) for value in stores) - {given.name}
        if given.kind == "option" and given.unit is not None:
            here = self.after.of_file(given.unit.module.source)
            return frozenset(n for n, rows in here.items() if any(r.kind == "option" for r in rows)) - {given.name}
        if given.unit is None:
            rows = settings_of(self.after.project.files[given.path]).settings
            return frozenset(each.path[-1] for each in rows if each.path[:-1] == given.above) - {given.name}
        return frozenset(name for name, _ in given_with(given)) - {given.name}

    def _asked_beside(self, row: Occurrence) -> frozenset[str]:
        """The keys and attributes that a file asks of what it calls as the object that is asked at a place."""
        assert row.unit is not None
        owner = owner_text(row.unit, row)
        here = self.after.of_file(row.unit.module.source)
        found = set[str]()
        for name, places in here.items() if owner else ():
            for each in places:
                if each.role in _READING and each.kind in _ASKED and each.number >= 0 and each.unit is not None:
                    found.update([name] if owner_text(each.unit, each) == owner else ())
        return frozenset(found)


def called_with(call: Place) -> Place:
    """What a call runs with its keywords, sooner or later: of `partial(f, …)` that is `f`."""
    is_partial = call.unit.known_as(call.value.args[0]) == "partial" and call.value.data.names[:1] == (None,)
    return call.operand(1 if is_partial else 0)


def named_parameters(method: Method) -> frozenset[str]:
    return frozenset(param.name for param in method.facts.params if param.kind in ("any", "kw"))


def _source(given: Given) -> str | None:
    """The last name of the object out of which the value comes that is given, if it has the old name there."""
    held = next((held for name, held in given_with(given.new) if name == given.new.name), -1) if given.new.unit else -1
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


def _is_of_environment(row: Occurrence) -> bool:
    """Whether a place asks for a variable of the environment: `os.environ["DEBUG"]`, `os.getenv("DEBUG")`."""
    if row.unit is None or row.number < 0:
        return False
    unit = row.unit
    calls = (unit.code.values[user] for user in unit.users.get(row.number, ()))
    if row.role == "spells":
        return any(call.op == "call" and unit.known_as(call.args[0]) == "getenv" for call in calls)
    return row.kind == "key" and row.role in _READING and link_at(row) == "environ"
