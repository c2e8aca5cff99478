"""Evaluates one unit: what each of its values may be, given what is known of everything else.

The values are walked in the order of the blocks until nothing changes; an instruction has one transfer function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from validator.definitions import ClassDef, External, Method, Missing, Module, Symbol, Value
from validator.domains.axes import LOCAL, SOME, WHOLE
from validator.domains.placement import UNPLACED, inherited, of_parameter
from validator.domains.spmd import (
    NONE,
    OF_ONE,
    UNIFORM,
    Cause,
    Causes,
    between,
    combined,
    data,
    folded,
    member,
    only,
    rank,
    unsure,
)  # fmt: skip
from validator.flow.annotations import objects_of
from validator.flow.attributes import attribute
from validator.flow.batches import batch_of
from validator.flow.callgraph import sections
from validator.flow.calls.dispatch import call
from validator.flow.calls.groups import axes_in
from validator.flow.calls.protocols import drain, enter, iterated, leave, yielded
from validator.flow.containers import GROWING, fillings
from validator.flow.control import reachable
from validator.flow.foreign import likely_rank
from validator.flow.narrowing import narrowed
from validator.flow.program.answers import Passed, Result, Site
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.tensors import apart, computed
from validator.flow.texts import spelled
from validator.flow.values import (
    ANYTHING,
    BOTTOM,
    COUNTED,
    NONE_OBJ,
    NOT_YET,
    NOTHING,
    STRING,
    UNKNOWN,
    Obj,
    Val,
    as_long_as,
    beside,
    const,
    dictionary_of,
    elements,
    entries,
    fetched,
    group_of,
    holds_alike,
    in_parts,
    is_dictionary,
    is_text,
    join,
    join2,
    join_ways,
    obj,
    picked,
    sequence,
    tuple_of,
    unordered,
)  # fmt: skip
from validator.flow.worklist import Walk
from validator.ir import Value as Instruction
from validator.project import Unknown

if TYPE_CHECKING:
    from validator.flow.solver import Read

K = TypeVar("K")
T = TypeVar("T")
_LEAVING = frozenset({"yield", "yield from", "store_attr", "store_global", "store_class"})
_TESTED_FOR_LENGTH = frozenset({"tuple", "seq", "dict", "unordered", *COUNTED})
_OF_SETS = frozenset({"Sub", "BitOr", "BitAnd", "BitXor"})
_FOLDING = frozenset({"FloorDiv", "Mod", "BitAnd", "RShift"})
_OF_RANKS = ("rank", "size", "group", "job rank", "job ranks")
_TESTED_FOR_PRESENCE = frozenset({"environment", "inst", "self", "class", "unit", "bound", "module", "group", "mesh"})
_AS_LONG = frozenset({"list", "tuple", "iter", "enumerate", "reversed", "sorted", "tqdm.tqdm"})
_PERHAPS_NONE = frozenset({"top", "more", "param", "part", "ext", "made"})
_THINGS = frozenset({"inst", "class", "unit", "module"})
_OPPOSITES = ({"Eq", "NotEq"}, {"Is", "IsNot"}, {"In", "NotIn"}, {"Lt", "GtE"}, {"Gt", "LtE"})
_COMPARED = frozenset({"Eq", "NotEq", "Is", "IsNot"})
_REMAKING = frozenset(("ext", name) for name in ("tuple", "frozenset", "sorted", "str", "int"))
_BUILTIN_DECORATORS = frozenset({
    "staticmethod", "classmethod", "property", "functools.cached_property", "cached_property", "abc.abstractmethod",
    "abstractmethod", "override", "typing.override", "torch.no_grad()", "torch.inference_mode()", "torch.no_grad",
    "functools.lru_cache", "functools.lru_cache()", "functools.cache", "lru_cache", "lru_cache()", "cache",
    "contextmanager", "contextlib.contextmanager", "asynccontextmanager", "contextlib.asynccontextmanager",
})  # fmt: skip


def is_plain(decorators: tuple[str, ...]) -> bool:
    """Whether decorators leave a function what it is, as far as this analysis can tell."""
    return all(d in _BUILTIN_DECORATORS for d in decorators)


class Evaluation(Walk):
    """The evaluation of one unit."""

    def __init__(self, flow: Flow, unit: Unit) -> None:
        super().__init__(unit)
        self.flow = flow
        self.models = flow.models
        self.sites: dict[int, Site] = {}
        self.parts: dict[int, Site] = {}  # what functions are passed whose bodies stand here
        self.steps: dict[tuple[int, int], tuple[str, ...]] = {}  # (call, position) -> how the argument is placed by it
        self.wrapped: dict[tuple[int, int], tuple[str, ...]] = {}  # the same of arguments that the result is made from
        self.made: dict[int, dict[ClassDef, tuple[tuple[str, Val], ...]]] = {}
        self.switched: dict[int, tuple[str, Val]] = {}
        self._reached: dict[frozenset[tuple[int, int]], frozenset[int]] = {}
        unknown = (rows for test, rows in self._branches.items() if self.operand(test) is NOT_YET)
        self._edges_alone = frozenset((block, way) for rows in unknown for block, way, _ in rows)
        self._asked_alone: dict[int, list[int]] = {}  # phi -> its operands that came on ways of a job of one process
        self._late: dict[int, bool] = {}  # by test of an attribute whether that is made where it is missing
        self._last: Result | None = None

    def run(self, news: frozenset[Read] | None) -> Result:
        """The result of the unit. `news`: what has changed since it was asked for last, None at first."""
        self.walk(news)
        if self._moved or self._last is None:
            self._last = self._result()
        return self._last

    def evaluate(self, number: int, value: Instruction) -> Val:
        wanted = _WANTED.get(value.op, 0)
        if wanted and NOT_YET in map(self.operand, value.args[:wanted]):
            return NOT_YET
        return _TRANSFER[value.op](self, number, value)

    def noted(self, number: int) -> object:
        steps = [row for rows in (self.steps, self.wrapped) for row in rows.items() if row[0][0] == number]
        return self.sites.get(number), self.made.get(number), self.switched.get(number), steps

    def forget(self, number: int) -> None:
        for noted in (self.sites, self.parts, self.made, self.switched):
            noted.pop(number, None)
        for steps in (self.steps, self.wrapped):
            for key in [key for key in steps if key[0] == number] if steps else ():
                del steps[key]

    def depends(self, condition: Val) -> Causes:
        return self.truth(condition)

    def _result(self) -> Result:
        returned, yielded = [], []
        several = len(self._returns) > 1
        here = self._always_there() if several else NOTHING
        global_rows: dict[str, tuple[Val, ...]] = {}
        class_rows: dict[str, tuple[Val, ...]] = {}
        stores = []
        placings, placed = self._placed_in_place()
        unshared = self._unshared(self._edges_alone)
        causes: Causes = NONE
        for block, number in self._returns if several else ():
            given = self.known(number, block)
            back = self._under(block, given, here)
            causes |= back.v - given.v
            returned.append(_returned_alone(back) if block in unshared else back)
        left = join_ways(returned) if several else join(self._plain_returns())
        for number in self._leaving:
            value = self.code.values[number]
            if value.op == "yield":
                yielded.append(self.known(value.args[0], value.block))
            elif value.op == "yield from":
                yielded.append(elements(self.vals[value.args[0]]))
            elif value.op == "store_attr":
                kept = self._kept(value)
                kept = kept.placed(placed[number]) if number in placed else kept
                stores.append((self.vals[value.args[0]], value.data, kept))
            elif value.op == "store_global":
                filling = self._around_groups(value.args[0], value.block)
                _also(global_rows, value.data, self._stored(value.block, self.vals[value.args[0]], filling))
            elif value.op == "store_class":
                _also(class_rows, value.data, self.vals[value.args[0]])
        sites = dict(sorted(self.sites.items()))
        return Result(
            tuple(self.vals), in_parts(left, returned, causes) if causes else left, join(yielded),
            dict(self._outs(unshared)), sites, global_rows, class_rows,
            _together(row for made in self.made.values() for row in made.items()),
            _together(self.switched.values()), _passed({**sites, **self.parts}),
            _together((name, (owner, kept)) for owner, name, kept in stores),
            _together((name, (owner, content)) for name, owner, content in fillings(self)),
            tuple(placings), {**self.wrapped, **self.steps}, NOT_YET in self.vals,
        )  # fmt: skip

    # What leaves a unit, as its code says: these do not change from one evaluation to the next.

    @cached_property
    def _returns(self) -> list[tuple[int, int]]:
        """(block, value) of each `return` that is reached."""
        ends = ((block, self.code.blocks[block].end) for block in self.order.blocks)
        return [(block, end[1]) for block, end in ends if end[0] == "return"]

    @cached_property
    def _leaving(self) -> list[int]:
        """What is yielded, and stored where others find it."""
        values = self.code.values
        numbers = (number for block in self.order.blocks for number in self.code.blocks[block].values)
        return [n for n in numbers if values[n].op in _LEAVING and values[n].args]

    @cached_property
    def _changes(self) -> list[int]:
        """Variables behind calls that were given them."""
        values = self.code.values
        numbers = (number for block in self.order.blocks for number in self.code.blocks[block].values)
        return [n for n in numbers if values[n].op == "mut"]

    @cached_property
    def _changed_parameters(self) -> list[tuple[int, list[int]]]:
        return self._changed(frozenset())

    def _changed(self, unshared: frozenset[int]) -> list[tuple[int, list[int]]]:
        """Parameters that calls change in place, with what is left of them at the ends but some; to bind the name anew
        changes nothing for callers."""
        found = []
        for position, (name, _) in enumerate(self.code.params):
            ends = self._forms(position, [kept[name] for block, kept in self.code.exits if block not in unshared])
            if any(self.code.values[number].op == "mut" for number in ends):
                found.append((position, ends))
        return found

    def _placed_in_place(self) -> tuple[list[tuple[Val, str, str]], dict[int, frozenset[str]]]:
        """Attributes that a call places otherwise where they are (`fully_shard(self.model)`).

        Where the attribute was stored here before, that store is what is left: by its number, how it is placed.
        """
        placings: list[tuple[Val, str, str]] = []
        placed: dict[int, frozenset[str]] = {}
        values = self.code.values
        for number in self._changes if self.steps else ():
            value = values[number]
            steps = self.steps.get((value.args[1], value.data))
            if not steps:
                continue
            root = self.root(number)
            if values[root].op == "attr":
                placings += [(self.vals[values[root].args[0]], values[root].data, step) for step in steps]
            for each in self._stored_of(root):
                always = self.unit.control.deciding(value.block) <= self.unit.control.deciding(values[each].block)
                if each < number:
                    placed[each] = self.vals[number].state | (frozenset() if always else self.vals[root].state)
        return placings, placed

    def _stored_of(self, root: int) -> list[int]:
        """The stores in attributes of a value, or of what calls have made of it."""
        values = self.code.values
        return [n for n in self._leaving if values[n].op == "store_attr" and self.root(values[n].args[1]) == root]

    def _plain_returns(self) -> list[Val]:
        return [self.vals[number] for _, number in self._returns]

    def _outs(self, unshared: frozenset[int]) -> list[tuple[int, Val]]:
        """What parameters that calls have changed in place are at the end, where several processes get there."""
        changed = self._changed(unshared) if unshared else self._changed_parameters
        return [(position, join(self.vals[n] for n in ends)) for position, ends in changed]

    def _forms(self, position: int, ends: list[int]) -> list[int]:
        """What is left of the object that was passed, where the variable still holds it: as passed, or changed."""
        values, seen, stack = self.code.values, dict.fromkeys(ends), list(ends)
        while stack:
            value = values[stack.pop()]
            for each in value.args if value.op == "phi" else ():
                if each not in seen:
                    seen[each] = None
                    stack.append(each)
        roots = {number: values[self.root(number)] for number in seen}
        return [number for number, root in roots.items() if root.op == "param" and root.data[0] == position]

    # -- control -------------------------------------------------------------------------------------------

    def truth(self, value: Val) -> Causes:
        return truth_of(value)

    def _under(self, block: int, value: Val, here: frozenset[int]) -> Val:
        """A value that is returned only where branches let it: it varies as they do; so does whether there is one, but
        for branches (`here`) of which every way returns something."""
        deciding = self.unit.control.deciding(block) if self.code.blocks[block].preds else frozenset()
        causes = self.conditions(deciding)
        differs = NONE if self._is_one_thing(self.code.returned) else causes
        return value.with_causes(v=differs, p=self.conditions(deciding - here) if value.objs else NONE)

    def _is_one_thing(self, numbers: Iterable[int]) -> bool:
        """Whether values are one thing, or None: they differ in whether it is there, and in nothing else."""
        found = {self.vals[number].objs - {NONE_OBJ} for number in numbers} - {frozenset()}
        return len(found) == 1 and _is_thing(Val(found.pop()))

    def _always_there(self) -> frozenset[int]:
        """The branches behind which no return gives None."""
        behind: dict[int, bool] = {}
        for block, number in self._returns:
            there = _is_there(self.vals[number])
            for branch in self.unit.control.deciding(block):
                behind[branch] = behind.get(branch, True) and there
        return frozenset(branch for branch, there in behind.items() if there)

    def _kept(self, value: Instruction) -> Val:
        """What is stored in an attribute. Where both ways of a branch store something, it is there on all ranks."""
        _owner, stored = value.args
        control, values = self.unit.control, self.code.values
        balanced: set[int] = set()
        arms = control.arms.get(value.block, ())
        for other in (values[each] for each in self._leaving) if arms else ():
            if other.op != "store_attr" or other.data != value.data or self.vals[other.args[1]].objs == {NONE_OBJ}:
                continue
            beside = control.arms.get(other.block, ())
            direct = control.direct.get(other.block, ())
            balanced.update(branch for branch, way in arms if (branch, way) not in beside and branch in direct)
        balanced |= self._around_groups(stored, value.block)
        return self._stored(value.block, self.vals[stored], frozenset(balanced))

    def _around_groups(self, stored: int, block: int) -> frozenset[int]:
        """Of a group that a loop makes for some ranks in each round, and each rank keeps if it belongs to it: the
        branches in the loop. Each rank belongs to one, so it is there on all ranks.

        The loop goes over lists of ranks, or each list is a `range`; a list that is picked out in the loop may leave
        ranks out.
        """
        value = self.code.values[self.root(stored)]
        loop = self.code.blocks[value.block].loop
        if value.op != "call" or loop < 0 or not self.vals[stored].of("group") or not self.is_of_every_rank(value):
            return frozenset()
        first = self.code.loops[loop].header
        return frozenset(b for b in self.unit.control.deciding(block) if self._is_inside(b, first))

    def is_of_every_rank(self, call: Instruction) -> bool:
        """Whether a call in a loop that makes groups gets lists that leave no rank out, as far as one can tell."""
        named = zip(call.data.names, call.args[1:], strict=True)
        ranks = [n for place, (name, n) in enumerate(named) if name == "ranks" or (name is None and place == 0)]
        return any(map(self._is_range_or_turn, ranks))

    def _is_range_or_turn(self, number: int) -> bool:
        """Whether a list of ranks is what a loop goes through, a `range` or what is reckoned from one, or holds just
        what a loop goes through."""
        value = self.code.values[self.root(number)]
        if value.op == "call":
            called = self.code.values[value.args[0]].data
            return called == "range" or called == "list" and any(map(self._is_range_or_turn, value.args[1:]))
        if value.op == "collect":
            _, count, iterators = value.data
            return len(value.args) == count + iterators and all(map(self._is_reckoned, value.args[:count]))
        if value.op in ("unpack", "list", "tuple") and len(value.args) == 1:
            return self._is_range_or_turn(value.args[0])
        return value.op == "next"

    def _is_reckoned(self, number: int) -> bool:
        """Whether a number is made by arithmetic of what stands before all loops and of what they count, not picked out
        of what holds it."""
        value = self.code.values[self.root(number)]
        if value.op == "binary":
            return all(map(self._is_reckoned, value.args))
        return value.op not in ("item", "call") or self.code.blocks[value.block].loop < 0

    def _is_inside(self, block: int, header: int) -> bool:
        """Whether a block lies in the body of a loop, or of a loop in it; the test of the loop itself does not."""
        loop = self.code.blocks[block].loop
        while loop not in (-1, header):
            loop = self.code.blocks[self.code.loops[loop].after].loop  # the loop around
        return block != header and loop == header

    def _stored(self, block: int, value: Val, balanced: frozenset[int] = frozenset()) -> Val:
        """A value that is stored under branches: whether it is there varies as they do."""
        causes = self.conditions(self.unit.control.deciding(block) - balanced)
        under = self.flow.get("under", self.unit)
        if under is NOT_YET:
            return under
        causes |= under.v
        if not causes or NONE_OBJ in value.objs and len(value.objs) == 1:
            return value
        return value.with_causes(p=causes)

    def root(self, number: int) -> int:
        return self.unit.root(number)

    # -- instructions --------------------------------------------------------------------------------------

    def switch(self, number: int, state: str) -> None:
        """A library is set up here."""
        value = self._stored(self.code.values[number].block, UNKNOWN)
        self.switched[number] = (state, Val(p=value.p or frozenset({UNIFORM})))

    def around(self, number: int) -> Causes:
        """What the branches depend on that decide who comes to a value."""
        return self.conditions(self.unit.control.around(self.code.values[number].block))

    def param(self, number: int, value: Instruction) -> Val:
        position, name = value.data
        kind = self.code.params[position][1]
        unit = self.unit
        if position == 0 and unit.has_receiver and unit.cls is not None and unit.method is not None:
            if unit.method.facts.is_classmethod:
                return obj("class", unit.cls)
            return obj("self", unit.cls)
        objs: set[Obj] = {("param", position)}
        if unit.method is not None and kind not in ("*", "**"):
            objs |= objects_of(self.flow.parameters.declared(unit, name))
        v, n, p = (frozenset({Cause("param", "", True, facet, position)}) for facet in "vnp")
        return Val(frozenset(objs), v, n, p, of_parameter(position))

    def const(self, number: int, value: Instruction) -> Val:
        return const(value.data)

    def name(self, number: int, value: Instruction) -> Val:
        if value.data == "__file__" or value.data == "__name__":
            return UNKNOWN
        if value.data == "super":
            return obj("ext", "super")
        # a lambda or a nested unit sees the module's names through the function around it
        return join(self.meaning(symbol, value.data) for symbol in self.flow.meanings(self.unit, value))

    def meaning(self, symbol: Symbol | Missing, name: str) -> Val:
        """The value that a symbol of the project stands for."""
        if isinstance(symbol, Method):
            unit = self.flow.unit_of(symbol)
            if unit is None:
                return UNKNOWN
            if (dotted := self._of_own_library(symbol)) and symbol.module is not self.unit.module:
                return obj("ext", dotted)
            if is_plain(symbol.facts.decorators) or "." in symbol.qualname:
                return obj("unit", unit)
            found: Val = self.flow.get("global", symbol.module, symbol.name)
            return found if found.objs or found is NOT_YET else obj("unit", unit)
        if isinstance(symbol, ClassDef):
            own = self._of_own_library(symbol) if symbol.module is not self.unit.module else ""
            return obj("ext", own) if own else obj("class", symbol)
        if isinstance(symbol, Module):
            return obj("module", symbol)
        if isinstance(symbol, External):
            return obj("ext", symbol.path)
        if isinstance(symbol, Value):
            held: Val = self.flow.get("global", symbol.module, symbol.name)
            return held
        if isinstance(symbol, Unknown) and "." in symbol.path and symbol.path != name:
            return obj("ext", symbol.path)
        return UNKNOWN

    def _of_own_library(self, symbol: Method | ClassDef) -> str:
        """The name under which the tables say what a function, or a context manager, does: the project may be the
        library itself. They say more than its body tells, which finds groups and backends in global variables."""
        dotted = f"{symbol.module.name}.{symbol.qualname}"
        row = self.models.call(dotted)
        if row is None or isinstance(symbol, Method) and symbol.cls is not None:
            return ""
        made = isinstance(symbol, ClassDef)
        known = row.gathers is not None if made else row.is_collective or row.result in _OF_RANKS
        return dotted if known else ""

    def free(self, number: int, value: Instruction) -> Val:
        distance, name = value.data
        outer = self.unit.above(distance)
        if outer is None:
            return UNKNOWN
        numbers = tuple(outer.code.definitions.get(name, ()))
        return self.flow.close(join(self.flow.vals(outer, numbers)), outer)

    def imported(self, number: int, value: Instruction) -> Val:
        return self.meaning(self.flow.symbol(self.unit, value), "")

    def closure(self, number: int, value: Instruction) -> Val:
        inner = self.flow.units_of(self.unit.module).get(value.data)
        if inner is None:
            return UNKNOWN
        if inner.code.kind == "class":
            return obj("class", inner.cls) if inner.cls is not None else UNKNOWN
        name, _ = inner.wraps
        if not name:
            return obj("unit", inner)
        wrapped: Val = self.vals[self.unit.root(self.code.definitions[name][0])]
        return join2(wrapped, obj("unit", inner)) if self.flow.may_communicate(inner) else wrapped

    def attr(self, number: int, value: Instruction) -> Val:
        owner = self.operand(value.args[0])
        return attribute(self, number, self._behind_tests(owner, value.args[0], value.block), value.data)

    def known(self, number: int, block: int) -> Val:
        """A value as a block finds it, behind tests of its class."""
        return self._behind_tests(self.vals[number], number, block)

    def arguments(self, call: Instruction) -> list[Val]:
        """What a call is given."""
        given = map(self.operand, call.args[1:])
        if not self.unit.class_tests.by_subject:
            return list(given)
        rows = zip(given, call.args[1:], strict=True)
        return [self._behind_tests(value, number, call.block) for value, number in rows]

    def _behind_tests(self, value: Val, number: int, block: int) -> Val:
        tests = self.unit.class_tests
        for classes, holds in tests.around(number, block) if tests.by_subject and value is not NOT_YET else ():
            value = narrowed(value, self.vals[classes], holds, self.models)
        return value

    def item(self, number: int, value: Instruction) -> Val:
        owner, key = self.operand(value.args[0]), self.operand(value.args[1])
        constant = key.constant()
        found: list[Val] = []
        for o in owner.each:
            kind = o[0]
            if kind == "ext" and o[1] == "os.environ":
                return self.environment(constant)
            if kind == "tuple" and isinstance(constant, int) and -len(o[1]) <= constant < len(o[1]):
                found.append(o[1][constant])
            elif kind == "dict":
                found += entries(o, key)
            elif kind == "mesh":
                found.append(self.mesh_part(o, key))
            elif kind == "section":
                found.append(sections.below(o, constant))
            elif kind in ("unordered", "str", *COUNTED):
                continue
            elif kind in ("tuple", "seq"):
                sliced = self.code.values[value.args[1]].op == "slice"
                found.append(Val(frozenset({("seq", elements(owner))})) if sliced else elements(owner))
            elif kind == "param":
                passed: Val = self.flow.get("argument", self.unit, o[1])
                meshes = [self.mesh_part(mesh, key) for mesh in passed.of("mesh")]
                found += [sections.below(each, constant) for each in passed.of("section")]
                found += meshes or [NOT_YET if passed is NOT_YET else UNKNOWN]
                if isinstance(constant, str) and is_dictionary(passed):
                    found.append(picked(passed, constant))
                elif isinstance(constant, int) and not isinstance(constant, bool) and constant >= 0 and not meshes:
                    found[-1] = self._of_passed(o[1], constant)
            elif kind in ("top", "more"):
                found.append(UNKNOWN if kind == "top" else ANYTHING)
        result = join(found) if found or owner.of("dict") else UNKNOWN
        if result is NOT_YET:
            return result
        if isinstance(constant, str) and constant in self.models.ranks["names"] and result.objs == UNKNOWN.objs:
            result = likely_rank(constant)  # `opt["rank"]` of a configuration, as `opt.rank` of an unknown object
        # the elements of one tuple say themselves by what they vary
        place = constant if isinstance(constant, int) else None
        exact = place is not None and len(owner.objs) == 1 and any(place < len(o[1]) for o in owner.of("tuple"))
        v = key.v if exact else combined(owner.v, key.v)
        if isinstance(constant, str) and constant in self.models.likely["columns"] and UNIFORM not in v | result.v:
            v |= data(sure=False)  # a column of a batch, whatever holds it
        n = result.n
        if self._selects(value.args[1]):
            n |= owner.n | (data(sure=False) if UNIFORM not in owner.v else NONE) | owner.v | key.v
        elif self.code.values[value.args[1]].op == "slice":
            n |= owner.n | self._cut(self.code.values[value.args[1]].args)
        return Val(result.objs, combined(result.v, v), n, result.p, inherited(result.state, owner.state))

    def _cut(self, bounds: tuple[int, ...]) -> Causes:
        """By what the length of a slice varies. A piece between two bounds that move together is as long everywhere;
        `rows[rank::size]` is, where the rows can be shared out evenly, which who writes so sees to."""
        lower, upper = (self.vals[each].v for each in bounds[:2])
        if len(bounds) > 2 and not self.vals[bounds[2]].is_const(None):
            return unsure(upper)
        return between(lower, upper)

    @staticmethod
    def mesh_part(mesh: Obj, key: Val) -> Val:
        """`mesh["dp"]`, `mesh["dp", "cp"]`: a part of a mesh; of all its dimensions it is the mesh."""
        names: list[object] = [key.constant()]
        for o in key.of("tuple"):
            names = [part.constant() for part in o[1]]
        if not all(isinstance(name, str) for name in names):
            return obj("mesh", None, None)
        if mesh[1] is None or mesh[2] is None:
            return obj("mesh", tuple(names), None)
        return obj("mesh", tuple(names), mesh[2] and set(names) == set(mesh[1]))

    def _selects(self, number: int) -> bool:
        """Whether an index is a mask: what is left of a tensor then depends on what it holds."""
        value = self.code.values[self.root(number)]
        if value.op == "compare":
            return value.data in ("Gt", "GtE", "Lt", "LtE", "Eq", "NotEq")
        if value.op == "unary":
            return bool(value.data == "Invert")
        if value.op == "binary" and value.data in ("BitAnd", "BitOr"):
            return all(self._selects(each) for each in value.args)
        if value.op == "call":
            callee = self.code.values[value.args[0]]
            return callee.op == "attr" and callee.data == "bool"
        return False

    def environment(self, name: object, default: Val | None = None) -> Val:
        """What an environment variable holds: a text, or what is taken where it is not set."""
        if isinstance(name, str) and (name in self.models.ranks["environment"] or name.endswith("_RANK")):
            local = "LOCAL" in name
            node = "NODE" in name or name == "GROUP_RANK"
            among = "" if node else "node" if local else "job"
            axes = frozenset({"local"} if local else {"node"} if node else WHOLE)
            sure = name in self.models.ranks["environment"]  # else what a launcher that nobody knows says
            return Val(frozenset({("environment", name, among)}), rank(axes, sure))
        if isinstance(name, str) and name in self.models.ranks["sizes"]:
            return obj("size", group_of(WHOLE))
        return STRING if default is None else join2(STRING, default)

    def call(self, number: int, value: Instruction) -> Val:
        return call(self, number, value)

    def part(self, number: int, value: Instruction) -> Val:
        """A function whose body follows here: it is told what it is passed, nothing else happens."""
        call(self, number, value)
        if (site := self.sites.pop(number, None)) is not None:
            self.parts[number] = site
        return BOTTOM

    def mut(self, number: int, value: Instruction) -> Val:
        """A variable behind a call that was given it."""
        before = self.operand(value.args[0])
        change = self.after.get((value.args[1], value.data))
        return change(before) if change is not None else before

    def store_item(self, number: int, value: Instruction) -> Val:
        _owner, key, stored = map(self.operand, value.args)

        def change(before: Val) -> Val:
            objs: set[Obj] = set()
            constant = key.constant()
            for o in before.each:
                if o[0] == "dict" and constant is not None and len(o[1]) < 24:
                    rows = dict(o[1])
                    rows[constant] = join2(rows.get(constant, BOTTOM), stored)
                    objs.add(("dict", tuple(sorted(rows.items(), key=lambda r: str(r[0]))), o[2]))
                elif o[0] == "dict":
                    objs.add(("dict", o[1], join2(o[2] or BOTTOM, stored)))
                elif o[0] == "seq" or o[0] == "tuple":
                    objs.add(("seq", join2(elements(before), stored)))
                else:
                    objs.add(o)
            if before.of("dict") and (apart := only(key.v, "rank", "member", "param")):
                objs.add(unordered("keys", apart))
            if isinstance(constant, str) and not is_dictionary(before):  # under a text only mappings hold something
                objs.add(("dict", ((constant, stored),), UNKNOWN))
                return Val(frozenset(objs), before.v, before.n, before.p, before.state)
            v = before.v if is_dictionary(before) else combined(before.v, stored.v)
            return Val(frozenset(objs), v, before.n, before.p, before.state)

        self.after[number, 0] = change
        return BOTTOM

    def binary(self, number: int, value: Instruction) -> Val:
        left, right = map(self.operand, value.args)
        kept = frozenset(o for o in left.objs | right.objs if o[0] in ("seq", "tuple", "dict"))
        kept |= _numbered(value.data, left, right) | computed(value.data, left, right)
        order = beside(left, "unordered") | beside(right, "unordered")
        holds = any(o[0] in ("seq", "tuple", "dict") for o in kept)
        if value.data == "Add" and is_text(left):
            kept |= spelled([left, right])
        if value.data == "Add" and holds:
            whole = sequence(join2(elements(left), elements(right)))
            filled = self._filled_up_to(value)
            n = self.vals[filled].v if filled >= 0 else left.n | right.n
            if only(left.n, "rank", "member") and only(right.n, "rank", "member"):
                n = unsure(n)  # `rows[rank:] + rows[:rank]` is as long everywhere
            return Val(whole.objs | order, left.v | right.v, n)
        if value.data == "Mult" and holds:
            whole = sequence(join2(elements(left), elements(right)))
            n = left.n | right.n | (right.v if left.objs & kept else left.v)
            return Val(whole.objs | repeated(left, right) | order, left.v | right.v, n)
        if value.data in _OF_SETS and beside(left, "unordered"):
            return Val(kept | beside(left, "unordered"), left.v | right.v, left.n | right.n | left.v | right.v)
        if value.data == "Sub" and _are_bounds(left, right):  # pieces whose ends move together are as long everywhere
            return Val(kept, combined(*(v - only(v, "rank", "member") for v in (left.v, right.v))), left.n | right.n)
        if value.data == "Mod" and _is_within_node(left, right):
            return Val(kept, rank({LOCAL}), left.n | right.n)
        if value.data in _FOLDING or only(left.v, "rank", "member") and only(right.v, "rank", "member"):
            causes = folded(combined(left.v, right.v))
            return Val(kept, causes, left.n | right.n, state=(left.state | right.state) - UNPLACED)
        if value.data == "Div" and not kept:
            kept = frozenset(o for o in left.each if o == ("ext", "pathlib.Path"))
        return Val(
            kept, combined(left.v, right.v), combined(left.n, right.n), state=(left.state | right.state) - UNPLACED
        )

    def _filled_up_to(self, value: Instruction) -> int:
        """The number of elements that a list has when enough are put behind it: `size` in `rows + [None] * (size -
        len(rows))`; -1 otherwise."""
        values, (rows, more) = self.code.values, map(self.root, value.args)
        for factor in values[more].args if (values[more].op, values[more].data) == ("binary", "Mult") else ():
            lacking = values[self.root(factor)]
            length = values[self.root(lacking.args[1])] if (lacking.op, lacking.data) == ("binary", "Sub") else None
            if length is not None and length.op == "call" and values[length.args[0]].data == "len":
                return lacking.args[0] if self.root(length.args[1]) == rows else -1
        return -1

    def unary(self, number: int, value: Instruction) -> Val:
        operand = self.operand(value.args[0])
        if value.data == "Not":
            return Val(frozenset(("several", not o[1]) for o in operand.each if o[0] == "several"), self.truth(operand))
        constant = operand.constant()
        if value.data == "USub" and isinstance(constant, int | float):
            return const(-constant)
        return Val(v=operand.v, n=operand.n, state=operand.state)

    def compare(self, number: int, value: Instruction) -> Val:
        left, right = map(self.operand, value.args)
        if value.data in ("Is", "IsNot") and right.is_const(None) and self._made_late(number, value.args[0]):
            return Val()  # the first time it is there nowhere
        if value.data in _COMPARED:
            if _is_marker(left, right) or _is_marker(right, left):
                return Val(v=left.p | right.p)
            if right.is_const(None):
                return Val(v=left.p | only(left.v, "param") & left.p)
            if left.is_const(None):
                return Val(v=right.p)
        for one, asked, other in ((left, value.data, right), (right, _MIRRORED.get(value.data, ""), left)):
            if any(c.kind == "rank" for c in one.v) and (_below(asked, other.constant()) or _inside(asked, one, other)):
                return Val(v=combined(one.p, frozenset(c for c in one.v if c.kind not in ("rank", "member"))))
        if value.data in ("In", "NotIn"):
            if any(g[:2] == ("group", WHOLE) for o in right.of("counted") for g in o[1].objs):
                return Val()
            if self.code.values[value.args[0]].op == "const":
                return Val()  # a table that is not there has no keys to ask for
            if self._is_remembered(number, *value.args):
                return Val()  # each rank asks for its own key for the first time when the others do
            inside = combined(member(left.v), right.v)
            own = bool(left.objs) and all(o[0] == "ordinal" for o in left.each)
            # the rank of some other process mostly is one that all ranks of the group know alike
            return Val(v=unsure(inside) if right.of("counted") and not own else inside)
        return Val(_several(value.data, left, right), combined(left.v, right.v))

    def _made_late(self, test: int, number: int) -> bool:
        """Whether an attribute is only ever stored where this test finds that it is not there yet."""
        known = self._late.get(test)
        if known is None:
            held = self.code.values[self.root(number)]
            known = self._late[test] = held.op == "attr" and self._is_made_under(test, held.data)
        return known

    def _is_remembered(self, test: int, key: int, table: int) -> bool:
        """Whether what a table does not hold yet is put there under just this key, where the test finds so."""
        return any(
            each.op == "store_item"
            and self._is_same(each.args[0], table)
            and self._is_same(each.args[1], key)
            and test in self._tests_around(each.block)
            for each in self.code.values
        )

    def _is_made_under(self, test: int, name: str) -> bool:
        found = False
        for unit in self.flow.units(iter(self.flow.stores.writers(name))):
            for value in unit.code.values:
                if value.op != "store_attr" or value.data != name:
                    continue
                if unit is self.unit and test in self._tests_around(value.block):
                    found = True
                elif not _is_none(unit.code.values[value.args[1]]):
                    return False
        return found

    def _tests_around(self, block: int) -> set[int]:
        """The conditions of the branches that decide whether a block is reached."""
        return {self.code.blocks[branch].end[1] for branch in self.unit.control.deciding(block)}

    def join_parts(self, number: int, value: Instruction) -> Val:
        parts = [self.operand(each) for each in value.args]
        return Val(spelled(parts), combined(*(p.v for p in parts)))

    def slice_(self, number: int, value: Instruction) -> Val:
        return Val(v=combined(*(self.operand(each).v for each in value.args)))

    def display(self, number: int, value: Instruction) -> Val:
        """A list, set or dictionary that is written out; of a module's own with what other functions put into it."""
        made = _DISPLAYS[value.op](self, number, value)
        names = self._global_names(number) if self.code.kind == "module" else ()
        return join([made, *(held for name in names for held in self.flow.variables.filled(self.unit.module, name))])

    def _global_names(self, number: int) -> list[str]:
        """The global variables in which a value is stored."""
        users = (self.code.values[user] for user in self.unit.users.get(number, ()))
        return [user.data for user in users if user.op == "store_global"]

    def tuple_(self, number: int, value: Instruction) -> Val:
        parts = [self.operand(each) for each in value.args]
        v = frozenset().union(*(p.v for p in parts)) if parts else NONE
        if value.data:  # starred elements
            inner = join(elements(p) if i in value.data else p for i, p in enumerate(parts))
            n = frozenset().union(*(parts[i].n for i in value.data))
            return Val(sequence(inner).objs, v, n)
        made = tuple_of(parts) if len(parts) <= 24 else sequence(join(parts))
        return Val(made.objs, v)

    def set_(self, number: int, value: Instruction) -> Val:
        parts = [self.operand(each) for each in value.args]
        texts = len(parts) > 1 and any(is_text(part) for part in parts)
        order = frozenset({unordered("set")}) if texts else NONE
        return Val(sequence(join(parts)).objs | order, frozenset().union(*(p.v for p in parts)))

    def dict_(self, number: int, value: Instruction) -> Val:
        pairs = zip(value.args[::2], value.args[1::2], strict=True)
        # what is no constant may be any key: as the empty tuple here
        keyed = ((None if key < 0 else self._key(key), self.vals[held]) for key, held in pairs)
        return dictionary_of(keyed)

    def _key(self, number: int) -> object:
        constant = self.vals[number].constant()
        return () if constant is None else constant

    def iter_(self, number: int, value: Instruction) -> Val:
        iterable: Val = self.operand(value.args[0])
        drain(self, number, iterable)
        return iterable

    def more(self, number: int, value: Instruction) -> Val:
        return Val(v=self.operand(value.args[0]).n)

    def next_(self, number: int, value: Instruction) -> Val:
        return self.element(self.operand(value.args[0]))

    def element(self, iterable: Val) -> Val:
        """One element of what is iterated."""
        found = [elements(iterable)]
        v = iterable.v
        for o in iterable.each:
            if o[0] == "made" and self.models.library(o[1]).iterates == "data":
                v |= data()
                found.append(batch_of(self, iterable))
            elif o[0] == "keeping":
                continue  # of the loader beside it
            elif o[0] == "generator":
                found.append(yielded(self, o))
            elif o[0] == "made" and any(each[0] in ("seq", "dict") for each in iterable.each):
                continue  # what it holds stands beside it
            elif o[0] in ("param", "made", "ext", "inst", "self"):
                found.append(iterated(o))
        result = join(found)
        if not result.objs and not result.v:
            if NOT_YET in found:
                return NOT_YET
            result = UNKNOWN
        return Val(result.objs, result.v | v, result.n, result.p, inherited(result.state, iterable.state))

    def collect(self, number: int, value: Instruction) -> Val:
        kind, count, iterators = value.data
        elts = [self.operand(each) for each in value.args[:count]]
        n: Causes = NONE
        for each in value.args[count : count + iterators]:
            n |= self.operand(each).n
        for each in value.args[count + iterators :]:
            n |= self.truth(self.operand(each))
        v = frozenset().union(*(e.v for e in elts)) if kind != "dict" else NONE
        over = [self.operand(each) for each in value.args[count : count + iterators]]
        order = frozenset().union(*(beside(each, "unordered") for each in over))
        if kind == "set":
            order = frozenset({unordered("set")}) if elts and is_text(elts[-1]) else NONE
        if kind == "list" and len(value.args) == count + 1:
            order |= beside(over[0], *COUNTED)
        made = obj("dict", (), elts[-1]) if kind == "dict" else sequence(elts[-1]) if elts else BOTTOM
        return Val(made.objs | order if elts else NONE, v, n, state=elts[-1].state - UNPLACED)

    def unpack(self, number: int, value: Instruction) -> Val:
        owner = self.operand(value.args[0])
        position, count, star = value.data
        found: list[Val] = []
        fits = star < 0 and any(o[0] == "tuple" and len(o[1]) == count for o in owner.each)
        for o in owner.each:
            if fits and o[0] == "tuple" and len(o[1]) != count:
                continue  # it cannot be taken apart into so many
            if o[0] == "tuple" and star < 0 and position < len(o[1]):
                found.append(o[1][position])
            elif o[0] in ("tuple", "seq", "dict"):
                found.append(elements(owner))
            elif o[0] == "param" and star < 0:
                found.append(self._of_passed(o[1], position))
            elif o[0] not in ("unordered", "str", *COUNTED):
                found.append(UNKNOWN if o[0] != "more" else ANYTHING)
        result = join(found) if found else UNKNOWN
        if result is NOT_YET:
            return result
        exact = bool(owner.objs) and all(o[0] == "tuple" for o in owner.each)
        v = result.v if exact else result.v | owner.v
        n = (
            result.n
            if any(o[0] in ("tuple", "seq", "dict") for o in owner.each)
            else result.n | only(owner.n, "rank", "data")
        )
        return Val(result.objs, v, n, result.p, inherited(result.state, owner.state))

    def _of_passed(self, parameter: int, position: int) -> Val:
        """An element of the tuples that all callers pass; of anything else nothing is known."""
        passed: Val = self.flow.get("argument", self.unit, parameter)
        if passed is NOT_YET:
            return passed
        told = bool(passed.objs) and all(o[0] == "tuple" and position < len(o[1]) for o in passed.each)
        return picked(passed, position) if told else UNKNOWN

    def enter(self, number: int, value: Instruction) -> Val:
        return enter(self, number, self.operand(value.args[0]))

    def leave(self, number: int, value: Instruction) -> Val:
        leave(self, number, self.operand(value.args[0]))
        return BOTTOM

    def await_(self, number: int, value: Instruction) -> Val:
        return fetched(self.operand(value.args[0]))

    def phi(self, number: int, value: Instruction) -> Val:
        vals = {each: self.operand(each) for each in value.args}
        arriving = [each for each in self._completed(value, self._arriving(value, vals)) if each != number]
        vals |= {each: self.vals[each] for each in arriving if each not in vals}
        operands = [each for each in arriving if vals[each] is not NOT_YET]
        if arriving and not operands:
            return NOT_YET
        alone = self._of_one_rank(value)
        ways = {each: vals[each] for each in operands if self.code.values[each].op != "undefined"}
        if any(each.v or each.n or each.p for each in ways.values()):
            self._asked_alone[number] = coming = self._coming_alone(value)
            ways |= {each: ways[each].alone() for each in coming if each in ways}
        result = join_ways(way.without_lengths() if each in alone else way for each, way in ways.items())
        if filled := self._filled(number, value):
            result = Val(result.objs | filled, result.v, result.n, result.p, result.state)
        roots = {self.root(each) for each in operands}
        if len(roots) == 1 and len({self.growth(each) for each in operands}) > 1:
            return result.with_causes(n=self.conditions(self.unit.control.choosing(value.block)))
        if (
            len(roots) < 2
            or len({self.vals[r].objs for r in roots}) == 1
            and all(self.code.values[r].op == "const" or _is_thing(self.vals[r]) for r in roots)
        ):
            return result
        choosing = self.unit.control.choosing(value.block)
        causes = self.conditions(frozenset(branch for branch in choosing if not self._is_turn(branch)))
        if not causes:
            return result
        if only(causes, "rank") and self._is_sent(value, ways):
            return Val(result.objs, frozenset({UNIFORM}), result.n, result.p, result.state)
        if len({self._spans(each) for each in operands}) == 1:
            return result.with_causes(v=causes)  # as long on either way: `steps = tqdm(steps)`
        absent = any(vals[each].objs == {NONE_OBJ} for each in operands)
        if absent and self._is_one_thing(roots):
            return result.with_causes(p=causes)
        n = _lengths_differ([vals[each] for each in operands], causes)
        if any(o[0] == "tensor" for o in result.each) and apart(vals[each] for each in operands):
            n = causes
        result = in_parts(result, [vals[each] for each in operands], causes)
        return result.with_causes(v=causes, n=n, p=causes if absent else NONE)

    def _coming_alone(self, value: Instruction) -> list[int]:
        """The operands of a phi that come on ways which only a job of one process takes (`world_size == 1`)."""
        edges = self._edges_alone
        if not edges:
            return []
        unshared, rows = self._unshared(edges), zip(value.args, self.code.blocks[value.block].preds, strict=True)
        return [e for e, (pred, _) in rows if pred in unshared or (pred, value.block) in edges]

    def _unshared(self, edges: frozenset[tuple[int, int]]) -> frozenset[int]:
        """The blocks that only a job of one process reaches, which alone takes these ways."""
        if edges and edges not in self._reached:
            self._reached[edges] = frozenset(self.order.blocks) - reachable(self.code, without=edges)
        return self._reached.get(edges, frozenset())

    def _decide(self, number: int, condition: Val) -> None:
        """Which ways only a job of one process takes has changed with a test: phis are asked again whose operands come
        on others of them now."""
        super()._decide(number, condition)
        rows = self._branches.get(number, ())
        taken = {(b, w) for b, w, holds in rows if condition is NOT_YET or condition.is_only_alone(holds)}
        edges = self._edges_alone.difference((block, way) for block, way, _ in rows) | taken
        if edges == self._edges_alone:
            return
        self._edges_alone = edges
        for phi, coming in self._asked_alone.items():
            if self._coming_alone(self.code.values[phi]) != coming:
                self._mark(self.order.place[phi])

    @cached_property
    def _branches(self) -> dict[int, list[tuple[int, int, bool]]]:
        """By test that may tell a job of one process the ways out of its branches: (block, way, whether it holds)."""
        found: dict[int, list[tuple[int, int, bool]]] = {}
        for block in self.order.blocks:
            end = self.code.blocks[block].end
            if end[0] == "branch" and end[2] != end[3] and self._may_tell_one(self.code.values[end[1]]):
                found.setdefault(end[1], []).extend(((block, end[2], True), (block, end[3], False)))
        return found

    def _may_tell_one(self, test: Instruction) -> bool:
        """Whether a test is no comparison, or one with the number that tells a job of one process."""
        numbers = {number for _, number in OF_ONE}
        return test.op != "compare" or self.code.values[test.args[1]].data in numbers

    def _of_one_rank(self, value: Instruction) -> set[int]:
        """The operands of a phi that only the rank brings which a test compares with its own (`if rank == src`): by
        what they would differ elsewhere does not matter."""
        preds = self.code.blocks[value.block].preds
        differing = [(each, pred) for each, (pred, _) in zip(value.args, preds, strict=True) if self.operand(each).n]
        return {each for each, pred in differing if self._is_one_rank(self._way(pred, value.block))}

    def _is_sent(self, value: Instruction, ways: dict[int, Val]) -> bool:
        """Whether a phi holds on one rank what this rank gives a collective, and on the others what came out of one."""
        rows = [(each, pred) for each, (pred, _) in zip(value.args, self.code.blocks[value.block].preds, strict=True)]
        around = self.unit.control.settled(value.block)
        own = {
            each
            for each, pred in rows
            if any(
                self._leaves_one(branch, way)
                for branch, way in self.unit.control.settled(pred)
                if (branch, way) not in around
            )
        }
        others = [ways[each] for each, _ in rows if each in ways and each not in own]
        return bool(own and others) and all(UNIFORM in each.v for each in others) and all(map(self._goes_out, own))

    def _leaves_one(self, branch: int, way: int) -> bool:
        end = self.code.blocks[branch].end
        return self._is_one_rank((end[1], end[2] == way))

    def _goes_out(self, number: int) -> bool:
        """Whether a value, or what is made of it, is given to a collective, which leaves it equal on all ranks; or is
        what a function gives back that does so."""
        if self.code.values[number].op == "call" and UNIFORM in self.vals[number].v:
            return True
        seen, queue = {self.root(number)}, [self.root(number)]
        while queue:
            for user in self.unit.users.get(queue.pop(), ()):
                if self.code.values[user].op in ("mut", "unpack") and UNIFORM in self.vals[user].v:
                    return True
                if user not in seen:
                    seen.add(user)
                    queue.append(user)
        return False

    def _is_one_rank(self, way: tuple[int, bool] | None) -> bool:
        """Whether a test that holds, or does not, leaves the rank of one number."""
        test = self.code.values[self.root(way[0])] if way is not None else None
        if way is None or test is None or test.op != "compare" or test.data != ("Eq" if way[1] else "NotEq"):
            return False
        return any(o[0] == "ordinal" for each in test.args for o in self.vals[each].each)

    def _filled(self, number: int, value: Instruction) -> frozenset[Obj]:
        """What is noted beside a list to which a loop adds one element in each round: it is as long as what is gone
        through."""
        loop = self.code.loops.get(value.block)
        counted = beside(self.vals[loop.iterator], *COUNTED) if loop is not None and loop.iterator >= 0 else NONE
        for each in value.args if counted else ():
            added, base = 0, each
            while (inner := self.code.values[base]).op == "mut":
                call = self.code.values[inner.args[1]]
                added += inner.data == -1 and self.code.values[call.args[0]].data == "append"
                base = inner.args[0]
            empty = self.vals[base].objs == {("tuple", ())} and not added
            if not (base == number and added == 1 or empty):
                return NONE
        return frozenset(counted)

    def _arriving(self, value: Instruction, vals: dict[int, Val]) -> list[int]:
        """The operands of a phi, without those of ways that no call of the program takes.

        A parameter that all callers leave at None, or give the same flag, closes a way. It is asked only where the
        operands differ in how they vary.
        """
        if len({each.v for each in vals.values()}) < 2:
            return list(value.args)
        preds = self.code.blocks[value.block].preds
        left = [
            each for each, (pred, _) in zip(value.args, preds, strict=True) if not self._is_closed(pred, value.block)
        ]
        return left or list(value.args)

    def _completed(self, value: Instruction, operands: list[int]) -> list[int]:
        """The operands of a phi, where branches on one test complete each other.

        Behind `if rank == 0: x = a` and `if rank != 0: x = b` the first `x` is only left where its own branch was
        taken: what stood before both (None, mostly) does not arrive.
        """
        preds = self.code.blocks[value.block].preds
        if len(operands) != 2 or len(value.args) != 2 or len(preds) != 2:
            return operands
        for index, (pred, _) in enumerate(preds):
            inner = self.code.values[value.args[index]]
            way = self._way(pred, value.block)
            if inner.op != "phi" or len(inner.args) != 2 or way is None:
                continue
            ways = [self._way(each, inner.block) for each, _ in self.code.blocks[inner.block].preds]
            same = [arg for arg, other in zip(inner.args, ways, strict=True) if other and self._agree(way, other)]
            if len(same) == 1:
                return [value.args[1 - index], same[0]]
        return operands

    def _is_turn(self, branch: int) -> bool:
        """Whether a branch lets rank after rank do what all do (`for turn in range(size): if rank == turn`)."""
        loop = self.code.blocks[branch].loop
        test = self.code.values[self.root(self.code.blocks[branch].end[1])]
        if loop < 0 or test.op != "compare" or test.data != "Eq":
            return False
        ranks = [bool(only(self.vals[each].v, "rank")) for each in test.args]
        turns = [self.code.values[self.root(each)].op == "next" for each in test.args]
        return any(ranks[i] and turns[1 - i] for i in (0, 1))

    def _way(self, pred: int, block: int) -> tuple[int, bool] | None:
        """The test that leads from a predecessor into a block, and whether it holds there; None where several do."""
        end = self.code.blocks[pred].end
        if end[0] == "branch" and end[2] != end[3]:
            return end[1], end[2] == block
        before = self.code.blocks[pred].preds
        if len(before) != 1:
            return None
        end = self.code.blocks[before[0][0]].end
        return (end[1], end[2] == pred) if end[0] == "branch" and end[2] != end[3] else None

    def _agree(self, one: tuple[int, bool], other: tuple[int, bool]) -> bool:
        """Whether two tests, holding or not, are met by the same ranks."""
        (first, holds), (second, also) = one, other
        a, b = self.code.values[first], self.code.values[second]
        while a.op == "unary" and a.data == "Not":
            a, holds = self.code.values[a.args[0]], not holds
        while b.op == "unary" and b.data == "Not":
            b, also = self.code.values[b.args[0]], not also
        if a.op != "compare" or b.op != "compare":
            return a is b and holds is also
        if a.data != b.data:
            if {a.data, b.data} not in _OPPOSITES:
                return False
            also = not also
        return holds is also and all(map(self._is_same, a.args, b.args))

    def _is_same(self, one: int, other: int) -> bool:
        """Whether two values are equal: one value, one constant, one rank asked for twice, what is made of these."""
        one, other = self.root(one), self.root(other)
        a, b = self.code.values[one], self.code.values[other]
        if one == other:
            return True
        if a.op == b.op == "const":
            return bool(a.data == b.data)
        if a.op == b.op and a.data == b.data and len(a.args) == len(b.args) and self._is_repeatable(a):
            return all(map(self._is_same, a.args, b.args))
        told = self.vals[one]
        return told is self.vals[other] and bool(told.of("ordinal")) and len(told.objs) == 1

    def _is_repeatable(self, value: Instruction) -> bool:
        """Whether an instruction with equal operands gives what is equal."""
        if value.op == "call":
            return any(o in _REMAKING for o in self.vals[value.args[0]].objs)
        return value.op in ("attr", "name", "tuple", "list")

    def _is_closed(self, block: int, following: int) -> bool:
        """Whether no call of the unit comes from a block to the next one."""
        ways = list(self.unit.control.arms.get(block, ()))
        if self.code.blocks[block].end[0] == "branch":
            ways.append((block, following))
        for branch, way in ways:
            _, test, then, otherwise = self.code.blocks[branch].end
            truth = self._decided(test) if then != otherwise else None
            if truth is not None and way == (otherwise if truth else then):
                return True
        return False

    def _decided(self, test: int) -> bool | None:
        """What a test of a parameter gives in every call of the unit, where that is known."""
        value = self.code.values[test]
        if value.op == "unary" and value.data == "Not":
            inner = self._decided(value.args[0])
            return None if inner is None else not inner
        absent = value.op == "compare" and value.data in ("Is", "IsNot") and _is_none(self.code.values[value.args[1]])
        asked = self.code.values[self.root(value.args[0] if absent else test)]
        if asked.op != "param" or asked.data[0] == 0 and self.unit.has_receiver:
            return None
        given: Val = self.flow.get("argument", self.unit, asked.data[0])
        if absent:
            return value.data == "Is" if given.is_const(None) else None
        constants = [o[2] for o in given.each if o[0] == "const"]
        if len(constants) != len(given.objs) or not constants:
            return None
        truths = {bool(each) for each in constants}
        return truths.pop() if len(truths) == 1 else None

    def _spans(self, number: int) -> int:
        """What has as many elements as a value, before calls that only wrap it."""
        root = self.root(number)
        value = self.code.values[root]
        if value.op != "call" or len(value.args) < 2 or value.data.names[0] is not None:
            return root
        wrapped = any(o[0] == "ext" and self.models.named(o[1]) in _AS_LONG for o in self.vals[value.args[0]].each)
        return self._spans(value.args[1]) if wrapped else root

    def growth(self, number: int) -> int:
        """How often a list was appended to since it was bound."""
        found = 0
        value = self.code.values[number]
        while value.op == "mut":
            callee = self.code.values[self.code.values[value.args[1]].args[0]] if value.data == -1 else None
            name = callee.data if callee is not None and callee.op == "attr" else ""
            if name in GROWING and self.vals[value.args[0]].of("seq") + self.vals[value.args[0]].of("tuple"):
                found += 1
            value = self.code.values[value.args[0]]
        return found

    def match(self, number: int, value: Instruction) -> Val:
        return Val(v=self.operand(value.args[0]).v)

    def yield_(self, number: int, value: Instruction) -> Val:
        return UNKNOWN

    def caught(self, number: int, value: Instruction) -> Val:
        return UNKNOWN


