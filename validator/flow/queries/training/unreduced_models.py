"""Models that a process trains by itself: made here, given to an optimizer, wrapped by nothing that reduces gradients.

A value is followed back (`Behind`) to the calls that make models; what it may have been is taken to be more than it is
rather than less, so that a wrapper, a library or a collective that may have to do with a model counts for it.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import ClassDef
from validator.domains.spmd import only
from validator.flow.access_paths import paths_of
from validator.flow.containers import GROWING
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, numbers_of
from validator.flow.queries.escapes import Index, argument_of
from validator.flow.queries.origins import sources, stores
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.gradients import without_gradients
from validator.flow.queries.training.loaders import handed_through, loaders_of
from validator.project import Project

_WRAPPING = frozenset({"ddp", "fsdp1", "fsdp2", "tp", "zero3", "deepspeed", "prepared", "dtensor"})
_MODULE = "torch.nn.Module"
_SHARE = "torch.utils.data.distributed.DistributedSampler"
_NUMBERS = frozenset({
    "item", "tolist", "shape", "size", "numel", "dim", "device", "dtype", "len", "float", "int", "str", "tensor",
})  # fmt: skip
# What gives no part of its operands, and no multiple or sum of them.
_PRODUCTS = frozenset({"mm", "matmul", "bmm", "mv", "dot", "inner", "outer", "addmm", "baddbmm", "einsum", "linear"})
# Words of what a collective may be given so that gradients, or weights that were trained apart, become one.
TRAINED = ("grad", "param", "weight", "state_dict")
_BUILTINS = frozenset(dir(builtins))
_STANDARD = frozenset(sys.stdlib_module_names)


class Trained(NamedTuple):
    """A model that no rank shares with others: the optimizer of its parameters, the call that makes it, and what shows
    that several processes run this."""

    optimizer: Place
    made: Place
    several: Place
    shared_out: bool  # whether what they train on is known to be dealt out among them


class UnreducedModels:
    """Asked for with `project.analysis(UnreducedModels)`."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self.flow = self.queries.flow
        self.gradients = self.flow.models.gradients
        self.index = Index(self.flow)
        self._programs: dict[Unit, Program] = {}

    def found(self) -> Iterator[Trained]:
        told: set[Place] = set()
        for optimizer, given in self.optimizers():
            if is_aside(optimizer.unit.path) or only(optimizer.under, "rank", "member"):
                continue
            makers = self.behind(given).makers
            fresh = (self._trained(optimizer, made) for made in makers if told.isdisjoint(makers))
            trained = next((each for each in fresh if each is not None), None)
            if trained is not None:
                told.update(makers)
                yield trained

    def _trained(self, optimizer: Place, made: Place) -> Trained | None:
        """The same of one optimizer and a model; None where something may make one of the gradients of all ranks."""
        if only(made.under, "rank", "member") or any(
            made.value_at(number).varies("rank", "member") for number in made.value.args[1:]
        ):
            return None
        for program in self.programs_of(made.unit):
            several = program.several
            if several is None or optimizer.unit not in program.units or made in self.wrapped_somewhere:
                continue
            if program.leaves_apart(made, optimizer):
                return Trained(optimizer, made, several, program.is_shared_out is True)
        return None

    @cached_property
    def wrapped_somewhere(self) -> frozenset[Place]:
        """The calls whose models something in the project wraps, whoever may run that."""
        calls = (call for unit in self.queries.of_program() for call in self.queries.calls_in(unit))
        given = [part for call in calls for part in self.wrapped(call)]
        return frozenset(made for part in given for made in self.behind(part, deep=True).makers)

    def wrapped(self, call: Place) -> list[Place]:
        """What a call wraps, or changes so that its gradients are reduced."""
        if self._makes_wrapper(call):
            return [call.value_at(number) for number in call.value.args[1:]]
        steps = self.flow.result(call.unit).steps
        positions = range(-1, len(call.value.args) - 1)
        taken = [i for i in positions if not _WRAPPING.isdisjoint(steps.get((call.number, i), ()))]
        places = [call.operand(i + 1) if i >= 0 else call.receiver for i in taken]
        return [place for place in places if place is not None]

    def _makes_wrapper(self, call: Place) -> bool:
        """Whether a call makes an object of a class of the project below a wrapper of a library."""
        classes = [o[1] for o in call.operand(0).closed.each if o[0] == "class"]
        bases = [self.flow.models.named(base) for cls in classes for base in cls.external_bases]
        return any(self.flow.models.wrapping(base) or is_below(base, self.gradients["reducing"]) for base in bases)

    def programs_of(self, unit: Unit) -> Iterator[Program]:
        """The programs in which a unit runs, each by its start."""
        for top in self._tops(unit):
            if top not in self._programs:
                self._programs[top] = Program(self, top)
            yield self._programs[top]

    def _tops(self, unit: Unit) -> list[Unit]:
        """The units from which all that runs a unit in one process starts."""
        around = self.queries.reaching({unit})
        tops = (each for each in around if not self.queries.calls_of(each))
        return sorted(tops, key=lambda each: each.place)

    def optimizers(self) -> Iterator[tuple[Place, Place]]:
        """The calls that make an optimizer, with the parameters, or the model, that it is made for."""
        for unit in self.queries.of_program() if self.flow.is_distributed else ():
            for call in self.queries.calls_in(unit):
                given = self._optimized(call)
                if given is not None:
                    yield call, given

    def _optimized(self, call: Place) -> Place | None:
        for o in call.operand(0).val.each:
            if o[0] == "ext" and str(o[1]).rpartition(".")[0] == "torch.optim" and call.method[:1].isupper():
                return call.argument("params", 0)
            if o[0] == "ext" and (row := self.flow.models.call(o[1])) is not None and row.trains is not None:
                return call.argument(*row.trains)
            if o[0] == "class" and any(b.rpartition(".")[2] == "Optimizer" for b in o[1].external_bases):
                return call.argument("params", 0)
        return None

    def behind(self, *places: Place, deep: bool = False, but: str = "") -> Behind:
        return Behind(self, places, deep, but)

    def makes_model(self, call: Place) -> bool:
        """Whether a call makes a model, as it stands in one process."""
        callee = call.operand(0)
        if self._is_member_of_module(callee.root):
            return True
        made = callee.closed.each
        return bool(made) and all(self._makes(call, o) for o in made)

    def _makes(self, call: Place, o: tuple[object, ...]) -> bool:
        if o[0] == "class" and isinstance(o[1], ClassDef):
            bases = [self.flow.models.named(base) for base in o[1].external_bases]
            given = any(base == _MODULE or self._gives_models(base) for base in bases)
            return given and all(base in _BUILTINS or self.is_plain(base) for base in bases)
        if o[0] != "ext":
            return False
        name = self.flow.models.named(str(o[1]))
        spread = {"device_map", "tp_plan", "device_mesh", "**"} & set(call.value.data.names)
        return self._gives_models(name) and not spread

    def _gives_models(self, name: str) -> bool:
        owner, _, last = name.rpartition(".")
        if owner in self.flow.models.making:
            return last[:1].isupper() and name not in self.flow.models.calls or last in ("Sequential", "ModuleList")
        return is_below(name, self.gradients["models"])

    def _is_member_of_module(self, callee: Place) -> bool:
        """Whether a function is chosen by name from all that a file of models has: `models.__dict__[name]`."""
        if callee.value.op != "item":
            return False
        table = callee.operand(0).root
        if table.value.op != "attr" or table.value.data != "__dict__":
            return False
        owner = table.operand(0)
        return any(o[0] in ("module", "ext") for o in owner.closed.each)

    def is_plain(self, name: str) -> bool:
        """Whether a function of a library leaves the gradients of what it is given to the process."""
        named = self.flow.models.named(name)
        if named.partition(".")[0] in _STANDARD:
            return True
        return is_below(named, self.gradients["leaving"]) and not is_below(named, self.gradients["reducing"])


