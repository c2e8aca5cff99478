"""Random numbers and orders: what a call draws, from whose generator, and how that differs between ranks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from validator.domains.spmd import NONE, Causes, held, only
from validator.flow.program.answers import Target
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, numbers_of, ways_back
from validator.flow.queries.origins import passed_from
from validator.flow.substitution import instantiated
from validator.flow.values import BOTTOM, Val, join
from validator.models import Row

ORDERING = frozenset({"shuffle", "permutation", "permuted", "sample"})  # methods of a generator that is made


def rows_of(call: Place) -> list[tuple[str, Row | None]]:
    """The library functions that a value may call, by their owners, with what the tables say of them."""
    models = call.flow.models
    found = []
    for o in call.operand(0).val.each if call.value.op == "call" else ():
        if o[0] == "ext":
            owner, _, name = o[1].rpartition(".")
            found.append((owner, models.call(o[1]) or models.method(owner, name) or _by_name(call)))
        elif o[0] == "top":
            found.append(("", _by_name(call)))
    return found


def _by_name(call: Place) -> Row | None:
    """The row of a method that drawing objects alone have, whoever it is called on."""
    row = call.flow.models.methods.get(call.method) if call.receiver is not None else None
    return row if row is not None and row.on == () and row.draws else None


def draws(call: Place) -> bool:
    """Whether a call draws random numbers or an order."""
    return any(
        row.result == "drawn" or row.orders or row.mixes is not None
        if row is not None
        else call.flow.models.library(owner).generates
        for owner, row in rows_of(call)
    )


def orders(call: Place) -> bool:
    """Whether a call draws an order: of something that it mixes, or of what it gives."""
    return any(
        row.orders or row.mixes is not None
        if row is not None
        else call.flow.models.library(owner).generates and call.method in ORDERING
        for owner, row in rows_of(call)
    )


def takes_seed(call: Place) -> bool:
    """Whether a call is given a seed: of a library, of a generator, or of the one draw that it makes."""
    seeding = {name for names in call.flow.models.seeds.values() for name in names}
    return any(o[0] == "ext" and o[1] in seeding for o in call.operand(0).val.each) or any(
        row is not None and (row.seed is not None or row.seeded is not None) for _, row in rows_of(call)
    )


def changes_nothing(call: Place) -> bool:
    """Whether a call makes something of its own, and leaves what it was given as it is."""
    rows = rows_of(call)
    return bool(rows) and all(row is not None and row.result and row.mixes is None for _, row in rows)


def drawn_apart(call: Place) -> Causes:
    """How what a call draws differs between ranks: as its generator or its seed, or as the state of the library."""
    for _, row in rows_of(call):
        if row is not None and row.shuffled is not None and _is_off(call.argument(*row.shuffled)):
            return NONE
        generator = generator_of(call, row)
        if generator is not None:
            return NONE if _is_alike_somewhere(generator) else held(generator.varies("rank", "member", "data"))
        if row is not None and row.draws:
            return state_of(call, row.draws)
    return NONE


def _is_off(switch: Place | None) -> bool:
    return switch is not None and switch.closed.is_const(False)


def _is_alike_somewhere(generator: Place) -> bool:
    """Whether a generator, or its seed, is known to be the same on all ranks on one of several ways to it: what callers
    are known to pass, where each rank draws one for itself if they pass none."""
    phis = (part for part in generator.parts if part.value.op == "phi")
    ways = (phi.value_at(number).closed for phi in phis for number in phi.value.args if number >= 0)
    return any(way.each and not way.v and all(o[0] == "const" and o[2] is not None for o in way.each) for way in ways)


def generator_of(call: Place, row: Row | None) -> Place | None:
    """What a call draws from that is not the state of a library: a generator, or a seed of its own."""
    seed = call.argument(*row.seeded) if row is not None and row.seeded is not None else None
    passed = (each for each in (call.argument("generator"), seed) if each is not None)
    given = next((each for each in passed if not each.closed.is_const(None)), None)
    return given or (call.receiver if row is None or not row.draws else None)


def state_of(call: Place, library: str) -> Causes:
    """How the state of a library differs between ranks where a call draws from it: as the seeds do that may be in force
    there; where none is known to be, as all that the program sets."""
    seeds = [only(seed.causes, "data") for seed in Seeds.of(call.flow, library).before(call)]
    if seeds:
        return frozenset().union(*seeds) if all(seeds) else NONE
    state: Causes = call.flow.solver.settled(("random", library)).v
    return only(state, "data")


def _first_yield(unit: Unit) -> int | None:
    return next(iter(numbers_of(unit, ("yield",))), None)


class Seed(NamedTuple):
    """A seed that may be in force: what is passed, if that is known, how it differs between ranks, and the calls that
    set it: the one that is followed back to, and the library's own."""

    value: Place | None
    causes: Causes
    call: Place
    own: Place


