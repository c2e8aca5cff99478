"""Configurations that come from files, and their sections: what they hold is asked of the files, not of the solver.

A section is known by the calls that read its file, as a parser is by those that made it, or by the program that Hydra
starts, and by the keys that lead to it. So the flow does not depend on what recipes there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validator.flow.values import BOTTOM, TOP, UNKNOWN, Obj, Val

if TYPE_CHECKING:
    from validator.flow.program.unit import Unit

_LINKS = 8  # of a path of keys: in a loop that goes down a tree there is no end of them
_OPENING = frozenset({"open", "read_text", "read", "read_bytes"})
_SAME = frozenset({"enter", "mut", "await"})


def loaded(unit: Unit, number: int) -> Val:
    """What a call of a library reads from a file: `yaml.safe_load(file)`, `OmegaConf.load(path)`."""
    return _section(((unit, number),), "")


def of_program(unit: Unit) -> Val:
    """The configuration that Hydra gives to the function with which a program starts; BOTTOM of another function."""
    function = unit.method
    if function is None or "hydra" not in function.module.source.text:
        return BOTTOM
    if not any(each.removesuffix("()") in ("hydra.main", "main") for each in function.facts.decorators):
        return BOTTOM
    return _section(((unit, None),), "")


def below(o: Obj, key: object) -> Val:
    """What stands in a section under a key."""
    _, calls, path = o
    if not isinstance(key, str) or "." in key or path.count(".") > _LINKS:
        return UNKNOWN
    return _section(calls, f"{path}.{key}" if path else key)


def path_of(unit: Unit, number: int) -> int | None:
    """The path that is opened for what a call reads: `with open(path) as file`, `Path(path).read_text()`."""
    given = unit.code.values[number].args[1:2]
    return _opened(unit, given[0]) if given else None


def _section(calls: tuple[Any, ...], path: str) -> Val:
    return Val(frozenset({TOP, ("section", calls, path)}), state=UNKNOWN.state)


def _opened(unit: Unit, number: int) -> int:
    values = unit.code.values
    root = unit.root(number)
    while values[root].op in _SAME:
        root = unit.root(values[root].args[0])
    value = values[root]
    callee = values[unit.root(value.args[0])] if value.op == "call" else None
    if callee is not None and callee.op == "attr" and callee.data in _OPENING:
        return _opened(unit, callee.args[0])
    if callee is not None and callee.op in ("name", "free") and callee.data in ("open", "Path") and value.args[1:]:
        return value.args[1]
    return root
