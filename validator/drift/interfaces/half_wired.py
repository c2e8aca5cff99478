"""Options that a change made of a constant in one place, and calls beside it that still go by the same constant.

`Projection(tokens=4)` asks for `args.tokens` since the change; `Processor()`, whose parameter `tokens` is 4 by default,
stands in the same function as before: whoever sets the option gets two numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import ClassDef, Method
from validator.drift.change import Change, Pair
from validator.drift.interfaces.calls import Site, params_of, sites
from validator.drift.interfaces.relied_defaults import passed_for
from validator.drift.statements.differences import Edit, in_head
from validator.drift.statements.drops import Drops
from validator.drift.statements.surroundings import last_name
from validator.flow.program.unit import Unit


class HalfWired(NamedTuple):
    """A call that still has by default what is an option since the change. `option`: as it is written at `line`."""

    site: Site
    called: str
    name: str
    default: str
    option: str
    line: int


class HalfWiredOptions:
    """The calls that the change of a constant to an option left behind."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[HalfWired]:
        found: dict[tuple[str, int], HalfWired] = {}
        for pair, _, _, edits in self.change.analysis(Drops).small:
            for edit in edits:
                for constant, option in _made_options(edit):
                    for row in self._left(pair, constant, option):
                        found.setdefault((row.site.unit.path, row.site.call.at[0]), row)
        return list(found.values())

    def _left(self, pair: Pair, constant: str, option: ast.expr) -> Iterator[HalfWired]:
        """The calls of the same function that are as they were, and have the constant by default."""
        name = last_name(option)
        for site in self._calls(pair.new):
            if site.is_in(self.change.before) and all(_has(site, each, name, constant) for each in site.reached):
                called = site.reached[0].name
                yield HalfWired(site, called, name, constant, ast.unparse(option), option.lineno)

    def _calls(self, unit: Unit) -> Iterator[Site]:
        """The calls in a unit of functions and classes of the project."""
        names = {
            str(v.data) for v in unit.code.values if v.op in ("name", "attr", "import") and isinstance(v.data, str)
        }
        for name in sorted(names & (self.change.after.methods.keys() | self._classes)):
            yield from (site for site in sites(self.change.after, name, {unit.module.source}) if site.unit is unit)

    @cached_property
    def _classes(self) -> frozenset[str]:
        return frozenset(cls.name for cls in self.change.after.project.classes())


def _has(site: Site, target: Method | ClassDef, name: str, constant: str) -> bool:
    """Whether what a call reaches has a constant by default for a parameter for which the call passes nothing."""
    param = next((each for each in params_of(target, site) or () if each.name == name), None)
    made = target if isinstance(target, Method) else target.find("__init__")
    return (
        param is not None
        and param.default == constant
        and made is not None
        and passed_for(site.call, made, name) is None
    )


def _made_options(edit: Edit) -> Iterator[tuple[str, ast.expr]]:
    """The constants of a statement in whose place something is asked for by a name since the change."""
    if edit.old is None or edit.new is None:
        return
    before, after = (_arguments(node) for node in (edit.old.node, edit.new.node))
    if before.keys() != after.keys():
        return
    for key, old in before.items():
        new = after[key]
        is_value = isinstance(old, ast.Constant) and old.value is not None and not isinstance(old.value, bool)
        if is_value and isinstance(new, ast.Name | ast.Attribute):
            yield ast.unparse(old), new


def _arguments(node: ast.stmt) -> dict[tuple[int, str], ast.expr]:
    """What the calls of a statement are passed, by the number of the call and the keyword or place."""
    found: dict[tuple[int, str], ast.expr] = {}
    calls = [each for each in in_head(node) if isinstance(each, ast.Call)]
    for number, call in enumerate(calls):
        found |= {(number, str(place)): each for place, each in enumerate(call.args)}
        found |= {(number, each.arg or "**"): each.value for each in call.keywords}
    return found
