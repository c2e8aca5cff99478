"""Constants that a value is not where it stands: tests have found that it is another one, or its list lacks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validator.flow.queries.base import Place

# methods of texts that answer with yes or no, with how many texts they are given
_QUESTIONS = {
    "startswith": 1, "endswith": 1, "isdigit": 0, "isalpha": 0, "isalnum": 0, "isnumeric": 0, "isupper": 0,
    "islower": 0,
}  # fmt: skip


def is_excluded(place: Place, user: Place) -> bool:
    """Whether tests exclude all that is known of a value where something uses it: each of the constants that it may
    be."""
    known = place.closed.each
    if not known or any(o[0] != "const" for o in known):
        return False
    excluded, held, asked = list(_excluded(place.root, user)), list(_held(place, user)), list(_asked(place, user))
    return all(
        any(type(o[2]) is type(each) and o[2] == each for each in excluded)
        or _lacks_one(o[2], held)
        or _answers_otherwise(o[2], asked)
        for o in known
    )


def _asked(place: Place, user: Place) -> Iterator[tuple[str, list[Any], bool]]:
    """What a text has been asked for, with the answer: `key.startswith("block_")`."""
    for test, outcome in user.settled_tests:
        call, holds = test.asserted(outcome)
        if call.value.op == "call" and call.method in _QUESTIONS and call.receiver is not None:
            given = [constant for number in call.value.args[1:] for constant in _constant(call.value_at(number))]
            if call.receiver.root == place.root and len(given) == len(call.value.args) - 1:
                yield call.method, given, holds


def _answers_otherwise(constant: Any, asked: list[tuple[str, list[Any], bool]]) -> bool:
    """Whether a constant would have given another answer."""
    if not isinstance(constant, str):
        return False
    fitting = (
        (name, given, holds)
        for name, given, holds in asked
        if len(given) == _QUESTIONS[name] and all(isinstance(each, str) for each in given)
    )
    return any(getattr(constant, name)(*given) is not holds for name, given, holds in fitting)


def _held(place: Place, user: Place) -> Iterator[str]:
    """The texts of which a test has found that a text has them: `"\\n" in buffer`."""
    for test, outcome in user.settled_tests:
        asked, holds = test.asserted(outcome)
        has = asked.value.op == "compare" and asked.value.data == ("In" if holds else "NotIn")
        if has and asked.operand(1).key == place.key:
            yield from (each for each in _constant(asked.operand(0)) if isinstance(each, str))


def _lacks_one(constant: Any, texts: list[str]) -> bool:
    return isinstance(constant, str) and any(text not in constant for text in texts)


def _excluded(place: Place, user: Place) -> Iterator[Any]:
    """The constants that a value is not: by what holds where it is used, and by how its list was made."""
    yield from _by_tests(place, user.settled_tests)
    gone_through = place.iterable
    if gone_through is None:
        return
    elements = gone_through.root
    yield from _lacking(elements, user.settled_tests)
    if elements.value.op == "collect" and elements.value.data[1] == 1:
        element = elements.operand(0).root
        conditions = elements.value.args[elements.value.data[1] + elements.value.data[2] :]
        yield from _by_tests(element, ((elements.value_at(number), True) for number in conditions))
        yield from _excluded(element, element)


def _by_tests(place: Place, tests: Iterator[tuple[Place, bool]]) -> Iterator[Any]:
    """The constants with which a value has been compared that it is not."""
    for test, outcome in tests:
        asked, holds = test.asserted(outcome)
        differs = asked.value.op == "compare" and asked.value.data == ("NotEq" if holds else "Eq")
        if differs and asked.operand(0).root == place:
            yield from _constant(asked.operand(1))


def _lacking(elements: Place, tests: Iterator[tuple[Place, bool]]) -> Iterator[Any]:
    """The constants of which a test has found that they are not among some elements."""
    for test, outcome in tests:
        asked, holds = test.asserted(outcome)
        lacks = asked.value.op == "compare" and asked.value.data == ("NotIn" if holds else "In")
        if lacks and asked.operand(1).root == elements:
            yield from _constant(asked.operand(0))


def _constant(place: Place) -> Iterator[Any]:
    """The constant that a value is, if it is one."""
    known = place.val.each
    yield from (o[2] for o in known if len(known) == 1 and o[0] == "const")


__all__ = ["is_excluded"]
