"""Which of its returns a unit comes to where a call passes constants: `if as_text: return str(value)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from validator.flow.values import NOT_YET, Val

if TYPE_CHECKING:
    from validator.flow.program.unit import Unit


_COMPARED = {"Is": ("Is", True), "IsNot": ("Is", False), "Eq": ("Eq", True), "NotEq": ("Eq", False)}


class ReturnTest(NamedTuple):
    """A test of a parameter that has come out one way wherever a return is."""

    position: int
    asked: str  # "truth", or how it is compared
    other: Any  # the constant with which it is compared
    holds: bool


def return_tests(unit: Unit) -> dict[int, tuple[ReturnTest, ...]]:
    """The tests of parameters around the returns of a unit, by block; empty where there is but one return, or none
    stands behind such a test."""
    blocks = unit.code.blocks
    ends = [number for number in unit.code.in_order() if blocks[number].end[0] == "return"]
    found = {block: _around(unit, block) for block in ends} if len(ends) > 1 else {}
    return found if any(found.values()) else {}


def open_returns(unit: Unit, argument: Callable[[int], Val]) -> set[int] | None:
    """The blocks with a return to which a call comes that passes some arguments; None where it is not known yet."""
    found = set()
    for block, tests in unit.return_tests.items():
        given = [argument(test.position) for test in tests]
        if NOT_YET in given:
            return None
        told = (_truth(test, value) for test, value in zip(tests, given, strict=True))
        if all(truth is None or truth is test.holds for test, truth in zip(tests, told, strict=True)):
            found.add(block)
    return found


def _around(unit: Unit, block: int) -> tuple[ReturnTest, ...]:
    values, found = unit.code.values, []
    for branch, way in unit.control.settled(block):
        _, number, holds, fails = unit.code.blocks[branch].end
        value = values[number]
        while value.op == "unary" and value.data == "Not":
            number, holds, fails = value.args[0], fails, holds
            value = values[number]
        if holds != fails and (test := _asked(unit, number, way == holds)) is not None:
            found.append(test)
    return tuple(found)


def _asked(unit: Unit, number: int, holds: bool) -> ReturnTest | None:
    """The test of a parameter that a value is, which nothing has changed before."""
    values = unit.code.values
    value = values[number]
    if value.op == "param":
        return ReturnTest(value.data[0], "truth", None, holds)
    if value.op != "compare" or value.data not in _COMPARED or len(value.args) != 2:
        return None
    asked, other = (values[each] for each in value.args)
    if asked.op != "param" or other.op != "const":
        return None
    how, affirmed = _COMPARED[value.data]
    return ReturnTest(asked.data[0], how, other.data, holds is affirmed)


def _truth(test: ReturnTest, value: Val) -> bool | None:
    """How a test comes out for an argument; None where that is not known."""
    constant = value.constant()
    if constant is None and not value.is_const(None):
        return None
    if test.asked == "truth":
        return bool(constant)
    if test.asked == "Is" and test.other is not None:
        return None if constant is not None else False
    return bool(constant == test.other)
