"""What a function gives back, as far as its code says it, and what can be done with that.

A form is one thing that a value may be: a number, a text, a tuple with the forms of its elements, a list, a dictionary
with its keys. A value has a set of them, one for each way it may have come; `None` in the set is a way of which nothing
is known. What can be done with numbers, texts and containers is read off Python's own types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from validator.definitions import External, Method
from validator.drift.change import Side
from validator.flow.callgraph.spelled_arguments import literal_keys
from validator.flow.program.unit import Unit
from validator.ir.model import Value


class Form(NamedTuple):
    """`parts`: of a tuple its elements, None where their number is not known; of a list what an element may be.
    `keys`: of a dictionary; None where they are not all known."""

    kind: str  # number, text, none, tuple, list, dict; mapping: something else in which keys are set; part: an
    # element of the tuple that is given on other ways
    parts: tuple[frozenset[Form | None], ...] | None = None
    keys: frozenset[str] | None = None


Forms = frozenset[Form | None]
UNKNOWN: Forms = frozenset({None})
_NUMBER: Forms = frozenset({Form("number")})
_TEXT: Forms = frozenset({Form("text")})
_NONE: Forms = frozenset({Form("none")})
# Python's own functions whose results are of one kind, whatever they are given.
_BUILTINS = {
    "float": _NUMBER, "int": _NUMBER, "len": _NUMBER, "bool": _NUMBER, "isinstance": _NUMBER, "hasattr": _NUMBER,
    "str": _TEXT, "repr": _TEXT,
    "dict": frozenset({Form("dict")}), "list": frozenset({Form("list")}), "sorted": frozenset({Form("list")}),
    "tuple": frozenset({Form("tuple")}),
}  # fmt: skip
# Methods of tensors that leave them for plain Python values.
_PLAIN = {"item": _NUMBER, "tolist": frozenset({Form("list"), Form("number")})}
_MEMBERS = {
    "number": frozenset(dir(float)) | frozenset(dir(int)),
    "text": frozenset(dir(str)),
    "none": frozenset(dir(None)),
    "tuple": frozenset(dir(tuple)),
    "list": frozenset(dir(list)),
    "dict": frozenset(dir(dict)),
}
SHOWN = {
    "number": "a number", "text": "a text", "none": "nothing", "list": "a list", "dict": "a dictionary",
    "mapping": "something with keys", "part": "one of them alone",
}  # fmt: skip


class Use(NamedTuple):
    """Something done with a value: `unpack` (into how many), `item` (with which constant), `attr` (which name)."""

    kind: str
    what: int | str


class FormsOf:
    """The forms of the results of one revision's functions."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._known: dict[Unit, Forms] = {}
        self._values: dict[tuple[Unit, int], Forms] = {}
        self._open: set[Unit] = set()
        self._cut = False

    def result(self, method: Method) -> Forms:
        unit = self.side.unit_of(method)
        return self.of(unit) if unit is not None and not method.facts.stub else UNKNOWN

    def of(self, unit: Unit) -> Forms:
        known = self._known.get(unit)
        if known is None:
            if unit in self._open:  # of a function that calls itself
                self._cut = True
                return UNKNOWN
            self._open.add(unit)
            known = self._result(unit)
            self._open.discard(unit)
            if not self._cut or not self._open:  # an answer that was cut off is kept of the outermost alone
                self._known[unit] = known
                self._cut = False
        return known

    def _result(self, unit: Unit) -> Forms:
        code = unit.code
        if code.is_generator:
            return UNKNOWN
        found = _union(self.of_value(unit, each) for each in code.returned)
        if _is_one_of(unit):
            found = found - UNKNOWN | {Form("part")}
        return found or UNKNOWN

    def of_value(self, unit: Unit, number: int) -> Forms:
        """What a value may be: what its variable was given on any way, after whatever was done with it on any way."""
        made: list[int] = []
        causes: list[Value] = []
        ways = {number: None}
        queue = [number]
        for each in queue:
            value = unit.code.values[each]
            if value.op in ("phi", "mut"):
                causes += [unit.code.values[value.args[1]]] if value.op == "mut" else []
                fresh = [other for other in value.args[: 1 if value.op == "mut" else None] if other not in ways]
                ways.update(dict.fromkeys(fresh))
                queue += dict.fromkeys(fresh)
            else:
                made.append(each)
        found = _union(self._made(unit, each) for each in made)
        for cause in causes:
            found = frozenset(_grown(unit, cause, form) for form in found)
        return found

    def _made(self, unit: Unit, number: int) -> Forms:
        known = self._values.get((unit, number))
        if known is None:
            self._values[unit, number] = UNKNOWN  # of a value that is made of itself, in a loop
            known = self._values[unit, number] = self._of_op(unit, number)
            if self._cut:
                del self._values[unit, number]
        return known

    def _of_op(self, unit: Unit, number: int) -> Forms:
        value = unit.code.values[number]
        if value.op == "const":
            return _constant(value.data)
        if value.op == "tuple":
            return frozenset({Form("tuple", self._elements(unit, value))})
        if value.op == "list":
            parts = () if value.data else (_union(self.of_value(unit, each) for each in value.args) or UNKNOWN,)
            return frozenset({Form("list", parts or None)})
        if value.op == "dict":
            keys = literal_keys(unit, value)
            return frozenset({Form("dict", None, frozenset(keys) if keys is not None else None)})
        if value.op == "collect" and value.data[0] in ("list", "dict"):
            parts = (self.of_value(unit, value.args[0]),) if value.data[0] == "list" else ()
            return frozenset({Form(value.data[0], parts or None)})
        if value.op == "join":
            return _TEXT
        if value.op == "binary":
            sides = _union(self.of_value(unit, each) for each in value.args)
            return _NUMBER if sides == _NUMBER else UNKNOWN
        if value.op == "await":
            return self._called(unit, value.args[0], True)
        if value.op == "call":
            return self._called(unit, number, False)
        return UNKNOWN

    def _elements(self, unit: Unit, value: Value) -> tuple[Forms, ...] | None:
        found: list[Forms] = []
        for place, each in enumerate(value.args):
            forms = self.of_value(unit, each)
            if place not in value.data:
                found.append(forms)
                continue
            spread = next(iter(forms)) if len(forms) == 1 else None
            if spread is None or spread.kind != "tuple" or spread.parts is None:
                return None
            found += spread.parts
        return tuple(found)

    def _called(self, unit: Unit, number: int, awaited: bool) -> Forms:
        value = unit.code.values[number]
        if value.op != "call":
            return UNKNOWN
        callee = unit.code.values[value.args[0]]
        if callee.op == "attr" and (methods := self._own(unit, callee)):
            return _union(self.result(each) if each.facts.is_async == awaited else UNKNOWN for each in methods)
        if callee.op == "attr":
            return _PLAIN.get(callee.data, UNKNOWN) if len(value.args) == 1 else UNKNOWN
        if callee.op not in ("name", "import"):
            return UNKNOWN
        symbol = self.side.flow.symbol(unit, callee)
        if isinstance(symbol, Method):
            return self.result(symbol) if symbol.facts.is_async == awaited else UNKNOWN
        return _BUILTINS.get(symbol.path, UNKNOWN) if isinstance(symbol, External) else UNKNOWN

    @staticmethod
    def _own(unit: Unit, callee: Value) -> list[Method]:
        """The methods that are called on the object itself, those of subclasses with them."""
        if unit.cls is None or not unit.is_receiver(callee.args[0]):
            return []
        return [each for each in unit.cls.find_below(callee.data).values() if each is not None]


