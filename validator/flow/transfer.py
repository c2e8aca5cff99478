"""Evaluates one unit: what each of its values may be, given what is known of everything else.

The values are walked in the order of the blocks until nothing changes; an instruction has one transfer function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from validator.definitions import ClassDef, External, Method, Missing, Module, Symbol, Value
from validator.domains.axes import UNKNOWN as UNKNOWN_AXIS
from validator.domains.axes import WHOLE, axes_of, of_dimensions
from validator.domains.spmd import NONE, UNIFORM, Cause, Causes, data, member, only, rank, unsure
from validator.facts.model import Import
from validator.flow.attributes import attribute
from validator.flow.calls import Calling
from validator.flow.program import Flow, Result, Site, Unit
from validator.flow.values import (
    BOTTOM, NONE_OBJ, UNKNOWN, Val, const, elements, join, join2, obj, sequence, shallow, tuple_of,
)  # fmt: skip
from validator.ir import Value as Instruction
from validator.project import Unknown

if TYPE_CHECKING:
    from validator.models import Row

_UNPLACED = frozenset({"?"})
_TESTED_FOR_LENGTH = frozenset({"tuple", "seq", "dict"})
_TESTED_FOR_PRESENCE = frozenset({"inst", "self", "class", "unit", "bound", "module", "group", "mesh"})
_COMPARED = frozenset({"Eq", "NotEq", "Is", "IsNot"})
_BUILTIN_DECORATORS = frozenset({
    "staticmethod", "classmethod", "property", "functools.cached_property", "cached_property", "abc.abstractmethod",
    "abstractmethod", "override", "typing.override", "torch.no_grad()", "torch.inference_mode()", "torch.no_grad",
    "functools.lru_cache", "functools.lru_cache()", "functools.cache", "lru_cache", "lru_cache()", "cache",
    "contextmanager", "contextlib.contextmanager", "asynccontextmanager", "contextlib.asynccontextmanager",
})  # fmt: skip


def is_plain(decorators: tuple[str, ...]) -> bool:
    """Whether decorators leave a function what it is, as far as this analysis can tell."""
    return all(d in _BUILTIN_DECORATORS for d in decorators)


class Evaluation:
    """One evaluation of one unit."""

    def __init__(self, flow: Flow, unit: Unit) -> None:
        self.flow = flow
        self.unit = unit
        self.code = unit.code
        self.models = flow.models
        count = len(unit.code.values)
        self.vals: list[Val] = [BOTTOM] * count
        self.sites: dict[int, Site] = {}
        self.after: dict[tuple[int, int], Callable[[Val], Val]] = {}  # (call, position) -> what the argument becomes
        self.made: dict[int, tuple[ClassDef, tuple[tuple[str, Val], ...]]] = {}
        self.switched: dict[int, tuple[str, Val]] = {}
        self.calling = Calling(self)

    def run(self) -> Result:
        order = self.code.in_order()
        changed = True
        while changed:
            changed = False
            for block in order:
                for number in self.code.blocks[block].values:
                    value = self.code.values[number]
                    transfer = _TRANSFER.get(value.op)
                    if transfer is None:
                        continue
                    old = self.vals[number]
                    new = join2(old, transfer(self, number, value))
                    if new != old:
                        self.vals[number] = new
                        changed = changed or bool(self.code.loops) or len(self.code.blocks) > 1
            changed = changed and bool(self.code.loops)
        return self._result(order)

    def _result(self, order: list[int]) -> Result:
        returned, yielded, stores, global_rows, class_rows = [], [], [], [], []
        for block in order:
            end = self.code.blocks[block].end
            if end[0] == "return":
                returned.append(self._under(block, self.vals[end[1]]))
            for number in self.code.blocks[block].values:
                value = self.code.values[number]
                if value.op == "yield" and value.args:
                    yielded.append(self.vals[value.args[0]])
                elif value.op == "yield from":
                    yielded.append(elements(self.vals[value.args[0]]))
                elif value.op == "store_attr":
                    stores.append((self.vals[value.args[0]], value.data, self._kept(number, value, order)))
                elif value.op == "store_global":
                    global_rows.append((value.data, self._stored(block, self.vals[value.args[0]])))
                elif value.op == "store_class":
                    class_rows.append((value.data, self.vals[value.args[0]]))
        several = len(returned) > 1
        return Result(
            tuple(self.vals), join(returned) if several else join(self._plain_returns(order)), join(yielded),
            tuple(self._outs()), self.sites, tuple(stores), tuple(global_rows), tuple(class_rows),
            tuple(self.made.values()), tuple(self.switched.values()),
        )  # fmt: skip

    def _plain_returns(self, order: list[int]) -> list[Val]:
        ends = (self.code.blocks[block].end for block in order)
        return [self.vals[end[1]] for end in ends if end[0] == "return"]

    def _outs(self) -> list[tuple[int, Val]]:
        """Parameters whose variable holds another value at the end: changed in place by a call."""
        found = []
        for position, (name, _) in enumerate(self.code.params):
            ends = [kept[name] for _, kept in self.code.exits]
            if ends and any(self._changed(number) for number in ends):
                found.append((position, join(self.vals[number] for number in ends)))
        return found

    def _changed(self, number: int) -> bool:
        return self.code.values[number].op in ("mut", "phi")

    # -- control -------------------------------------------------------------------------------------------

    def truth(self, value: Val) -> Causes:
        return truth_of(value)

    def condition(self, block: int) -> Causes:
        """What the branch at the end of a block depends on."""
        return self.truth(self.vals[self.code.blocks[block].end[1]])

    def conditions(self, blocks: frozenset[int]) -> Causes:
        found: Causes = NONE
        for block in blocks:
            found |= only(self.condition(block), "rank", "data", "param", "member")
        return found

    def _under(self, block: int, value: Val) -> Val:
        """A value that is returned only where branches let it: it varies as they do."""
        causes = self.conditions(self.unit.control.deciding(block)) if self.code.blocks[block].preds else NONE
        return value.with_causes(v=causes, p=causes if value.objs else NONE) if causes else value

    def _kept(self, number: int, value: Instruction, order: list[int]) -> Val:
        """What is stored in an attribute. Where both ways of a branch store something, it is there on all ranks."""
        owner, stored = value.args
        control = self.unit.control
        balanced = set()
        for branch, way in control.arms.get(value.block, ()):
            for block in order:
                if (branch, way) in control.arms.get(block, ()) or branch not in control.direct.get(block, ()):
                    continue
                for each in self.code.blocks[block].values:
                    other = self.code.values[each]
                    if other.op == "store_attr" and other.data == value.data and self.vals[other.args[1]].objs != {NONE_OBJ}:
                        balanced.add(branch)
        return self._stored(value.block, self.vals[stored], frozenset(balanced))

    def _stored(self, block: int, value: Val, balanced: frozenset[int] = frozenset()) -> Val:
        """A value that is stored under branches: whether it is there varies as they do."""
        causes = self.conditions(self.unit.control.deciding(block) - balanced)
        causes |= self.flow.get("under", self.unit).v
        if not causes or NONE_OBJ in value.objs and len(value.objs) == 1:
            return value
        return value.with_causes(p=causes)

    def root(self, number: int) -> int:
        """The value before the calls that were given it."""
        value = self.code.values[number]
        while value.op == "mut":
            number = value.args[0]
            value = self.code.values[number]
        return number

    # -- instructions --------------------------------------------------------------------------------------

    def switch(self, number: int, state: str) -> None:
        """A library is set up here."""
        value = self._stored(self.code.values[number].block, UNKNOWN)
        self.switched[number] = (state, Val(p=value.p or frozenset({UNIFORM})))

    def around(self, number: int) -> Causes:
        """What the branches around a value depend on."""
        return self.conditions(self.unit.control.deciding(self.code.values[number].block))

    def param(self, number: int, value: Instruction) -> Val:
        position, name = value.data
        kind = self.code.params[position][1]
        unit = self.unit
        if position == 0 and unit.has_receiver and unit.cls is not None and unit.method is not None:
            if unit.method.facts.is_classmethod:
                return obj("class", unit.cls)
            return obj("self", unit.cls)
        objs = {("param", position)}
        if unit.method is not None and kind not in ("*", "**"):
            objs |= self._annotated(name)
        causes = [frozenset({Cause("param", "", True, facet, position)}) for facet in "vnp"]
        return Val(frozenset(objs), *causes, _UNPLACED)

    def _annotated(self, name: str) -> set[tuple[object, ...]]:
        """The project classes that the annotation of a parameter names."""
        assert self.unit.method is not None
        row = next((p for p in self.unit.method.facts.params if p.name == name), None)
        if row is None or not row.annotation:
            return set()
        return {("self", cls) for cls in self.flow.project.types.annotated(self.unit.method, row.annotation)}

    def const(self, number: int, value: Instruction) -> Val:
        return const(value.data)

    def name(self, number: int, value: Instruction) -> Val:
        if value.data == "__file__" or value.data == "__name__":
            return UNKNOWN
        if value.data == "super":
            return obj("ext", "super")
        # a lambda or a nested unit sees the module's names through the function around it
        return self.meaning(self.flow.project.lookup(self.unit.scope, value.data), value.data)

    def meaning(self, symbol: Symbol | Missing, name: str) -> Val:
        """The value that a symbol of the project stands for."""
        if isinstance(symbol, Method):
            unit = self.flow.unit_of(symbol)
            if unit is None:
                return UNKNOWN
            if is_plain(symbol.facts.decorators) or "." in symbol.qualname:
                return obj("unit", unit)
            found: Val = self.flow.get("global", symbol.module, symbol.name)
            return found if found.objs else obj("unit", unit)
        if isinstance(symbol, ClassDef):
            return obj("class", symbol)
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

    def free(self, number: int, value: Instruction) -> Val:
        distance, name = value.data
        outer: Unit | None = self.unit
        for _ in range(distance):
            outer = outer.outer if outer is not None else None
        if outer is None:
            return UNKNOWN
        result: Result = self.flow.get("unit", outer)
        numbers = outer.code.definitions.get(name, ())
        found = join(result.vals[n] for n in numbers if n < len(result.vals))
        return self.flow.close(found, outer)

    def imported(self, number: int, value: Instruction) -> Val:
        module, name, level = value.data
        row = Import(module, name or None, None if name else "_", level, "<module>", (), (1, 1, 1, 1))
        if not name and "." not in module:
            row = row._replace(asname=None)
        return self.meaning(self.flow.project.imported(self.unit.module, row), "")

    def closure(self, number: int, value: Instruction) -> Val:
        inner = self.flow.units_of(self.unit.module).get(value.data)
        if inner is None:
            return UNKNOWN
        if inner.code.kind == "class":
            return obj("class", inner.cls) if inner.cls is not None else UNKNOWN
        return obj("unit", inner)

    def attr(self, number: int, value: Instruction) -> Val:
        return attribute(self, number, self.vals[value.args[0]], value.data)

    def item(self, number: int, value: Instruction) -> Val:
        owner, key = self.vals[value.args[0]], self.vals[value.args[1]]
        constant = key.constant()
        found: list[Val] = []
        for o in owner.objs:
            kind = o[0]
            if kind == "ext" and o[1] == "os.environ":
                return self.environment(constant)
            if kind == "tuple" and isinstance(constant, int) and -len(o[1]) <= constant < len(o[1]):
                found.append(o[1][constant])
            elif kind == "dict":
                known = [v for k, v in o[1] if k == constant]
                found += known or [o[2] if o[2] is not None else BOTTOM]
            elif kind == "mesh":
                names = constant if isinstance(constant, str) else None
                found.append(obj("mesh", (names,) if names is not None else None))
            elif kind in ("tuple", "seq"):
                sliced = self.code.values[value.args[1]].op == "slice"
                found.append(Val(frozenset({("seq", elements(owner))})) if sliced else elements(owner))
            elif kind == "top" or kind == "param":
                found.append(UNKNOWN)
        result = join(found) if found else UNKNOWN
        v = _carried(owner.v) | key.v
        if isinstance(constant, str) and constant in self.models.likely["columns"] and UNIFORM not in v | result.v:
            v |= data(sure=False)  # a column of a batch, whatever holds it
        n = result.n
        if self._selects(value.args[1]):
            n |= owner.n | (data(sure=False) if UNIFORM not in owner.v else NONE) | _carried(owner.v | key.v)
        elif self.code.values[value.args[1]].op == "slice":
            n |= owner.n | key.v
        return Val(result.objs, result.v | v, n, result.p, result.state | owner.state)

    def _selects(self, number: int) -> bool:
        """Whether an index is a mask: what is left of a tensor then depends on what it holds."""
        value = self.code.values[self.root(number)]
        if value.op == "compare":
            return value.data in ("Gt", "GtE", "Lt", "LtE", "Eq", "NotEq")
        if value.op == "unary":
            return value.data == "Invert"
        if value.op == "binary" and value.data in ("BitAnd", "BitOr"):
            return all(self._selects(each) for each in value.args)
        if value.op == "call":
            callee = self.code.values[value.args[0]]
            return callee.op == "attr" and callee.data == "bool"
        return False

    def environment(self, name: object) -> Val:
        """What an environment variable holds."""
        if isinstance(name, str) and name in self.models.ranks["environment"]:
            local = "LOCAL" in name
            node = "NODE" in name or name == "GROUP_RANK"
            return Val(v=rank({"local"} if local else {"node"} if node else WHOLE))
        return UNKNOWN

    def call(self, number: int, value: Instruction) -> Val:
        return self.calling.call(number, value)

    def mut(self, number: int, value: Instruction) -> Val:
        """A variable behind a call that was given it."""
        before = self.vals[value.args[0]]
        change = self.after.get((value.args[1], value.data))
        return change(before) if change is not None else before

    def store_item(self, number: int, value: Instruction) -> Val:
        owner, key, stored = (self.vals[each] for each in value.args)

        def change(before: Val) -> Val:
            objs = set()
            constant = key.constant()
            for o in before.objs:
                if o[0] == "dict" and constant is not None and len(o[1]) < 24:
                    rows = dict(o[1])
                    rows[constant] = join2(rows.get(constant, BOTTOM), shallow(stored))
                    objs.add(("dict", tuple(sorted(rows.items(), key=lambda r: str(r[0]))), o[2]))
                elif o[0] == "seq" or o[0] == "tuple":
                    objs.add(("seq", shallow(join2(elements(before), stored))))
                else:
                    objs.add(o)
            return Val(frozenset(objs), before.v | _carried(stored.v), before.n, before.p, before.state)

        self.after[number, 0] = change
        return BOTTOM

    def binary(self, number: int, value: Instruction) -> Val:
        left, right = (self.vals[each] for each in value.args)
        kept = frozenset(o for o in left.objs | right.objs if o[0] in ("seq", "tuple", "dict"))
        if value.data == "Add" and kept:
            whole = sequence(join2(elements(left), elements(right)))
            return Val(whole.objs, left.v | right.v, left.n | right.n)
        if value.data == "Mult" and kept:
            whole = sequence(join2(elements(left), elements(right)))
            return Val(whole.objs, left.v | right.v, left.n | right.n | (right.v if left.objs & kept else left.v))
        if value.data == "Div" and kept == NONE:
            kept = frozenset(o for o in left.objs if o == ("ext", "pathlib.Path"))
        v = left.v | right.v
        if value.data == "FloorDiv":  # `rank // tp_size` is the same within a tensor-parallel group
            v = frozenset(c._replace(axis=UNKNOWN_AXIS) if c.kind == "rank" and c.axis in WHOLE else c for c in v)
        return Val(kept, v, left.n | right.n, state=(left.state | right.state) - _UNPLACED)

    def unary(self, number: int, value: Instruction) -> Val:
        operand = self.vals[value.args[0]]
        return Val(v=self.truth(operand)) if value.data == "Not" else Val(v=operand.v, n=operand.n)

    def compare(self, number: int, value: Instruction) -> Val:
        left, right = (self.vals[each] for each in value.args)
        if value.data in _COMPARED:
            if right.is_const(None):
                return Val(v=left.p | only(left.v, "param") & left.p)
            if left.is_const(None):
                return Val(v=right.p)
        if value.data in ("In", "NotIn"):
            if self.code.values[value.args[0]].op == "const":
                return Val(v=right.p)
            return Val(v=member(left.v) | right.v)
        return Val(v=left.v | right.v)

    def join_parts(self, number: int, value: Instruction) -> Val:
        parts = [self.vals[each] for each in value.args]
        return Val(v=frozenset().union(*(p.v for p in parts)))

    def slice_(self, number: int, value: Instruction) -> Val:
        return Val(v=frozenset().union(*(self.vals[each].v for each in value.args)))

    def tuple_(self, number: int, value: Instruction) -> Val:
        parts = [self.vals[each] for each in value.args]
        v = frozenset().union(*(_carried(p.v) for p in parts)) if parts else NONE
        if value.data:  # starred elements
            inner = join(elements(p) if i in value.data else p for i, p in enumerate(parts))
            n = frozenset().union(*(parts[i].n for i in value.data))
            return Val(sequence(inner).objs, v, n)
        made = tuple_of(parts) if len(parts) <= 24 else sequence(join(parts))
        return Val(made.objs, v)

    def set_(self, number: int, value: Instruction) -> Val:
        parts = [self.vals[each] for each in value.args]
        return Val(sequence(join(parts)).objs, frozenset().union(*(_carried(p.v) for p in parts)))

    def dict_(self, number: int, value: Instruction) -> Val:
        rows: dict[object, Val] = {}
        rest: Val | None = None
        v: Causes = NONE
        for key, number_of_value in zip(value.args[::2], value.args[1::2], strict=True):
            held = self.vals[number_of_value]
            v |= _carried(held.v)
            constant = self.vals[key].constant() if key >= 0 else None
            if key < 0:
                for o in held.objs:
                    if o[0] == "dict":
                        rows.update(o[1])
                    else:
                        rest = UNKNOWN
            elif isinstance(constant, str | int):
                rows[constant] = shallow(held)
            else:
                rest = join2(rest or BOTTOM, shallow(held))
        if len(rows) > 24:
            rest, rows = join([*rows.values(), rest or BOTTOM]), {}
        return Val(frozenset({("dict", tuple(sorted(rows.items(), key=lambda r: str(r[0]))), rest)}), v)

    def iter_(self, number: int, value: Instruction) -> Val:
        iterable = self.vals[value.args[0]]
        self.calling.drain(number, iterable)
        return iterable

    def more(self, number: int, value: Instruction) -> Val:
        return Val(v=self.vals[value.args[0]].n)

    def next_(self, number: int, value: Instruction) -> Val:
        return self.element(self.vals[value.args[0]])

    def element(self, iterable: Val) -> Val:
        """One element of what is iterated."""
        found = [elements(iterable)]
        v = _carried(iterable.v)
        for o in iterable.objs:
            if o[0] == "made" and self.models.library(o[1]).iterates == "data":
                v |= data()
                found.append(UNKNOWN)
            elif o[0] == "generator":
                found.append(self.calling.yielded(o))
            elif o[0] in ("param", "made", "ext", "inst", "self"):
                found.append(self.calling.iterated(o))
        result = join(found)
        if not result.objs and not result.v:
            result = UNKNOWN
        return Val(result.objs, result.v | v, result.n, result.p, result.state | iterable.state)

    def collect(self, number: int, value: Instruction) -> Val:
        _, count, iterators = value.data
        elts = [self.vals[each] for each in value.args[:count]]
        n: Causes = NONE
        for each in value.args[count : count + iterators]:
            n |= self.vals[each].n
        for each in value.args[count + iterators :]:
            n |= self.truth(self.vals[each])
        v = frozenset().union(*(_carried(e.v) for e in elts))
        return Val(sequence(elts[-1]).objs if elts else NONE, v, n, state=elts[-1].state - _UNPLACED)

    def unpack(self, number: int, value: Instruction) -> Val:
        owner = self.vals[value.args[0]]
        position, count, star = value.data
        found: list[Val] = []
        for o in owner.objs:
            if o[0] == "tuple" and star < 0 and position < len(o[1]):
                found.append(o[1][position])
            elif o[0] in ("tuple", "seq", "dict"):
                found.append(elements(owner))
            else:
                found.append(UNKNOWN)
        result = join(found) if found else UNKNOWN
        exact = bool(owner.objs) and all(o[0] == "tuple" for o in owner.objs)
        v = result.v if exact else result.v | _carried(owner.v)
        return Val(result.objs, v, result.n, result.p, result.state if exact else result.state | owner.state)

    def enter(self, number: int, value: Instruction) -> Val:
        return self.calling.enter(number, self.vals[value.args[0]])

    def leave(self, number: int, value: Instruction) -> Val:
        self.calling.leave(number, self.vals[value.args[0]])
        return BOTTOM

    def await_(self, number: int, value: Instruction) -> Val:
        return self.vals[value.args[0]]

    def phi(self, number: int, value: Instruction) -> Val:
        operands = [each for each in value.args if each != number]
        result = join(self.vals[each] for each in operands)
        roots = {self.root(each) for each in operands}
        roots.discard(number)
        if len(roots) < 2 or len({self.vals[r].objs for r in roots}) == 1 and all(
            self.code.values[r].op == "const" for r in roots
        ):
            return result
        causes = self.conditions(self.unit.control.choosing(value.block))
        if not causes:
            return result
        grown = any(o[0] in ("seq", "tuple", "dict") for o in result.objs)
        absent = any(self.vals[each].objs == frozenset({NONE_OBJ}) for each in operands)
        return result.with_causes(v=causes, n=causes if grown else NONE, p=causes if absent else NONE)

    def match(self, number: int, value: Instruction) -> Val:
        return Val(v=self.vals[value.args[0]].v)

    def yield_(self, number: int, value: Instruction) -> Val:
        return UNKNOWN

    def caught(self, number: int, value: Instruction) -> Val:
        return UNKNOWN


def truth_of(value: Val) -> Causes:
    """What a test of a value depends on: a container is tested for its length, an object for its presence."""
    kinds = {o[0] for o in value.objs if o != NONE_OBJ}
    causes = value.n | value.p
    if kinds and kinds <= _TESTED_FOR_LENGTH | _TESTED_FOR_PRESENCE:
        return causes
    return causes | frozenset(
        c._replace(facet="t") if c.kind == "param" and ("param", c.position) in value.objs else c for c in value.v
    )


def _carried(causes: Causes) -> Causes:
    """What the parts of a value depend on where the whole does: a rank is no container."""
    return causes


_TRANSFER: dict[str, Callable[[Evaluation, int, Instruction], Val]] = {
    "param": Evaluation.param, "const": Evaluation.const, "name": Evaluation.name, "free": Evaluation.free,
    "import": Evaluation.imported, "closure": Evaluation.closure, "attr": Evaluation.attr, "item": Evaluation.item,
    "call": Evaluation.call, "mut": Evaluation.mut, "binary": Evaluation.binary, "unary": Evaluation.unary,
    "compare": Evaluation.compare, "tuple": Evaluation.tuple_, "list": Evaluation.tuple_, "set": Evaluation.set_,
    "dict": Evaluation.dict_, "join": Evaluation.join_parts, "slice": Evaluation.slice_, "iter": Evaluation.iter_,
    "more": Evaluation.more, "next": Evaluation.next_, "collect": Evaluation.collect, "unpack": Evaluation.unpack,
    "enter": Evaluation.enter, "leave": Evaluation.leave, "await": Evaluation.await_, "phi": Evaluation.phi,
    "match": Evaluation.match, "yield": Evaluation.yield_, "yield from": Evaluation.yield_,
    "caught": Evaluation.caught, "store_item": Evaluation.store_item,
}  # fmt: skip
