"""A project as code units with one solver over them: the object that rules ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from validator.definitions import ClassDef, Method, Module, Symbol
from validator.domains.placement import SPREADING, after
from validator.domains.spmd import NONE, only, unsure
from validator.errors import UsageError
from validator.facts.model import Import
from validator.flow.annotations import declared, objects_of
from validator.flow.callgraph.callers import Callers
from validator.flow.callgraph.name_index import Mentions, name_of
from validator.flow.callgraph.wrappers import communicating
from validator.flow.containers import GROWING
from validator.flow.program.answers import EMPTY, NO_MAKERS, Answer, Makers, Passed, Result, grounded, joined, part_of
from validator.flow.program.circumstances import Circumstances
from validator.flow.program.parameters import Parameters
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test
from validator.flow.solver import Read, Solver
from validator.flow.substitution import instantiated
from validator.flow.values import BOTTOM, MORE, NONE_OBJ, NOT_YET, TOP, UNKNOWN, Obj, Val, forget, join, join_origins
from validator.ir import Value
from validator.ir.model import repeated
from validator.models import Models, models
from validator.project import Project

if TYPE_CHECKING:
    from validator.flow.transfer import Evaluation

_LAUNCHED = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE"})  # what launchers tell processes
_SELVES = ("self", "inst")
_OWNERS = ("self", "inst", "class")


class Flow:
    """Answers for one project. Unknowns of the solver:

    `("unit", unit)` a `Result`; `("argument", unit, position)`, `("field", class, name, exact)`,
    `("held", namespace, name)`, `("global", module, name)`, `("under", unit)` (as `v`: on what it depends whether a
    unit is called at all), `("placed", class, name)` (as objects: the steps by which an attribute is placed otherwise
    where it is), `("state", name)` (as `p`: whether a library was set up), `("random", library)` (as `v`: how the
    random numbers of a library differ between ranks) a `Val` in closed form, that is without parameters;
    `("makers", name)` the `Makers` of the data classes of that name: of all at once, for where one is called `Config`
    all others are.
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
            kind = key[0]  # type: ignore[index]
            return EMPTY if kind == "unit" else NO_MAKERS if kind == "makers" else NOT_YET

        self._evaluations: dict[Unit, Evaluation] = {}
        self.solver = Solver(self._equation, joined, bottom, part_of, grounded, self._let_go)
        self._evaluating: list[Evaluation | None] = []
        self.calls_by_name = Callers(self)
        self.parameters = Parameters(self)
        circumstances = Circumstances(self)
        self._equations: dict[str, Callable[..., Val | Makers]] = {
            "argument": self.parameters.argument,
            "field": self._field,
            "held": self._held,
            "global": self._global,
            "under": circumstances.under,
            "placed": self._placed,
            "makers": self._makers,
            "state": circumstances.state,
            "random": circumstances.random,
        }
        self._units: dict[Module, dict[str, Unit]] = {}
        self._defining: dict[Method, Unit | Flow | None] = {}
        self._remote: dict[ClassDef, bool] = {}
        self.foreign: dict[tuple[int, str], Val] = {}  # (number of a value, name): what is no code here
        self._declared: dict[tuple[ClassDef, str], Val] = {}
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
            return evaluation.run(news) if evaluation is not None else self._answer(key)
        finally:
            self._evaluating.pop()

    def _evaluation(self, unit: Unit) -> Evaluation:
        known = self._evaluations.get(unit)
        if known is None:
            from validator.flow.transfer import Evaluation

            known = self._evaluations[unit] = Evaluation(self, unit)
        return known

    def _let_go(self) -> None:
        """Drop the evaluations. What one holds refers back to it, and nothing collects circles here."""
        for evaluation in self._evaluations.values():
            vars(evaluation.unit).pop("order", None)
            vars(evaluation.calling).clear()
            vars(evaluation).clear()
        self._evaluations.clear()

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

    # -- names ---------------------------------------------------------------------------------------------

    @cached_property
    def mentions(self) -> Mentions:
        return Mentions(self)

    def symbol(self, unit: Unit, value: Value) -> Symbol:
        """What a global name or an import means in a unit."""
        if value.op == "name":
            return self.project.lookup(unit.scope, value.data)
        module, name, level = value.data
        row = Import(module, name or None, None if name else "_", level, "<module>", (), (1, 1, 1, 1))
        if not name and "." not in module:
            row = row._replace(asname=None)
        return self.project.imported(unit.module, row)

    def meanings(self, unit: Unit, value: Value) -> list[Symbol]:
        """What a name of a module may mean: of several imports that give it, each under its condition, all of them."""
        symbol = self.symbol(unit, value)
        imported = value.op == "name" and unit.module.facts.names.get(value.data) == "import"
        rows = unit.module.imports_of(value.data) if imported else ()
        if len(rows) < 2:
            return [symbol]
        return list(dict.fromkeys(self.project.imported(unit.module, row) for row in rows))

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

    def callers(self, unit: Unit) -> tuple[Unit, ...]:
        """The units that may call a unit."""
        return self.calls_by_name.of(unit)

    def only_call(self, unit: Unit) -> tuple[Unit, int] | None:
        """The one call in the project that runs a function in its process: (caller, call); None of several."""
        rows = list(self._runs(unit))
        return (rows[0][0], rows[0][1].site) if len(rows) == 1 and _is_call(*rows[0]) else None

    def calls_of(self, unit: Unit) -> Iterator[tuple[Unit, Passed]]:
        """The calls that run a unit in the same process, with what they pass."""
        return (row for row in self._runs(unit) if _is_call(*row))

    def _runs(self, unit: Unit) -> Iterator[tuple[Unit, Passed]]:
        """What runs a unit in the same process: calls, and statements that run it without a call (`with`, `for`)."""
        for caller in self.callers(unit):
            for passed in self.result(caller).passed.get(unit, ()):
                if not passed.away:
                    yield caller, passed

    def passed(self, caller: Unit, unit: Unit) -> tuple[Passed, ...] | None:
        """What the calls of a unit in another pass to it; None while that is not known."""
        found: tuple[Passed, ...] | None = self.part(("unit", caller), ("passed", unit))
        return found

    def declared_field(self, cls: ClassDef, name: str) -> Val:
        """What the annotations of a class and of those above it say of an attribute; BOTTOM where none does."""
        known = self._declared.get((cls, name))
        if known is None:
            rows = ((owner, text) for owner in cls.mro for n, text in owner.facts.attributes if n == name and text)
            known = join(declared(self.project, owner, text) for owner, text in rows)
            self._declared[cls, name] = known
        return known

    def vals(self, unit: Unit, numbers: tuple[int, ...]) -> tuple[Val, ...]:
        """Some of the values of a unit."""
        found: tuple[Val, ...] | None = self.part(("unit", unit), ("vals", numbers))
        return found if found is not None else (NOT_YET,) * len(numbers)

    def close(self, value: Val, unit: Unit) -> Val:
        """A value of a unit without its parameters: with what its callers pass."""
        if not value.holes:
            return value
        return instantiated(value, lambda position: self.get("argument", unit, position))

    # -- fields and globals --------------------------------------------------------------------------------

    @cached_property
    def _writers(self) -> dict[str, list[Method]]:
        """By name of an attribute: the functions that store it."""
        found: dict[str, dict[Method, None]] = {}
        for function in self.project.functions():
            for ref in function.facts.refs:
                if ref.context == "store" and "." in ref.path:
                    found.setdefault(ref.path.rpartition(".")[2], {})[function] = None
        return {name: list(rows) for name, rows in found.items()}

    @property
    def written(self) -> Iterable[str]:
        """The names of the attributes that functions store."""
        return self._writers

    def writers(self, name: str) -> list[Method]:
        """The functions that store an attribute of that name."""
        return self._where_they_stand(self._writers.get(name, []))

    def _where_they_stand(self, methods: Iterable[Method]) -> list[Method]:
        """Functions, and instead of those that are parts of others these."""
        units = ((method, self.unit_of(method)) for method in methods)
        return list(dict.fromkeys(self.standing(unit).method or m if unit is not None else m for m, unit in units))

    @cached_property
    def _placed_names(self) -> dict[str, list[Method]]:
        """By name of an attribute: the functions that may place otherwise what it holds."""
        found: dict[str, dict[Method, None]] = {}
        for function in self.project.functions():
            for name in self._placed_attributes(function):
                found.setdefault(name, {})[function] = None
        return {name: self._where_they_stand(rows) for name, rows in found.items()}

    def _placed_attributes(self, function: Method) -> Iterator[str]:
        """Attributes that a function may place otherwise: `fully_shard(self.model)`, `self.model.eval()`."""
        for call in function.facts.calls:
            if call.method in self.models.steps:
                if "." in call.receiver:
                    yield call.receiver.rpartition(".")[2]
            elif call.method in self._placing:
                yield from (a.value.rpartition(".")[2] for a in call.args if a.kind == "path" and "." in a.value)

    @cached_property
    def _placing(self) -> frozenset[str]:
        """The names of functions that may place an argument otherwise: of the tables, and what hands a parameter on."""
        found = set(self.mentions.also(row.name for row in self.models.calls.values() if row.state is not None))
        calls: dict[str, dict[Method, None]] = {}
        for function in self.project.functions():
            params = {p.name for p in function.facts.params}
            for call in function.facts.calls:
                if any(a.kind == "path" and a.value in params for a in call.args):
                    calls.setdefault(call.method, {})[function] = None
        queue = list(found)
        while queue:
            for function in calls.get(queue.pop(), ()):
                more = [name for name in self.mentions.also((function.name,)) if name not in found]
                found.update(more)
                queue += more
        return frozenset(found)

    def _field(self, cls: ClassDef, name: str, exact: bool) -> Val:
        """What an attribute of the objects of a class holds, in closed form; BOTTOM where nothing stores it."""
        family = set(cls.mro) if exact else {*cls.mro, *cls.descendants()}
        found = [value for _, value, _ in self.stores(cls, name, family)]
        found += self._fillings(name, lambda o: o[0] in _OWNERS and _related(o, family, cls), cls.path, family)
        for owner in cls.mro if exact else (*cls.mro, *cls.descendants()):
            assigned = name not in owner.methods and any(n == name for n, _ in owner.facts.attributes)
            body = self.body_of(owner) if assigned else None
            if body is not None:
                rows = self.part(("unit", body), ("class_names", name))
                found += rows if rows is not None else (NOT_YET,)
        if any(each.fields_are_parameters for each in cls.mro):
            found += self._constructed(cls, name, exact)
        return _there_if_any(found, join_origins(found))

    def stores(self, cls: ClassDef, name: str, family: set[ClassDef]) -> Iterator[tuple[Unit, Val, bool]]:
        """What functions of the project store in an attribute of objects of a class, or of a family of it: in which
        unit, what, and whether it depends on what callers pass."""
        for method in self.writers(name):
            unit = self.unit_of(method)
            if unit is None or _is_of_tests(unit, cls.path) or _keeps_for_itself(unit, name, family):
                continue
            rows = self.part(("unit", unit), ("stored", name))
            if rows is None:
                yield unit, NOT_YET, False
            for owner, value in rows or ():
                owner = self.close(owner, unit)
                if owner is NOT_YET:
                    yield unit, NOT_YET, False
                if any(o[0] in _OWNERS and _related(o, family, cls) for o in owner.each):
                    yield unit, _on_all_ranks(self.close(value, unit)), value.symbolic
                elif not any(o[0] in _SELVES for o in owner.each) and TOP in owner.objs:
                    yield unit, self._perhaps(self.close(value, unit)), value.symbolic

    def _held(self, holder: Any, name: str) -> Val:
        """What functions of the project set as an attribute of a namespace; BOTTOM where none does.

        Where it is an option too, what stood on the command line may still be there, which is the same on all ranks.
        """
        found = [UNKNOWN] if name in self._options and name not in self.models.ranks["names"] else []
        parsed = len(found)
        for method in self.writers(name):
            unit = self.unit_of(method)
            if unit is None or name not in unit.foreign or _is_of_tests(unit, holder[2].path):
                continue
            rows = self.part(("unit", unit), ("stored", name))
            if rows is None:
                found.append(NOT_YET)
            for owner, value in rows or ():
                is_holder = self._may_be(owner, unit, holder, set())
                if is_holder is not False:
                    found.append(NOT_YET if is_holder is None else _on_all_ranks(self.close(value, unit)))
        return _there_if_any(found, join_origins(found)) if len(found) > parsed else BOTTOM

    def _may_be(self, value: Val, unit: Unit, wanted: Obj, seen: set[tuple[Unit, int]]) -> bool | None:
        """Whether a value of a unit may be an object; None where that is not known yet. A parameter that gets more
        objects than are told apart is followed to each call."""
        closed = self.close(value, unit)
        if closed is NOT_YET:
            return None
        if wanted in closed.objs or MORE not in closed.objs:
            return wanted in closed.objs
        answers: set[bool | None] = set()
        for _, position in value.of("param"):
            if (unit, position) in seen:
                continue
            seen.add((unit, position))
            for caller in self.callers(unit):
                rows = self.passed(caller, unit)
                answers |= {None} if rows is None else set()
                given = (passed.argument(position) for passed in rows or ())
                answers |= {self._may_be(each, caller, wanted, seen) for each in given if each is not None}
        return True if True in answers else None if None in answers else False

    @cached_property
    def _options(self) -> frozenset[str]:
        """The names under which parsers of the project put what they read."""
        texts = (a.value for _, call in self.project.calls("add_argument") for a in call.args if a.kind == "const")
        return frozenset(text.strip("'\"").lstrip("-").replace("-", "_") for text in texts)

    def field(self, cls: ClassDef, name: str, exact: bool, asking: Unit) -> Val:
        """What an attribute holds when a unit is entered: placed as the other units place it, which ran before."""
        held: Val = self.get("field", cls, name, exact)
        if name not in self._placed_names or held is BOTTOM or held is NOT_YET:
            return held
        state = held.state
        rows = [o for o in self.get("placed", cls, name).objs if o[0] == "placing"]
        for _, unit, _, step in sorted(rows, key=lambda o: (o[1].path, o[1].code.at, o[2])):
            if unit is asking and step in SPREADING:
                continue  # it comes later, or the value says so
            state = after(state, step) if step in SPREADING else state | after(state, step)
        return held.placed(state)

    def _placed(self, cls: ClassDef, name: str) -> Val:
        found = set()
        family = {*cls.mro, *cls.descendants()}
        for method in self._placed_names.get(name, ()):
            unit = self.unit_of(method)
            if unit is None:
                continue
            for order, (owner, attribute, step) in enumerate(self.get("unit", unit).placings):
                owners = self.close(owner, unit).objs if attribute == name else frozenset()
                if any(o[0] in _SELVES and _related(o, family, cls) for o in owners):
                    found.add(("placing", unit, order, step))
        return Val(frozenset(found))

    @staticmethod
    def _perhaps(value: Val) -> Val:
        """What is stored in an object of unknown class: it may be this one's; what is not known either says nothing."""
        if value is NOT_YET:
            return value
        return Val(value.objs - {TOP}, unsure(value.v), unsure(value.n), unsure(value.p), value.state)

    def _fillings(
        self, name: str, is_owner: Callable[[Any], bool], path: str, family: set[ClassDef] | None = None
    ) -> Iterator[Val]:
        """What is put into the container that an attribute (of a family of classes) or a global variable is."""
        for method in self._fillers.get(name, ()):
            unit = self.unit_of(method)
            if unit is None or _is_of_tests(unit, path) or family is not None and _keeps_for_itself(unit, name, family):
                continue
            rows = self.part(("unit", unit), ("filled", name))
            if rows is None:
                yield NOT_YET
            for owner, value in rows or ():
                if any(map(is_owner, self.close(owner, unit).each)):
                    yield self.close(value, unit)

    @cached_property
    def _fillers(self) -> dict[str, list[Method]]:
        """By name of an attribute or global variable: the functions that put something into the container it is."""
        found: dict[str, dict[Method, None]] = {}
        for function in self.project.functions():
            paths = [row.target.partition("[")[0] for row in function.facts.assigns if row.target.endswith("[]")]
            paths += [call.receiver.partition("[")[0] for call in function.facts.calls if call.method in GROWING]
            for path in paths:
                found.setdefault(path.removesuffix(".setdefault()").rpartition(".")[2], {})[function] = None
        return {name: self._where_they_stand(rows) for name, rows in found.items()}

    def _constructed(self, cls: ClassDef, name: str, exact: bool) -> Iterator[Val]:
        """What is passed for a field where objects of a data class are made."""
        family = (cls,) if exact else (cls, *cls.descendants())
        if name in self.fields_of(cls) and not any(map(self._is_spoken_of, family)):
            said = self.declared_field(cls, name)
            yield said if objects_of(said) else UNKNOWN
        for each in family:
            for unit in self.part(("makers", each.name), ("units", each)):
                made = self.part(("unit", unit), ("made", each))
                if made is None:
                    yield NOT_YET
                for rows in made or ():
                    yield from (self.close(value, unit) for field, value in rows if field == name)

    def _is_spoken_of(self, cls: ClassDef) -> bool:
        """Whether anything names a class outside of its definition: only then may objects of it be made."""
        units = self.mentions.naming(cls.name)
        return any(unit.is_used(number) for unit in units for number in unit.named.get(cls.name, ()))

    def _makers(self, name: str) -> Makers:
        """The units that make objects of the data classes of a name."""
        found: dict[ClassDef, tuple[Unit, ...]] = {}
        for unit in self.mentions.naming(name):
            for cls in self.part(("unit", unit), "makes"):
                if cls.name == name:
                    found[cls] = (*found.get(cls, ()), unit)
        return Makers(found)

    def _global(self, module: Module, name: str) -> Val:
        """What a variable of a module holds, in closed form; BOTTOM while no store of it is known."""
        found, stored = [], False
        for unit in self.whole_units(module):
            if any(v.op == "store_global" and v.data == name for v in self._global_stores(unit)):
                stored = True
                stores = self.part(("unit", unit), ("globals", name))
                found += [
                    _on_all_ranks(self.close(value, unit)) for value in (stores if stores is not None else (NOT_YET,))
                ]
        found += [*self.filled(module, name), *self._from_elsewhere(module, name)] if stored else ()
        return join_origins(found) if stored else UNKNOWN

    def _from_elsewhere(self, module: Module, name: str) -> Iterator[Val]:
        """What functions of other modules store in a variable of a module: `import comm; comm.GROUP = group`."""
        for method in self.writers(name):
            unit = self.unit_of(method)
            if unit is None or _is_of_tests(unit, module.path):
                continue
            rows = self.part(("unit", unit), ("stored", name))
            if rows is None:
                yield NOT_YET
            for owner, value in rows or ():
                if ("module", module) in self.close(owner, unit).objs:
                    yield _on_all_ranks(self.close(value, unit))

    def filled(self, module: Module, name: str) -> list[Val]:
        """What functions put into the container that a variable of a module is."""
        return list(self._fillings(name, lambda o: o == ("module", module), module.path))

    def _global_stores(self, unit: Unit) -> list[Any]:
        known = self._stores_of.get(unit)
        if known is None:
            known = self._stores_of[unit] = [v for v in unit.code.values if v.op == "store_global"]
        return known

    @cached_property
    def _stores_of(self) -> dict[Unit, list[Any]]:
        return {}