def _is_one_of(unit: Unit) -> bool:
    """Whether what some `return` gives is an element of the tuple that all others give."""
    code = unit.code
    returned = [unit.root(number) for number in code.returned]
    tuples = [code.values[number] for number in returned if code.values[number].op == "tuple"]
    rest = [number for number in returned if code.values[number].op not in ("tuple", "const")]
    elements = {unit.root(each) for value in tuples for each in value.args}
    return bool(rest) and bool(tuples) and elements.issuperset(rest)


def _union(all_forms: Iterable[Forms]) -> Forms:
    found: set[Form | None] = set()
    for forms in all_forms:
        found |= forms
    return frozenset(found)


def _constant(data: object) -> Forms:
    if data is None:
        return _NONE
    if isinstance(data, str):
        return _TEXT
    return _NUMBER if isinstance(data, int | float) else UNKNOWN


def _grown(unit: Unit, cause: Value, form: Form | None) -> Form | None:
    """What a container is after a call that may have changed it, or after a key was set."""
    if form is None and cause.op == "store_item":
        key = unit.code.values[cause.args[1]]
        return Form("mapping") if key.op == "const" and isinstance(key.data, str) else None
    if form is None or form.kind not in ("list", "dict"):
        return form
    if form.kind == "dict" and cause.op == "store_item" and form.keys is not None:
        key = unit.code.values[cause.args[1]]
        if key.op == "const" and isinstance(key.data, str):
            return form._replace(keys=form.keys | {key.data})
    if cause.op == "call":
        callee = unit.code.values[cause.args[0]]
        if callee.op == "attr" and callee.data in ("get", "keys", "values", "items", "copy", "index", "count"):
            return form
    return Form(form.kind)


