"""Shares that are as long on all ranks because the function sees to it, as far as its code tells.

What it does with what is left over is not followed: who asks for it (`len(rows) % size`), or leaves it out
(`len(rows) // size * size`), is believed to do right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from validator.flow.program.unit import Unit

_ROUNDING = frozenset({"ceil", "floor", "int", "round"})
_ALIKE = frozenset({"attr", "item", "const", "name", "free", "import", "call", "binary"})


def is_evened(unit: Unit, step: int) -> bool:
    """Whether a unit asks for what is left over of something by a step, or takes a multiple of it."""
    root = unit.root(step)
    known = unit.evened.get(root)
    if known is None:
        factors = _factors(unit, root)
        known = unit.evened[root] = any(_evens(unit, number, factors) for number in range(len(unit.code.values)))
    return known


def is_even_piece(unit: Unit, upper: int) -> bool:
    """Whether the upper bound of a piece counts pieces of a size from which the rest was left out: `(rank + 1) * n`,
    where `n = total // size`."""
    return any(_leaves_rest_out(unit, number) for number in _computed_of(unit, upper))


def is_even_slice(unit: Unit, number: int) -> bool:
    """The same of whatever bounds a slice has."""
    _, upper, step = (*unit.code.values[number].args, -1, -1)[:3]
    return step >= 0 and is_evened(unit, step) or upper >= 0 and is_even_piece(unit, upper)


def _evens(unit: Unit, number: int, factors: list[int]) -> bool:
    """Whether a value is what a step leaves over, or a rounded quotient times the step."""
    value = unit.code.values[number]
    if value.op != "binary" or value.data not in ("Mod", "Mult"):
        return False
    first, second = (unit.root(each) for each in value.args)
    if value.data == "Mod":
        text = unit.code.values[first].op in ("const", "join")  # `"%d ranks" % size`
        return not text and not _takes_turns(unit, number) and _are_alike(unit, _factors(unit, second), factors)
    parts = [*_factors(unit, first), *_factors(unit, second)]
    for index, part in enumerate(parts):
        divisor = _divisor(unit, part)
        others = parts[:index] + parts[index + 1 :]
        if divisor is not None and all(_are_alike(unit, each, factors) for each in (_factors(unit, divisor), others)):
            return True
    return False


def _divisor(unit: Unit, number: int) -> int | None:
    """By what a number was divided that was rounded then: `n // size`, `-(-n // size)`, `math.ceil(n / size)`."""
    value = unit.code.values[unit.root(number)]
    if value.op == "binary" and value.data == "FloorDiv":
        return value.args[1]
    if value.op == "unary":
        return _divisor(unit, value.args[0])
    if value.op != "call" or len(value.args) != 2 or unit.code.values[value.args[0]].data not in _ROUNDING:
        return None
    given = unit.code.values[unit.root(value.args[1])]
    return given.args[1] if given.op == "binary" and given.data == "Div" else _divisor(unit, value.args[1])


def _takes_turns(unit: Unit, rest: int) -> bool:
    """Whether a remainder is compared with the number of a rank: `i % size == rank`."""
    users = (unit.code.values[user] for user in unit.users.get(rest, ()))
    compared = (value for value in users if value.op == "compare")
    return any(unit.code.values[unit.root(each)].op != "const" for value in compared for each in value.args[1:])


def _leaves_rest_out(unit: Unit, number: int) -> bool:
    value = unit.code.values[number]
    if value.op != "binary" or value.data != "FloorDiv":
        return False
    divided = unit.code.values[unit.root(value.args[0])]
    rounded_up = divided.op == "unary" or divided.op == "binary" and divided.data in ("Add", "Sub")
    return not rounded_up


def _computed_of(unit: Unit, number: int) -> Iterator[int]:
    """The values from which a number is computed by operators."""
    stack, seen = [unit.root(number)], set[int]()
    while stack:
        each = stack.pop()
        if each not in seen:
            seen.add(each)
            yield each
            value = unit.code.values[each]
            stack += [unit.root(part) for part in value.args] if value.op == "binary" else []


def _factors(unit: Unit, number: int) -> list[int]:
    value = unit.code.values[root := unit.root(number)]
    if value.op == "binary" and value.data == "Mult":
        return [factor for each in value.args for factor in _factors(unit, each)]
    return [root]


def _are_alike(unit: Unit, some: list[int], others: list[int]) -> bool:
    """Whether each of some factors is written as one of the others is, and the other way round."""
    there = (any(_is_alike(unit, one, other) for other in others) for one in some)
    back = (any(_is_alike(unit, one, other) for one in some) for other in others)
    return all(there) and all(back)


def _is_alike(unit: Unit, one: int, other: int) -> bool:
    """Whether two values are one, or are written alike: `dist.get_world_size()` is asked for twice."""
    one, other = unit.root(one), unit.root(other)
    a, b = unit.code.values[one], unit.code.values[other]
    if one == other or a.op not in _ALIKE:
        return one == other
    alike = a.op == b.op and a.data == b.data and len(a.args) == len(b.args)
    return alike and all(_is_alike(unit, *pair) for pair in zip(a.args, b.args, strict=True))
