"""Where names stand, and as what: what defines a name, what asks for it, what only spells it.

A name may be that of a function, a class, an attribute, a key of a dictionary, an option or a setting. Which of them it
is often depends on what only shows when the program runs (`args.steps`, `config["steps"]`, `steps: 3`), so all of them
share one table; what a name is lost to is judged with all that may define it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from validator.facts.config_files import Setting
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.ir.model import Value
from validator.source import SourceFile

# role, kind:
#   defines: import, function, class, variable, attribute, key, keyword, field, option, parameter, setting
#   asks:    attribute, key, getattr, target (a dotted text that leads to something in a module)
#   tries:   key, getattr (a default or a test stands by)
#   spells:  text
#   is set:  value (a word in a file of settings)
_KEYED = {"get": "tries", "pop": "tries", "setdefault": "defines"}
_NAMED = {"getattr": "getattr", "hasattr": "getattr", "setattr": "attribute", "delattr": "attribute"}


_MADE_OF = frozenset({"item", "attr", "call", "binary", "unary", "slice", "tuple", "list"})
_LISTING = frozenset({"locals", "vars"})
_PARAMETERS = frozenset({"params", "init_args"})  # what stands beside the `target` or `class_path` that takes it
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?::[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?")  # `pkg.mod:Class.method`


class Occurrence(NamedTuple):
    """A name at a place. `number` is its value in the unit; -1 outside of Python, where `path` has the file."""

    name: str
    role: str
    kind: str
    unit: Unit | None
    number: int
    path: str
    at: At
    link: str = ""  # what stands before it: `rollout` of `config.rollout.size`, of `rollout: {size: 1}`
    above: tuple[str, ...] = ()  # all links before it, where it is set in a file of settings or a script


def in_unit(unit: Unit) -> Iterator[Occurrence]:
    """The names in one unit."""
    code = unit.code
    for name, _ in code.params:
        yield _row(unit, -1, name, "defines", "parameter", code.at)
    for name in code.annotated:
        yield _row(unit, -1, name, "defines", "field", code.at)
    handled: set[int] = set()
    for number, value in enumerate(code.values):
        for row in _of_value(unit, number, value):
            handled.add(row.number)
            yield row
    for number, value in enumerate(code.values):
        if value.op == "const" and isinstance(value.data, str) and number not in handled and value.data:
            if value.data.isidentifier():
                yield _row(unit, number, value.data, "spells", "text", value.at)
            elif value.data.startswith("--") and not _is_compared(unit, number):
                yield _row(unit, number, option_name(value.data), "defines", "option", value.at)
            elif _DOTTED.fullmatch(value.data):
                yield _row(unit, number, _last(value.data), "asks", "target", value.at, value.data)


def variables_shown(unit: Unit, call: Value) -> frozenset[str]:
    """The keys of the dictionary that `locals()` or `vars()` makes in a function: its parameters and variables."""
    callee = unit.code.values[call.args[0]]
    if unit.code.kind != "function" or callee.op != "name" or callee.data not in _LISTING or len(call.args) > 1:
        return frozenset()
    return frozenset(name for name, _ in unit.code.params) | frozenset(unit.code.definitions)


def _is_compared(unit: Unit, number: int) -> bool:
    """Whether a text is only held against others: a program that looks through words meant for another one."""
    users = unit.users.get(number, ())
    return bool(users) and all(unit.code.values[user].op == "compare" for user in users)


def option_name(text: str) -> str:
    """The name under which a flag is read: `--max-steps=3` is `max_steps`."""
    return text.lstrip("-").partition("=")[0].replace("-", "_").rpartition(".")[2]


def _row(unit: Unit, number: int, name: str, role: str, kind: str, raw: Any, link: str = "") -> Occurrence:
    return Occurrence(name, role, kind, unit, number, unit.path, unit.at(raw), link)


def _of_value(unit: Unit, number: int, value: Value) -> Iterator[Occurrence]:
    op, data, values = value.op, value.data, unit.code.values
    if op == "attr":
        yield _row(unit, number, data, "asks", "attribute", value.at, link_of(values[value.args[0]]))
    elif op == "store_attr":
        yield _row(unit, number, data, "defines", "attribute", value.at)
    elif op in ("store_global", "store_class"):
        yield _row(unit, number, data, "defines", _kind(values, value), value.at)
    elif op in ("item", "store_item") and (key := _text(values, value.args[1])):
        role = "asks" if op == "item" or _is_updated(unit, value, key) else "defines"
        yield _row(unit, value.args[1], key, role, "key", values[value.args[1]].at, link_of(values[value.args[0]]))
    elif op == "dict":
        for place in value.args[::2]:
            if place >= 0 and (key := _text(values, place)):
                yield _row(unit, place, key, "defines", "key", values[place].at)
    elif op == "compare" and data in ("In", "NotIn") and (key := _text(values, value.args[0])):
        yield _row(unit, value.args[0], key, "tries", "key", values[value.args[0]].at)
    elif op == "call":
        yield from _of_call(unit, value)


def _is_updated(unit: Unit, store: Value, key: str) -> bool:
    """Whether what is stored under a key is made of what the same object has there: something else put it in first."""
    values, owner = unit.code.values, unit.root(store.args[0])
    written = unit.text(values[owner].at)  # `config.weights["mae"] *= 2` asks for the attribute twice
    waiting, seen = [store.args[2]], set[int]()
    while waiting:
        number = waiting.pop()
        value = values[number]
        if value.op == "item" and _text(values, value.args[1]) == key:
            held = unit.root(value.args[0])
            if held == owner or unit.text(values[held].at) == written:
                return True
        if number not in seen and value.op in _MADE_OF:
            seen.add(number)
            waiting += [each for each in value.args if each >= 0]
    return False


def _kind(values: list[Value], store: Value) -> str:
    """What a name is given in a module or the body of a class: what is imported, a function or class that is written
    there, under whatever decorators, or another value."""
    made = values[store.args[0]]
    if made.op == "import":
        return "import"
    while made.op == "call" and len(made.args) == 2:
        made = values[made.args[1]]
    if made.op != "closure" or str(made.data).removesuffix(".<class>").rpartition(".")[2] != store.data:
        return "variable"
    return "class" if str(made.data).endswith(".<class>") else "function"


def _of_call(unit: Unit, value: Value) -> Iterator[Occurrence]:
    values = unit.code.values
    callee = values[value.args[0]]
    for name in variables_shown(unit, value):
        yield _row(unit, -1, name, "defines", "key", value.at)
    for place, keyword in enumerate(value.data.names):
        if keyword not in (None, "*", "**"):
            yield _row(unit, -1, str(keyword), "defines", "keyword", values[value.args[place + 1]].at)
    if callee.op == "attr" and callee.data == "add_argument" and "dest" in value.data.names:
        place = value.args[1 + value.data.names.index("dest")]
        if key := _text(values, place):
            yield _row(unit, place, key, "defines", "option", values[place].at)
    if callee.op == "attr" and callee.data in _KEYED and len(value.args) > 1 and (key := _text(values, value.args[1])):
        yield _row(unit, value.args[1], key, _KEYED[callee.data], "key", values[value.args[1]].at)
    elif (
        callee.op == "name" and callee.data in _NAMED and len(value.args) > 2 and (key := _text(values, value.args[2]))
    ):
        role = "asks" if callee.data == "getattr" and len(value.args) == 3 else "tries"
        role = "defines" if callee.data == "setattr" else role
        yield _row(unit, value.args[2], key, role, _NAMED[callee.data], values[value.args[2]].at)


def _text(values: list[Value], number: int) -> str:
    value = values[number]
    return value.data if value.op == "const" and isinstance(value.data, str) and value.data.isidentifier() else ""


def _last(path: str) -> str:
    """What a dotted text leads to: the last of its names."""
    return path.replace(":", ".").rpartition(".")[2]


def link_of(owner: Value) -> str:
    """The last name before a name."""
    if owner.op in ("attr", "name"):
        return str(owner.data)
    if owner.op in ("param", "free"):
        return str(owner.data[1])
    return ""


def variable_or_link(unit: Unit, number: int) -> str:
    """What an object is called where it is asked for something: the last name that leads to it, or its variable."""
    number = unit.root(number)
    held = (name for name, made in unit.code.definitions.items() if number in made)
    return link_of(unit.code.values[number]) or next(held, "")


def name_span(place: Occurrence) -> tuple[int, int, int, int]:
    """The name itself at the end of an attribute; otherwise the whole place."""
    line, column, end_line, end_column = place.at
    if place.kind == "attribute":
        return (end_line, max(end_column - len(place.name), 1), end_line, end_column)
    return (line, column, end_line, end_column)


# -- outside of Python -------------------------------------------------------------------------------------


def groups(source: SourceFile) -> list[list[Occurrence]]:
    """The settings of a file that stand together: the keys of one mapping, what one command of a script sets."""
    found: dict[tuple[str, ...], list[Occurrence]] = {}
    settings = source.facts.extra.get("settings")
    for each in settings.settings if settings is not None else ():
        found.setdefault(each.path[:-1], []).extend(_of_setting(source, each))
    for path, rows in found.items():
        if path and path[-1] in _PARAMETERS and not any(row.kind == "target" for row in rows):
            rows += [row for row in found.get(path[:-1], ()) if row.kind == "target"]
    script = source.facts.extra.get("script")
    if script is None:
        return list(found.values())
    from validator.drift.names.shell import of_commands

    return [*found.values(), *of_commands(source, script)]


def in_file(source: SourceFile) -> Iterator[Occurrence]:
    """The names in a configuration file or a script."""
    settings = source.facts.extra.get("settings")
    if settings is not None:
        for each in settings.settings:
            yield from _of_setting(source, each)
    script = source.facts.extra.get("script")
    if script is not None:
        from validator.drift.names.shell import in_script

        yield from in_script(source, script)


def _of_setting(source: SourceFile, each: Setting) -> Iterator[Occurrence]:
    *above, name = each.path
    link = next((part for part in reversed(above) if not part.isdigit()), "")
    yield Occurrence(name.replace("-", "_"), "defines", "setting", None, -1, source.path, each.at, link, tuple(above))
    if isinstance(each.value, str) and _DOTTED.fullmatch(each.value):
        yield Occurrence(_last(each.value), "asks", "target", None, -1, source.path, each.value_at, each.value)
    elif isinstance(each.value, str) and each.value.isidentifier():
        yield Occurrence(each.value, "is set", "value", None, -1, source.path, each.value_at, name)
