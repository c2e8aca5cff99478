"""What methods leave of the object on which they are called: lists that grow, tensors that are worked on in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from validator.domains.spmd import NONE, combined
from validator.flow.calls.arguments import Arguments
from validator.flow.calls.libraries.randomness import drawn_as
from validator.flow.containers import GROWING
from validator.flow.foreign import is_unknown
from validator.flow.values import (
    NOT_YET,
    UNKNOWN,
    Val,
    beside,
    const,
    dictionary_of,
    elements,
    entries,
    is_text,
    join,
    join2,
    obj,
    sequence,
    unordered,
)
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.calls.in_hand import Call

_OF_LISTS = frozenset({"append", "extend", "insert", "appendleft"})
_OF_SETS = frozenset({"add", "update"})  # of what is no dictionary
_COMPUTED = ()  # a key that is neither a text nor a number
_OF_TORCH = Row("", draws="torch")  # what draws from PyTorch's own generator


def growth(name: str, arguments: Arguments) -> Callable[[Val], Val] | None:
    """Lists that grow hold what they are given; on which ways they do is seen where the ways meet."""
    if name == "setdefault" and arguments:
        return lambda before: _defaulted(before, arguments)
    if name not in GROWING or not arguments:
        return None
    added = arguments[-1][1]

    def change(before: Val) -> Val:
        if name == "update" and before.objs and all(o[0] == "dict" for o in before.each):
            return _updated(before, arguments)
        if not any(o[0] in ("tuple", "seq") for o in before.each):
            mapping = name == "update" and any(o[0] in ("dict", "param") for o in before.each)
            more = obj("dict", (), UNKNOWN).objs if mapping else NONE  # it may have any key now
            v = combined(before.v, added.v) if name in _OF_LISTS and is_unknown(before) else before.v
            return Val(before.objs | more, v, before.n, before.p, before.state)
        part = elements(added) if name in ("extend", "update") else added
        grown = sequence(join2(elements(before), part))
        is_set = name in _OF_SETS and not before.of("dict")
        order = frozenset({unordered("set")}) if is_set and is_text(part) else beside(before, "unordered")
        n = combined(before.n, added.n if name in ("extend", "update") else NONE)
        own = frozenset(o for o in before.each if o[0] in ("inst", "self"))  # has a method of that name
        return Val(grown.objs | order | own, combined(before.v, added.v), n, before.p, before.state)

    return change


def _updated(before: Val, arguments: Arguments) -> Val:
    """A dictionary with what another one has, and what keywords add."""
    if any(value is NOT_YET for _, value in arguments):
        return NOT_YET
    added = [(None if name in (None, "**") else name, value) for name, value in arguments]
    made = dictionary_of([(None, before), *added])
    return Val(made.objs, before.v, before.n, before.p, before.state)


def _defaulted(before: Val, arguments: Arguments) -> Val:
    """A dictionary with a key that `setdefault` puts where it is not there yet."""
    if any(value is NOT_YET for _, value in arguments):
        return NOT_YET
    if not before.objs or any(o[0] != "dict" for o in before.each):
        return before
    key, value = arguments[0][1].constant(), arguments[1][1] if len(arguments) > 1 else const(None)
    found = [each for o in before.of("dict") for each in entries(o, arguments[0][1])]
    made = dictionary_of([(None, before), (key if isinstance(key, str | int) else _COMPUTED, join([*found, value]))])
    return Val(made.objs, before.v, before.n, before.p, before.state)


def work_in_place(call: Call) -> Callable[[Val], Val] | None:
    """A tensor that is worked on in place (`x.add_(y)`) differs between ranks as what it is given does."""
    name, table = call.name, call.at.models.tensors
    works = name.endswith("_") and not name.startswith("_") and not name.endswith("__")
    if not works or name in table["marking"] or any(o[0] in ("inst", "self") for o in call.receiver.each):
        return None
    drawn = name in table["drawing"]
    made = drawn_as(call, _OF_TORCH, call.arguments) if drawn else combined(*(v.v for _, v in call.arguments))
    new = drawn or name in table["overwriting"]

    def change(before: Val) -> Val:
        objs = frozenset(o for o in before.each if o[0] in ("tensor", "top")) if new else before.objs
        return Val(objs, made if new else combined(before.v, made), before.n, before.p, before.state)

    return change
