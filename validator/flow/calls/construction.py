"""Objects that calls make: of classes of the project, copies of data classes, what a program sets attributes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from validator.definitions import ClassDef
from validator.domains.placement import PLAIN, UNPLACED
from validator.domains.spmd import NONE
from validator.flow.attributes import attribute
from validator.flow.callgraph import dataclass_readers as readers
from validator.flow.calls.arguments import SPREADS, Arguments
from validator.flow.calls.own_units import call_unit, run
from validator.flow.values import BOTTOM, UNKNOWN, Val, dictionary_of, join2, obj, picked

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.unit import Unit
    from validator.ir import Value


def construct(at: Evaluation, number: int, cls: ClassDef, arguments: Arguments) -> Val:
    """An object of a class of the project; its constructor runs, or its fields are noted where it has none."""
    made = object_of(at, number, cls)
    init = cls.find("__init__")
    unit = at.flow.unit_of(init) if init is not None else None
    if unit is not None:
        call_unit(at, number, unit, [made], arguments)
    else:
        at.made[number] = {cls: _fields(at, cls, arguments)}
        after = cls.find("__post_init__")
        if after is not None and (unit := at.flow.unit_of(after)) is not None:
            run(at, number, unit, [made], {})
    return made


def object_of(at: Evaluation, number: int, cls: ClassDef) -> Val:
    """What calling a class of the project gives."""
    made = obj("self" if cls.is_abstract and cls.descendants() else "inst", cls)
    if any(at.models.named(base) == "torch.nn.Module" for base in cls.external_bases):
        made = made.placed(PLAIN)
    if any(is_parser(at, base) for base in cls.external_bases):
        made = join2(made, readers.parser(at.unit, number, beside=False))
    return join2(made, UNKNOWN) if _gives_another(at, cls) else made


def _fields(at: Evaluation, cls: ClassDef, arguments: Arguments) -> tuple[tuple[str, Val], ...]:
    """The fields of a data class that arguments of its constructor fill."""
    rows = at.flow.fields_of(cls)
    given = []
    for position, (name, value) in enumerate(arguments):
        if name is None and position < len(rows):
            given.append((rows[position], value))
        elif name not in (None, *SPREADS):
            given.append((str(name), value))
    left = [row for row in rows if row not in {name for name, _ in given}]
    for name, value in arguments:
        if name in SPREADS:
            spread = [(row, picked(value, row) if name == "**" else UNKNOWN) for row in left]
            given += [(row, part) for row, part in spread if part is not BOTTOM]
    return tuple(given)


def _gives_another(at: Evaluation, cls: ClassDef) -> bool:
    """Whether the `__new__` of a class gives what some other call gives: no object of the class, perhaps."""
    method = cls.find("__new__")
    unit = at.flow.unit_of(method) if method is not None else None
    return unit is not None and not all(_makes_own(unit, call) for call in _calls_given_back(unit))


def _makes_own(unit: Unit, call: Value) -> bool:
    """Whether a call in the `__new__` of a class is one of `super().__new__(cls)`."""
    callee = unit.code.values[call.args[0]]
    return callee.op == "attr" and callee.data == "__new__" and len(call.args) > 1 and unit.is_receiver(call.args[1])


def _calls_given_back(unit: Unit) -> Iterator[Value]:
    """The calls whose results a function gives back, directly or kept as an attribute (`cls.one`)."""
    values, seen, todo = unit.code.values, set[int](), list(unit.code.returned)
    while todo:
        number = unit.root(todo.pop())
        if number in seen:
            continue
        seen.add(number)
        value = values[number]
        if value.op == "call":
            yield value
        elif value.op == "phi":
            todo += value.args
        elif value.op == "attr":
            stores = (v for v in values if v.op == "store_attr" and v.data == value.data)
            todo += [store.args[1] for store in stores if unit.is_same(store.args[0], value.args[0])]


def is_parser(at: Evaluation, base: str) -> bool:
    """Whether objects of a class of a library are parsers of command lines."""
    row = at.models.method(base, "parse_args")
    return row is not None and row.result != "receiver"  # Tap fills an object with what is given, and gives it back


def holder(at: Evaluation, made: str) -> Val:
    """An object on which the program sets attributes, by the unit that makes it."""
    return Val(frozenset({("made", made, at.unit)}), state=UNPLACED)


def holder_of(at: Evaluation, number: int, made: str, arguments: Arguments) -> Val:
    """The same, with the attributes that the call which makes it names: all that it has, where nothing is spread."""
    named = tuple((name, value) for name, value in arguments if name not in (None, "*", "**"))
    at.named[number] = named
    if not named or len(named) < len(arguments):
        return holder(at, made)
    return Val(frozenset({("made", made, at.unit, "named")}), state=UNPLACED)


def replaced(at: Evaluation, number: int, arguments: Arguments) -> Val:
    """A copy of a data class in which some fields are others: no other field differs for it."""
    copied = arguments[0][1] if arguments else UNKNOWN
    given = tuple((name, value) for name, value in arguments if name not in (None, "*", "**"))
    at.made[number] = {o[1]: given for o in copied.each if o[0] in ("inst", "self")}
    return Val(copied.objs, copied.v, copied.n, NONE, copied.state)


def as_dictionary(at: Evaluation, number: int, value: Val) -> Val | None:
    """The fields of an object of one data class as a dictionary; None of anything else."""
    held = at.flow.close(value, at.unit) if value.symbolic else value
    classes = {o[1] for o in held.each if o[0] in ("inst", "self")}
    if len(classes) != 1 or len(held.objs) != 1 or not (fields := at.flow.fields_of(next(iter(classes)))):
        return None
    return dictionary_of((name, attribute(at, number, held, name)) for name in fields)
