"""Texts that name a member: those that reach the second argument of a `getattr`, through whatever calls.

group.run("get_attr", key="steps")    # `run` calls `getattr(actor, method)(**kwargs)`, `get_attr` asks for `key`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.definitions import ClassDef, Method
from validator.drift.change import Side
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.ir.model import Value
from validator.models.members import of_libraries

_SENDING = frozenset({"remote", "options", "delay", "submit"})
_SPREAD = "**"


class _Given(NamedTuple):
    """A text as a unit has it: a value, or one that its `**kwargs` have under a keyword. `texts`: what else callers
    pass as texts, by parameter and by keyword of `**kwargs`."""

    unit: Unit
    number: int
    keyword: str
    texts: tuple[tuple[str, str], ...]


class Asked(NamedTuple):
    """The objects that are asked for what a text names, by unit and value; `known`: whether these are all."""

    objects: tuple[tuple[Unit, int], ...]
    known: bool


def asked_by_name(side: Side, unit: Unit, number: int) -> Asked:
    """Which objects are asked for the member that a text names."""
    waiting, seen = [_Given(unit, number, "", ())], set[_Given]()
    objects: dict[tuple[Unit, int], None] = {}
    known = True
    while waiting:
        given = waiting.pop()
        if given in seen:
            continue
        seen.add(given)
        for user in given.unit.users.get(given.number, ()):
            value = given.unit.code.values[user]
            if value.op == "phi":
                waiting.append(given._replace(number=user))
            elif value.op == "call" and given.number in value.args[1:]:
                if _is_asking(given, value):
                    objects[given.unit, value.args[1]] = None
                    continue
                found = list(_entered(side, given, user))
                known = known and (bool(found) or _is_of_library(given.unit, value))
                waiting += [each for each in found if each is not None]
    return Asked(tuple(objects), known)


def _is_asking(given: _Given, call: Value) -> bool:
    callee = given.unit.code.values[call.args[0]]
    named = not given.keyword and len(call.args) > 2 and call.args[2] == given.number
    return named and callee.op == "name" and callee.data in ("getattr", "hasattr")


def _entered(side: Side, given: _Given, number: int) -> Iterator[_Given | None]:
    """The text inside of the functions that a call runs; None for one that does not take it."""
    call = given.unit.code.values[number]
    shape = list(zip(call.data.names, call.args[1:], strict=True))
    texts = dict(given.texts)
    for method in _called(side, given, number, texts):
        unit = side.unit_of(method)
        if unit is None:
            continue
        skipped = implicit(given.unit, call, unit)
        plain = [name for name, kind in unit.code.params if kind in ("pos", "any")][skipped:]
        passed: list[tuple[str, int]] = []
        for index, (keyword, operand) in enumerate(shape):
            if keyword is None and index < len(plain):
                passed.append((plain[index], operand))
            elif keyword not in (None, "*", _SPREAD):
                passed.append((str(keyword), operand))
        spread = any(keyword == _SPREAD and operand == given.number for keyword, operand in shape)
        if given.keyword and spread:
            passed.append((given.keyword, given.number))
        values = given.unit.code.values
        said = {name: values[operand].data for name, operand in passed if values[operand].op == "const"}
        said |= {n: texts[p] for n, o in passed if values[o].op == "param" and (p := str(values[o].data[1])) in texts}
        if any(keyword == _SPREAD for keyword, _ in shape):
            said |= {name: text for name, text in texts.items() if name not in said}
        inner = tuple(sorted((name, text) for name, text in said.items() if isinstance(text, str)))
        names = {name for name, operand in passed if operand == given.number}
        yield from (_inside(unit, name, inner) for name in names) if names else (None,)


def _inside(unit: Unit, name: str, texts: tuple[tuple[str, str], ...]) -> _Given | None:
    """A text that is passed for a parameter of a unit, or goes into its `**kwargs`."""
    params = dict(unit.code.params)
    keyword = "" if params.get(name) in ("pos", "any", "kw") else name
    wanted = next((each for each, kind in params.items() if kind == _SPREAD), "") if keyword else name
    values = unit.code.values
    found = (n for n, value in enumerate(values) if value.op == "param" and value.data[1] == wanted)
    number = next(found, None)
    return _Given(unit, number, keyword, texts) if number is not None else None


def _called(side: Side, given: _Given, number: int, texts: dict[str, str]) -> list[Method]:
    """The functions of the project that a call may run: as the flow knows, else all methods of the name."""
    unit, values = given.unit, given.unit.code.values
    found = side.project.analysis(Objects).run_by(Place(side.flow, unit, number))
    if found:
        return [method for method in found if not is_test(method.path)]
    callee = values[unit.root(values[number].args[0])]
    while callee.op == "attr" and callee.data in _SENDING or callee.op == "call" and _is_sending(unit, callee):
        callee = values[unit.root(callee.args[0])]
    if callee.op == "call" and values[callee.args[0]].data == "getattr" and len(callee.args) > 2:
        asked = values[callee.args[2]]
        name = asked.data if asked.op == "const" else texts.get(str(asked.data[1]), "") if asked.op == "param" else ""
    elif callee.op == "attr" and callee.data not in of_libraries():
        name = str(callee.data)
    elif callee.op in ("name", "import"):
        symbol = side.flow.symbol(unit, callee)
        made = symbol.find("__init__") if isinstance(symbol, ClassDef) else symbol
        return [made] if isinstance(made, Method) else []
    else:
        name = ""
    return [m for m in side.methods.get(name, ()) if m.cls is not None and not is_test(m.path)] if name else []


def _is_of_library(unit: Unit, call: Value) -> bool:
    """Whether a call is of a method that objects of libraries have: `names.append("save")`."""
    callee = unit.code.values[unit.root(call.args[0])]
    return callee.op == "attr" and callee.data in of_libraries()


def _is_sending(unit: Unit, call: Value) -> bool:
    """Whether a call only says how a function is to be run: `f.options(…)`."""
    callee = unit.code.values[call.args[0]]
    return callee.op == "attr" and callee.data in _SENDING
