"""What a place gives a value under a name, or asks for one: the object, how it is called, the names beside."""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.names.occurrences import Occurrence, variable_or_link
from validator.drift.names.removed import asked_of


def link_at(row: Occurrence) -> str:
    """The last name before a name, of what is given it or asked for it."""
    number = owner_at(row) if row.role == "defines" else -1
    if row.unit is None or row.number < 0:
        return row.link
    number = number if number >= 0 else asked_of(row.unit, row)
    return variable_or_link(row.unit, number) if number >= 0 and not row.unit.is_receiver(number) else ""


def owner_at(row: Occurrence) -> int:
    """The object to which a place gives a value; the call that passes it; -1 outside of Python."""
    if row.unit is None:
        return -1
    unit, values = row.unit, row.unit.code.values
    if row.kind == "keyword":
        if row.number >= 0:
            return row.number
        return next((n for n, v in enumerate(values) if v.op == "call" and _passes(row, v.data.names, v.args)), -1)
    if row.number < 0:
        return -1  # a parameter, a key of `locals()`
    value = values[row.number]
    if value.op == "store_attr":
        return unit.root(value.args[0])
    for user in unit.users.get(row.number, ()):
        made = values[user]
        if made.op == "dict" and row.number in made.args[::2]:
            return user
        if made.op == "store_item" and made.args[1] == row.number:
            return unit.root(made.args[0])
        if made.op == "call" and len(made.args) == 4 and made.args[2] == row.number:
            return unit.root(made.args[1])
    return -1


def _passes(row: Occurrence, names: tuple[str | None, ...], args: tuple[int, ...]) -> bool:
    assert row.unit is not None
    values = row.unit.code.values
    return any(
        name == row.name and row.unit.at(values[number].at) == row.at
        for name, number in zip(names, args[1:], strict=True)
    )


def given_with(row: Occurrence) -> Iterator[tuple[str, int]]:
    """The names that are given with one, each with its value."""
    assert row.unit is not None
    unit, values, owner = row.unit, row.unit.code.values, owner_at(row)
    if owner < 0:
        return
    made = values[owner]
    if made.op == "dict":
        pairs = zip(made.args[::2], made.args[1::2], strict=True)
        yield from ((values[key].data, held) for key, held in pairs if key >= 0 and isinstance(values[key].data, str))
    if made.op == "call" and row.kind == "keyword":
        given = zip(made.data.names, made.args[1:], strict=True)
        yield from ((name, held) for name, held in given if name not in (None, "*", "**"))
    for value in values:
        if value.op == "store_attr" and unit.root(value.args[0]) == owner:
            yield value.data, value.args[1]
        elif (
            value.op == "store_item"
            and unit.root(value.args[0]) == owner
            and isinstance(values[value.args[1]].data, str)
        ):
            yield values[value.args[1]].data, value.args[2]


def is_of_another(row: Occurrence, link: str) -> bool:
    """Whether a place gives or asks for an attribute of an object that is called otherwise."""
    if row.unit is None or row.number < 0 or row.kind not in ("attribute", "getattr"):
        return False
    return link_at(row) not in ("", link)
