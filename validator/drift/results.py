"""What functions give back, before and after a change, and the places that reckon with what they gave."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import ClassDef, Method
from validator.drift.calls import Site, sites
from validator.drift.change import Change, Pair, Side
from validator.drift.lost import is_telling
from validator.facts.model import At
from validator.flow.aside import is_foreign
from validator.flow.program import Unit
from validator.ir.model import Value

_WAITING = frozenset({
    "gather", "create_task", "ensure_future", "run", "wait_for", "run_until_complete", "as_completed", "append",
    "extend", "wait", "run_coroutine_threadsafe", "put", "shield", "submit", "run_async", "add", "start_soon",
})  # fmt: skip
_USING = frozenset({"attr", "item", "binary", "unary", "iter", "unpack", "store_item", "store_attr", "enter"})


class Shape(NamedTuple):
    """What a function gives back: how many values in a tuple (0: no tuple, -1: not known), which keys (None: not
    known), whether it gives a value at all."""

    length: int
    keys: frozenset[str] | None
    gives: bool


class Reckoned(NamedTuple):
    """A place that reckons with what a function gave before. `text`: what it does that fits no longer."""

    unit: Unit
    at: At
    old: Method
    new: Method
    text: str
    sure: bool


def shape(unit: Unit) -> Shape:
    code = unit.code
    returned = [code.values[unit.root(number)] for number in code.returned]
    valued = [value for value in returned if not (value.op == "const" and value.data is None)]
    lengths = {
        len(value.args) if value.op == "tuple" and not value.data else -1 if value.op != "dict" else 0
        for value in valued
    }
    length = lengths.pop() if len(lengths) == 1 else -1
    keys: frozenset[str] | None = frozenset()
    for value in valued:
        own = _keys(unit, value.args) if value.op == "dict" else None
        keys = keys | own if keys is not None and own is not None else None
    return Shape(length, keys if valued else None, bool(valued) or code.is_generator)


def _keys(unit: Unit, args: tuple[int, ...]) -> frozenset[str] | None:
    keys = [unit.code.values[key] if key >= 0 else None for key in args[::2]]
    if any(key is None or key.op != "const" or not isinstance(key.data, str) for key in keys):
        return None
    return frozenset(str(key.data) for key in keys if key is not None)


class Results:
    """The places that a change of results left behind."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after

    @cached_property
    def reckoned(self) -> list[Reckoned]:
        found: dict[tuple[str, At], Reckoned] = {}
        for pair in self.change.pairs:
            if pair.new.code.kind != "function" or (methods := pair.methods) is None or is_foreign(pair.new.path):
                continue
            for row in self._of_pair(pair, *methods):
                found.setdefault((row.unit.path, row.at), row)
        for pair in self.change.pairs:
            for row in self._no_longer_awaited(pair):
                found.setdefault((row.unit.path, row.at), row)
        return list(found.values())

    def _of_pair(self, pair: Pair, old: Method, new: Method) -> Iterator[Reckoned]:
        if self.change.before.is_property(old) != self.after.is_property(new):
            yield from self._kind(old, new)
            return
        if old.facts.is_async != new.facts.is_async and not new.facts.is_generator:
            yield from self._coroutine(old, new)
        before, after = shape(pair.old), shape(pair.new)
        if before == after or new.facts.is_abstract or new.facts.stub:
            return
        for site in sites(self.after, new.name):
            if new not in site.reached or site.how == "text" or not self._is_meant(site, new, before):
                continue
            sure = site.sure and len(site.reached) == 1
            for at, text in _misread(site, before, after):
                yield Reckoned(site.unit, at, old, new, text, sure)

    def _is_meant(self, site: Site, new: Method, before: Shape) -> bool:
        """Whether no other function that the call may reach gives what is reckoned with."""
        others = [each for each in site.reached if each is not new]
        if not others:
            return True
        return not any(self._gives(each, before) for each in others)

    def _gives(self, target: Method | ClassDef, wanted: Shape) -> bool:
        unit = self.after.unit_of(target) if isinstance(target, Method) else None
        if unit is None:
            return True
        found = shape(unit)
        return found.length in (-1, wanted.length) or found.keys is not None and found.keys == wanted.keys

    def _kind(self, old: Method, new: Method) -> Iterator[Reckoned]:
        """A property that is a method now, or the other way round."""
        for row in self.after.occurrences(new.name):
            unit = row.unit
            if unit is None or row.role != "asks" or row.kind != "attribute" or new.cls is None:
                continue
            classes = self.after.classes_of(unit, row.number)
            kin = set(new.cls.relatives)
            if not (classes and all(each in kin for each in classes)) and not (
                not classes and is_telling(new.name) and len(self.after.methods.get(new.name, ())) == 1
            ):
                continue
            if not _stood(self.change.before, unit, row.at):
                continue
            users = [unit.code.values[user] for user in unit.users.get(row.number, ())]
            called = any(user.op == "call" and user.args[0] == row.number for user in users)
            if self.after.is_property(new) and called:
                yield Reckoned(unit, row.at, old, new, "calls what is a property now", bool(classes))
            elif not self.after.is_property(new) and not called:
                yield Reckoned(unit, row.at, old, new, "takes a method for the value that it gives", bool(classes))

    def _coroutine(self, old: Method, new: Method) -> Iterator[Reckoned]:
        for site in sites(self.after, new.name):
            if new not in site.reached or site.how == "text":
                continue
            if any(isinstance(each, Method) and each.facts.is_async == old.facts.is_async for each in site.reached):
                continue
            if _is_remote(site):
                continue
            sure = site.sure and len(site.reached) == 1
            awaited = _awaited(site.unit, site.number)
            if new.facts.is_async and not awaited and _is_used(site.unit, site.number):
                yield Reckoned(site.unit, site.call.at, old, new, "does not await what is a coroutine now", sure)
            elif old.facts.is_async and awaited:
                yield Reckoned(site.unit, site.call.at, old, new, "awaits what is no coroutine any more", sure)

    def _no_longer_awaited(self, pair: Pair) -> Iterator[Reckoned]:
        """Calls of coroutines that were awaited and are not any more."""
        lost = _awaits(pair.old) - _awaits(pair.new)
        for name in sorted(lost):
            for site in sites(self.after, name):
                if site.unit is not pair.new or _is_remote(site) or not site.reached:
                    continue
                first = site.reached[0]
                if not all(isinstance(each, Method) and each.facts.is_async for each in site.reached):
                    continue
                awaited = _awaited(pair.new, site.number)
                if isinstance(first, Method) and not awaited and _is_used(pair.new, site.number):
                    text = "no longer awaits the coroutine"
                    yield Reckoned(pair.new, site.call.at, first, first, text, site.sure)


