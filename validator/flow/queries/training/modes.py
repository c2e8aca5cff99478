"""Where models are put into training and into evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import trail


class Modes:
    """Answers for one project."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    def trainings(self, unit: Unit) -> Iterator[Place]:
        """The calls in a unit that surely put something into training."""
        return (call for call in self.queries.calls_in(unit) if _puts_into_training(call))

    def may_evaluate(self, model: Place) -> bool:
        """Whether something in the project may put a model into evaluation, itself or one of which it is a part."""
        owners = [model.root]
        while owners[-1].value.op in ("attr", "item", "mut"):
            owners.append(owners[-1].operand(0).root)
        if any(_is_module(owner) for owner in owners):
            return True  # it is switched where nobody names it
        before = {each for owner in owners if not _is_receiver(owner) for each in trail(owner, frozenset())}
        return not before.isdisjoint(self._evaluated)

    @cached_property
    def _evaluated(self) -> frozenset[Place]:
        """What may be put into evaluation, or into what a value says, with all that it was before."""
        calls = self.queries.named_anywhere("eval", "train")
        asked = (call.receiver for call in calls if call.method == "eval" or call.value.data.names)
        parts = (part for owner in asked if owner is not None for part in owner.parts if not _is_receiver(part))
        return frozenset(each for part in parts for each in trail(part, frozenset()))


def _is_receiver(value: Place) -> bool:
    return value.value.op == "param" and value.unit.is_receiver(value.number)


def _is_module(value: Place) -> bool:
    """Whether a value is the own object of a class that is a module of torch."""
    cls = value.unit.cls if _is_receiver(value) else None
    return cls is not None and any(base.rpartition(".")[2].endswith("Module") for base in cls.external_bases)


def _puts_into_training(call: Place) -> bool:
    given = call.value.data.names
    if call.method != "train" or call.receiver is None or len(given) > 1:
        return False
    return not given or call.operand(1).val.is_const(True)
