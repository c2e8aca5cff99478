"""What makes objects of data classes out of a command line, a file or a dictionary: parsers of such classes.

The classes are named in the source; what their fields hold is not, so a field is whatever its annotation says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.definitions import ClassDef
from validator.flow.annotations import objects_of
from validator.flow.values import UNKNOWN, Val, elements, join, obj, tuple_of

if TYPE_CHECKING:
    from validator.flow.transfer import Evaluation


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
    said = ((name, at.flow.declared_field(cls, name)) for name in at.flow.fields_of(cls))
    rows = tuple((name, value if objects_of(value) else UNKNOWN) for name, value in said)
    at.made.setdefault(number, {})[cls] = rows
    return obj("inst", cls)
