"""Parameters, fields and options that were of one kind and are of another since a change (a text, a number, a list of
them), and who still takes them for what they were.

A value is followed through the functions that it is handed to, its elements, and the attributes that objects keep it
under. What is done there must fit the new kind as well: a number has no length and no `split`, to a text no number can
be added.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import Method, Module
from validator.drift.change import Change, Side
from validator.drift.interfaces.signatures import outline
from validator.drift.names.occurrences import Occurrence, option_name
from validator.facts.model import At
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.ir.model import Value
from validator.models.members import is_telling

_TEXT, _NUMBER = "text", "number"
_LIST_OF = {_TEXT: "list of texts", _NUMBER: "list of numbers"}
_ELEMENT = {several: one for one, several in _LIST_OF.items()}
_OF_TYPES = {"str": _TEXT, "int": _NUMBER, "float": _NUMBER}
_CLASSES = {_TEXT: ("str",), _NUMBER: ("int", "float"), **dict.fromkeys(_ELEMENT, ("list",))}  # that a test may name
_NUMERIC = frozenset({"Sub", "Div", "FloorDiv", "Pow", "MatMult"})
_ORDERED = frozenset({"Lt", "LtE", "Gt", "GtE"})
_MEMBERS = {_TEXT: frozenset(dir("")), _NUMBER: frozenset(dir(0)) & frozenset(dir(0.0))}
_MEMBERS |= dict.fromkeys(_ELEMENT, frozenset(dir([])))
_MAKE_TEXT = frozenset({"str", "repr", "format", "join", "getcwd", "strip", "lower", "upper", "replace"})


class Misfit(NamedTuple):
    """A place that takes a value for what it was. `name`: the parameter or option; `given`: where it has its kind."""

    unit: Unit
    at: At
    name: str
    was: str
    now: str
    text: str
    given: tuple[str, int]


class _Start(NamedTuple):
    """Where a value of another kind comes in: a parameter, or a place that asks for an option or a field."""

    unit: Unit
    number: int
    name: str
    was: str
    now: str
    given: tuple[str, int]


class _Held(NamedTuple):
    """A value with the kinds that it had and has."""

    unit: Unit
    number: int
    was: str
    now: str


class Kinds:
    """The places that a change of kind left behind."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def misfits(self) -> list[Misfit]:
        found: dict[tuple[Unit, str], Misfit] = {}
        for start in (*self._parameters(), *self._options(), *self._fields()):
            for misfit in self._followed(start):
                if not self.change.wrote(misfit.unit.path, misfit.at[0]):
                    found.setdefault((misfit.unit, misfit.name), misfit)
        return list(found.values())

    def _parameters(self) -> Iterator[_Start]:
        """The parameters whose default is of another kind now."""
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path) or is_foreign(new.path):
                continue
            for name in sorted(old.functions.keys() & new.functions.keys()):
                before, after = old.functions[name], new.functions[name]
                unit = self.change.after.unit_of(after)
                if unit is None or outline(before.facts.params) != outline(after.facts.params):
                    continue
                for one, other in zip(before.facts.params, after.facts.params, strict=True):
                    was, now = _kind(one.default, one.annotation), _kind(other.default, other.annotation)
                    if was and now and was != now and (number := _param(unit, other.name)) is not None:
                        yield _Start(unit, number, other.name, was, now, (after.path, other.at[0]))

    def _options(self) -> Iterator[_Start]:
        """The places that ask for an option of a parser whose type is another one now: in its file, and elsewhere by a
        name that nothing else bears."""
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path):
                continue
            before, after = dict(_of_parsers(self.change.before, old)), dict(_of_parsers(self.change.after, new))
            for name in sorted(before.keys() & after.keys()):
                was, now = before[name][0], after[name][0]
                if was and now and was != now:
                    for unit, number in self._asking(new, name):
                        yield _Start(unit, number, name, was, now, (new.path, after[name][1]))

    def _fields(self) -> Iterator[_Start]:
        """The places that ask for a field of a class whose annotation or default is of another kind now."""
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path) or is_foreign(new.path):
                continue
            for key in sorted(old.classes.keys() & new.classes.keys()):
                before, after = _of_class(old, key), _of_class(new, key)
                for name in sorted(before.keys() & after.keys()):
                    was, now = before[name][0], after[name][0]
                    if not was or not now or was == now:
                        continue
                    for unit, number in _reads(self.change.after.occurrences(name)):
                        if new.classes[key] in self.change.after.classes_of(unit, number):
                            yield _Start(unit, number, name, was, now, (new.path, after[name][1]))

    def _asking(self, module: Module, name: str) -> Iterator[tuple[Unit, int]]:
        """The places that ask for an option of a file."""
        side = self.change.after
        yield from _reads(side.of_file(module.source).get(name, ()))
        others = [row for row in side.occurrences(name) if row.unit is not None and row.unit.module is not module]
        defined = any(row.role == "defines" and row.kind not in ("attribute", "option", "keyword") for row in others)
        if is_telling(name) and not defined and not any(row.kind == "option" for row in others):
            yield from ((unit, n) for unit, n in _reads(others) if not _is_stored_before(unit, n))

    def _followed(self, start: _Start) -> Iterator[Misfit]:
        side = self.change.after
        waiting, seen = [_Held(start.unit, start.number, start.was, start.now)], set[_Held]()
        while waiting:
            held = waiting.pop()
            if held in seen:
                continue
            seen.add(held)
            unit, number, now = held.unit, held.number, held.now
            for user in unit.users.get(number, ()):
                value = unit.code.values[user]
                if value.op == "phi":
                    waiting += [held._replace(number=user)] if _comes_in(unit, number, user, now) else []
                elif not _may_be_here(unit, _tests_around(unit, number, value.block), now):
                    continue
                elif text := _unfit(held, user):
                    yield Misfit(unit, unit.at(value.at), start.name, start.was, start.now, text, start.given)
                elif value.op == "call" and number in value.args[1:]:
                    waiting += (held._replace(unit=u, number=n) for u, n in _entered(side, unit, number, user))
                elif value.op == "store_attr" and value.args[1] == number:
                    waiting += (held._replace(unit=u, number=n) for u, n in _kept(side, unit, value))
                else:
                    waiting += _elements(held, user)


