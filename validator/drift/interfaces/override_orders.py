"""Methods that take their positional parameters in another order than what they override, or than their overrides do,
since a change.

Who calls an object of the base passes by position what the base takes there. Where one class of a family has another
order, the call means something else for its objects, and as long as defaults take the place of what is missing, nothing
fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.binding import misfit_of, parameters
from validator.definitions import External, Method
from validator.drift.change import Change
from validator.drift.interfaces.signatures import Signatures
from validator.facts.model import At, Call
from validator.flow.callgraph.spelled_arguments import call_of
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test


class Reordered(NamedTuple):
    """A method whose order changed, another one of the family that has the order of before, what stands first at the
    same position in each, and a call that passes something there."""

    method: Method
    other: Method
    name: str
    others: str
    path: str
    at: At


class OverrideOrders:
    """The methods that a change made differ in order; asked for with `change.analysis(OverrideOrders)`."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after

    @cached_property
    def rows(self) -> list[Reordered]:
        found: list[Reordered] = []
        told = {broken.new for broken in self.change.analysis(Signatures).broken}
        for old_module, new_module in self.change.modules:
            if old_module is None or new_module is None or is_foreign(new_module.path) or is_test(new_module.path):
                continue
            for qualname, new in new_module.functions.items():
                old = old_module.functions.get(qualname)
                if old is None or new.name == "__init__" or _order(old) == _order(new) or new in told:
                    continue
                found += self._of(old, new)
        return found

    def _of(self, old: Method, new: Method) -> Iterator[Reordered]:
        """The first call of the family that means something else for the objects of a class."""
        for other in self._family(new):
            place = _first_exchanged(new, other)
            earlier = self._before(other)
            if place < 0 or earlier is None or _first_exchanged(old, earlier) >= 0:
                continue
            for unit, number, call in self._calls(new.name):
                if len(call.positional) > place and self._may_reach(unit, number, call, (new, other)):
                    yield Reordered(new, other, _order(new)[place], _order(other)[place], unit.path, call.at)
                    return

    def _family(self, method: Method) -> list[Method]:
        """What a method overrides, and what overrides it."""
        if method.cls is None:
            return []
        above = next((cls.methods[method.name] for cls in method.cls.mro[1:] if method.name in cls.methods), None)
        below = [cls.methods[method.name] for cls in method.cls.descendants() if method.name in cls.methods]
        return [each for each in (above, *below) if each is not None and not is_test(each.path)]

    def _before(self, method: Method) -> Method | None:
        module = self.change.before.module(method.module.source.absolute)
        return module.functions.get(method.qualname) if module is not None else None

    def _calls(self, name: str) -> Iterator[tuple[Unit, int, Call]]:
        """The calls of methods of a name that spread nothing, with the value that bears the name."""
        for row in self.after.occurrences(name):
            unit, number = row.unit, row.number
            if unit is None or row.kind != "attribute" or row.role != "asks" or is_foreign(row.path):
                continue
            calls = ((user, unit.code.values[user]) for user in unit.users.get(number, ()))
            plain = [
                n for n, v in calls if v.op == "call" and v.args[0] == number and not {"*", "**"} & {*v.data.names}
            ]
            if plain and self._is_of_project(unit, number):
                yield from ((unit, number, call_of(unit, user)) for user in plain)

    def _is_of_project(self, unit: Unit, number: int) -> bool:
        """Whether what is asked for a method may be an object of the project: no library's class, module or object."""
        mention = self.after.mention(unit, number)
        if mention is None or mention.symbol is not None:
            return False
        owner = unit.code.values[unit.root(unit.code.values[number].args[0])]
        symbol = self.after.flow.symbol(unit, owner) if owner.op in ("name", "import") else None
        if isinstance(symbol, External) or owner.op == "call" and unit.known_as(owner.args[0]) == "super":
            return False
        return not self.after.is_of_library(unit, number) and not self.after.is_made_by_library(unit, number)

    def _may_reach(self, unit: Unit, number: int, call: Call, pair: tuple[Method, Method]) -> bool:
        """Whether a call may be one of a family: it fits the method that kept its order, and is asked of an object of
        one of its classes, or fits no method of the name outside of it."""
        new, other = pair
        family = {new, other, *self._family(new), *self._family(other)}
        others = [each for each in self.after.methods.get(new.name, ()) if each not in family and each.cls is not None]
        classes = self.after.classes_of(unit, number)
        if not _fits(other, call):
            return False
        if classes:
            return any(new in cls.find_below(new.name).values() for cls in classes)
        return unit.cls in {each.cls for each in family} or not any(_fits(each, call) for each in others)


def _fits(method: Method, call: Call) -> bool:
    params = parameters(method)
    return params is not None and misfit_of(params, call) is None


def _order(method: Method) -> list[str]:
    """The parameters that callers may pass by position."""
    return [param.name for param in parameters(method) or () if param.kind in ("any", "pos")]


def _first_exchanged(one: Method, other: Method) -> int:
    """The first position at which two methods take what the other one takes elsewhere; -1 where there is none."""
    left, right = _order(one), _order(other)
    for place, (name, others) in enumerate(zip(left, right, strict=False)):
        if name != others:
            return place if name in right and others in left else -1
    return -1
