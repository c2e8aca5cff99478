"""Values that a unit reduces or gathers over ranks, itself or in what it calls, and tests before it does.

Whoever reduces a number over ranks holds another one on each: a test of it before that is a test of a rank's own. What
is asked for must be what the number is; whether something is there, how many dimensions it has and of which type it is
are mostly alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.domains.axes import REDUCED
from validator.domains.spmd import NONE, UNIFORM, Cause, Causes
from validator.effects.condition_keys import Key
from validator.facts.model import At
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of
from validator.models import Row

_FOLDING = frozenset({"sum", "mean", "max", "min", "count_nonzero", "norm", "any", "all"})  # a number of all elements
_ASKING = _FOLDING | {"isfinite", "isnan", "isinf", "item", "abs", "bool", "int", "float"}
_NUMBERS = frozenset({"int", "float", "bool"})
_ORDERED = frozenset({"Lt", "LtE", "Gt", "GtE"})
_COMPARED = _ORDERED | {"Eq", "NotEq"}
_LAYOUT = frozenset({"size", "dim", "numel", "shape", "ndim", "len", "nelement", "ndimension"})


class Reduced:
    """What one unit reduces, itself or in what it calls: the keys of the values that go into collectives, and whether
    each is one number."""

    def __init__(self, flow: Flow, unit: Unit) -> None:
        self.flow = flow
        self.unit = unit
        self.keys: dict[Key, bool] = {}
        self._calls: dict[Key, dict[Place, None]] = {}  # by key the collectives

    def fill(self) -> None:
        """Own collectives first: where functions call each other in a circle, that is what is known of the first."""
        sites = self.flow.result(self.unit).sites
        calls = [Place(self.flow, self.unit, number) for number in sites if self.unit.code.values[number].op == "call"]
        for call in calls:
            for operation in sites[call.number].operations:
                self._add(contents(call, operation.row), (call,), False)
        for call in calls:
            site = sites[call.number]
            for target in () if site.away else site.targets:
                for position, single, collectives in reduced(self.flow, target.unit).parameters():
                    given = argument_of(self.unit, call.number, target.unit, position)
                    if given is not None:
                        self._add(call.value_at(given), collectives, single)

    def _add(self, given: Place | None, collectives: Iterable[Place], single: bool) -> None:
        for place, one in made_of(given, single) if given is not None else ():
            self.keys[place.key] = self.keys.get(place.key, False) or one
            self._calls.setdefault(place.key, {}).update(dict.fromkeys(collectives))

    def parameters(self) -> Iterator[tuple[int, bool, list[Place]]]:
        """The parameters that are reduced: the position, whether each is one number, and by which collectives."""
        for number, value in enumerate(self.unit.code.values) if self.keys else ():
            if value.op == "param" and (key := Place(self.flow, self.unit, number).key) in self.keys:
                yield value.data[0], self.keys[key], list(self._calls[key])

    def tested(self, number: int) -> Causes:
        """Why the truth of a condition differs between the ranks of the groups in which what it asks for is reduced."""
        for place, single in self._asked(Place(self.flow, self.unit, number), False, set()) if self.keys else ():
            known = self.keys.get(place.key)
            if known is None or not (single or known):
                continue
            told = place.closed
            if UNIFORM not in told.v and not told.of("size"):
                calls = self._calls[place.key]
                return frozenset(Cause("data", REDUCED, False, place_of(c.unit.path, c.at)) for c in calls)
        return NONE

    def _asked(self, place: Place, single: bool, flags: set[int]) -> Iterator[tuple[Place, bool]]:
        """The values whose contents decide a condition; `single`: each is asked for as one number. `flags`: the
        variables that tests set, by which they were come to."""
        if UNIFORM in place.closed.v:
            return
        place = place.root
        value = place.value
        yield place, single
        if value.op == "unary" and value.data == "Not" or self.unit.connective(place.number):
            for i in range(len(value.args)):
                yield from self._asked(place.operand(i), single, flags)
        elif value.op == "phi" and place.number not in flags and _is_flag(place):
            flags.add(place.number)
            tests = (self.unit.code.blocks[branch].end[1] for branch in self.unit.control.choosing(value.block))
            for part in sorted({*tests, *value.args}):
                yield from self._asked(place.value_at(part), single, flags)
        elif value.op == "compare" and value.data in _COMPARED:
            for i in (0, 1):
                other = place.operand(1 - i).val.constant()
                if not isinstance(other, str) and (other is not None or value.data in _ORDERED):
                    yield from self._asked(place.operand(i), True, flags)
        elif value.op == "call" and place.method in _ASKING:
            receiver = place.receiver
            if receiver is not None and len(value.args) == 1:
                yield from self._asked(receiver, True, flags)
            elif len(value.args) == 2:
                yield from self._asked(place.operand(1), True, flags)
        elif value.op == "call" and (asked := _asked_by(place)) is not None:
            yield from self._asked(asked, True, flags)


def _is_flag(place: Place) -> bool:
    """Whether a variable holds yes or no."""
    known = place.closed.each
    return bool(known) and all(o[:2] == ("const", "bool") for o in known)


def _asked_by(call: Place) -> Place | None:
    """The one argument of a function of the project whose contents decide what it returns (`has_inf_or_nan(loss)`)."""
    site = call.result.sites.get(call.number)
    targets = site.targets if site is not None else ()
    if len(targets) != 1 or len(call.value.args) != 2:
        return None
    argument, target = call.operand(1), targets[0]
    returned = call.flow.result(target.unit).returned
    passed = {i for i, value in target.bindings if value == argument.val}
    asked = {c.position for c in returned.v if c.kind == "param"} <= passed
    return argument if asked and {o[1] for o in returned.each if o[0] == "const"} == {"bool"} else None


def place_of(path: str, at: At) -> str:
    """By which a cause names the collective that reduces."""
    return f"{path}:{at[0]}:{at[1]}"


def contents(call: Place, row: Row) -> Place | None:
    """What a rank gives to a reduction or a gather of all; None of a collective in which one rank tells the others."""
    given = row.reads or row.alike or row.equal
    if given is None or row.root is not None or not (row.equal is not None or row.result == "uniform"):
        return None
    return call.argument(*given)


def made_of(place: Place, single: bool = False) -> Iterator[tuple[Place, bool]]:
    """The values from which alone a tensor is made, and whether each is known to be one number."""
    while True:
        place = place.root
        value = place.value
        yield place, single
        if value.op == "mut" or value.op == "attr" and value.data == "data":
            place = place.operand(0)
        elif value.op in ("list", "tuple") and len(value.args) == 1:
            place, single = place.operand(0), True
        elif value.op == "call":
            given = [i for i, name in enumerate(value.data.names, 1) if name is None]
            receiver = place.receiver
            moved = receiver is not None and place.method in place.flow.models.same_methods
            if place.method in _LAYOUT or {"*", "**"} & set(value.data.names):
                return
            if receiver is not None and place.method in _FOLDING and not value.data.names:
                place, single = receiver, False
            elif receiver is not None and (moved or given and all(_is_alike(place.operand(i)) for i in given)):
                place = receiver
            elif len(given) == 1:
                place, single = place.operand(given[0]), single or place.method in _NUMBERS
            else:
                return
        elif value.op == "binary":
            varying = [i for i in (0, 1) if not _is_alike(place.operand(i))]
            if len(varying) != 1:
                return
            place = place.operand(varying[0])
        else:
            return


def _is_alike(place: Place) -> bool:
    """Whether a value is a constant or a number of ranks."""
    return place.val.constant() is not None or bool(place.val.of("size"))


def reduced(flow: Flow, unit: Unit) -> Reduced:
    """What a unit reduces, found once."""
    known: Reduced | None = unit.__dict__.get("_reduced")
    if known is None or known.flow is not flow:
        known = unit.__dict__["_reduced"] = Reduced(flow, unit)
        known.fill()
    return known