def _elements(held: _Held, user: int) -> Iterator[_Held]:
    """The elements that are taken out of a list, of a kind that they had not before."""
    was, now = _ELEMENT.get(held.was, ""), _ELEMENT.get(held.now, "")
    if not was or not now:
        return
    values, value = held.unit.code.values, held.unit.code.values[user]
    if value.op == "item" and value.args[0] == held.number and values[value.args[1]].op != "slice":
        yield _Held(held.unit, user, was, now)
    elif value.op == "item" and value.args[0] == held.number:
        yield held._replace(number=user)
    elif value.op == "iter":
        rounds = (n for n in held.unit.users.get(user, ()) if held.unit.code.values[n].op == "next")
        yield from (_Held(held.unit, n, was, now) for n in rounds)


def _kind(default: str | None, annotation: str | None = None) -> str:
    """What a default or an annotation says that something is; empty where it does not."""
    try:
        value = ast.literal_eval(default) if default is not None else None
    except (ValueError, SyntaxError):
        value = None
    if isinstance(value, list | tuple):
        kinds = {_of_constant(each) for each in value}
        return _LIST_OF.get(kinds.pop(), "") if len(kinds) == 1 else ""
    return _of_constant(value) or (_of_annotation(annotation) if value is None else "")


def _of_constant(value: object) -> str:
    if isinstance(value, str):
        return _TEXT
    return _NUMBER if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _of_annotation(text: str | None) -> str:
    """What an annotation says, `Optional[…]` and `… | None` put aside."""
    plain = (text or "").strip("\"'").replace(" ", "").replace("typing.", "").removesuffix("|None")
    if plain.startswith("Optional["):
        plain = plain[len("Optional[") : -1]
    inner = plain[5:-1] if plain.lower().startswith("list[") else ""
    return _LIST_OF.get(_OF_TYPES.get(inner, ""), "") if inner else _OF_TYPES.get(plain, "")