def _value(call: Place, seed: Val | None) -> Place | None:
    """What a call seeds with, if that is known and nothing is added to it."""
    return call.operand(1) if seed is not None and call.operand(1).val.v == seed.v else None


class Seeds:
    """The calls by which a program seeds the state of a library, and which of them are in force where it draws.

    A context manager may seed where it is entered, and give back the state where it is left: `fork_rng`, or one of the
    project that keeps the state."""

    def __init__(self, flow: Flow, library: str) -> None:
        flow.solver.settled(("random", library))  # what seeds is known then
        self.flow, self.kept = flow, flow.models.restores[library]
        rows = [(Place(flow, unit, number), seed) for unit, number, seed in flow.circumstances.seedings(library)]
        self.own = {(call.unit, call.number): seed for call, seed in rows}
        self.inside: dict[Unit, set[tuple[Unit, int]]] = {}  # by what is called: what it seeds, however deep below
        self.within: dict[Unit, set[tuple[Unit, int]]] = {}  # the same of what is no longer in force when it ends
        for unit, number in self.own:
            self._note(unit, (unit, number), Place(flow, unit, number))

    def _note(self, unit: Unit, own: tuple[Unit, int], call: Place) -> None:
        """Note what seeds inside a unit, by a call there, and inside of what calls that, as long as the seed stays in
        force behind the call."""
        given_back = any(self._gives_back(call.value_at(manager)) for manager in unit.managers(call.number))
        known = (self.within if given_back else self.inside).setdefault(unit, set())
        if own not in known:
            known.add(own)
            for caller, passed in () if given_back else self.flow.calls_of(unit):
                self._note(caller, own, Place(self.flow, caller, passed.site))

    def _all_inside(self, unit: Unit) -> set[tuple[Unit, int]]:
        return self.inside.get(unit, set()) | self.within.get(unit, set())

    @staticmethod
    def of(flow: Flow, library: str) -> Seeds:
        known: dict[str, Seeds] = flow.__dict__.setdefault("_seeds", {})
        if library not in known:
            known[library] = Seeds(flow, library)
        return known[library]

    def before(self, draw: Place) -> list[Seed]:
        """The seeds that may be in force where a call draws: of the last call that seeds on every way to it, in its
        function and in those that call it."""
        found: dict[tuple[Unit, int, int], Seed] = {}
        queue, seen = [draw], {draw.unit}
        for start in queue if self.own else ():
            for each in ways_back(start, self._changes):
                if each is not None and each.value.op == "leave" and self._changes(each):
                    entered = self._entered(each) if self._gives_back(each.operand(0)) else None
                    if entered is None:
                        found[each.unit, each.number, each.number] = Seed(None, NONE, each, each)
                    elif entered not in queue:
                        queue.append(entered)
                elif each is not None and self.is_seeding(each):
                    found.update(self._given(each))
                elif each is None and self._is_wrapped(start.unit):
                    found[start.unit, -1, -1] = Seed(None, NONE, start, start)
                elif each is None:
                    calls = [Place(draw.flow, caller, passed.site) for caller, passed in draw.flow.calls_of(start.unit)]
                    queue += [call for call in calls if call.unit not in seen]
                    seen.update(call.unit for call in calls)
        return list(found.values())

    def is_seeding(self, place: Place) -> bool:
        """Whether a value is a call that seeds, however deep below, or enters what does."""
        return place.value.op in ("call", "enter") and any(True for _ in self._within(place))

    def _within(self, call: Place) -> Iterator[tuple[Unit, int]]:
        """The calls that seed when this one runs; of a generator that is entered, those before its `yield`."""
        if (call.unit, call.number) in self.own:
            yield call.unit, call.number
        site = call.result.sites.get(call.number)
        for target in site.targets if site is not None else ():
            entered = call.value.op == "enter"
            first = _first_yield(target.unit) if entered else None
            for unit, number in self._all_inside(target.unit) if entered else self.inside.get(target.unit, ()):
                if first is None or unit is not target.unit or number < first:
                    yield unit, number

    def _changes(self, place: Place) -> bool:
        """Whether the state is another one behind a value: what seeds, and the end of a `with` that sets it."""
        if place.value.op != "leave":
            return self.is_seeding(place)
        units = self._managing(place)
        return self._gives_back(place.operand(0)) or any(map(self._all_inside, units))

    @staticmethod
    def _managing(leave: Place) -> list[Unit]:
        """What runs of the project where a context manager is left."""
        site = leave.result.sites.get(leave.number)
        targets = [target.unit for target in site.targets] if site is not None else []
        return [*targets, *(o[1] for o in leave.operand(0).val.of("generator"))]

    def _gives_back(self, manager: Place) -> bool:
        """Whether a context manager sets the state, where it is left, to what it was before: one of a library, or of
        the project that uses such a one or sets a state that was kept."""
        made = manager.root
        callee = made.operand(0).val.of("ext") if made.value.op == "call" else ()
        known = any(self.flow.models.named(o[1]) in self.flow.models.restores["with"] for o in callee)
        return known or any(self._keeps(o) for o in manager.val.each)

    def _keeps(self, o: tuple[Any, ...]) -> bool:
        method = o[1].find("__exit__") if o[0] in ("inst", "self") else None
        unit = self.flow.unit_of(method) if method is not None else o[1] if o[0] == "generator" else None
        if unit is None:
            return False
        sets = any(self._sets_kept(Place(self.flow, *own)) for own in self._all_inside(unit))
        entered = (Place(self.flow, unit, number).operand(0) for number in numbers_of(unit, ("enter",)))
        return sets or any(self._gives_back(each) for each in entered)

    def _sets_kept(self, call: Place) -> bool:
        return any(o[0] == "ext" and self.flow.models.named(o[1]) in self.kept for o in call.operand(0).val.each)

    @staticmethod
    def _entered(leave: Place) -> Place | None:
        """Where the context manager was entered that is left here."""
        rows = (leave.value_at(number) for number in numbers_of(leave.unit, ("enter",)))
        return next((each for each in rows if each.value.args == leave.value.args), None)

    def _is_wrapped(self, unit: Unit) -> bool:
        """Whether a decorator of the project puts something around a unit that seeds."""
        around = [] if unit.outer is None else [(unit.outer, number) for number in unit.outer.decorating(unit)]
        given = [Place(self.flow, outer, number).operand(0).root for outer, number in around]
        given += [each.operand(0) for each in given if each.value.op == "call"]
        queue = [o[1] for each in given for o in each.val.of("unit")]
        for each in queue:
            queue += self.flow.mentions.inner(each)
        return any(map(self._all_inside, queue))

    def _given(self, call: Place) -> Iterator[tuple[tuple[Unit, int, int], Seed]]:
        """The seeds that a call sets: of a function that it calls, what it passes."""
        for unit, number in self._within(call):
            own = Place(call.flow, unit, number)
            value = _value(own, self.own[unit, number])
            passed = passed_from(call, value) if value is not None and unit is not call.unit else value
            bound = passed is not None and passed != value
            told = passed.val if passed is not None and bound else self._brought(call, own, frozenset())
            causes = held(call.flow.close(told, call.unit).v) if told is not None else NONE
            yield (unit, number, call.number), Seed(passed, causes, call, own)

    def _brought(self, call: Place, own: Place, inside: frozenset[Unit]) -> Val | None:
        """The seed that a call sets by way of what it calls, in terms of its own function."""
        if call == own:
            return self.own[own.unit, own.number]
        site, found = call.result.sites.get(call.number), []
        for target in site.targets if site is not None else ():
            if target.unit in inside or (own.unit, own.number) not in self.inside.get(target.unit, ()):
                continue
            for number in numbers_of(target.unit, ("call",)):
                inner = Place(call.flow, target.unit, number)
                if (own.unit, own.number) in self._within(inner):
                    seed = self._brought(inner, own, inside | {target.unit})
                    found.append(None if seed is None else instantiated(seed, partial(_passed, target)))
        known = [seed for seed in found if seed is not None]
        return join(known) if known and len(known) == len(found) else None


def _passed(target: Target, position: int) -> Val:
    given = target.argument(position)
    return BOTTOM if given is None else given
