"""What clears gradients, and what computes them: calls, and the functions that run them however deep below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from validator.flow.program.answers import Passed, Target
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, ways_back
from validator.project import Project

_GRADIENTS = frozenset({"grad", "main_grad"})
_ZEROING = frozenset({"zero_", "fill_", "_foreach_zero_", "_foreach_zero"})
_OF_ALL_TRAINED = frozenset({*_GRADIENTS, "requires_grad", "is_leaf"})  # what is asked of those that are to be cleared
# calls of these on an object of which nothing is known are mostly those of modules and optimizers of torch
_OF_TORCH = frozenset({
    "apply", "backward", "cpu", "cuda", "eval", "float", "forward", "half", "load_state_dict", "parameters",
    "state_dict", "step", "to", "train", "zero_grad",
})  # fmt: skip
_CLEARERS = frozenset({
    "zero_grad", "zero_grad_buffer", "zero_grad_buffers", "zero_gradients", "zero_grads", "clear_grad", "clear_grads",
    "clear_gradients", "reset_grad", "reset_grads", "reset_gradients",
})  # fmt: skip


class Gradients:
    """Asked for with `project.analysis(Gradients)`."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self.flow = self.queries.flow
        self._switches: dict[Unit, frozenset[int]] = {}

    @cached_property
    def computing(self) -> frozenset[Unit]:
        """The units that compute gradients, or measure fresh ones, themselves or below."""
        names = ("backward", "manual_backward", "unscale_", "clip_grad_norm_", "clip_grad_value_", "forward_only")
        units = self.flow.mentions.units(*names)
        return self.queries.reaching(u for u in units if any(computes(call) for call in self.queries.calls_in(u)))

    @cached_property
    def clearing(self) -> frozenset[Unit]:
        """The units that may clear gradients, themselves or below: what is called on an object of which nothing is
        known may be any method of that name."""
        return self._running(clears)

    @cached_property
    def clearing_all(self) -> frozenset[Unit]:
        """Those of them that may clear other gradients than those of parameters which are chosen one by one."""
        return self._running(lambda place: clears(place) and not is_of_chosen(place))

    def _running(self, clears: Callable[[Place], bool]) -> frozenset[Unit]:
        mentioned = self.flow.mentions.units(*_GRADIENTS, *_CLEARERS, *_ZEROING)
        found = {unit for unit in mentioned if any(clears(place) for place in _places(self.queries, unit))}
        stack = list(found)
        while stack:
            unit = stack.pop()
            for caller in self.flow.callers(unit):
                if caller not in found and self._may_run(caller, unit):
                    found.add(caller)
                    stack.append(caller)
        return frozenset(found)

    @cached_property
    def touching(self) -> frozenset[Unit]:
        """The units that compute gradients, clear or change them, themselves or below."""
        return self.computing | self.clearing

    @cached_property
    def in_hooks(self) -> bool:
        """Whether something is registered that may clear gradients when they have been used."""
        name = "register_post_accumulate_grad_hook"
        calls = (c for u in self.flow.mentions.units(name) for c in self.queries.calls_in(u) if c.method == name)
        hooks = (call.operand(i).val.each for call in calls for i in range(1, len(call.value.args)))
        return any(not each or any(o[0] != "unit" or o[1] in self.clearing for o in each) for each in hooks)

    @cached_property
    def in_steps(self) -> bool:
        """Whether an optimizer of the project clears what it has used when it takes a step."""
        steps = [unit for unit in self.clearing if unit.name == "step" and unit.cls is not None]
        if any("zero_grad" in cls.methods for unit in steps if unit.cls for cls in unit.cls.mro):
            return True
        asked = ({value.data for value in unit.code.values if value.op == "attr"} for unit in steps)
        return any("step" in names and "backward" not in names for names in asked)  # it lets another one step

    def is_cleared(self, places: Iterable[Place], but: Callable[[Place], bool], steps: Iterable[Place] = ()) -> bool:
        """Whether values of a unit clear gradients, or run what may; `but`: calls that clear those of others.

        `steps`: where the unit takes a step. What throws gradients of chosen parameters away between their computation
        and a step clears none: had it been all of them, the step would have nothing to go by.
        """
        for place in places:
            units = [] if clears(place) else self._cleared_in(place)
            if not units and (not clears(place) or but(place)):
                continue
            chosen = self.clearing_all.isdisjoint(units) if units else is_of_chosen(place)
            if not chosen or not any(self._is_between(place, step) for step in steps):
                return True
        return False

    def _cleared_in(self, place: Place) -> list[Unit]:
        """The units that clear gradients which a value may run."""
        site = place.result.sites.get(place.number)
        targets = site.targets if site is not None else ()
        known = [t.unit for t in targets if t.unit in self.clearing and not self._is_told_not_to(t.unit, t)]
        if place.value.op == "call" and is_open(place):
            known += [unit for unit in self._named(place.method) if _may_be(place, unit)]
        return known

    def _is_between(self, place: Place, step: Place) -> bool:
        """Whether gradients have been computed on every way to a value, and none on some way from there to a step."""
        if place.unit is not step.unit or any(each is None for each in ways_back(place, self._fills)):
            return False
        return place in ways_back(step, self._fills)

    def _fills(self, place: Place) -> bool:
        if place.value.op != "call" or place.method.startswith("clip_grad") or place.method == "unscale_":
            return False
        return computes(place) or not self.computing.isdisjoint(self.queries.targets(place))

    def _named(self, name: str) -> list[Unit]:
        return self._by_name.get(name, [])

    @cached_property
    def _by_name(self) -> dict[str, list[Unit]]:
        found: dict[str, list[Unit]] = {}
        for unit in self.clearing:
            found.setdefault(unit.name, []).append(unit)
        return found

    def _may_run(self, caller: Unit, unit: Unit) -> bool:
        for passed in self.flow.result(caller).passed.get(unit, ()):
            if not passed.away and not self._is_told_not_to(unit, passed):
                return True
        return any(_may_be(call, unit) and is_open(call) for call in self.queries.calls_in(caller))

    def _is_told_not_to(self, unit: Unit, call: Target | Passed) -> bool:
        """Whether a call passes False for a parameter without which the unit clears nothing."""
        return any((given := call.argument(i)) is not None and given.is_const(False) for i in self._asked(unit))

    def _asked(self, unit: Unit) -> frozenset[int]:
        """The parameters that are tested wherever a unit clears gradients."""
        known = self._switches.get(unit)
        if known is None:
            found = [self._tested(place) for place in _places(self.queries, unit) if clears(place)]
            known = self._switches[unit] = frozenset.intersection(*found) if found else frozenset()
        return known

    @staticmethod
    def _tested(place: Place) -> frozenset[int]:
        """The parameters that are true where a value is."""
        code = place.unit.code
        tests = [
            code.values[place.unit.root(code.blocks[branch].end[1])]
            for branch, way in place.unit.control.settled(place.value.block)
            if way == code.blocks[branch].end[2]
        ]
        return frozenset(test.data[0] for test in tests if test.op == "param")