def _of_parsers(side: Side, module: Module) -> Iterator[tuple[str, tuple[str, int]]]:
    """The options of the parsers of a file, by the name of their attribute: their kind, and the line."""
    for unit in side.units(module).values():
        values = unit.code.values
        for value in values:
            callee = values[value.args[0]] if value.op == "call" else value
            if value.op != "call" or callee.op != "attr" or callee.data != "add_argument" or len(value.args) < 2:
                continue
            flag = values[value.args[1]].data
            said = {name: values[each] for name, each in zip(value.data.names, value.args[1:], strict=True)}
            if isinstance(flag, str) and flag.startswith("--") and "action" not in said:
                yield option_name(flag), (_of_option(said), unit.at(value.at)[0])


def _of_option(said: dict[str | None, Value]) -> str:
    """What an option is that is added with some keywords: a text where no type is said."""
    one = _OF_TYPES.get(str(said["type"].data), "") if "type" in said else _TEXT
    if (
        "type" not in said
        and "default" in said
        and not (said["default"].op == "const" and said["default"].data is None)
    ):
        one = _TEXT if isinstance(said["default"].data, str) else ""
    several = "nargs" in said and said["nargs"].data != "?"
    return _LIST_OF.get(one, "") if several else one


def _of_class(module: Module, key: str) -> dict[str, tuple[str, int]]:
    """The fields in the body of a class: what each is, and its line."""
    body = module.functions.get(f"{key}.<class>")
    rows = body.facts.assigns if body is not None else ()
    return {row.target: (_kind(row.value or None, row.annotation), row.at[0]) for row in rows}


def _reads(rows: Iterable[Occurrence]) -> Iterator[tuple[Unit, int]]:
    """The places among those of a name that ask an object for it."""
    for row in rows:
        if row.kind == "attribute" and row.role == "asks" and row.unit is not None and row.number >= 0:
            yield row.unit, row.number


def _is_stored_before(unit: Unit, number: int) -> bool:
    """Whether the function that asks for an attribute gives it a value of its own before."""
    values = unit.code.values
    return any(value.op == "store_attr" and value.data == values[number].data for value in values[:number])


def _param(unit: Unit, name: str) -> int | None:
    return next((n for n, v in enumerate(unit.code.values) if v.op == "param" and v.data[1] == name), None)


def _tests_around(unit: Unit, number: int, block: int) -> list[tuple[int, bool]]:
    """The tests of its class that a value has passed; of an attribute also those where it was read before."""
    values, tests = unit.code.values, unit.class_tests
    found = tests.around(number, block)
    if values[number].op == "attr":
        owner, name = unit.root(values[number].args[0]), values[number].data
        for subject in tests.by_subject:
            read = values[subject]
            if subject != number and read.op == "attr" and read.data == name and unit.root(read.args[0]) == owner:
                found += tests.around(subject, block)
    return found


def _may_be_here(unit: Unit, tests: list[tuple[int, bool]], kind: str) -> bool:
    """Whether a value of a kind passes some tests of its class (classes, whether it is of them)."""
    for classes, holds in tests:
        named = unit.code.values[unit.root(classes)]
        several = named.args if named.op == "tuple" else (classes,)
        known = {str(unit.code.values[unit.root(each)].data) for each in several}
        if not known <= {*_OF_TYPES, "list", "tuple"}:
            return False  # a class of others: what is of it is not known here
        if holds == known.isdisjoint(_CLASSES[kind]):
            return False
    return True


