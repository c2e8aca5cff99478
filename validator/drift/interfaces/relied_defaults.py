"""Defaults of parameters that a change altered, and the calls that relied on them.

Who turns a default round looks at the calls: those that asked for the new value need it no longer, those that want the
old one must ask for it now. Where a change wrote some of them so, one that passes nothing, as before, was left.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.binding import parameters
from validator.definitions import Method
from validator.drift.change import Change
from validator.drift.interfaces.calls import Site, sites
from validator.drift.interfaces.signatures import calls_before, outline, reaches
from validator.facts.model import Call, Param
from validator.flow.queries.outside_program import is_foreign, is_test


class Relying(NamedTuple):
    """A call that gets another value since a default changed. `adapted`: a call of the same that the change altered
    because of it; `passed`: whether that one asks for the old value now, or asks no longer for the new one."""

    site: Site
    method: Method
    name: str
    old: str
    new: str
    adapted: Site
    passed: bool


class ReliedDefaults:
    """The calls that a change of a default left behind."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Relying]:
        found: list[Relying] = []
        for before, after in self.change.modules:
            if before is not None and after is not None and not is_test(after.path) and not is_foreign(after.path):
                for name in before.functions.keys() & after.functions.keys():
                    method = after.functions[name]
                    for old, new in _changed_defaults(before.functions[name], method):
                        found += self._of_parameter(method, old, new)
        return found

    def _of_parameter(self, method: Method, old: Param, new: Param) -> Iterator[Relying]:
        target = method.cls if method.name == "__init__" and method.cls is not None else method
        rows = sites(self.change.after, target.name)
        places = [site for site in rows if reaches(site, target) and len(site.reached) == 1 and site.how == "call"]
        kept = [site for site in places if site.is_in(self.change.before) and not is_test(site.unit.path)]
        relying = [site for site in kept if passed_for(site.call, method, new.name) is None]
        if not relying or new.default is None or old.default is None:
            return
        for site in places:
            for earlier in calls_before(self.change.before, site).values():
                was, now = (passed_for(call, method, new.name) for call in (earlier, site.call))
                if (was, now) in ((new.default, None), (None, old.default)):
                    for each in relying:
                        yield Relying(each, method, new.name, old.default, new.default, site, now is not None)
                    return


def _changed_defaults(before: Method, after: Method) -> Iterator[tuple[Param, Param]]:
    """The parameters of a function whose default is another one, where it takes the same ones as before."""
    if outline(before.facts.params) == outline(after.facts.params):
        for old, new in zip(before.facts.params, after.facts.params, strict=True):
            if old.default != new.default:
                yield old, new


def passed_for(call: Call, method: Method, name: str) -> str | None:
    """What a call passes for a parameter, as text; None where it passes nothing, empty where that is not known."""
    if any(argument.keyword in ("*", "**") for argument in call.args):
        return ""
    given = call.keyword(name)
    if given is not None:
        return given.value
    positional = [p.name for p in parameters(method) or () if p.kind in ("pos", "any")]
    place = positional.index(name) if name in positional else len(call.args)
    return call.positional[place].value if place < len(call.positional) else None
