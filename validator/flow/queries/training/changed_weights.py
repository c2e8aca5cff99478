"""The models whose weights a call changes: `load_state_dict`, what works in place on parameters, functions that do."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from validator.domains.spmd import NONE, only
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import Index, argument_of
from validator.flow.queries.training.parameter_origins import Owners
from validator.flow.queries.values.in_place import written, written_through
from validator.project import Project

# instructions whose result is one of their operands, or an element of one
_TOGETHER = frozenset({"phi", "next", "iter", "unpack", "item", "tuple", "list", "set", "mut"})


class ChangedWeights:
    """Asked for with `project.analysis(ChangedWeights)`."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self.index = Index(self.queries.flow)
        self._written: dict[Unit, list[Place]] = {}
        self._running: dict[tuple[Unit, int], bool] = {}

    def by(self, call: Place) -> Iterator[Place]:
        """The models, as values of the call's unit, whose weights change where the call runs."""
        if call.method == "load_state_dict" and call.receiver is not None:
            yield call.receiver
            return
        yield from self._owners(call, self._tensors(call))
        arguments = [call.value_at(number) for number in call.value.args]
        arguments += [call.receiver] if call.receiver is not None else []
        given = frozenset().union(*map(_alternatives, arguments))
        for target in self.queries.targets(call):
            for model in self._owners(call, self._of(target)):
                if model.root.number in given:
                    yield model

    def _of(self, unit: Unit) -> list[Place]:
        """What a unit writes into, itself."""
        known = self._written.get(unit)
        if known is None:
            calls = self.queries.calls_in(unit)
            known = self._written[unit] = [each for call in calls for each in self._tensors(call)]
        return known

    def _tensors(self, call: Place) -> list[Place]:
        if call.method in call.flow.models.tensors["marking"]:
            return []
        return [*written(call), *written_through(self.queries, call)]

    def _owners(self, call: Place, tensors: list[Place]) -> Iterator[Place]:
        """The models in the call's unit to which tensors belong, in that unit or in what it calls."""
        for tensor in tensors:
            stack = [owner.model for owner in Owners(self.queries.flow, self.index, tensor).found.values()]
            seen: set[Place] = set()
            while stack:
                model = stack.pop()
                if model in seen:
                    continue
                seen.add(model)
                if model.unit is not call.unit:
                    stack += self._passed(model)
                elif model.root.value.op not in ("const", "import"):
                    yield model

    def _passed(self, model: Place) -> Iterator[Place]:
        """What callers pass for the parameter that a model is, or in whose attributes it lies."""
        root = model.root
        while root.value.op == "attr":
            root = root.operand(0).root
        for caller, number, _ in self.index.sites(model.unit) if root.value.op == "param" else ():
            given = argument_of(caller, number, model.unit, root.value.data[0])
            if given is not None:
                yield Place(model.flow, caller, given)

    def is_used_by_all(self, change: Place, model: Place) -> bool:
        """Whether ranks that skip a change use the model: they run it, or an optimizer is made of its parameters."""
        held = _alternatives(model)
        uses = [call for call in self.queries.calls_in(change.unit) if self._uses(call, held)]
        if any(only(call.around(), "rank", "member") == NONE for call in uses):
            return True
        root = model.root
        if root.value.op != "attr" or not root.unit.is_receiver(root.operand(0).root.number):
            return False
        return any(
            only(call.under, "rank", "member") == NONE
            for read in self.queries.attributes(root.value.data)
            if read.unit.cls is change.unit.cls and read.unit is not change.unit
            for part in _parts(read)
            for call in part.users
            if call.value.op == "call" and self._uses(call, {part.number})
        )

    def _uses(self, call: Place, held: AbstractSet[int]) -> bool:
        """Whether a call runs one of some models of its unit, makes an optimizer of it, or has a function run it."""
        if call.operand(0).root.number in held:
            return True
        if call.receiver is not None and call.receiver.root.number in held and call.method == "forward":
            return True
        given = call.argument("params", 0)
        if given is not None and any(self._is_asked(part, held) for part in given.sources):
            return True
        return any(
            call.value_at(number).root.number in held and self._is_run(target, number, call)
            for target in self.queries.targets(call)
            for number in call.value.args[1:]
        )

    @staticmethod
    def _is_asked(part: Place, held: AbstractSet[int]) -> bool:
        """Whether a value is `parameters()` of one of some models."""
        if part.value.op != "call" or part.method != "parameters" or part.receiver is None:
            return False
        return not held.isdisjoint(_alternatives(part.receiver))

    def _is_run(self, unit: Unit, number: int, call: Place) -> bool:
        """Whether a function runs what a call gives it as a value of the caller."""
        for position in range(len(unit.code.params)):
            if argument_of(call.unit, call.number, unit, position) == number and self._runs(unit, position):
                return True
        return False

    def _runs(self, unit: Unit, position: int) -> bool:
        known = self._running.get((unit, position))
        if known is None:
            self._running[unit, position] = False  # a circle
            held = {n for n, v in enumerate(unit.code.values) if v.op == "param" and v.data[0] == position}
            known = any(self._uses(call, held) for call in self.queries.calls_in(unit))
            self._running[unit, position] = known
        return known


def _parts(value: Place) -> list[Place]:
    """A value, and what is asked of it by attributes: the model that an object keeps."""
    found = [value]
    for each in found:
        found += [user for user in each.users if user.value.op == "attr"]
    return found


def _alternatives(value: Place) -> frozenset[int]:
    """What a value may be, as numbers of its unit: itself, what comes together in it, elements of what is displayed."""
    found: set[int] = set()
    stack = [value]
    while stack:
        each = stack.pop().root
        if each.number not in found:
            found.add(each.number)
            if each.value.op in _TOGETHER:
                stack += [each.value_at(number) for number in each.value.args if number >= 0]
    return frozenset(found)
