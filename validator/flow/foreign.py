"""What is known of values of libraries: what a table says by a word, what a name makes likely, and that nothing is."""

from __future__ import annotations

from typing import Any

from validator.domains.axes import WHOLE, axes_of
from validator.domains.spmd import rank
from validator.flow.values import NONE_OBJ, TOP, Obj, Val, group_of, obj

NOBODY = "~"  # what a library makes of which no table says anything
_OF_JOB = frozenset({"process_index", "global_rank", "world_rank"})


def is_nobodys(value: Val) -> bool:
    """Whether a value is what a library made of which no table says anything, or a part of that."""
    return bool(value.objs) and all(map(_is_of_nobody, value.each))


def is_unknown(value: Val) -> bool:
    """Whether nothing is known of what a value is."""
    objs = value.objs - {NONE_OBJ}
    return bool(objs) and all(o == TOP or o[0] == "section" or _is_of_nobody(o) for o in objs)


def _is_of_nobody(o: Obj) -> bool:
    return o[0] in ("ext", "made") and o[1].startswith(NOBODY)


def likely_rank(name: str) -> Val:
    """What is likely of a value that is stored under the name of a rank, where nobody knows by whom."""
    return Val(number_named(name), rank(axes_of(name) - {"world"} or WHOLE, sure=False))


def number_named(name: str) -> frozenset[Obj]:
    """What an attribute counts, where its name says it: processes of the job or of a node."""
    if name in ("local_rank", "local_process_index"):
        return frozenset({("ordinal", "node", frozenset({"local"}))})
    return frozenset({("ordinal", "job", WHOLE)}) if name in _OF_JOB else frozenset()


def described(given: Any) -> Val:
    """The value that a table describes by a word."""
    if isinstance(given, tuple | list):
        return obj("tuple", tuple(described(each) for each in given))
    word, _, rest = str(given).partition(":")
    if word == "rank":
        return Val(v=rank({rest} if rest else WHOLE))
    if word == "number":
        return Val(frozenset({("ordinal", "node" if rest == "local" else "job", frozenset({rest}) if rest else WHOLE)}),
                   rank({rest} if rest else WHOLE))  # fmt: skip
    if word == "job size":
        return obj("size", group_of(WHOLE))
    if word == "made":
        return Val(frozenset({("made", rest)}), state=frozenset({"?"}))
    return Val()
