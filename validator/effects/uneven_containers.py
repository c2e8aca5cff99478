"""Loops over containers into which some ranks put something that the others do not: they make more rounds from then on.

A loop and what is put in meet where the container, or the object that holds it, is made: there both are known by one
path from that value, through whatever calls. What all ranks put in under the same key as well makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.domains.spmd import Causes, only, varying
from validator.effects.trace import Traces
from validator.flow.access_paths import Path
from validator.flow.control import reachable
from validator.flow.merging.phis import AS_LONG
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.changed_containers import (
    NEW,
    Change,
    Changes,
    Key,
    Site,
    first_keys,
    is_default,
    is_fresh,
    is_list,
    made_for_field,
    path_of,
    seen_from,
)
from validator.flow.values import Val

_WHOLE = AS_LONG | {"range", "len", "set", "frozenset"}
_VIEWS = frozenset({"items", "values", "keys", "copy"})


class Grown(NamedTuple):
    """What some ranks alone put into a container. `causes`: who does."""

    place: Place
    causes: Causes


class _Round(NamedTuple):
    """A loop as it is reached from a unit: by which path there the container, through which calls."""

    unit: Unit
    path: Path
    sites: tuple[Site, ...]


class UnevenContainers:
    """The loops of a program over containers that some ranks alone have put something into."""

    def __init__(self, traces: Traces) -> None:
        self.traces = traces
        self.flow = traces.flow

    def of(self, unit: Unit, header: int) -> Grown | None:
        """What some ranks alone put into the container through which a loop goes, before it."""
        if (unit, header) not in self._rounds:
            return None
        return next((grown for each in self._rounds[unit, header] for grown in self._put(each)), None)

    @cached_property
    def _rounds(self) -> dict[tuple[Unit, int], list[_Round]]:
        """By loop with collectives the units in which its container, or the object that holds it, is made."""
        found = {}
        for unit in self.traces.effectful:
            for repeat in self.traces.tracer(unit).repeats:
                loop = unit.code.loops[repeat.header]
                first = self._first(unit, loop.iterator) if loop.iterator >= 0 else None
                if first is not None:
                    found[unit, repeat.header] = list(self._made(first))
        return found

    def _first(self, unit: Unit, iterator: int) -> _Round | None:
        """A loop in its own unit, by where its container is read."""
        number, site = unit.code.values[iterator].args[0], iterator
        while (inner := self._inside(Place(self.flow, unit, number).root)) is not None:
            site, number = unit.root(number), inner
        path = path_of(self.flow, unit, number)
        return _Round(unit, path, ((unit, site),)) if path is not None else None

    @staticmethod
    def _inside(place: Place) -> int | None:
        """The container of which a call gives all elements, or their number."""
        if place.value.op != "call":
            return None
        callee = place.operand(0)
        if callee.value.op == "attr" and len(place.value.args) == 1:
            return int(callee.value.args[0]) if callee.value.data in _VIEWS else None
        models = place.flow.models
        wraps = any(o[0] == "ext" and models.named(o[1]) in _WHOLE for o in callee.val.each)
        return int(place.value.args[1]) if wraps and place.value.data.names[:1] == (None,) else None

    def _made(self, first: _Round) -> Iterator[_Round]:
        """A loop as it is seen where the object is made from which its container is reached."""
        seen, queue = {(first.unit, first.path)}, [first]
        for each in queue:
            root = each.unit.code.values[each.path[0]]  # type: ignore[index]
            if root.op != "param":
                yield each
                continue
            for caller, passed in self.flow.calls_of(each.unit):
                path = seen_from(self.flow, caller, passed.site, each.unit, each.path)
                site = self.flow.result(caller).sites.get(passed.site)
                alone = site is not None and len(site.targets) == 1 and not site.others
                if path is not None and alone and (caller, path) not in seen:
                    seen.add((caller, path))
                    queue.append(_Round(caller, path, ((caller, passed.site), *each.sites)))

    @cached_property
    def _changes(self) -> Changes:
        paths = (each.path for rounds in self._rounds.values() for each in rounds)
        return Changes(self.flow, frozenset(step[1:] for path in paths for step in path if isinstance(step, str)))

    # -- what is put in ------------------------------------------------------------------------------------

    def _put(self, each: _Round) -> Iterator[Grown]:
        """What some ranks alone put into the container of a loop that all come to."""
        unit = each.unit
        under = self.flow.solver.settled(("under", unit)).v
        tested = is_test(unit.path) and not is_test(each.sites[-1][0].path)
        if tested or _of_ranks(under) or any(self._chosen(*site) for site in each.sites):
            return
        changes = self._changes.of(unit)
        aliases = {c.path: c.stored for c in changes if c.kind == "store" and c.stored is not None}
        path = _by_first_name(each.path, aliases)
        here = [c for c in changes if _by_first_name(c.path, aliases) == path and c.kind != "store"]
        stores = [c for c in changes if c.kind == "store"]
        made = self._container(unit, path, stores)
        if made is None or any(c.kind == "take" for c in here):
            return
        adding = [c for c in here if c.kind == "put" or is_default(made)]
        known: set[Key] = set()
        if is_list(made):
            adding = [c for c in adding if c.key == NEW]
        else:
            known.update(first_keys(made), (c.key for c in adding if not self._causes(c, unit)))
        for change in adding:
            causes = self._causes(change, unit)
            opposite = any(_are_opposite(change, other) for other in adding)
            if not causes or not change.sure or opposite or _is_there(change.key, known):
                continue
            remade = any(_leads_to(change, c.sites, path) for c in stores if c.path == path[: len(c.path)])
            if _leads_to(change, each.sites, path) and not remade:
                yield Grown(self._where(change), causes)

    def _chosen(self, unit: Unit, number: int) -> Causes:
        """By what it varies between ranks who comes to a place in a unit."""
        found = (_of_ranks(self.flow.close(Val(v=v), unit).v) for v in self._changes.guards(unit, number))
        return frozenset(c for causes in found for c in causes)

    def _causes(self, change: Change, unit: Unit) -> Causes:
        """By what it varies between ranks who makes a change that is reached from a unit."""
        found = (_of_ranks(self.flow.close(Val(v=causes), unit).v) for causes in change.guards)
        return frozenset(c for causes in found for c in causes)

    def _where(self, change: Change) -> Place:
        """Where a reader sees that some ranks alone make a change."""
        site = next((site for site in change.sites if self._chosen(*site)), change.sites[-1])
        return Place(self.flow, *site)

    def _container(self, unit: Unit, path: Path, stores: list[Change]) -> Place | None:
        """Where the container at a path is made, if nothing else is ever stored there."""
        place: Place | None = Place(self.flow, unit, path[0])  # type: ignore[arg-type]
        for length, step in enumerate(path[1:], 2):
            rows = [c for c in stores if c.path == path[:length]]
            owner, place = place, None
            if len(rows) == 1:
                place = Place(self.flow, *rows[0].sites[-1]).operand(1).root
            elif owner is not None and not rows:
                place = made_for_field(owner, str(step)[1:])
        return place if place is not None and is_fresh(place) else None


def _of_ranks(causes: Causes) -> Causes:
    return only(varying(causes), "rank", "member")


def _by_first_name(path: Path, aliases: dict[Path, Path]) -> Path:
    """A path from where the object was made that is stored on the way."""
    seen = set()
    while path not in seen:
        seen.add(path)
        inner = next((n for n in range(len(path), 1, -1) if path[:n] in aliases), 0)
        path = (*aliases[path[:inner]], *path[inner:]) if inner else path
    return path


def _is_there(key: Key, known: Iterable[Key]) -> bool:
    """Whether a container may hold something under a key already, or get it from all ranks."""
    if key == NEW:
        return False
    several = frozenset(known)
    return bool(several) if key[0] != "const" else any(each == key or each[0] != "const" for each in several)


def _leads_to(change: Change, sites: tuple[Site, ...], path: Path) -> bool:
    """Whether what is done at some place may come after a change, with the same object still."""
    outermost = change.sites[0][0]
    for (unit, early), (_, late) in zip(change.sites, sites, strict=False):
        if early != late:
            return _leads(unit, early, late, path[0] if unit is outermost else -1)  # type: ignore[arg-type]
    return False  # one calls the other


def _leads(unit: Unit, early: int, late: int, made: int) -> bool:
    """Whether a way leads from a value to another one that does not come by a third."""
    blocks, values = unit.code.blocks, unit.code.values
    start, end = values[early].block, values[late].block
    if start == end and early < late:
        return not early < made < late
    stop = values[made].block if made >= 0 else -1
    if stop == end and made < late:
        return False
    ways = (*blocks[start].successors(), *blocks[start].handlers)
    return any(end in reachable(unit.code, but=stop, start=way) for way in ways)


def _are_opposite(change: Change, other: Change) -> bool:
    """Whether of two changes each rank makes one: they stand on different ways of one branch."""
    for (unit, one), (_, two) in zip(change.sites, other.sites, strict=False):
        if one != two:
            ways = dict(unit.control.settled(unit.code.values[one].block))
            others = dict(unit.control.settled(unit.code.values[two].block))
            return any(branch in others and others[branch] != way for branch, way in ways.items())
    return False
