"""Numbers that are the length of what a rank has of data that is shared out: of a sampler, a loader, a slice."""

from __future__ import annotations

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import sources, stores_on_namespace, values_behind
from validator.flow.queries.ranks.rank_shares import Share
from validator.flow.queries.training.loaders import makes_loader
from validator.flow.values import NONE_OBJ

_ROUNDING = frozenset({"int", "float", "round", "ceil", "floor"})
_SAME_NUMBER = frozenset({"list", "tuple", "sorted", "SubsetRandomSampler", "tolist"})


class ShareLengths:
    """Answers for one project, from its shares and the loaders that a library shares out."""

    def __init__(self, queries: Queries, shares: list[Share], prepared: list[Share]) -> None:
        self.shares: dict[tuple[Unit, int], Share] = {(s.user.unit, s.user.number): s for s in shares}
        self.prepared = {(s.user.unit, s.user.number, s.whole.root.number): s for s in prepared if s.whole is not None}
        self.options = {
            str(name.lstrip("-")).replace("-", "_")
            for call in queries.named("add_argument")
            for number in call.value.args[1:]
            if isinstance(name := call.value_at(number).val.constant(), str)
        }

    def behind(self, number: Place) -> list[Share]:
        """The shares of which a number surely is the length, on every way; none where it may be another."""
        lengths = values_behind(number, _is_length, self._before)
        found: list[Share] = []
        for length in lengths or ():
            shares = self._of(length.operand(1))
            if not shares:
                return []
            found += shares
        return found

    def _of(self, data: Place) -> list[Share]:
        """The shares that a sampler, a loader or a part of data surely is."""
        ends = values_behind(data, lambda place: self._share(place) is not None or _loader_call(place), _held)
        found: list[Share] = []
        for end in ends or ():
            share = self._share(end)
            sampler = end.argument("sampler", 3) if share is None else None
            if share is None and (sampler is None or NONE_OBJ in sampler.closed.objs):
                return []
            inner = [share] if share is not None else self._of(sampler) if sampler is not None else []
            if not inner:
                return []
            found += inner
        return found

    def _share(self, place: Place) -> Share | None:
        if place.value.op == "unpack":
            call, position = place.operand(0).root, place.value.data[0]
            if call.value.op != "call" or len(call.value.args) <= position + 1:
                return None
            return self.prepared.get((call.unit, call.number, call.operand(position + 1).root.number))
        if place.value.op == "call" and len(place.value.args) == 2:
            given = self.prepared.get((place.unit, place.number, place.operand(1).root.number))
            if given is not None:
                return given
        return self.shares.get((place.unit, place.number))

    def _before(self, place: Place) -> list[Place] | None:
        """What a number was one step before; of what is set on the options of a program, unless it is one of them."""
        if place.value.op == "call" and place.method in _ROUNDING and len(place.value.args) == 2:
            return [place.operand(1)]
        if place.value.op == "attr" and place.value.data not in self.options:
            stored = stores_on_namespace(place)
            if stored:
                return stored
        return sources(place)


def _held(place: Place) -> list[Place] | None:
    """What data was one step before, where that is as long."""
    if place.value.op == "call" and place.method in _SAME_NUMBER:
        if place.receiver is not None and place.method == "tolist":
            return [place.receiver]
        return [place.operand(1)] if len(place.value.args) == 2 else None
    return sources(place)


def _loader_call(place: Place) -> bool:
    """Whether a value is the loader that a call makes."""
    return place.value.op == "call" and makes_loader(place)


def _is_length(place: Place) -> bool:
    return place.value.op == "call" and place.method == "len" and place.receiver is None and len(place.value.args) == 2