def _passed(sites: dict[int, Site]) -> dict[Unit, tuple[Passed, ...]]:
    return _together(
        (target.unit, Passed(number, target.bindings, site.away, site.under))
        for number, site in sites.items()
        for target in site.targets
    )


def _together(rows: Iterable[tuple[K, T]]) -> dict[K, tuple[T, ...]]:
    found: dict[K, tuple[T, ...]] = {}
    for key, value in rows:
        _also(found, key, value)
    return found


def _also(found: dict[K, tuple[T, ...]], key: K, value: T) -> None:
    found[key] = (*found.get(key, ()), value)


def truth_of(value: Val) -> Causes:
    """What a test of a value depends on: a container is tested for its length, an object for its presence."""
    kinds = {o[0] for o in value.each if o != NONE_OBJ}
    causes = value.n | value.p
    if kinds and kinds <= _TESTED_FOR_LENGTH | _TESTED_FOR_PRESENCE or holds_alike(value, _TESTED_FOR_PRESENCE):
        return causes
    return causes | frozenset(
        c._replace(facet="t") if c.kind == "param" and ("param", c.position) in value.objs else c for c in value.v
    )


def _several(operator: str, left: Val, right: Val) -> frozenset[Obj]:
    """Whether a comparison of the number of processes tells a job of one process."""
    most = right.constant()
    if not left.of("size") or not isinstance(most, int):
        return NOTHING
    counts = ("size", group_of(WHOLE))
    if counts not in left.objs or any(o[0] not in ("const", "top", "made") and o != counts for o in left.each):
        return NOTHING
    holds = OF_ONE.get((operator, most))
    return NOTHING if holds is None else frozenset({("several", not holds)})


