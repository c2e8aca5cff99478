"""Where gradients come from and go to: what is trained, and through which calls."""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import passed_from, sources
from validator.project import Project

# Instructions whose result has the gradients of all their operands.
_THROUGH = frozenset({"binary", "unary", "phi", "item", "unpack", "tuple", "list", "dict", "collect", "next", "iter"})
_WITHOUT = frozenset({"torch.no_grad", "torch.inference_mode"})


def losses(queries: Queries, names: frozenset[str] = frozenset({"backward"})) -> Iterator[tuple[Place, Place]]:
    """The calls of PyTorch's own `backward`, with the loss: `loss.backward()`, `scaler.scale(loss).backward()`."""
    for call in queries.named(*names):
        loss = call.receiver
        if loss is not None and not any(name in (None, "*") for name in call.value.data.names):
            known = {o[0] for o in loss.closed.each}
            if not known & {"ext", "module", "class", "inst", "self"}:
                yield call, loss


def handed_losses(queries: Queries) -> Iterator[tuple[Place, Place]]:
    """The calls by which somebody is given a loss to go back from: `accelerator.backward(loss)`."""
    for call in queries.named("backward", "manual_backward"):
        loss = call.argument("loss", 0)
        if loss is not None and call.receiver is not None:
            yield call, loss


def averages_gradients(queries: Queries, backward: Place) -> bool:
    """Whether the gradients that a `backward` computes are averaged over the ranks: by the library whose method it is,
    or by wrappers of the program; not where something of the program sees to the division itself."""
    flow = queries.flow
    if any(queries.named_anywhere(*flow.models.gradients["dividing"])):
        return False
    return bool(backward.operations) or any(queries.named(*flow.models.gradients["averaging"]))


class Trained:
    """Answers for one project, kept: several rules ask for the same losses."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self._known: dict[Place, tuple[Place, ...]] = {}
        self._steps: dict[Place, tuple[Place, ...]] = {}

    def through(self, loss: Place) -> tuple[Place, ...]:
        """The calls through which the gradient of a loss goes, in functions that give it back too."""
        known = self._known.get(loss.root)
        if known is None:
            known = self._known[loss.root] = tuple(self._calls(loss.root))
        return known

    def _calls(self, loss: Place) -> Iterator[Place]:
        queue, seen = [loss], {loss}
        entered: dict[Unit, list[Place]] = {}  # by function the calls of it through which the gradient has come
        asked: dict[Unit, list[Place]] = {}  # the parameters of functions that it has come to
        for place in queue:
            before: list[Place] = []
            if place.value.op == "call":
                if _is_cut(place):
                    continue
                yield place
                for unit in self.queries.targets(place):
                    entered.setdefault(unit, []).append(place)
                    before += (passed_from(place, parameter).root for parameter in asked.get(unit, ()))
            if place.value.op == "param":
                asked.setdefault(place.unit, []).append(place)
            before += self._passed(place, entered) or self._roots_before(place)
            fresh = [root for root in dict.fromkeys(before) if root not in seen]
            seen.update(fresh)
            queue += fresh

    @staticmethod
    def _passed(place: Place, entered: dict[Unit, list[Place]]) -> list[Place]:
        """What the calls pass for a parameter through which the gradient has come: it goes back to no others."""
        if place.value.op != "param":
            return []
        passed = [passed_from(call, place).root for call in entered.get(place.unit, ())]
        return passed if place not in passed else []

    def _roots_before(self, place: Place) -> tuple[Place, ...]:
        known = self._steps.get(place)
        if known is None:
            known = self._steps[place] = tuple(before.root for before in _before(self.queries, place))
        return known


def _is_cut(call: Place) -> bool:
    """Whether no gradient goes into what a call was given, or the call is made in evaluation alone."""
    return is_managed_off(call) or call.method in call.flow.models.tensors["cutting"] or is_in_evaluation(call)


def is_in_evaluation(place: Place) -> bool:
    """Whether a value is only computed where a test finds that a module is not in training (`if not self.training`)."""
    return any(
        asked.value.op == "attr" and asked.value.data == "training" and not held
        for asked, held in (test.asserted(holds) for test, holds in place.settled_tests)
    )


def _chosen_in_evaluation(call: Place) -> set[Unit]:
    """The functions that a call runs in evaluation alone: a variable holds them where a test finds so."""
    ways = call.operand(0).parts if call.operand(0).root.value.op == "phi" else ()
    chosen: dict[bool, set[Unit]] = {True: set(), False: set()}
    for way in (each for each in ways if each.value.op == "attr"):
        chosen[is_in_evaluation(way)].update(o[1] for o in way.val.each if o[0] in ("unit", "bound"))
    return chosen[True] - chosen[False]


def without_gradients(queries: Queries, call: Place) -> bool:
    """Whether no gradients are recorded where a call stands: by a manager around it, or a decorator of its function."""
    return is_managed_off(call) or any(map(switches_off, queries.decorators(call.unit)))


def is_managed_off(call: Place) -> bool:
    """Whether a call stands inside a context manager under which no gradients are recorded."""
    return any(switches_off(call.value_at(number)) for number in call.unit.managers(call.number))


def switches_off(manager: Place) -> bool:
    """Whether no gradients are recorded inside a context manager, or under a decorator."""
    callee = manager.operand(0) if manager.value.op == "call" else manager
    return any(o[0] == "ext" and callee.flow.models.named(o[1]) in _WITHOUT for o in callee.val.each)


def _before(queries: Queries, place: Place) -> Iterator[Place]:
    """The values into which a gradient goes on from a value."""
    value = place.value
    if value.op == "mut":
        yield place.operand(0)
        if value.data == -1:
            yield place.operand(1)
    elif value.op in ("param", "free", "name", "attr"):
        if value.op == "attr" and value.data in place.flow.models.tensors["cutting"]:
            return
        known = sources(place)
        yield from known or ([place.operand(0)] if value.op == "attr" else ())
    elif value.op == "call":
        yield from (place.value_at(number) for number in value.args[1:])
        if place.receiver is not None:
            yield place.receiver
        evaluating = _chosen_in_evaluation(place)
        for unit in (each for each in queries.targets(place) if each not in evaluating):
            yield from (Place(place.flow, unit, number) for number in unit.code.returned if number >= 0)
    elif value.op in _THROUGH:
        yield from (place.value_at(number) for number in value.args if number >= 0)
