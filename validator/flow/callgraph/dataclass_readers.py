"""Parsers of command lines, and what makes objects of data classes out of a command line, a file or a dictionary.

The classes are named in the source; what their fields hold is not, so a field is whatever its annotation says. A parser
is known by the calls that made it: each caller of a function that makes one has a parser of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.definitions import ClassDef
from validator.flow.annotations import objects_of
from validator.flow.foreign import NOBODY
from validator.flow.values import BOTTOM, NOT_YET, UNKNOWN, Obj, Val, elements, join, mapped, obj, tuple_of

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit

_ARGPARSE = "argparse.ArgumentParser"
_MADE = ("parser", "section")
_HOLDING = ("tuple", "seq", "dict")
_NAMESPACES = ("Namespace", "DotDict", "Munch")
OF_NOBODY = Val(frozenset({("made", NOBODY)}), state=frozenset({"?"}))


def reader(made: str, classes: Val) -> Val:
    """The parser that a library makes for some classes (one, or a tuple of them)."""
    return Val(obj("made", made).objs | obj("reader", classes).objs)


def read(at: Evaluation, number: int, classes: Val) -> Val:
    """An object of one of some classes, as the call `number` reads it."""
    return join(_object(at, number, cls) for cls in _classes(classes)) if _classes(classes) else UNKNOWN


def read_all(at: Evaluation, number: int, parser: Val, more: int) -> Val:
    """A tuple with an object of each class of a parser, in their order, and as many other things behind them."""
    found = [_in_order(at, number, o[1], more) for o in parser.of("reader")]
    return join(found) if found else UNKNOWN


def grows(at: Evaluation, number: int) -> bool:
    """Whether the parser of a call that reads is given other options, too: by itself, or by somebody who is passed it.
    Then an object more comes behind those of its classes."""
    unit, values = at.unit, at.code.values
    callee = values[values[number].args[0]]
    if callee.op != "attr":
        return True
    owner = unit.root(callee.args[0])
    made = at.vals[values[owner].args[0]] if values[owner].op == "call" else BOTTOM
    if any(o[0] in ("unit", "bound") for o in made.each):
        return True  # a function of the project gives it back
    for value in values:
        roots = [unit.root(each) for each in value.args if each >= 0]
        if owner in roots and (value.op == "call" or value.op == "attr" and value.data.startswith("add_")):
            return True
    return False


def given_to(receiver: Val) -> Val:
    """The classes of which a method makes objects: those of its parser, or the class on which it is called."""
    return Val(frozenset(part for o in receiver.of("reader") for part in o[1].objs) | frozenset(receiver.of("class")))


def _in_order(at: Evaluation, number: int, classes: Val, more: int) -> Val:
    each = [part for o in classes.of("tuple") for part in o[1]] if classes.of("tuple") else [classes]
    return tuple_of([*(read(at, number, one) for one in each), *[UNKNOWN] * more])


def _classes(value: Val) -> list[ClassDef]:
    inside = elements(value) if value.of("tuple") or value.of("seq") else value
    return [o[1] for o in inside.each if o[0] == "class"]


def _object(at: Evaluation, number: int, cls: ClassDef) -> Val:
    said = ((name, at.flow.fields.declared(cls, name)) for name in at.flow.fields_of(cls))
    rows = tuple((name, value if objects_of(value) else UNKNOWN) for name, value in said)
    at.made.setdefault(number, {})[cls] = rows
    return obj("inst", cls)


def parser(unit: Unit, number: int, beside: bool = True) -> Val:
    """The parser that a call makes; of a class of the project what stands beside the object."""
    made = frozenset({("parser", ((unit, number),), False)})
    return Val(made | obj("made", _ARGPARSE).objs, state=frozenset({"?"})) if beside else Val(made)


def command(parsers: Val) -> Val:
    """The parser of one command, whose options the parser above it has as well."""
    changed = (("parser", o[1], True) if o[0] == "parser" else o for o in parsers.each)
    return Val(frozenset(changed), state=parsers.state)


def namespace(parsers: Val, holder: Val) -> Val:
    """What parsers make of a command line, beside the object on which the program sets more."""
    inside = Val(frozenset(o for o in parsers.each if o[0] in ("parser", "param", "part")))
    return Val(holder.objs | {("namespace", inside, None)}, state=holder.state)


def made_by(returned: Val, caller: Unit, number: int, unit: Unit) -> Val:
    """What a call of a unit gives: a parser that the unit makes, or a file that it reads, is another one for each call
    of it."""
    if returned is NOT_YET or not any(o[0] in (*_MADE, *_HOLDING) for o in returned.each):
        return returned

    def change(o: Obj) -> Obj:
        if o[0] in _MADE and o[1][0][0] is unit and all(each is not caller for each, _ in o[1]):
            return (o[0], ((caller, number), *o[1]), o[2])
        return mapped(o, lambda part: made_by(part, caller, number, unit)) if o[0] in _HOLDING else o

    return Val(frozenset(map(change, returned.each)), returned.v, returned.n, returned.p, returned.state)


def taken_apart(given: Val) -> Val:
    """A namespace with the options `a.b` as `b` of a part `a`."""
    return Val(frozenset(("namespace", o[1], "") for o in given.of("namespace")))


def rebuilt(flow: Flow, unit: Unit) -> int | None:
    """The parameter of whose dictionary a function builds a namespace anew."""
    if "_rebuilt" not in unit.__dict__:
        unit.__dict__["_rebuilt"] = _find_rebuilt(flow, unit) if "vars" in unit.named else None
    found: int | None = unit.__dict__["_rebuilt"]
    return found


def _find_rebuilt(flow: Flow, unit: Unit) -> int | None:
    inside = [each for each in flow.units_of(unit.module).values() if each is unit or each.outer is unit]
    if not any(name.endswith(_NAMESPACES) for each in inside for name in each.named):
        return None
    values = unit.code.values
    calls = (v for v in values if v.op == "call" and values[v.args[0]].data == "vars" and len(v.args) == 2)
    given = [values[unit.root(v.args[1])] for v in calls]
    return next((v.data[0] for v in given if v.op == "param"), None)