def _returned_alone(value: Val) -> Val:
    """What is returned where there is one process: nothing differs there, and what is false is so only there."""
    constant = value.constant()
    return obj("several", True) if constant is False else value.alone()


def _lengths_differ(values: list[Val], causes: Causes) -> Causes:
    """What the length depends on where branches choose between values: nothing if all are known to be as long, or if
    nothing is known of any."""
    lengths: set[int | None] = set()
    for value in values:
        known = {
            len(o[1]) if o[0] in ("tuple", "dict") else None for o in value.each if o[0] in ("tuple", "dict", "seq")
        }
        lengths |= known if len(known) < 2 else {None}  # a list that was empty, and has grown
    return causes if len(lengths) > 1 else NONE


def _is_there(value: Val) -> bool:
    """Whether a value is known to be something else than None."""
    return not value.p and all(o[0] not in _PERHAPS_NONE and o != NONE_OBJ for o in value.each)


def _is_thing(value: Val) -> bool:
    """Whether a value is an object of one class, a function or a class: whichever way it was made, it is that."""
    return len(value.objs) == 1 and value.each[0][0] in _THINGS


def _is_none(value: Instruction) -> bool:
    return value.op == "const" and value.data is None


def _is_marker(value: Val, constant: Val) -> bool:
    """Whether a comparison only asks if something is there yet: it is a thing that no constant equals, or a marker."""
    if not any(o[0] == "const" and isinstance(o[2], str) for o in constant.each) or len(constant.objs) != 1:
        return False
    things = [o for o in value.each if o[0] in _TESTED_FOR_PRESENCE - {"environment"}]
    markers = [o for o in value.each if o[0] == "const" and o != NONE_OBJ]
    others = len(value.objs - {NONE_OBJ}) - len(things) - len(markers)
    return bool(things) and len(markers) < 2 and not others