def fits(forms: Forms, use: Use) -> bool | None:
    """Whether a use fits a value: False where it fits none of the things that the value may be, None where that is
    not known. That a function may also give nothing does not count: its callers may know when."""
    some = forms - _NONE or forms
    found = {_fits(form, use) if form is not None else None for form in some}
    return found.pop() if len(found) == 1 else None


def _fits(form: Form, use: Use) -> bool | None:
    if form.kind == "part":
        return False if use.kind == "unpack" else None
    if form.kind == "mapping":
        return False if use.kind == "unpack" else None
    if use.kind == "attr":
        return use.what in _MEMBERS[form.kind]
    if form.kind in ("number", "none"):
        return False
    if form.kind == "text":
        return None if use.kind == "unpack" else isinstance(use.what, int)
    if form.kind == "dict":
        if use.kind == "unpack":
            return False if form.keys else None
        return use.what in form.keys if form.keys is not None else None
    if use.kind == "item" and isinstance(use.what, str):
        return False
    if form.kind == "list" or form.parts is None:
        return None
    return use.what == len(form.parts) if use.kind == "unpack" else -len(form.parts) <= int(use.what) < len(form.parts)


def shown(forms: Forms) -> str:
    """What a value is, in words: of several things the first by name; of tuples all numbers of values."""
    form = min((each for each in forms - _NONE or forms if each is not None), default=None, key=lambda f: f.kind)
    if form is None:
        return "something else"
    if form.kind != "tuple":
        return SHOWN[form.kind]
    tuples = [each.parts for each in forms if each is not None and each.kind == "tuple"]
    counts = sorted({len(parts) for parts in tuples if parts is not None})
    return f"{' or '.join(map(str, counts))} values" if None not in tuples else "a tuple"


def part(forms: Forms, use: Use) -> Forms:
    """What an element is that a use takes out."""
    found: set[Form | None] = set()
    for form in forms - _NONE:
        if form is None or not form.parts:
            return UNKNOWN
        if form.kind == "list":
            found |= form.parts[0]
        elif isinstance(use.what, int) and -len(form.parts) <= use.what < len(form.parts):
            found |= form.parts[use.what]
        else:
            return UNKNOWN
    return frozenset(found) or UNKNOWN


def uses(unit: Unit, number: int) -> Iterator[tuple[Use, int, tuple[tuple[Use, int], ...]]]:
    """What is done with a value in its unit: the use, the value that does it, and the elements that it takes out, each
    as its position and its value."""
    taken: dict[int, list[tuple[Use, int]]] = {}
    for each in still(unit, number):
        for user in unit.users.get(each, ()):
            value = unit.code.values[user]
            if value.op == "attr":
                yield Use("attr", value.data), user, ()
            elif value.op == "item" and value.args[0] == each:
                key = unit.code.values[value.args[1]]
                if key.op == "const" and isinstance(key.data, int | str) and not isinstance(key.data, bool):
                    yield Use("item", key.data), user, ((Use("item", key.data), user),)
            elif value.op == "unpack" and value.data[2] < 0:
                taken.setdefault(value.data[1], []).append((Use("item", value.data[0]), user))
    for count, parts in taken.items():
        yield Use("unpack", count), parts[0][1], tuple(parts)


def still(unit: Unit, number: int) -> Iterator[int]:
    """A value, and the same variable after calls that were given it."""
    yield number
    for user in unit.users.get(number, ()):
        value = unit.code.values[user]
        if value.op == "mut" and value.args[0] == number:
            yield from still(unit, user)


def is_asked(unit: Unit, number: int) -> bool:
    """Whether a caller asks what it got: then it is made for several things."""
    for each in still(unit, number):
        for user in unit.users.get(each, ()):
            value = unit.code.values[user]
            callee = unit.code.values[value.args[0]] if value.op == "call" else None
            if callee is not None and callee.op == "name" and callee.data in ("isinstance", "hasattr", "getattr"):
                return True
    return False
