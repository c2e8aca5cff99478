"""Containers that builtins and methods make of others: `zip`, `sorted`, `items`, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.flow.calls.arguments import Arguments
from validator.flow.calls.elements import element
from validator.flow.calls.groups import index_in
from validator.flow.calls.protocols import iterators
from validator.flow.values import (
    BOTTOM,
    COUNTED,
    NOT_YET,
    UNKNOWN,
    Obj,
    Val,
    beside,
    const,
    entries,
    is_dictionary,
    is_text,
    join,
    sequence,
    tuple_of,
    unordered,
)

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

LAZY = frozenset(
    {"iter", "enumerate", "zip", "map", "filter", "reversed", "itertools.islice", "itertools.chain", "tqdm.tqdm"}
)
_SETS = frozenset({"set", "frozenset"})
_REMAKING = frozenset({
    "list", "tuple", "sorted", "set", "frozenset", "reversed", "iter", "islice", "itertools.islice",
})  # fmt: skip
COPYING = frozenset({"copy", "copy.copy", "copy.deepcopy", "deepcopy", "tqdm", "tqdm.tqdm", "tqdm.auto.tqdm"})


def iterates(at: Evaluation, name: str, arguments: Arguments, receiver: Val) -> frozenset[Obj]:
    """The containers that a builtin makes of what it is given, or a method of its receiver."""
    values = [v for n, v in arguments if n is None]
    if name == "zip":
        spread = [element(at, element(at, v)) for n, v in arguments if n == "*"]  # how many there are is not known
        each = [element(at, v) for v in values]
        return sequence(sequence(join([*spread, *each])) if spread else tuple_of(each)).objs
    if name == "enumerate" and values:
        index = index_in(beside(values[0], "counted"))
        running = ((*o[:3], "beside") for o in iterators(at, values[0]))
        kept = frozenset({*running, *beside(values[0], "unordered")})
        return sequence(tuple_of([index, element(at, values[0])])).objs | kept
    if name in _REMAKING and values:
        return _remade(at, name, values[0])
    if name in COPYING:
        return values[0].objs if values else receiver.objs
    if name in ("keys", "values", "items", "get"):
        receiver = _as_passed(at, receiver)
    if name in ("keys", "values", "items"):
        return _view(at, name, receiver)
    if name == "get":
        found = [v for o in receiver.of("dict") for v in entries(o, values[0])] if values else []
        return join([*found, *(values[1:2] or [const(None)])]).objs if found else frozenset()
    if name in ("chunk", "split", "unbind", "tolist", "itertools.chain"):
        return sequence(UNKNOWN).objs
    return frozenset()


def _as_passed(at: Evaluation, receiver: Val) -> Val:
    """Of a parameter the dictionaries that callers pass, where they pass nothing else."""
    params = receiver.of("param")
    passed: Val = at.flow.get("argument", at.unit, params[0][1]) if len(params) == len(receiver.objs) == 1 else BOTTOM
    return Val(passed.objs) if passed is not NOT_YET and is_dictionary(passed) else receiver


def _remade(at: Evaluation, name: str, given: Val) -> frozenset[Obj]:
    """A list, a set or an iterator of what something holds."""
    kept = frozenset(iterators(at, given)) if name in LAZY else frozenset()
    if name in ("list", "tuple") and len(given.objs) == 1 and given.of("tuple"):
        return given.objs
    inner = element(at, given)
    return sequence(inner).objs | kept | _order(name, given, inner)


def _view(at: Evaluation, name: str, receiver: Val) -> frozenset[Obj]:
    """The keys, values or items of a dictionary."""
    if name == "keys":
        known = receiver.of("seq") or receiver.of("dict")
        held = sequence(element(at, receiver)).objs if known else frozenset()
        return held | beside(receiver, "unordered")
    rows = receiver.of("dict")
    found = [v for o in rows for v in (*(each for _, each in o[1]), o[2]) if v is not None]
    inner = join(found) if found else UNKNOWN
    keys = element(at, receiver) if receiver.of("seq") else UNKNOWN
    held = sequence(inner if name == "values" else tuple_of([keys, inner])).objs
    return held | beside(receiver, "unordered")


def _order(name: str, given: Val, element: Val) -> frozenset[Obj]:
    """What is known of the order and the length of a list that is made of another."""
    if name == "sorted":
        return beside(given, *COUNTED)
    if name in _SETS:
        return frozenset({unordered("set")}) if is_text(element) else frozenset()
    return beside(given, "unordered", *(COUNTED if name in ("list", "tuple", "reversed") else ()))
