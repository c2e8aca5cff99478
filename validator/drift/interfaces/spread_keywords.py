"""Keywords that no parameter names: a function reads them out of its `**kwargs`, by keys that a change altered.

Python takes any keyword for `**kwargs`. What is read out of it, where it arrives or where an object keeps it, is what
callers may pass; a call that passes the key of before is heard by nobody. Where a function has no `**kwargs`
any more, the calls fail that pass such a keyword through others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.analysis.interfaces.swallowed import keys_asked
from validator.definitions import ClassDef, Method, Module
from validator.drift.change import Change, Side
from validator.drift.interfaces.calls import Site, constructor, sites
from validator.drift.interfaces.signatures import Broken, passes_on, reaches
from validator.flow.callgraph.spelled_arguments import call_of
from validator.flow.objects import Held, Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test

_Target = Method | ClassDef


class SpreadKeywords:
    """The calls that pass a keyword which is read no longer."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def unread(self) -> list[Broken]:
        found: dict[tuple[str, int, str], Broken] = {}
        for broken in (*self._read_no_longer(), *self._swallowed(), *self._refused()):
            place = (broken.site.unit.path, broken.site.number, broken.site.unit.code.key)
            found.setdefault(place, broken)
        return list(found.values())

    def _read_no_longer(self) -> Iterator[Broken]:
        """The calls that pass a key which was read out of `**`."""
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
                    yield Broken(site, old, new, "unread", text)

    def _swallowed(self) -> Iterator[Broken]:
        """The calls that pass a keyword through others for a parameter that is gone: `**` takes it, nobody reads it."""
        for old, new in self._compared():
            lost = _named(old) - _named(new) - _keys(self.change.after, new)
            if not lost or not _takes_any(new) or passes_on(self.change.after, new):
                continue
            came = _named(new) - _named(old)
            now = f"; it has {', '.join(f'`{name}`' for name in sorted(came))} now" if came else ""
            for site in self._reaching(new):
                passed = [a.keyword for a in site.call.args if a.keyword in lost]
                if (
                    passed
                    and not reaches(site, new)
                    and self._is_asked_of(site, new)
                    and site.is_in(self.change.before)
                ):
                    text = f"has no `{passed[0]}` any more, which is passed here and vanishes in its `**`{now}"
                    yield Broken(site, old, new, "unread", text)

    def _is_asked_of(self, site: Site, target: _Target) -> bool:
        """Whether a call that reaches a function through others is made on an object of its class, where it has one."""
        call = Place(self.change.after.flow, site.unit, site.number)
        if isinstance(target, ClassDef) or target.cls is None:
            return True
        if call.receiver is None:
            return False
        held = self.change.after.project.analysis(Objects).held(call.receiver, call)
        return any(target in (cls.find(target.name), *_below(cls, target.name, held)) for cls in held.classes)

    def _refused(self) -> Iterator[Broken]:
        """The calls whose keywords other functions hand on to one that took any keyword, and takes none since the
        change but those that it names."""
        for old, new in self._compared():
            if not _takes_any(old) or _takes_any(new):
                continue
            for site in self._reaching(new, by_choice=True):
                if reaches(site, new):
                    continue  # a call of it, which is looked at by itself
                between = _named(site.reached[0])
                passed = [a.keyword for a in site.call.args if a.keyword and a.keyword not in _named(new) | between]
                if passed and site.is_in(self.change.before):
                    way = site.reached[0].name
                    text = f"takes no `{passed[0]}` any more, which `{way}` hands on and is passed here"
                    yield Broken(site, old, new, "unread", text)

    def _compared(self) -> Iterator[tuple[_Target, _Target]]:
        """The functions and classes of the change that take any keywords, before and after."""
        for old, new in self.change.classes:
            if not is_test(new.path) and not is_foreign(new.path):
                yield old, new
        for pair in self.change.pairs:
            methods = pair.methods
            if methods is not None and pair.new.name != "__init__" and not is_test(pair.new.path):
                yield methods

    def _reaching(self, target: _Target, by_choice: bool = False) -> Iterator[Site]:
        """The calls of a function or class, and those of functions that hand their own `**kwargs` on to it.
        `by_choice`: also those of a function that is chosen by its name, `getattr(models, args.model)(…)`."""
        waiting: list[_Target] = [target]
        seen: set[_Target] = set(waiting)
        while waiting:
            each = waiting.pop()
            chosen = self._chosen(each) if by_choice else ()
            for site in (*sites(self.change.after, each.name), *chosen):
                if not reaches(site, each) or site.how != "call":
                    continue
                yield site
                caller = site.unit.method
                if caller is not None and caller not in seen and _hands_on(site):
                    seen.add(caller)
                    waiting.append(caller)

    def _chosen(self, target: _Target) -> Iterator[Site]:
        """The calls of what a module has under a name that is not known, where that may be a function of it."""
        if "." in target.qualname:
            return
        for unit, number, module in self._choices:
            if module is target.module:
                yield Site(unit, number, call_of(unit, number), (target,), "call", sure=False)

    @cached_property
    def _choices(self) -> list[tuple[Unit, int, Module]]:
        """The calls whose callee is taken from a module by a name that is not written out."""
        side = self.change.after
        found = []
        for source in (*side.mentioning("getattr"), *side.mentioning("__dict__")):
            module = side.project.modules.get(source.absolute)
            for unit in side.units(module).values() if module is not None and not is_foreign(source.path) else ():
                for number, value in enumerate(unit.code.values):
                    owner = _chosen_from(Place(side.flow, unit, number)) if value.op == "call" else None
                    modules = [o[1] for o in owner.closed.of("module")] if owner is not None else []
                    found += [(unit, number, each) for each in modules if isinstance(each, Module)]
        return list(dict.fromkeys(found))


def _below(cls: ClassDef, name: str, held: Held) -> Iterator[Method]:
    """The methods of a name that classes below one have, where an object may be of these."""
    found = (each.find(name) for each in cls.descendants()) if cls in held.below else ()
    return (method for method in found if isinstance(method, Method))


def _chosen_from(call: Place) -> Place | None:
    """What `getattr(x, name)` or `x.__dict__[name]` is asked of, where that is called and no name is written out."""
    callee = call.operand(0).root
    if callee.value.op == "call" and callee.method == "getattr" and len(callee.value.args) > 2:
        return callee.operand(1) if callee.operand(2).val.constant() is None else None
    if callee.value.op == "item" and callee.operand(1).val.constant() is None:
        table = callee.operand(0).root
        return table.operand(0) if table.value.op == "attr" and table.value.data == "__dict__" else None
    return None


def _takes_any(target: _Target) -> bool:
    """Whether a function, or a class when it is made, takes any keyword."""
    params = constructor(target) if isinstance(target, ClassDef) else target.facts.params
    return params is None or any(param.kind == "**" for param in params)


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