def _there_if_any(stores: list[Val], held: Val) -> Val:
    """What an attribute holds: no test of ranks decides whether it is there if one store stands under none, and no
    store is of None."""
    if not only(held.p, "rank", "member", "data") or held.may_be_none() or all(each.p for each in stores):
        return held
    return Val(held.objs, held.v, held.n, NONE, held.state)


def _on_all_ranks(stored: Val) -> Val:
    """What is stored: of groups that fill the job each rank has one, though it keeps only that to which it belongs."""
    groups = stored.objs - {NONE_OBJ}
    if not only(stored.p, "member") or not all(o[0] == "group" and o[2] == "every" for o in groups) or not groups:
        return stored
    return Val(stored.objs, stored.v, stored.n, stored.p - only(stored.p, "member"), stored.state)


def _is_of_tests(unit: Unit, path: str) -> bool:
    """Whether a test stores something in what another file has: not what the program's objects hold."""
    return is_test(unit.path) and not is_test(path)


def _keeps_for_itself(unit: Unit, name: str, family: set[ClassDef]) -> bool:
    """Whether a unit stores an attribute of that name in nothing but its own object, which is none of a family: what
    it stores need not be asked."""
    return unit.cls not in family and name not in unit.foreign


def _is_call(caller: Unit, passed: Passed) -> bool:
    return caller.code.values[passed.site].op in ("call", "part")


def _related(o: Any, family: set[ClassDef], cls: ClassDef) -> bool:
    """Whether an object whose attribute is stored may be one of a family: `self` also stands for classes below."""
    return o[1] in family or (o[0] == "self" and o[1] in cls.mro)


def _is_actor(cls: ClassDef) -> bool:
    return any(d.removesuffix("()").rpartition(".")[2] == "remote" for d in cls.facts.decorators)