def _below(comparison: str, number: object) -> bool:
    """Whether a comparison only asks if there are ranks at all (`rank != -1`, `rank >= 0`): none is negative."""
    if not isinstance(number, int) or isinstance(number, bool):
        return False
    if comparison in ("Eq", "NotEq", "Gt", "LtE"):
        return number < 0
    return comparison in ("GtE", "Lt") and number <= 0


def _inside(comparison: str, one: Val, size: Val) -> bool:
    """Whether a rank is compared with the number of ranks among which it is counted (`rank < size`): it is below."""
    whose = {WHOLE if o[1] == "job" else o[2] if o[1] == "group" else SOME for o in one.of("ordinal")}
    counted = {axes_in(o[1]) for o in size.of("size")}
    known = len(one.of("ordinal")) == len(one.objs) and len(size.of("size")) == len(size.objs)
    return comparison in ("Lt", "GtE") and known and len(whose) == 1 and whose == counted and SOME not in whose


def repeated(left: Val, right: Val) -> frozenset[Obj]:
    """`[None] * size`: as long as the group whose size it is."""
    single = any(len(o[1]) == 1 for o in left.of("tuple"))
    return as_long_as(right) if single else NONE


_MIRRORED = {"Lt": "Gt", "Gt": "Lt", "LtE": "GtE", "GtE": "LtE", "Eq": "Eq", "NotEq": "NotEq"}
_DISPLAYS = {"list": Evaluation.tuple_, "set": Evaluation.set_, "dict": Evaluation.dict_}
_TRANSFER: dict[str, Callable[[Evaluation, int, Instruction], Val]] = {
    "param": Evaluation.param, "const": Evaluation.const, "name": Evaluation.name, "free": Evaluation.free,
    "import": Evaluation.imported, "closure": Evaluation.closure, "attr": Evaluation.attr, "item": Evaluation.item,
    "call": Evaluation.call, "part": Evaluation.part, "mut": Evaluation.mut, "binary": Evaluation.binary,
    "unary": Evaluation.unary, "compare": Evaluation.compare,
    "tuple": Evaluation.tuple_, "list": Evaluation.display, "set": Evaluation.display,
    "dict": Evaluation.display, "join": Evaluation.join_parts, "slice": Evaluation.slice_, "iter": Evaluation.iter_,
    "more": Evaluation.more, "next": Evaluation.next_, "collect": Evaluation.collect, "unpack": Evaluation.unpack,
    "enter": Evaluation.enter, "leave": Evaluation.leave, "await": Evaluation.await_, "phi": Evaluation.phi,
    "match": Evaluation.match, "yield": Evaluation.yield_, "yield from": Evaluation.yield_,
    "caught": Evaluation.caught, "store_item": Evaluation.store_item,
}  # fmt: skip


