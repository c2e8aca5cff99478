"""Keywords that no parameter names: a function reads them out of its `**kwargs`, by keys that a change altered.

Python takes any keyword for `**kwargs`. What is read out of it, where it arrives or where an object keeps it, is what
callers may pass; a call that passes the key of before is heard by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.analysis.interfaces.swallowed import keys_asked
from validator.definitions import ClassDef, Method
from validator.drift.change import Change, Side
from validator.drift.interfaces.calls import Site, constructor, sites
from validator.drift.interfaces.signatures import Broken, passes_on, reaches
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test

_Target = Method | ClassDef


class SpreadKeywords:
    """The calls that pass a keyword which is read no longer."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def unread(self) -> list[Broken]:
        found: dict[tuple[str, int, str], Broken] = {}
        for old, new in self._compared():
            before, after = _keys(self.change.before, old), _keys(self.change.after, new)
            gone, came = before - after - _named(new), after - before - _named(old)
            if not gone or not came and passes_on(self.change.after, new):
                continue
            now = f"; it reads {', '.join(f'`{key}`' for key in sorted(came))} now" if came else ""
            for site in self._reaching(new):
                passed = [a.keyword for a in site.call.args if a.keyword in gone]
                if passed and site.is_in(self.change.before):
                    text = f"reads `{passed[0]}` out of its `**` no longer, which is passed here{now}"
                    place = (site.unit.path, site.number, site.unit.code.key)
                    found.setdefault(place, Broken(site, old, new, "unread", text))
        return list(found.values())

    def _compared(self) -> Iterator[tuple[_Target, _Target]]:
        """The functions and classes of the change that take any keywords, before and after."""
        for old, new in self.change.classes:
            if not is_test(new.path) and not is_foreign(new.path):
                yield old, new
        for pair in self.change.pairs:
            methods = pair.methods
            if methods is not None and pair.new.name != "__init__" and not is_test(pair.new.path):
                yield methods

    def _reaching(self, target: _Target) -> Iterator[Site]:
        """The calls of a function or class, and those of functions that hand their own `**kwargs` on to it."""
        waiting: list[_Target] = [target]
        seen: set[_Target] = set(waiting)
        while waiting:
            each = waiting.pop()
            for site in sites(self.change.after, each.name):
                if not reaches(site, each) or site.how != "call":
                    continue
                yield site
                caller = site.unit.method
                if caller is not None and caller not in seen and _hands_on(site):
                    seen.add(caller)
                    waiting.append(caller)


def _keys(side: Side, target: _Target) -> frozenset[str]:
    """The keys that a function, or the methods of a class, read out of the `**` that it takes."""
    method = target.find("__init__") if isinstance(target, ClassDef) else target
    unit = side.unit_of(method) if method is not None else None
    if unit is None or isinstance(target, ClassDef) and method is not None and method.cls is not target:
        return frozenset()
    taken = [n for n, value in enumerate(unit.code.values) if value.op == "param" and _is_spread(unit, n)]
    found = {key for number in taken for key in _looked_up(unit, number)}
    kept = {v.data for v in unit.code.values if v.op == "store_attr" and unit.root(v.args[1]) in taken}
    for other in side.units(unit.module).values() if kept else ():
        if other.cls is not None and other.cls is unit.cls:
            for number, value in enumerate(other.code.values):
                if value.op == "attr" and value.data in kept and other.is_receiver(value.args[0]):
                    found.update(_looked_up(other, number))
    return frozenset(found)


def _is_spread(unit: Unit, number: int) -> bool:
    return dict(unit.code.params).get(str(unit.code.values[number].data[1])) == "**"


def _looked_up(unit: Unit, number: int) -> Iterator[str]:
    """The keys that are looked up in a dictionary, or asked for."""
    for user in unit.users.get(number, ()):
        yield from keys_asked(unit, number, user) or ()


def _named(target: _Target) -> frozenset[str]:
    params = constructor(target) or () if isinstance(target, ClassDef) else target.facts.params
    return frozenset(param.name for param in params)


def _hands_on(site: Site) -> bool:
    """Whether a call spreads the `**` that the function around it takes."""
    call = site.unit.code.values[site.number]
    spread = (each for name, each in zip(call.data.names, call.args[1:], strict=True) if name == "**")
    roots = (site.unit.root(each) for each in spread)
    return any(site.unit.code.values[root].op == "param" and _is_spread(site.unit, root) for root in roots)
