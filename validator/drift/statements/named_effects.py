"""The calls that are made for what they do, as the tables have them."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from typing import Any

from validator.drift.statements.differences import Statement
from validator.drift.statements.surroundings import called, last_name
from validator.files.tables import load_toml
from validator.flow.program.unit import Unit
from validator.models import models


@cache
def tables() -> dict[str, dict[str, Any]]:
    return load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "effects.toml"))


def table() -> dict[str, list[str]]:
    table: dict[str, list[str]] = tables()["effects"]
    return table


def firsts() -> dict[str, list[str]]:
    """By an effect the calls that must come after it."""
    table: dict[str, list[str]] = tables()["first"]
    return table


@cache
def named() -> frozenset[str]:
    """The last names of calls of libraries that are made for what they do."""
    return collective() | {
        name for key in ("training", "state", "writing", "waiting", "contexts") for name in table()[key]
    }


@cache
def collective() -> frozenset[str]:
    """The last names of the collectives of all libraries, but those that more other functions bear: `load`, `save`; of
    methods those that give the same on all ranks."""
    count = Counter[str]()
    for name, row in models().calls.items():
        count[name.rpartition(".")[2]] += 1 if row.is_collective else -1
    for name, row in models().methods.items():
        if (last := name.rpartition(".")[2]) not in count:
            count[last] += row.is_collective and row.result == "uniform"
    return frozenset(name for name, more in count.items() if more > 0)


@cache
def meeting() -> frozenset[str]:
    """The last names of what ranks meet in: collectives, and contexts that gather parameters."""
    return collective() | frozenset(table()["meeting"])


def sounds_collective(name: str) -> bool:
    """Whether the name of a function that nobody knows says that ranks meet in it: `allreduce_data`."""
    squeezed = name.replace("_", "").lower()
    return any(each in squeezed for each in _among_all())


@cache
def _among_all() -> frozenset[str]:
    return frozenset(name.replace("_", "") for name in of_torch() if name.startswith(("all_", "reduce_scatter")))


@cache
def filling() -> frozenset[str]:
    """The last names of the collectives of torch that fill a list or tensor which they are given."""
    return frozenset(name for name in of_torch() if "gather" in name or "all_to_all" in name or "scatter" in name)


def of_torch() -> list[str]:
    """The last names of collectives that no other library calls so."""
    rows = models().calls.items()
    wanted = [name for name, row in rows if row.is_collective and "torch" in name.partition(".")[0]]
    return sorted({name.rpartition(".")[2] for name in wanted})


def is_of_tables(statement: Statement | None, unit: Unit) -> bool:
    """Whether a statement is a call that libraries have for what it does, and of which a unit speaks no more at all."""
    call = called(statement.node) if statement is not None else None
    if call is None or (name := last_name(call.func)) not in named():
        return False
    return not any(value.op in ("attr", "name") and value.data == name for value in unit.code.values)