def _awaits(unit: Unit) -> set[str]:
    """The names of what is called and awaited in a unit."""
    found = set()
    for value in unit.code.values:
        if value.op == "await":
            call = unit.code.values[value.args[0]]
            callee = unit.code.values[call.args[0]] if call.op == "call" else call
            if callee.op in ("attr", "name"):
                found.add(str(callee.data))
    return found


def _is_remote(site: Site) -> bool:
    callee = site.unit.code.values[site.unit.code.values[site.number].args[0]]
    return callee.op == "attr" and callee.data in ("remote", "submit")


def _awaited(unit: Unit, number: int) -> bool:
    return any(unit.code.values[user].op == "await" for user in unit.users.get(number, ()))


def _is_used(unit: Unit, number: int) -> bool:
    """Whether a result is dropped, taken apart as no coroutine can be, or handed to what waits for none."""
    users = [unit.code.values[user] for user in unit.users.get(number, ()) if unit.code.values[user].op != "mut"]
    if not users:
        return all(block.end[1] != number for block in unit.code.blocks if block.end[0] in ("return", "branch"))
    if any(user.op in _USING for user in users):
        return True
    calls = [user for user in users if user.op == "call" and number in user.args[1:]]
    return bool(calls) and all(_callee(unit, call) not in _WAITING for call in calls)


def _callee(unit: Unit, call: Value) -> str:
    callee = unit.code.values[call.args[0]]
    return str(callee.data) if callee.op in ("attr", "name") else ""


def _stood(side: Side, unit: Unit, at: At) -> bool:
    """Whether the line of a place stood in the same file before."""
    source = next((s for s in side.project.files.values() if s.path == unit.path), None)
    line = unit.module.source.text.split("\n")[at[0] - 1].strip()
    return source is not None and any(line == other.strip() for other in source.text.split("\n"))


def _misread(site: Site, before: Shape, after: Shape) -> Iterator[tuple[At, str]]:
    """Where the result of a call is taken apart as it was and is no longer."""
    unit, code = site.unit, site.unit.code
    for number in _carried(unit, site.number):
        for user in unit.users.get(number, ()):
            value = code.values[user]
            if value.op == "unpack" and value.data[2] < 0 and value.data[0] == 0:
                wanted = value.data[1]
                if before.length == wanted and after.length > 0 and after.length != wanted:
                    yield site.call.at, f"unpacks {wanted} values, it gives {after.length} now"
                elif before.length == wanted and not after.gives:
                    yield site.call.at, f"unpacks {wanted} values, it gives none now"
            elif value.op == "item":
                key = code.values[value.args[1]]
                if (
                    key.op == "const"
                    and before.keys
                    and after.keys is not None
                    and key.data in before.keys - after.keys
                ):
                    yield unit.at(value.at), f"asks for the key {key.data!r}, which the result no longer has"
                elif key.op == "const" and isinstance(key.data, int) and 0 < after.length <= key.data < before.length:
                    yield unit.at(value.at), f"asks for item {key.data}, it gives {after.length} values now"


def _carried(unit: Unit, number: int) -> Iterator[int]:
    """A result, and what it is after `await` and `ray.get`."""
    yield number
    for user in unit.users.get(number, ()):
        value = unit.code.values[user]
        if value.op == "await":
            yield from _carried(unit, user)
        elif value.op == "call" and len(value.args) == 2 and value.args[1] == number:
            callee = unit.code.values[value.args[0]]
            owner = unit.code.values[callee.args[0]] if callee.op == "attr" else callee
            if callee.op == "attr" and callee.data == "get" and owner.op == "name" and owner.data == "ray":
                yield from _carried(unit, user)