def _comes_in(unit: Unit, number: int, phi: int, kind: str) -> bool:
    """Whether a value of a kind may reach a place where several ways meet, on one of the ways that bring it."""
    value = unit.code.values[phi]
    tests = unit.class_tests.by_subject.get(unit.root(number), [])
    for operand, (before, _) in zip(value.args, unit.code.blocks[value.block].preds, strict=False):
        passed = unit.class_tests.around(number, before)
        for test in tests:
            ways = ((test.holds, True), (test.fails, False)) if test.branch == before else ()
            passed += [(test.classes, holds) for way, holds in ways if way == value.block]
        if operand == number and _may_be_here(unit, passed, kind):
            return True
    return False


def _unfit(held: _Held, user: int) -> str:
    """What is done with a value that one of its new kind does not take; empty where it does, and where what it was
    did not take it either."""
    values, value, number = held.unit.code.values, held.unit.code.values[user], held.number
    if value.op == "attr":
        lost = value.data in _MEMBERS[held.was] and value.data not in _MEMBERS[held.now]
        return f"asks it for `.{value.data}`" if lost else ""
    if held.now == _NUMBER:
        if value.op == "call" and value.args[1:] == (number,) and values[value.args[0]].data == "len":
            return "takes its length"
        if value.op == "item" and value.args[0] == number:
            return "takes an element of it"
        if value.op == "iter":
            return "goes through it"
    if value.op not in ("binary", "compare") or len(value.args) != 2:
        return ""
    other = next((each for each in value.args if each != number), None)
    return _unreckoned(held, value, other) if other is not None else ""


def _unreckoned(held: _Held, value: Value, other: int) -> str:
    """What an operator does with a value, and another one, that one of its new kind does not take."""
    beside, does = held.unit.code.values[other], str(value.data)
    number = beside.op == "const" and isinstance(beside.data, int | float) and not isinstance(beside.data, bool)
    if held.now != _NUMBER and number and (does in _NUMERIC or does == "Add" or does in _ORDERED):
        return "reckons with it" if held.was == _NUMBER else ""
    if held.was == _TEXT and does == "Add" and value.op == "binary" and _is_text(held.unit, other):
        return "joins it to a text"
    return ""


def _is_text(unit: Unit, number: int) -> bool:
    """Whether a value is a text, as it is made here."""
    waiting = [number]
    for each in waiting:
        value = unit.code.values[each]
        if value.op == "const" and isinstance(value.data, str) or value.op == "join":
            return True
        if value.op == "binary" and value.data == "Add":
            waiting += value.args
        elif value.op == "call" and unit.code.values[value.args[0]].data in _MAKE_TEXT:
            return True
    return False


def _kept(side: Side, unit: Unit, store: Value) -> Iterator[tuple[Unit, int]]:
    """Where the methods of a class read an attribute that is stored once, on the object itself."""
    cls, name = unit.cls, str(store.data)
    if cls is None or not unit.is_receiver(store.args[0]):
        return
    own = [other for each in cls.relatives for m in each.methods.values() if (other := side.unit_of(m)) is not None]
    asked = [(other, n) for other in own for n, v in enumerate(other.code.values) if v.data == name]
    stores = [n for other, n in asked if other.code.values[n].op == "store_attr"]
    reads = ((other, n) for other, n in asked if other.code.values[n].op == "attr")
    if len(stores) == 1:
        yield from ((other, n) for other, n in reads if other.is_receiver(other.code.values[n].args[0]))


def _entered(side: Side, unit: Unit, number: int, user: int) -> Iterator[tuple[Unit, int]]:
    """The parameters that a value becomes in the functions that a call runs."""
    call = unit.code.values[user]
    for method in side.project.analysis(Objects).run_by(Place(side.flow, unit, user)):
        target = side.unit_of(method) if isinstance(method, Method) else None
        if target is None or "*" in call.data.names:
            continue
        skipped = implicit(unit, call, target)
        plain = [name for name, kind in target.code.params if kind in ("pos", "any")][skipped:]
        for index, (keyword, operand) in enumerate(zip(call.data.names, call.args[1:], strict=True)):
            name = keyword or (plain[index] if index < len(plain) else "")
            if operand == number and name and (place := _param(target, name)) is not None:
                yield target, place
