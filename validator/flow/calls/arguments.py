"""Arguments of calls: which one a table means, and which parameter of a unit gets which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from validator.domains.spmd import Causes
from validator.flow.values import BOTTOM, UNKNOWN, Val, elements, join, join2, picked, sequence, tuple_of

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.unit import Unit

Arguments = list[tuple[str | None, Val]]
Spreads = Mapping[str | None, Val]
NO_SPREADS: Spreads = {}
SPREADS = ("*", "**")


def spreads_of(arguments: Arguments) -> Spreads:
    """What is handed on as it came (`*args`, `**kwargs`)."""
    return {name: value for name, value in arguments if name in SPREADS and _is_passed_on(value)}


def _is_passed_on(value: Val) -> bool:
    """Whether a list or a dictionary of arguments is what the caller passed."""
    return bool(value.objs) and all(o[0] == "param" for o in value.objs)


def _handed_on(spreads: Spreads, index: int, name: str, kind: str) -> list[Val]:
    """What a parameter may get of arguments that are handed on: by its place among them, by its name."""
    by_place = [picked(spreads["*"], index)] if "*" in spreads and index >= 0 and kind != "kw" else []
    by_name = [picked(spreads["**"], name)] if "**" in spreads and kind != "pos" else []
    return by_place + by_name


def told_apart(
    unit: Unit, first: list[Val], arguments: Arguments, spreads: Spreads
) -> tuple[list[Val], dict[str, Val]]:
    """What a unit gets by its place, behind `first`, and by its name; under `**` what may be any keyword."""
    positional = [*first]
    keywords: dict[str, Val] = {}
    for name, value in arguments:
        if name in spreads:
            continue
        if name is None or name == "@":
            positional.append(value)
        elif name == "*":
            positional += _unpacked(value, len(unit.code.params) - len(positional))
        elif name == "**":
            _add_keywords(keywords, value)
        else:
            keywords[name] = value
    return positional, keywords


def _unpacked(value: Val, lacking: int) -> list[Val]:
    """The arguments that `*value` stands for; as many as the unit lacks where it is not known how many they are."""
    spread = [o for o in value.each if o[0] == "tuple"]
    if len(spread) == 1 and len(value.objs) == 1:
        return list(spread[0][1])
    rest = elements(value)
    some = Val(rest.objs, state=rest.state) if rest.objs else UNKNOWN  # nobody knows which goes where
    return [some] * max(0, lacking)


def _add_keywords(keywords: dict[str, Val], value: Val) -> None:
    """Add what `**value` stands for."""
    for o in value.each:
        if o[0] == "dict":
            keywords.update({k: v for k, v in o[1] if isinstance(k, str)})
        if o[0] != "dict" or o[2] is not None:
            rest = o[2] if o[0] == "dict" else UNKNOWN
            keywords["**"] = join2(keywords.get("**", BOTTOM), rest)


def is_refused(unit: Unit, first: int, arguments: Arguments) -> bool:
    """Whether a call raises TypeError for certain, behind `first` values that it does not pass itself: it passes more
    than the unit takes, a keyword that is none of its parameters, or one parameter twice. What runs all the same is
    another function than this one (`Model(args, config)` on one of three classes), so nothing of it arrives here."""
    names = [name for name, _ in arguments]
    if "*" in names or unit.method is not None and unit.method.facts.decorators:
        return False
    params = unit.code.params
    placed = [name for name, kind in params if kind in ("pos", "any")]
    count = first + sum(name in (None, "@") for name in names)
    if count > len(placed) and all(kind != "*" for _, kind in params):
        return True
    keywords = {name for name in names if name not in (None, "@", "**")}
    known = {name for name, kind in params if kind in ("any", "kw")}
    if keywords - known and all(kind != "**" for _, kind in params):
        return True
    return any(name in keywords and kind == "any" for name, kind in params[: min(count, len(placed))])


def before_own(at: Evaluation, number: int, first: int, positional: list[Val]) -> int:
    """How many parameters are filled before what the call passes: by the receiver, or by a `partial`; below 0
    where what is called is passed itself (`submit(function, argument)`)."""
    instruction = at.code.values[number]
    names = instruction.data.names if instruction.op == "call" else ()
    return first if "*" in names else len(positional) - sum(name in (None, "@") for name in names)


def bind(
    at: Evaluation, unit: Unit, positional: list[Val], keywords: dict[str, Val], spreads: Spreads = NO_SPREADS
) -> dict[int, Val]:
    """Which parameter gets what. `spreads`: what is handed on as it came (`*args`, `**kwargs`)."""
    bindings: dict[int, Val] = {}
    given = list(positional)
    left = dict(keywords)
    rest = left.pop("**", None)
    for position, (name, kind) in enumerate(unit.code.params):
        if kind in ("pos", "any", "kw"):
            if given and kind != "kw":
                bindings[position] = given.pop(0)
            elif name in left and kind != "pos":
                bindings[position] = left.pop(name)
            elif spreads and (parts := _handed_on(spreads, position - len(positional), name, kind)):
                bindings[position] = join([*parts, at.flow.parameters.default(unit, name)])
        elif kind == "*":
            bindings[position] = tuple_of(given) if len(given) < 12 else sequence(join(given))
            if "*" in spreads:  # all of it where nothing stands before it, else some end of it
                bindings[position] = spreads["*"] if position == len(positional) else sequence(UNKNOWN)
            given = []
        else:
            bindings[position] = _named(unit, left, rest, spreads, len(positional))
            left = {}
    return bindings


def _named(unit: Unit, left: dict[str, Val], rest: Val | None, spreads: Spreads, placed: int) -> Val:
    """What `**kwargs` holds: the keywords that no parameter takes. `placed`: how many are filled by their place."""
    rows = tuple(sorted((k, v) for k, v in left.items())) if len(left) < 16 else ()
    if "**" in spreads and any(each not in ("*", "**", "pos") for _, each in unit.code.params[placed:]):
        rest = UNKNOWN  # which of the keys other parameters take is not told apart
    named = Val(frozenset({("dict", rows, rest)}))
    return named if rest is not None else join2(named, spreads.get("**", BOTTOM))


def place_of(which: tuple[str, int], arguments: Arguments) -> int:
    """The place of the argument that has a name, or stands at a position; -1 where none is passed."""
    name, position = which
    for place, (keyword, _) in enumerate(arguments):
        if keyword == name or (keyword is None and place == position):
            return place
    return -1


def argument(which: tuple[str, int], arguments: Arguments) -> Val | None:
    """The argument that has a name, or stands at a position; None where none is passed."""
    place = place_of(which, arguments)
    return arguments[place][1] if place >= 0 else None


def values_of(rows: Val) -> Iterator[Causes]:
    """By what the values of a dictionary vary that a call spreads."""
    return (held.v for o in rows.of("dict") for held in (*(each for _, each in o[1]), o[2]) if held is not None)
