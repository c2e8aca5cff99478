"""Results of which a flag decides the shape, where a change turned the flag's default.

`def encoded(texts, with_mask=True)` gives two values to whoever does not say `with_mask`, and gave one. The callers
that say nothing stand as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import Method
from validator.drift.change import Change
from validator.drift.interfaces.calls import Site, params_of, sites
from validator.drift.interfaces.result_shapes import Form, Forms, FormsOf, is_asked, shown, uses
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test

_FLAGS = {"True": True, "False": False, "None": False}


class Defaulted(NamedTuple):
    """A call that leaves a flag to its default and takes the result as it was."""

    site: Site
    new: Method
    flag: str
    before: Forms
    after: Forms

    @property
    def text(self) -> str:
        was, now = (shown(each) if _several(each) else "one value" for each in (self.before, self.after))
        return f"takes {was}, and gets {now} by the default of `{self.flag}` since the change"


class ResultDefaults:
    """The calls that a turned default gives another result."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.forms = FormsOf(change.after)

    @cached_property
    def left(self) -> list[Defaulted]:
        found: list[Defaulted] = []
        for old, new in self.change.modules:
            if old is None or new is None or is_foreign(new.path):
                continue
            for qualname, method in new.functions.items():
                earlier = old.functions.get(qualname)
                for flag, was, now in _turned(earlier, method) if earlier is not None else ():
                    found += self._of(method, flag, was, now)
        return found

    def _of(self, method: Method, flag: str, was: bool, now: bool) -> Iterator[Defaulted]:
        unit = self.change.after.unit_of(method)
        if unit is None or method.facts.stub or unit.code.is_generator:
            return
        before, after = (self._given(unit, flag, value) for value in (was, now))
        if before == after or not (_several(before) or _several(after)):
            return
        for site in sites(self.change.after, method.name):
            if site.reached != (method,) or site.how != "call" or is_test(site.unit.path):
                continue
            if not _says(site, method, flag) and site.is_in(self.change.before) and _takes(site, before, after):
                yield Defaulted(site, method, flag, before, after)

    def _given(self, unit: Unit, flag: str, value: bool) -> Forms:
        """What a function gives back where a flag has a value."""
        found: set[Form | None] = set()
        for block in _reached(unit, flag, value):
            end = unit.code.blocks[block].end
            if end[0] == "return":
                found |= self.forms.of_value(unit, end[1])
        return frozenset(found)


def _turned(old: Method, new: Method) -> Iterator[tuple[str, bool, bool]]:
    """The flags of a function whose default is the other one now."""
    before = {each.name: each.default for each in old.facts.params}
    for each in new.facts.params:
        was, now = _FLAGS.get(str(before.get(each.name))), _FLAGS.get(str(each.default))
        if was is not None and now is not None and was != now:
            yield each.name, was, now


def _reached(unit: Unit, flag: str, value: bool) -> set[int]:
    """The blocks that run where a parameter is true, or not."""
    found, waiting = set[int](), [0]
    while waiting:
        number = waiting.pop()
        if number in found:
            continue
        found.add(number)
        block = unit.code.blocks[number]
        known = _known(unit, block.end[1], flag, value) if block.end[0] == "branch" else None
        waiting += block.successors() if known is None else [block.end[2 if known else 3]]
        waiting += block.handlers
    return found


def _known(unit: Unit, number: int, flag: str, value: bool) -> bool | None:
    """What a test comes to that asks for the flag alone."""
    test = unit.code.values[number]
    if test.op == "param":
        return value if test.data[1] == flag else None
    if test.op == "unary" and test.data == "Not":
        inner = _known(unit, test.args[0], flag, value)
        return None if inner is None else not inner
    return None


def _several(forms: Forms) -> bool:
    """Whether what is given is surely a known number of values."""
    return bool(forms) and all(form is not None and form.kind == "tuple" and form.parts for form in forms)


def _says(site: Site, method: Method, flag: str) -> bool:
    """Whether a call gives a flag a value, or may do so."""
    if any(arg.keyword in (flag, "*", "**") for arg in site.call.args):
        return True
    names = [param.name for param in params_of(method, site) or ()]
    given = sum(arg.keyword is None for arg in site.call.args)
    return flag not in names or names.index(flag) < given


def _takes(site: Site, before: Forms, after: Forms) -> bool:
    """Whether a call takes its result apart as it was: it unpacks what is one value now, or uses as one what are
    several."""
    unit, number = site.unit, site.number
    if is_asked(unit, number):
        return False
    done = {use for use, _, _ in uses(unit, number)}
    apart = any(use.kind == "unpack" or use.kind == "item" and isinstance(use.what, int) for use in done)
    if _several(before):
        return apart
    users = [user for user in unit.users.get(number, ()) if unit.code.values[user].op not in ("mut", "phi")]
    return _several(after) and not apart and bool(users)
