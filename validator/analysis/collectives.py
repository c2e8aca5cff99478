"""The table of collectives: which calls every rank of a group must make together, and which values name a rank."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Any, NamedTuple

from validator.facts.model import Call

# A dimension of the device mesh, as the field writes it in the names of groups, ranks and meshes.
_DIMENSIONS = (
    ("tp", re.compile(r"(?:^|_|\b)(tp|tensor|mp|model_parallel)(?:_|\b|$)")),
    ("cp", re.compile(r"(?:^|_|\b)(cp|ring|context|sp|sequence|ulysses)(?:_|\b|$)")),
    ("pp", re.compile(r"(?:^|_|\b)(pp|pipe|pipeline|stage)(?:_|\b|$)")),
    ("ep", re.compile(r"(?:^|_|\b)(ep|expert|etp)(?:_|\b|$)")),
    ("dp", re.compile(r"(?:^|_|\b)(dp|data|fsdp|replicate|shard)(?:_|\b|$)")),
)
WORLD = ""


class Collective(NamedTuple):
    """A row of the table. `group`: the parameter with the process group and its position (-1: keyword only)."""

    name: str
    group: tuple[str, int] | None
    world: bool
    uniform: bool


class Table(NamedTuple):
    """The tables of `collectives.toml`, ready for look-up."""

    calls: dict[str, Collective]
    methods: dict[str, tuple[Collective, tuple[str, ...]]]
    rank_calls: frozenset[str]
    rank_methods: frozenset[str]
    rank_attributes: frozenset[str]
    rank_names: frozenset[str]
    environment: frozenset[str]
    stages: frozenset[str]


@lru_cache(maxsize=8)
def table(extra: tuple[str, ...] = ()) -> Table:
    """The built-in table, extended by TOML files of the same shape. Raises OSError and ValueError for those."""
    from validator.tables import load_toml

    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "collectives.toml")
    calls: dict[str, Collective] = {}
    methods: dict[str, tuple[Collective, tuple[str, ...]]] = {}
    ranks: dict[str, set[str]] = {}
    for path in (here, *extra):
        data = load_toml(path)
        for name, row in data.get("calls", {}).items():
            calls[name] = _collective(name.rpartition(".")[2], row)
        for name, row in data.get("methods", {}).items():
            methods[name] = (_collective(name, row), tuple(row.get("on", ())))
        for key, values in data.get("ranks", {}).items():
            ranks.setdefault(key, set()).update(values)
    sets = (frozenset(ranks.get(k, ())) for k in ("calls", "methods", "attributes", "names", "environment", "stages"))
    return Table(calls, methods, *sets)


def _collective(name: str, row: dict[str, Any]) -> Collective:
    group = row.get("group")
    return Collective(
        name, (group[0], group[1]) if group else None, bool(row.get("world")), row.get("result") == "uniform"
    )


def dimension(text: str) -> str:
    """The parallel dimension that a name speaks of: `self.ring_attn_group` -> `cp`; empty when it speaks of none."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    return next((name for name, pattern in _DIMENSIONS if pattern.search(words)), "")


def group_of(row: Collective, call: Call) -> str:
    """The text of the process group that a call uses; `WORLD` for the default group."""
    if row.world or row.group is None:
        return WORLD
    name, position = row.group
    argument = call.keyword(name)
    if argument is None and 0 <= position < len(call.positional):
        argument = call.positional[position]
    if argument is None or argument.value == "None" or argument.value.endswith("group.WORLD"):
        return WORLD
    return argument.value + ("()" if argument.kind == "call" else "")
