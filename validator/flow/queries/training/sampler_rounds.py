"""Whether a sampler is told its epoch in each round of the loop that goes through its data again and again."""

from __future__ import annotations

from typing import NamedTuple

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.flow.queries.escapes import Holders, Index, argument_of
from validator.flow.values import Val

_TELLING = "set_epoch"
_SAMPLERS = frozenset({"sampler", "batch_sampler"})


class Made(NamedTuple):
    """A loader, or the call that gives one of its own: `calls` lead to it from the function that makes it."""

    place: Place
    calls: tuple[Place, ...] = ()


class Untold(NamedTuple):
    """A sampler that does not learn which epoch it is, and the loader through which a program goes; `alone`: whether
    there is no other loader with what the same call makes."""

    loader: Made
    why: str
    alone: bool
    units: frozenset[Unit]  # that go through it


class Rounds:
    """Answers for one project."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.index = Index(queries.flow)

    def untold(self, sampler: Place) -> list[Untold]:
        """The loaders of a sampler that make more than one epoch, of which it does not learn which one it is; none
        where it may, or where not all is seen that holds it."""
        held = Holders(self.queries.flow, self.index, sampler.unit, sampler.number)
        loaders = [Place(self.queries.flow, *given) for given in held.given]
        if held.escapes or held.gathered or not loaders or not all(_takes(loader, held) for loader in loaders):
            return []
        made = [each for loader in loaders for each in self._given(loader)]
        uses = [(each, _Use(self, each.place)) for each in made]
        if any(not use.is_known for each, use in uses if not each.calls):
            return []
        telling = [Place(self.queries.flow, unit, number) for unit, number, name in held.called if name == _TELLING]
        rows = ((each, use, use.untold(sampler, telling)) for each, use in uses if use.is_known)
        return [Untold(each, why, len(made) == 1, use.units) for each, use, why in rows if why]

    def _given(self, loader: Place) -> list[Made]:
        """What gives a loader of its own each: the calls of the function that makes it, if that only gives it back."""
        found, queue, seen = [], [Made(loader)], {loader.unit}
        for each in queue:
            calls = self.queries.calls_of(each.place.unit) if _is_given_back(each.place) else []
            if not calls or any(call.unit in seen for call in calls):
                found.append(each)
                continue
            queue += [Made(call, (*each.calls, call)) for call in calls]
        return found

    def is_in_loop(self, place: Place, made: Place | None = None, held: Holders | None = None) -> bool:
        """Whether something is done in the rounds of a loop, in its function or where that is called; of one in which
        a sampler is made anew it does not count. `held`: what holds the object that it is done to; a function that is
        passed it has only the callers that do."""
        making = self.queries.reaching([made.unit]) if made is not None else frozenset[Unit]()
        holding = {unit for unit, _ in held.held} if held is not None else set()
        passed = {u for u, n in held.held if u.code.values[n].op == "param" and not u.is_receiver(n)} if held else set()
        queue, seen = [place], set[Unit]()
        for each in queue:
            loops = each.unit.control.loops_around(each.value.block)
            if any(not self._makes(each.unit, header, made, making) for header in loops):
                return True
            if each.unit not in seen:
                seen.add(each.unit)
                callers = [(unit, run.site) for unit, run in self.queries.flow.runs_of(each.unit)]
                queue += [
                    Place(each.flow, unit, site) for unit, site in callers if each.unit not in passed or unit in holding
                ]
        return False

    def _makes(self, unit: Unit, header: int, made: Place | None, making: frozenset[Unit]) -> bool:
        """Whether a round of a loop makes a sampler, itself or in what it calls."""
        inside = {header, *blocks_of(unit.code, header)}
        if made is not None and made.unit is unit and made.value.block in inside:
            return True
        calls = self.queries.calls_in(unit) if making else iter(())
        return any(call.value.block in inside and not making.isdisjoint(self.queries.targets(call)) for call in calls)


class _Use:
    """What a program does with a loader. `is_known`: whether all of that is seen."""

    def __init__(self, rounds: Rounds, loader: Place) -> None:
        flow = loader.flow
        self.rounds = rounds
        self.held = Holders(flow, rounds.index, loader.unit, loader.number, whole=True)
        parts = [
            Holders(flow, rounds.index, unit, number) for unit, number, name in self.held.parts if name in _SAMPLERS
        ]
        self.telling = [Place(flow, *call[:2]) for part in parts for call in part.called if call[2] == _TELLING]
        self.going = [Place(flow, *each) for each in self.held.gone_through]
        lost = any(each.escapes or each.gathered or each.given for each in (self.held, *parts))
        told = any(name == _TELLING for _, _, name in self.held.called)
        self.is_known = bool(self.going) and not lost and not told

    @property
    def units(self) -> frozenset[Unit]:
        """The units that go through the loader, themselves or by a generator that is passed it."""
        flow, found = self.rounds.queries.flow, {place.unit for place in self.going}
        holding = {unit for unit, _ in self.held.held}
        return frozenset(found | {unit for each in found for unit, _ in flow.runs_of(each) if unit in holding})

    def untold(self, sampler: Place, telling: list[Place]) -> str:
        """Why the sampler does not learn the epoch; empty where it may, or there is one epoch only."""
        if not any(self.rounds.is_in_loop(place, sampler, self.held) for place in self.going):
            return ""
        telling = telling + self.telling
        if not telling:
            return "`set_epoch` is called on other samplers alone"
        units = {place.unit for place in self.going}
        once = all(place.unit in units and not self.rounds.is_in_loop(place) for place in telling)
        return "`set_epoch` is called outside of the loop over epochs" if once else ""


def passed_through(value: Place, calls: tuple[Place, ...]) -> Val:
    """What a value of a function may be that calls lead out of, one after the other, with what just those pass."""
    for call in calls:
        root = value.root
        if root.value.op != "param":
            break
        given = argument_of(call.unit, call.number, root.unit, root.value.data[0])
        if given is None:
            return call.flow.parameters.default(root.unit, root.value.data[1])
        value = call.value_at(given)
    return value.closed


def _takes(call: Place, held: Holders) -> bool:
    """Whether a call makes a data loader that is given the sampler which is held."""
    rows = (call.flow.models.call(o[1]) for o in call.operand(0).val.of("ext"))
    given = (call.argument("sampler", 3), call.argument("batch_sampler", 4))
    return any(row is not None and "sampler" in row.under for row in rows) and any(
        each is not None and (each.unit, each.number) in held.held for each in given
    )


def _is_given_back(made: Place) -> bool:
    """Whether a function does nothing with what it has made but give it back, or count or show it before."""
    values, queue = made.unit.code.values, [made.number]
    for number in queue:
        for user in made.unit.users.get(number, ()):
            value = values[user]
            if value.op == "mut":
                queue += [user] if value.args[0] == number else []
            elif value.op != "call" or made.value_at(user).method not in ("len", "print"):
                return False
    return not set(queue).isdisjoint(made.unit.code.returned)