def _places(queries: Queries, unit: Unit) -> Iterator[Place]:
    return queries.values(unit, "call", "store_attr", "delete")


def computes(call: Place) -> bool:
    """Whether a call computes gradients, or measures or bounds those that were just computed."""
    name = call.method
    return (
        name in ("backward", "manual_backward", "unscale_")
        or name.startswith("clip_grad")
        or "forward_only" in call.value.data.names
    )


def clears(place: Place) -> bool:
    """Whether a value clears gradients: sets them, takes them away, or fills with zeros what may be some."""
    value = place.value
    if value.op == "call":
        if place.method == "setattr":
            return any(place.operand(i).val.constant() in _GRADIENTS for i in range(1, len(value.args)))
        return place.method in _CLEARERS or (place.method in _ZEROING and _is_of_gradients(place))
    return value.op in ("store_attr", "delete") and value.data in _GRADIENTS


def is_of_chosen(clear: Place) -> bool:
    """Whether what clears gradients does so for one parameter that it names (`model.head.weight.grad = None`), or in a
    loop for those of which a test holds that asks for more than whether they are trained (`if "head" in name`)."""
    filled = clear.receiver if clear.value.op == "call" and clear.method in _ZEROING else None
    held = clear if filled is None else filled.root
    while held.value.op == "attr" and held.value.data == "data":
        held = held.operand(0).root
    if not holds_gradient(held):
        return False
    owner = held.operand(0).root
    if owner.value.op == "attr":
        return True
    element = owner.operand(0).root if owner.value.op == "unpack" else owner
    if element.value.op != "next":
        return False
    blocks = clear.unit.code.blocks
    tests = [element.value_at(blocks[branch].end[1]) for branch, _ in clear.unit.control.settled(clear.value.block)]
    return any(element in test.parts and _OF_ALL_TRAINED.isdisjoint(test.words) for test in tests)


def holds_gradient(place: Place) -> bool:
    """Whether a value reads, changes or takes away the gradient of something."""
    return place.value.op in ("attr", "store_attr", "delete") and place.value.data in _GRADIENTS


def _is_of_gradients(zeroing: Place) -> bool:
    """Whether what is filled with zeros may be gradients: it is called so, lies in what is, or is an argument."""
    held = zeroing.receiver if not zeroing.method.startswith("_") else zeroing.operand(len(zeroing.value.args) - 1)
    while held is not None:
        held = held.root
        if "grad" in held.hint or "grad" in held.unit.variables.get(held.number, ""):
            return True
        if held.value.op == "param":
            return not held.unit.is_receiver(held.number)
        held = held.operand(0) if held.value.op in ("attr", "item", "next", "iter", "unpack", "call") else None
    return False


def _may_be(call: Place, unit: Unit) -> bool:
    """Whether a call may be one of a unit for what its name says: of a method where it is one of an object."""
    if call.method != unit.name or unit.name in _OF_TORCH:
        return False
    return call.receiver is None or unit.cls is not None


def is_open(call: Place) -> bool:
    """Whether nothing, or not all, is known of what a call runs."""
    site = call.result.sites.get(call.number)
    if site is not None and site.targets and not site.others:
        return False
    known = call.operand(0).val.each
    return not known or any(o[0] in ("top", "more", "param", "part") for o in known)