class Behind:
    """What a value may be made of: `seen`; `makers`: the calls of models at which each way ends, or, `deep`, passes;
    `known`: whether every way ends at something known. A way ends at an attribute called `but`, too."""

    def __init__(self, models: UnreducedModels, places: tuple[Place, ...], deep: bool, but: str) -> None:
        self.models = models
        self.deep = deep
        self.but = but
        self.known = True
        self.makers: list[Place] = []
        self.words: set[str] = set()
        self.seen: dict[Place, None] = {}
        self._stack = list(places)
        while self._stack:
            place = self._stack.pop()
            if place not in self.seen:
                self.seen[place] = None
                self._stack += self._before(place)

    def _before(self, place: Place) -> list[Place]:
        op, args = place.value.op, place.value.args
        if op == "call":
            return self._called(place)
        if op == "collect":
            args = args[: place.value.data[1]]
        if op == "mut":
            return [place.operand(0), *self._put(place)]
        if op == "attr":
            return self._attribute(place)
        if op == "param":
            return self._passed(place)
        if op in ("free", "name"):
            return sources(place) or []
        if op == "item":
            key = place.operand(1).val.constant()
            return [] if isinstance(key, str) and key != "params" else [place.operand(0)]
        if op in ("dict", "list"):
            return [*(place.value_at(number) for number in args if number >= 0), *self._put_inside(place)]
        if op in ("const", "import", "compare", "join", "closure", "undefined"):
            return []
        return [place.value_at(number) for number in args if number >= 0]

    def _put(self, place: Place) -> list[Place]:
        """What was put into a container."""
        change = place.operand(1)
        if change.value.op == "store_item":
            return [change.operand(2)]
        grows = change.value.op == "call" and place.value.data == -1 and change.method in GROWING
        return [change.value_at(number) for number in change.value.args[1:]] if grows else []

    @staticmethod
    def _put_inside(made: Place) -> list[Place]:
        """What is put into containers that lie in a container: `groups[name]["params"].append(param)`."""
        found, paths = [], paths_of(made.unit)
        for number in numbers_of(made.unit, ("call",)):
            call = made.value_at(number)
            inner = call.receiver if call.method in GROWING else None
            if inner is not None and paths.place(inner.number)[:1] == paths.place(made.number)[:1]:
                found += [call.value_at(given) for given in call.value.args[1:]]
        return found

    def _called(self, call: Place) -> list[Place]:
        given = [call.value_at(number) for number in call.value.args[1:]]
        self.words.add(call.method)
        if self.models.makes_model(call):
            self.makers.append(call)
            return given if self.deep else []
        if call.method in _NUMBERS or call.method in _PRODUCTS:
            return []
        inner = [
            Place(call.flow, unit, number)
            for unit in self.models.queries.targets(call)
            for number in unit.code.returned
            if number >= 0
        ]
        if inner:
            return inner
        receiver = call.receiver
        if receiver is not None and call.method in call.flow.models.placed:
            return [receiver]
        return given + ([receiver] if receiver is not None and receiver.root.value.op != "import" else [])

    def _attribute(self, place: Place) -> list[Place]:
        name = str(place.value.data)
        self.words.add(name)
        if name in _NUMBERS or name == self.but:
            return []
        owners = place.operand(0).closed.each
        classes = [o[1] for o in owners if o[0] in ("inst", "self")]
        if classes and not any(_MODULE in cls.external_bases for cls in classes):
            return [each.operand(1) for each in stores(place)]
        return [place.operand(0)]

    def _passed(self, place: Place) -> list[Place]:
        position = place.value.data[0]
        found = []
        for caller, number, _ in self.models.index.sites(place.unit):
            given = argument_of(caller, number, place.unit, position)
            if given is not None:
                found.append(Place(place.flow, caller, given))
        self.known = self.known and bool(found)
        return found


