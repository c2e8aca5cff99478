"""Options that functions add which a program is given for that: `initialize(extra_args_provider=add_task_args)`."""

from __future__ import annotations

from typing import NamedTuple

from validator.analysis.options.option import Option, options_of
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place

_GROUPS = frozenset({"add_argument_group", "add_mutually_exclusive_group"})


class Provided(NamedTuple):
    """The options, none of them required: other programs are given other functions. `complete`: these are all."""

    options: tuple[Option, ...]
    complete: bool


class Providers:
    """What functions add to a parser that they are given."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._searched: set[tuple[Unit, int]] = set()

    def of_call(self, place: Place, number: int) -> Provided:
        """What the functions add that a call may run which passes a parser, its value `number`."""
        found: list[Option] = []
        complete, position = True, place.value.args[1:].index(number)
        for method in self.objects.run_by(place):
            unit = self.objects.flow.unit_of(method)
            at = position + (method.is_method and not method.facts.is_static)
            if unit is None or at >= len(unit.code.params) or place.value.data.names[position] is not None:
                complete = False
            elif (unit, at) not in self._searched:
                self._searched.add((unit, at))
                complete = self._add(unit, at, found) and complete
        return Provided(tuple(each._replace(required=False) for each in found), complete)

    def _add(self, unit: Unit, position: int, found: list[Option]) -> bool:
        """Note what a function adds to one of its parameters; whether that is all."""
        values, complete = unit.code.values, True
        parsers = {n for n, value in enumerate(values) if value.op == "param" and value.data[0] == position}
        for number, value in enumerate(values):
            if value.op != "call":
                continue
            place = Place(self.objects.flow, unit, number)
            if place.receiver is not None and unit.root(place.receiver.number) in parsers:
                if place.method in _GROUPS:
                    parsers.add(number)
                elif place.method == "add_argument":
                    said = self.objects.spelled(place)
                    options = options_of(place, said[1]) if said is not None else None
                    found += options or ()
                    complete = complete and options is not None
                continue
            for each in value.args[1:]:
                if unit.root(each) in parsers:
                    inner = self.of_call(place, each)
                    found += inner.options
                    parsers.add(number)  # it gives the parser back, mostly
                    complete = complete and inner.complete and bool(self.objects.run_by(place))
        return complete
