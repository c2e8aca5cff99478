"""A project as code units with one solver over them: the object that rules ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from validator.definitions import ClassDef, Method, Module, Symbol
from validator.errors import UsageError
from validator.flow.callgraph.callers import Callers
from validator.flow.callgraph.guessed_receivers import GuessedReceivers
from validator.flow.callgraph.name_index import Mentions, name_of
from validator.flow.callgraph.wrappers import communicating
from validator.flow.calls.buffers import only_buffers
from validator.flow.program.answers import (
    EMPTY,
    NO_CALLS,
    NO_MAKERS,
    Answer,
    Makers,
    Passed,
    Result,
    grounded,
    joined,
    part_of,
)
from validator.flow.program.circumstances import Circumstances
from validator.flow.program.fields import Fields
from validator.flow.program.parameters import Parameters
from validator.flow.program.placings import Placings
from validator.flow.program.stores import Stores
from validator.flow.program.unit import Unit
from validator.flow.program.variables import Variables
from validator.flow.solver import Read, Solver
from validator.flow.substitution import instantiated
from validator.flow.transfer.dispatch import Transfer
from validator.flow.values import NOT_YET, Val, forget
from validator.ir import Value
from validator.ir.model import repeated
from validator.models import Models, models
from validator.project import Project

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

_BOTTOMS: dict[str, Any] = {"unit": EMPTY, "makers": NO_MAKERS, "calls": NO_CALLS}
_LAUNCHED = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE"})  # what launchers tell processes


class Flow:
    """Answers for one project. Unknowns of the solver:

    `("unit", unit)` a `Result`; `("argument", unit, position)`, `("field", class, name, exact)`,
    `("held", namespace, name)`, `("global", module, name)`, `("under", unit)` (as `v`: on what it depends whether a
    unit is called at all), `("placed", class, name)` (as objects: the steps by which an attribute is placed otherwise
    where it is), `("state", name)` (as `p`: whether a library was set up), `("random", library)` (as `v`: how the
    random numbers of a library differ between ranks) a `Val` in closed form, that is without parameters;
    `("makers", name)` the `Makers` of the data classes of that name: of all at once, for where one is called `Config`
    all others are; `("calls", unit)` the `Calls` of a unit.
    """

    def __init__(self, project: Project) -> None:
        forget()
        self.project = project
        extra = tuple(getattr(project.config, "collectives", None) or ())
        try:
            self.models: Models = models(extra)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read a table of collectives: {error}") from error

        def bottom(key: Hashable) -> Any:
            return _BOTTOMS.get(key[0], NOT_YET)  # type: ignore[index]

        self._evaluations: dict[Unit, Transfer] = {}
        self.solver = Solver(self._equation, joined, bottom, part_of, grounded, self._let_go)
        self._evaluating: list[Evaluation | None] = []
        self.calls_by_name = Callers(self)
        self.guessed = GuessedReceivers(self)
        self.parameters = Parameters(self)
        self.stores = Stores(self)
        self.fields = Fields(self)
        self.placings = Placings(self)
        self.variables = Variables(self)
        self.circumstances = circumstances = Circumstances(self)
        self._equations: dict[str, Callable[..., Val | Makers]] = {
            "argument": self.parameters.argument,
            "field": self.fields.field,
            "held": self.fields.held,
            "global": self.variables.variable,
            "under": circumstances.under,
            "placed": self.placings.placed,
            "makers": self.fields.makers,
            "state": circumstances.state,
            "random": circumstances.random,
        }
        self._units: dict[Module, dict[str, Unit]] = {}
        self._imported: dict[tuple[Module, str], list[Symbol]] = {}
        self._defining: dict[Method, Unit | Flow | None] = {}
        self._remote: dict[ClassDef, bool] = {}
        self.foreign: dict[tuple[int, str], Val] = {}  # (number of a value, name): what is no code here
        self.not_lowered = 0

    # -- units ---------------------------------------------------------------------------------------------

    def units_of(self, module: Module) -> dict[str, Unit]:
        """The units of a module by key; lowered when first asked for."""
        known = self._units.get(module)
        if known is None:
            known = self._units[module] = {}
            codes, failed = module.source.lowered()
            parts = {name.rpartition(".")[2] for code in codes.values() for name in code.parts}
            if apart := parts & self._repeated:  # of a call of these it is not known what it runs
                codes, failed = module.source.lowered(frozenset(apart))
            self.not_lowered += failed
            for key, code in sorted(codes.items(), key=lambda row: row[0].count(".<")):
                known[key] = Unit(module, code, None)
            for unit in known.values():
                unit.outer = known.get(unit.code.outer) if unit.code.outer else None
        return known

    @cached_property
    def properties(self) -> frozenset[str]:
        """The names under which classes of the project have properties."""
        return frozenset(method.name for method in self.project.functions() if method.facts.is_property)

    @cached_property
    def _repeated(self) -> frozenset[str]:
        """The private names that several functions of the project have: one may stand for another."""
        count = Counter(f.name for f in self.project.functions() if f.name.startswith("_"))
        return frozenset(name for name, times in count.items() if times > 1)

    def standing(self, unit: Unit) -> Unit:
        """The unit in which the code of a unit stands: of a part of another one that, else itself."""
        while unit.code.part_of:
            unit = self.units_of(unit.module)[unit.code.part_of]
        return unit

    def all_units(self) -> Iterator[Unit]:
        """The units of all files but those whose code stands in another one."""
        return (unit for module in self.project.modules.values() for unit in self.whole_units(module))

    def whole_units(self, module: Module) -> Iterator[Unit]:
        """The units of a module but those whose code stands in another one."""
        return (unit for unit in self.units_of(module).values() if not unit.code.part_of)

    def unit_of(self, method: Method) -> Unit | None:
        """The unit of a function of the project; None where it could not be lowered."""
        known = self._defining.get(method, self)
        if known is self:
            known = self._defining[method] = self._defined(method.module, method.qualname, method.facts.at[0])
        return known  # type: ignore[return-value]

    def fields_of(self, cls: ClassDef) -> list[str]:
        """The annotated names of a data class in the order of its constructor."""
        bodies = (self.body_of(owner) for owner in reversed(cls.mro))
        return list(dict.fromkeys(name for body in bodies if body is not None for name in body.code.annotated))

    def body_of(self, cls: ClassDef) -> Unit | None:
        return self._defined(cls.module, f"{cls.qualname}.<class>", cls.facts.at[0])

    def _defined(self, module: Module, qualname: str, line: int) -> Unit | None:
        known = self.units_of(module)
        return known.get(repeated(qualname, line)) or known.get(qualname)

    def units(self, methods: Iterator[Method]) -> Iterator[Unit]:
        for method in methods:
            unit = self.unit_of(method)
            if unit is not None:
                yield unit

    def defined(self, name: str) -> tuple[list[Unit], list[ClassDef]]:
        """What of the project has a name: functions, methods, and the constructors of classes; these classes."""
        return self._defined_names.get(name, ([], []))

    @cached_property
    def _defined_names(self) -> dict[str, tuple[list[Unit], list[ClassDef]]]:
        found: dict[str, tuple[list[Unit], list[ClassDef]]] = {}
        for method in self.project.functions():
            found.setdefault(method.name, ([], []))[0].extend(self.units(iter((method,))))
        for cls in self.project.classes():
            units, classes = found.setdefault(cls.name, ([], []))
            classes.append(cls)
            units += self.units(m for m in (cls.find("__init__"),) if m is not None)
        return found

    def is_remote(self, cls: ClassDef) -> bool:
        """Whether the objects of a class only ever are in processes of their own: Ray actors."""
        known = self._remote.get(cls)
        if known is None:
            family = (cls, *cls.descendants())
            known = any(_is_actor(c) for c in family) and not any(self._is_made(c) for c in family)
            self._remote[cls] = known
        return known

    def _is_made(self, cls: ClassDef) -> bool:
        """Whether the class is called by its name anywhere."""
        for unit in self.mentions.naming(cls.name):
            for number in unit.named.get(cls.name, ()):
                values = (unit.code.values[user] for user in unit.users.get(number, ()))
                if any(value.op == "call" and value.args[0] == number for value in values):
                    return True
        return False

    # -- answers -------------------------------------------------------------------------------------------

    def result(self, unit: Unit) -> Result:
        """The final answer for a unit."""
        found: Result = self.solver.settled(("unit", unit))
        return found

    def get(self, *key: Any) -> Any:
        """The present answer to a question; of a unit an `Answer`."""
        return Answer(self, key) if key[0] == "unit" else self.part(key, None)

    def part(self, key: Hashable, part: Hashable) -> Any:
        """A part of an answer (None: all of it); the instruction for which it is asked is remembered."""
        final = self.solver.final.get(key)
        if final is not None:
            return final if part is None else part_of(final, part)
        if self._evaluating and (evaluation := self._evaluating[-1]) is not None:
            evaluation.reads((key, part))
        return self.solver.get(key, part)

    def _equation(self, key: Hashable, news: frozenset[Read] | None) -> Any:
        evaluation = self._evaluation(key[1]) if key[0] == "unit" else None  # type: ignore[index]
        self._evaluating.append(evaluation)
        try:
            if evaluation is not None:
                return evaluation.run(news)
            return self.parameters.calls(key[1], news) if key[0] == "calls" else self._answer(key)  # type: ignore[index]
        finally:
            self._evaluating.pop()

    def _evaluation(self, unit: Unit) -> Transfer:
        known = self._evaluations.get(unit)
        if known is None:
            known = self._evaluations[unit] = Transfer(self, unit)
        return known

    def _let_go(self) -> None:
        """Drop the evaluations. What one holds refers back to it, and nothing collects circles here."""
        for evaluation in self._evaluations.values():
            vars(evaluation.unit).pop("order", None)
            vars(evaluation).clear()
        self._evaluations.clear()
        self.parameters.let_go()

    def _answer(self, key: Hashable) -> Any:
        assert isinstance(key, tuple)
        kind, *about = key
        return self._equations[kind](*about)

    @cached_property
    def default_dtype(self) -> str:
        """The element type of tensors that are made without one: `default` where the project may change it."""
        changes = ("set_default_dtype", "set_default_tensor_type")
        changed = any(True for name in changes for _ in self.project.calls(name))
        return "default" if changed else "float32"

    @cached_property
    def only_buffers(self) -> frozenset[str]:
        return only_buffers(self)

    # -- names ---------------------------------------------------------------------------------------------

    @cached_property
    def mentions(self) -> Mentions:
        return Mentions(self)

    def symbol(self, unit: Unit, value: Value) -> Symbol:
        """What a global name or an import means in a unit."""
        return unit.symbol(value)

    def meanings(self, unit: Unit, value: Value) -> list[Symbol]:
        """What a name of a module may mean: of several imports that give it, each under its condition, all of them."""
        several = self._several(unit.module, value.data) if value.op == "name" else []
        return several or [self.symbol(unit, value)]

    def _several(self, module: Module, name: str) -> list[Symbol]:
        """What a module may bind to a name by several imports; empty where it is one."""
        known = self._imported.get((module, name))
        if known is None:
            found = self.project.meanings(module, name)
            known = self._imported[module, name] = found if len(found) > 1 else []
        return known

    def placing(self, *steps: str) -> tuple[Unit, ...]:
        """The units that mention a call which takes one of the steps with a model."""
        inside = (name for name, library in self.models.objects.items() if library.inside in steps)
        names = self.models.placing(steps).union(name.partition("(")[0].rpartition(".")[2] for name in inside)
        return self.mentions.units(*sorted(names))

    @cached_property
    def is_distributed(self) -> bool:
        """Whether the project imports a library that has collectives, or speaks of the ranks of processes."""
        rows, ranks = self.models.calls.items(), self.models.ranks
        if self.mentions.libraries(*{name.partition(".")[0] for name, row in rows if row.is_collective}):
            return True
        named = ranks["names"] | ranks["methods"] | ranks["attributes"] | _LAUNCHED
        return self.mentions.speaks(*named - {"rank"})

    def calling(self, *names: str) -> tuple[Unit, ...]:
        """The units that call something by one of the names of libraries; none where nothing is distributed."""
        return self.mentions.calling(*names) if self.is_distributed else ()

    def effectful(self) -> list[Unit]:
        """The units that issue collectives, themselves or through what they call."""
        return self._reach

    @cached_property
    def _reach(self) -> list[Unit]:
        from validator.flow.callgraph.collective_reach import Reach

        return Reach(self).units() if self.is_distributed else []

    def may_communicate(self, wrapper: Unit) -> bool:
        """Whether a wrapper does, by the names of what it calls, more than what it wraps."""
        _, calls = wrapper.wraps
        values = wrapper.code.values
        callees = (values[value.args[0]] for n, value in enumerate(values) if value.op == "call" and n not in calls)
        return any(name_of(callee) in self._communicating for callee in callees)

    @cached_property
    def _communicating(self) -> frozenset[str]:
        return communicating(self)

    # -- calls and values ----------------------------------------------------------------------------------

    def is_program(self, unit: Unit) -> bool:
        """Whether a function is what a file runs where it is started: who leaves it is done."""
        callers = self.callers(unit) if unit.cls is None else ()
        return bool(callers) and all(
            caller.code.kind == "module" and b"__main__" in caller.module.source.data for caller in callers
        )

    def callers(self, unit: Unit) -> tuple[Unit, ...]:
        """The units that may call a unit."""
        return self.calls_by_name.of(unit)

    def only_call(self, unit: Unit) -> tuple[Unit, int] | None:
        """The one call in the project that runs a function in its process: (caller, call); None of several."""
        rows = list(self.runs_of(unit))
        return (rows[0][0], rows[0][1].site) if len(rows) == 1 and _is_call(*rows[0]) else None

    def calls_of(self, unit: Unit) -> Iterator[tuple[Unit, Passed]]:
        """The calls that run a unit in the same process, with what they pass."""
        return (row for row in self.runs_of(unit) if _is_call(*row))

    def runs_of(self, unit: Unit) -> Iterator[tuple[Unit, Passed]]:
        """What runs a unit in the same process: calls, and statements that run it without a call (`with`, `for`)."""
        for caller in self.callers(unit):
            for passed in self.result(caller).passed.get(unit, ()):
                if not passed.away:
                    yield caller, passed

    def passed(self, caller: Unit, unit: Unit) -> tuple[Passed, ...] | None:
        """What the calls of a unit in another pass to it; None while that is not known."""
        found: tuple[Passed, ...] | None = self.part(("unit", caller), ("passed", unit))
        return found

    def guessed_to(self, caller: Unit, unit: Unit) -> tuple[Passed, ...] | None:
        """What calls in another unit pass that probably run this one; None while that is not known."""
        found: tuple[Passed, ...] | None = self.part(("unit", caller), ("guessed", unit))
        return found

    def vals(self, unit: Unit, numbers: tuple[int, ...]) -> tuple[Val, ...]:
        """Some of the values of a unit."""
        found: tuple[Val, ...] | None = self.part(("unit", unit), ("vals", numbers))
        return found if found is not None else (NOT_YET,) * len(numbers)

    def close(self, value: Val, unit: Unit) -> Val:
        """A value of a unit without its parameters: with what its callers pass."""
        if not value.holes:
            return value
        return instantiated(value, lambda position: self.get("argument", unit, position))


def _is_call(caller: Unit, passed: Passed) -> bool:
    return caller.code.values[passed.site].op in ("call", "part")


def _is_actor(cls: ClassDef) -> bool:
    return any(d.removesuffix("()").rpartition(".")[2] == "remote" for d in cls.facts.decorators)