class Program:
    """All that runs in one process from one start."""

    def __init__(self, models: UnreducedModels, top: Unit) -> None:
        self.models = models
        self.queries = models.queries
        self.units = self._run(top)
        calls = [call for unit in self.units for call in self.queries.calls_in(unit)]
        self.calls = sorted(calls, key=lambda call: (call.unit.place, call.number))
        self._reduces: bool | None = None

    def _run(self, top: Unit) -> frozenset[Unit]:
        """What runs from a start, objects that are called included."""
        found = frozenset(self.queries.reached([top]))
        while True:
            calls = (call for unit in found for call in self.queries.calls_in(unit))
            more = {unit for call in calls for unit in self._called_object(call)} - found
            if not more:
                return found
            found = frozenset(self.queries.reached(found | more))

    def _called_object(self, call: Place) -> list[Unit]:
        """The methods that run where an object of the project is called."""
        callee = call.operand(0)
        if self.queries.targets(call) or callee.root.value.op not in ("param", "free", "attr", "phi"):
            return []
        classes = [o[1] for o in callee.closed.each if o[0] in ("inst", "self")]
        methods = [cls.find(name) for cls in classes for name in ("__call__", "forward")]
        units = [self.models.flow.unit_of(method) for method in methods if method is not None]
        return [unit for unit in units if unit is not None]

    def names(self, call: Place) -> set[str]:
        """The full names of what a call may be of libraries."""
        known = (o for o in call.operand(0).closed.each if o[0] in ("ext", "made"))
        return {self.models.flow.models.named(str(o[1])) for o in known}

    @property
    def several(self) -> Place | None:
        """The call by which a process takes its place among others."""
        setup = {*self.models.flow.models.ranks["setup"], _SHARE}
        made = (call for call in self.calls if self.names(call) & setup)
        return next((call for call in made if not _is_of_one(call)), None)

    @cached_property
    def is_shared_out(self) -> bool | None:
        """Whether the data that models are trained on are dealt out among the ranks; None where that is not known."""
        loaders = {
            each for loop in self._training_loops() for each in loaders_of(handed_through(loop.iterable or loop))
        }
        dealt = {self._deals_out(each) for each in loaders if each.unit in self.units}
        return True if True in dealt else False if dealt else None

    def _deals_out(self, loader: Place) -> bool:
        samplers = [loader.argument("sampler", 3), loader.argument("batch_sampler", 4)]
        behind = self.models.behind(*(each for each in samplers if each is not None))
        calls = [each for each in behind.seen if each.value.op == "call"]
        return any(self.names(call) & {_SHARE} or self._is_own_share(call) for call in calls)

    def _is_own_share(self, call: Place) -> bool:
        """Whether a sampler of the project takes the part of a rank."""
        classes = [o[1] for o in call.operand(0).closed.each if o[0] == "class"]
        ranks = self.models.flow.models.ranks
        asking = {unit.cls for unit in self.queries.mentioning(*ranks["names"], "get_rank")}
        return any(not asking.isdisjoint(cls.mro) for cls in classes)

    def _training_loops(self) -> Iterator[Place]:
        """The elements of the loops in whose rounds gradients are computed."""
        training = self._training_units()
        for unit in training:
            code = unit.code
            for call in self.queries.calls_in(unit):
                if self._computes(call) or not training.isdisjoint(self._runs(call)):
                    for header in unit.control.loops_around(call.value.block):
                        iterator = code.loops[header].iterator
                        for number in numbers_of(unit, ("next",)):
                            if code.values[number].args[0] == iterator:
                                yield call.value_at(number)

    def _training_units(self) -> frozenset[Unit]:
        """The units that compute gradients, themselves or in what they run."""
        running: dict[Unit, set[Unit]] = {}
        for call in self.calls:
            for unit in self._runs(call):
                running.setdefault(unit, set()).add(call.unit)
        found = {call.unit for call in self.calls if self._computes(call)}
        stack = list(found)
        while stack:
            more = running.get(stack.pop(), set()) - found
            found |= more
            stack += more
        return frozenset(found)

    def _computes(self, call: Place) -> bool:
        below = self.models.gradients["computing"]
        return call.method == "backward" or any(is_below(name, below) for name in self.names(call))

    def _runs(self, call: Place) -> list[Unit]:
        return [*self.queries.targets(call), *self._called_object(call)]

    def leaves_apart(self, made: Place, optimizer: Place) -> bool:
        """Whether each process surely goes on with a model by itself, which it trains."""
        if self._reduces is None:
            alike = self.is_shared_out is False  # all ranks train on the same data
            self._reduces = alike or not self._trains() or any(map(self._may_reduce, self.calls))
        return not self._reduces and not any(self.takes(call, made, optimizer) for call in self.calls)

    def _trains(self) -> bool:
        """Whether anything computes gradients and takes a step; a scaler of a library does both."""
        computing = [call for call in self.calls if self._computes(call)]
        own = any(call.method != "backward" for call in computing)
        return own or bool(computing) and any(call.method == "step" for call in self.calls)

    def _may_reduce(self, call: Place) -> bool:
        """Whether a call may have to do with the gradients of whatever model."""
        gradients = self.models.gradients
        if call.method in gradients["hooks"] or any(is_below(name, gradients["reducing"]) for name in self.names(call)):
            return True
        if (
            not call.operations
            or self.models.wrapped(call)
            or any(o.row.waits or o.row.result in ("group", "mesh") for o in call.operations)
        ):
            return False
        bases = call.unit.cls.external_bases if call.unit.cls is not None else ()
        of_library = any(base.partition(".")[0] not in _STANDARD | _BUILTINS for base in bases)
        if of_library and not without_gradients(self.queries, call):
            return True  # a forward or a backward pass that communicates by itself
        given = self.models.behind(*(call.value_at(number) for number in call.value.args[1:]))
        handed = any(p.value.op == "param" and is_handed_on(p.unit) for p in given.seen)
        return handed or any(word in name for name in self.words_of(given) for word in TRAINED)

    @staticmethod
    def words_of(given: Behind) -> Iterator[str]:
        yield from given.words
        yield from (str(p.value.data[1]) for p in given.seen if p.value.op in ("param", "free"))

    def takes(self, call: Place, made: Place, optimizer: Place) -> bool:
        """Whether a call wraps a model, or is of something unknown that gets it or its optimizer."""
        wrapped = self.models.wrapped(call)
        given = wrapped or [call.value_at(number) for number in call.value.args[1:]]
        if not wrapped and (call in (made, optimizer) or not given or not self._is_unknown(call, made)):
            return False
        behind = self.models.behind(*given, deep=bool(wrapped))
        if made in behind.seen or optimizer in behind.seen:
            return True
        if not wrapped:
            return False
        return not behind.makers or not behind.known or call in self.models.behind(made, deep=True).seen

    def _is_unknown(self, call: Place, made: Place) -> bool:
        """Whether a call is not known to be one of the project, of the model itself, or of a library that leaves
        gradients alone."""
        if self.queries.targets(call) or call.operations or self._called_object(call):
            return False
        callee = call.operand(0).root
        if callee.value.op == "name" and callee.value.data in _BUILTINS:
            return False
        known = call.operand(0).closed.each
        names = [str(o[1]) for o in known if o[0] in ("ext", "made") and not str(o[1]).startswith("~")]
        if known and len(names) == len(known):
            return not all(self.models.is_plain(name) for name in names)
        if call.receiver is None:
            return not self.models.makes_model(call)
        if call.receiver.root.value.op in ("const", "join"):
            return False
        if call.receiver.root.value.op == "call" and call.receiver.root.method == "super":
            bases = call.unit.cls.external_bases if call.unit.cls is not None else ()
            return not all(self.models.is_plain(base) for base in bases)
        owner = self.models.behind(call.receiver)
        return made not in owner.seen and not self._is_of_library(owner)

    def _is_of_library(self, owner: Behind) -> bool:
        """Whether an object surely comes from libraries that leave gradients alone."""
        ends = [p for p in owner.seen if p.value.op == "call" and not self.queries.targets(p)]
        made = [str(o[1]) for call in ends for o in call.operand(0).closed.each if o[0] == "ext"]
        return owner.known and len(made) >= len(ends) > 0 and all(self.models.is_plain(name) for name in made)


def _is_of_one(call: Place) -> bool:
    """Whether a group is made for one process."""
    size = call.argument("world_size", 3)
    return call.method == "init_process_group" and size is not None and size.closed.is_const(1)


def is_handed_on(unit: Unit) -> bool:
    """Whether a function stands where it may be given to somebody who calls it."""
    return unit.code.kind == "lambda" or unit.outer is not None and unit.outer.code.kind == "function"


def is_below(name: str, prefixes: frozenset[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)
