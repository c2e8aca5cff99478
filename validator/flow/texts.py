"""Texts that are computed of constants, and the modules and members that texts name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from validator.definitions import Module
from validator.domains.spmd import NONE
from validator.flow.attributes import attribute
from validator.flow.program.symbols import meaning
from validator.flow.values import BOTTOM, UNKNOWN, Obj, Val, const, const_obj, join, tuple_of

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

# Methods of `str` that are a function of the text and of what they are given, and no longer than both.
_METHODS = frozenset({
    "capitalize", "endswith", "format", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
    "rpartition", "rsplit", "rstrip", "split", "startswith", "strip", "title", "upper",
})  # fmt: skip
_LONGEST = 200  # characters of a text that is kept


def by_method(name: str, receiver: Val, arguments: Iterable[tuple[str | None, Val]]) -> frozenset[Obj]:
    """What a method of a text gives; nothing where the text, or what it is given, is computed of something else."""
    texts = [o[2] for o in receiver.each if o[0] == "const" and o[1] == "str"]
    if name not in _METHODS or not texts or len(texts) < len(receiver.objs):
        return NONE
    given = [(keyword, _plain(value)) for keyword, value in arguments]
    if any(value is None or keyword in ("*", "**") for keyword, value in given):
        return NONE
    positional = [value for keyword, value in given if keyword is None]
    keywords = {keyword: value for keyword, value in given if keyword is not None}
    try:
        found = [getattr(text, name)(*positional, **keywords) for text in texts]
    except (TypeError, ValueError, LookupError, AttributeError):  # it raises where it runs, too
        return NONE
    return join(map(_value, found)).objs


def spelled(parts: Iterable[Val]) -> frozenset[Obj]:
    """The text that parts spell one after the other (an f-string, a sum); nothing where one of them is not known."""
    found = [part.constant() for part in parts]
    if any(not isinstance(each, str | int) for each in found):
        return NONE
    text = "".join(map(str, found))
    return frozenset({const_obj(text)}) if len(text) <= _LONGEST else NONE


def module(at: Evaluation, text: Val) -> Val:
    """The modules that a text may name."""
    texts = _names(at.flow.close(text, at.unit))
    found = [meaning(at, at.flow.project.import_module(at.unit.module, each), each) for each in texts]
    return join(found) if found else UNKNOWN


def member(at: Evaluation, number: int, text: Val) -> Val:
    """What a dotted path (`"package.module.Class"`) names, as those take it that import by such texts."""
    found = [_member(at, number, each.split(".")) for each in _names(at.flow.close(text, at.unit))]
    return join(found) if found else UNKNOWN


def _member(at: Evaluation, number: int, parts: list[str]) -> Val:
    importer, project = at.unit.module, at.flow.project
    for end in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:end])
        found = project.import_module(importer, name)
        if isinstance(found, Module) or end == 1:
            value = meaning(at, found, name)
            for each in parts[end:]:
                value = attribute(at, number, value, each)
            return value
    return UNKNOWN


def _names(value: Val) -> list[str]:
    """The absolute dotted names among the texts that a value may be."""
    texts = (o[2] for o in value.each if o[0] == "const" and o[1] == "str")
    return [text for text in texts if all(part.isidentifier() for part in text.split("."))]


def _plain(value: Val) -> object:
    """The text, number or sequence of texts that a value is; None where it is something else, or not known."""
    if value.of("tuple") and len(value.objs) == 1:
        (sequence,) = value.objs
        parts = [_plain(each) for each in sequence[1]]
        return None if None in parts else parts
    constant = value.constant()
    return constant if isinstance(constant, str | int) else None


def _value(found: object) -> Val:
    if isinstance(found, tuple | list):
        return tuple_of(const(each) for each in found)
    return const(found) if not isinstance(found, str) or len(found) <= _LONGEST else BOTTOM