# By op: how many of the first operands must be known before there is a value.
_ALL = 1_000_000
_WANTED = {
    "attr": 1, "item": 2, "call": _ALL, "part": _ALL, "mut": 2, "binary": 2, "unary": 1, "compare": 2, "join": _ALL,
    "slice": 3,
    "iter": 1, "more": 1, "next": 1, "unpack": 1, "enter": 1, "leave": 1, "await": 1, "match": 1, "store_item": 2,
}  # fmt: skip


def is_evaluated(op: str) -> bool:
    """Whether instructions of a kind have a value (or an effect on others)."""
    return op in _TRANSFER


def _are_bounds(*ends: Val) -> bool:
    """Whether both ends of a piece vary with the rank, and neither is the number of a rank."""
    return all(only(end.v, "rank", "member") and not end.of("ordinal") for end in ends)


def _is_within_node(left: Val, right: Val) -> bool:
    """Whether a remainder is the number of a process within its host: of its rank by the number of devices."""
    local = frozenset({LOCAL})
    return any(o[1] == "job" for o in left.of("ordinal")) and any(axes_in(o[1]) == local for o in right.of("size"))


def _numbered(operator: str, left: Val, right: Val) -> frozenset[Obj]:
    """The rank that arithmetic makes of another one (`rank - 1`, `(rank + 1) % size`) or of the number of ranks
    (`size - 1`, the last one): it is counted where those are. How many more or fewer than ranks a number is."""
    step = right.constant()
    if operator in ("Add", "Sub") and isinstance(step, int):
        more = step if operator == "Add" else -step
        found: set[Obj] = {("beyond", o[1], more) for o in left.of("size") if more}
        found |= {o for o in left.each if o[0] == "ordinal" and o[1] != "node"}
        for o in left.of("size") if operator == "Sub" and step > 0 else ():
            axes = axes_in(o[1])
            found.add(("ordinal", "job" if axes == WHOLE else "group", axes))
        return frozenset(found)
    if operator == "Mod" and _is_within_node(left, right):
        return frozenset({("ordinal", "node", frozenset({LOCAL}))})
    if operator == "Mod" and right.of("size"):
        return frozenset(o for o in left.each if o[0] == "ordinal" and o[1] != "node")
    return frozenset()
