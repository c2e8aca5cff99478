"""Lowers expressions: each gives the number of its value, tests give branches."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache

from validator.files.integers import same
from validator.ir.model import CallShape, Code, Loop, RawAt, Test, Unsupported
from validator.ir.scopes import Names
from validator.ir.ssa import Builder

# Builtins that change none of their arguments; for all else an argument may be another value after the call.
_VIEWS = frozenset({"view", "view_as", "detach", "squeeze", "unsqueeze", "flatten", "ravel"})  # of the same elements
_HARMLESS = frozenset({
    "len", "print", "isinstance", "issubclass", "int", "float", "str", "bool", "range", "enumerate", "zip", "getattr",
    "hasattr", "type", "repr", "id", "min", "max", "sum", "abs", "sorted", "any", "all", "super", "tuple", "list",
    "dict", "set", "frozenset", "callable", "round", "divmod", "ord", "chr", "hash", "format", "iter", "reversed",
})  # fmt: skip
# Methods that store their second argument as an attribute under the first.
NAMING = frozenset({"add_module", "register_module"})
MADE_UP = "*"  # the attributes whose names a program makes up
_GROWING = frozenset({"append", "extend", "insert", "add", "update", "appendleft"})
_UNCHANGED = frozenset({"import", "const", "closure"})  # what no call changes


_shape = cache(CallShape)  # one object for all calls that pass their arguments in the same way


def place(node: ast.AST) -> RawAt:
    first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    return (same(first, first), node.col_offset, same(last, last), node.end_col_offset)  # type: ignore[attr-defined]


class Within(dict[str, str]):
    """The variables of a function whose body stands in its caller: names around it are not its own."""


class Expressions(Builder):
    """The expressions of one unit."""

    def __init__(self, code: Code, names: Names, outer: Expressions | None) -> None:
        self.names = names
        self.outer = outer
        self._inner_names: list[dict[str, str]] = []  # variables of the comprehensions around
        super().__init__(code)

    # -- names ---------------------------------------------------------------------------------------------

    def variable(self, name: str) -> str | None:
        """The variable of this unit that a name means, if it is one."""
        for names in reversed(self._inner_names):
            if name in names:
                return names[name]
            if isinstance(names, Within):
                return None
        return name if name in self.names.bound else None

    def load(self, name: str, node: ast.AST) -> int:
        variable = self.variable(name)
        if variable is not None:
            return self.read(variable)
        distance, outer = 1, self.outer
        while outer is not None and not any(isinstance(names, Within) for names in self._inner_names):
            if outer.code.kind != "class" and outer.code.kind != "module":
                inner = outer.variable(name)
                if inner is not None:
                    return self.emit("free", (), (distance, inner), place(node))
            distance, outer = distance + 1, outer.outer
        return self.emit("name", (), name, place(node))

    def bind(self, name: str, value: int, node: ast.AST) -> None:
        """An assignment to a plain name."""
        variable = self.variable(name)
        if variable is not None:
            self.write(variable, value)
            if self.code.kind == "module" and variable == name:
                self.emit("store_global", (value,), name, place(node))
            elif self.code.kind == "class" and variable == name:
                self.emit("store_class", (value,), name, place(node))
        elif name in self.names.nonlocals:
            self.emit("store_free", (value,), name, place(node))
        else:
            self.emit("store_global", (value,), name, place(node))

    # -- expressions ---------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> int:
        made = getattr(self, "_" + type(node).__name__, None)
        if made is None:
            parts = tuple(self.expression(n) for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr))
            return self.emit("join", parts, None, place(node))
        value: int = made(node)
        return value

    def _Constant(self, node: ast.Constant) -> int:
        return self.emit("const", (), node.value, place(node))

    def _Name(self, node: ast.Name) -> int:
        return self.load(node.id, node)

    def _Attribute(self, node: ast.Attribute) -> int:
        owner = self.expression(node.value)
        known = self.known_field(owner, node.attr)
        return known if known is not None else self.emit("attr", (owner,), node.attr, place(node))

    def _Subscript(self, node: ast.Subscript) -> int:
        owner = self.expression(node.value)
        return self.emit("item", (owner, self.expression(node.slice)), None, place(node))

    def _Slice(self, node: ast.Slice) -> int:
        parts = [
            self.expression(each) if each is not None else self.emit("const", (), None, place(node))
            for each in (node.lower, node.upper, node.step)
        ]
        return self.emit("slice", tuple(parts), None, place(node))

    def _Starred(self, node: ast.Starred) -> int:
        return self.expression(node.value)

    def _NamedExpr(self, node: ast.NamedExpr) -> int:
        value = self.expression(node.value)
        self.bind(node.target.id, value, node.target)
        return value

    def _BinOp(self, node: ast.BinOp) -> int:
        left = self.expression(node.left)
        return self.emit("binary", (left, self.expression(node.right)), type(node.op).__name__, place(node))

    def _UnaryOp(self, node: ast.UnaryOp) -> int:
        return self.emit("unary", (self.expression(node.operand),), type(node.op).__name__, place(node))

    def _Compare(self, node: ast.Compare) -> int:
        if len(node.ops) == 1:
            left = self.expression(node.left)
            right = self.expression(node.comparators[0])
            return self.emit("compare", (left, right), type(node.ops[0]).__name__, place(node))
        left, parts = self.expression(node.left), []
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.expression(comparator)
            parts.append(self.emit("compare", (left, right), type(op).__name__, place(node)))
            left = right
        return self.emit("binary", (parts[0], parts[-1]), "BitAnd", place(node))

    def _BoolOp(self, node: ast.BoolOp) -> int:
        """`a and b`: b is evaluated where a holds; the value is that of the part which decided."""
        result, done = self.temporary(), self.new_block()
        kind = "and" if isinstance(node.op, ast.And) else "or"
        for part in node.values[:-1]:
            value = self.expression(part)
            self.write(result, value)
            following = self.new_block()
            yes, no = (following, done) if kind == "and" else (done, following)
            self._branch(value, yes, no, Test(kind, place(node), place(part), False))
            self.start(following)
        self.write(result, self.expression(node.values[-1]))
        self.jump(done)
        self.start(done)
        return self.read(result)

    def _IfExp(self, node: ast.IfExp) -> int:
        result, yes, no, done = self.temporary(), self.new_block(), self.new_block(), self.new_block()
        self.test(node.test, yes, no, Test("ifexp", place(node), place(node.test), False))
        for block, part in ((yes, node.body), (no, node.orelse)):
            self.start(block)
            self.write(result, self.expression(part))
            self.jump(done)
        self.start(done)
        return self.read(result)

    def _Call(self, node: ast.Call) -> int:
        receiver = -1
        if isinstance(node.func, ast.Attribute):
            receiver = self.expression(node.func.value)
            known = self.known_field(receiver, node.func.attr)
            callee = known if known is not None else self.emit("attr", (receiver,), node.func.attr, place(node.func))
        else:
            callee = self.expression(node.func)
        values, names, written = [callee], [], []
        for argument in node.args:
            values.append(self.expression(argument))
            names.append("*" if isinstance(argument, ast.Starred) else None)
            written.append(argument)
        for keyword in node.keywords:
            values.append(self.expression(keyword.value))
            names.append(keyword.arg or "**")
            written.append(keyword.value)
        shape = _shape(tuple(names))
        call = self.emit("call", tuple(values), shape, place(node))
        if not (isinstance(node.func, ast.Name) and node.func.id in _HARMLESS and self.variable(node.func.id) is None):
            for position, argument in enumerate(written):
                self._may_change(argument, values[position + 1], call, position)
        if receiver >= 0:
            assert isinstance(node.func, ast.Attribute)
            self._may_change(node.func.value, receiver, call, -1)
            if node.func.attr in _GROWING and isinstance(node.func.value, ast.Subscript):
                self._put_back(node.func.value, receiver, call)
        self._store_by_name(node, values)
        return call

    def _store_by_name(self, node: ast.Call, values: list[int]) -> None:
        """`setattr(x, "name", v)` and `x.add_module("name", v)` store an attribute; `*` where the name is made up."""
        if isinstance(node.func, ast.Attribute):
            stores = node.func.attr in NAMING and len(node.args) == 2
            owner = self.code.values[values[0]].args[:1]
        else:
            stores = isinstance(node.func, ast.Name) and node.func.id == "setattr" and len(node.args) == 3
            stores, owner = stores and self.variable("setattr") is None, tuple(values[1:2])
        if not stores or node.keywords or not owner or any(isinstance(each, ast.Starred) for each in node.args):
            return
        key = node.args[-2]
        spelled = isinstance(key, ast.Constant) and isinstance(key.value, str)
        name = key.value if isinstance(key, ast.Constant) and spelled else MADE_UP
        self.emit("store_attr", (owner[0], values[len(node.args)]), name, place(node))

    def _put_back(self, node: ast.Subscript, item: int, call: int) -> None:
        """`table[key].append(x)` changes what the table holds, as `table[key] += [x]` does."""
        found = self.code.values[item]
        variable = self.variable(node.value.id) if isinstance(node.value, ast.Name) else None
        if variable is None or found.op != "item":
            return
        owner = self.read(variable)
        grown = self.emit("mut", (item, call), -1, place(node))
        stored = self.emit("store_item", (owner, found.args[1], grown), None, place(node))
        self.write(variable, self.emit("mut", (owner, stored), 0))

    def _may_change(self, node: ast.expr, value: int, call: int, position: int) -> None:
        """A variable that was given to a call may be another value behind it."""
        if self.code.values[value].op in _UNCHANGED:
            return
        if isinstance(node, ast.Starred):
            node = node.value
        if isinstance(node, ast.IfExp):  # `(wide if p.ndim > 1 else narrow).append(p)`: either of them
            for each in (node.body, node.orelse):
                if isinstance(each, ast.Name) and (variable := self.variable(each.id)) is not None:
                    self._may_change(each, self.read(variable), call, position)
        elif isinstance(node, ast.Name):
            if (variable := self.variable(node.id)) is not None:
                self.write(variable, self.emit("mut", (value, call), position))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            variable = self.variable(node.value.id)
            if variable is not None:
                if node.attr == "data":
                    self.write(variable, self.emit("mut", (self.read(variable), call), position))
                self.store_field(self.read(variable), node.attr, self.emit("mut", (value, call), position))

        elif position >= 0 and (viewed := _viewed(node)) and (variable := self.variable(viewed)) is not None:
            self.write(variable, self.emit("mut", (self.read(variable), call), position))

    def _Await(self, node: ast.Await) -> int:
        value = self.emit("await", (self.expression(node.value),), None, place(node))
        self.forget_fields()
        return value

    def _Yield(self, node: ast.Yield) -> int:
        self.code.is_generator = True
        args = (self.expression(node.value),) if node.value is not None else ()
        value = self.emit("yield", args, None, place(node))
        self.forget_fields()
        return value

    def _YieldFrom(self, node: ast.YieldFrom) -> int:
        self.code.is_generator = True
        value = self.emit("yield from", (self.expression(node.value),), None, place(node))
        self.forget_fields()
        return value

    def _Lambda(self, node: ast.Lambda) -> int:
        return self.closure(node, f"<lambda>:{node.lineno}:{node.col_offset}")

    def closure(self, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> int:
        raise Unsupported("units inside need `lower`")  # see validator.ir.lower

    # -- displays and comprehensions -----------------------------------------------------------------------

    def _sequence(self, node: ast.Tuple | ast.List | ast.Set, op: str) -> int:
        values = tuple(self.expression(each) for each in node.elts)
        starred = tuple(i for i, each in enumerate(node.elts) if isinstance(each, ast.Starred))
        return self.emit(op, values, starred, place(node))

    def _Tuple(self, node: ast.Tuple) -> int:
        return self._sequence(node, "tuple")

    def _List(self, node: ast.List) -> int:
        return self._sequence(node, "list")

    def _Set(self, node: ast.Set) -> int:
        return self._sequence(node, "set")

    def _Dict(self, node: ast.Dict) -> int:
        values: list[int] = []
        for key, value in zip(node.keys, node.values, strict=True):
            values += [self.expression(key) if key is not None else -1, self.expression(value)]
        return self.emit("dict", tuple(values), None, place(node))

    def _JoinedStr(self, node: ast.JoinedStr) -> int:
        return self.emit("join", tuple(self.expression(each) for each in node.values), None, place(node))

    def _FormattedValue(self, node: ast.FormattedValue) -> int:
        return self.expression(node.value)

    def _ListComp(self, node: ast.ListComp) -> int:
        return self._comprehension(node, "list", [node.elt])

    def _SetComp(self, node: ast.SetComp) -> int:
        return self._comprehension(node, "set", [node.elt])

    def _GeneratorExp(self, node: ast.GeneratorExp) -> int:
        return self._comprehension(node, "generator", [node.elt])

    def _DictComp(self, node: ast.DictComp) -> int:
        return self._comprehension(node, "dict", [node.key, node.value])

    def _comprehension(self, node: ast.expr, kind: str, elements: list[ast.expr]) -> int:
        """A loop whose variables are its own; a generator counts as consumed where it is written."""
        iterators: list[int] = []
        conditions: list[int] = []
        values: list[int] = []

        def rounds(generators: list[ast.comprehension]) -> None:
            if not generators:
                values.extend(self.expression(each) for each in elements)
                return
            first, *rest = generators

            def body() -> None:
                for test in first.ifs:
                    condition = self.expression(test)
                    conditions.append(condition)
                    going, skipped = self.new_block(), self.code.loops[self.loop].header
                    self._branch(condition, going, skipped, Test("if", place(test), place(test), False))
                    self.start(going)
                rounds(rest)

            iterable = self.expression(first.iter)
            self._inner_names.append(
                {n.id: f"{n.id}@{n.lineno}:{n.col_offset}" for n in ast.walk(first.target) if isinstance(n, ast.Name)}
            )
            iterators.append(self.rounds(node, iterable, place(first.iter), first.target, bool(first.is_async), body))

        depth = len(self._inner_names)
        rounds(node.generators)  # type: ignore[attr-defined]
        del self._inner_names[depth:]
        shape = (kind, len(values), len(iterators))
        return self.emit("collect", (*values, *iterators, *conditions), shape, place(node))

    def rounds(
        self, node: ast.AST, iterable: int, at: RawAt, target: ast.expr, is_async: bool, body: Callable[[], None],
        otherwise: Callable[[], None] | None = None,
    ) -> int:  # fmt: skip
        """A loop over an iterable, which stands at a place; the value of its iterator."""
        iterator = self.emit("iter", (iterable,), is_async, at)
        before, header = self.loop, self.new_block()
        after = self.new_block()
        done = self.new_block() if otherwise is not None else after
        self.loop = header
        self.code.blocks[header].loop = header
        first = self.new_block()
        self.code.loops[header] = Loop(header, first, done, after, place(node), iterator)
        self.jump(header)
        self.start(header, seal=False)
        test = Test("for", place(node), at, False)
        self._branch(self.emit("more", (iterator,), None, at), first, done, test)
        self.start(first)
        self.assign(target, self.emit("next", (iterator,), None, place(target)))
        body()
        self.jump(header)
        self.seal(header)
        self.loop = before
        if otherwise is not None:
            self.start(done)
            otherwise()
            self.jump(after)
        self.start(after)
        return iterator

    # -- targets -------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: int) -> None:
        """Bind what an assignment target names to a value."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value, target)
        elif isinstance(target, ast.Attribute):
            owner = self.expression(target.value)
            self.emit("store_attr", (owner, value), target.attr, place(target))
            self.store_field(owner, target.attr, value)
        elif isinstance(target, ast.Subscript):
            owner = self.expression(target.value)
            stored = self.emit("store_item", (owner, self.expression(target.slice), value), None, place(target))
            self._may_change(target.value, owner, stored, 0)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value)
        elif isinstance(target, ast.Tuple | ast.List):
            star = next((i for i, each in enumerate(target.elts) if isinstance(each, ast.Starred)), -1)
            for position, each in enumerate(target.elts):
                part = self.emit("unpack", (value,), (position, len(target.elts), star), place(each))
                self.assign(each, part)

    # -- tests ---------------------------------------------------------------------------------------------

    def test(self, node: ast.expr, yes: int, no: int, about: Test) -> None:
        """Branch on a test; the parts of `and`, `or` and `not` are branches of their own."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.test(node.operand, no, yes, about._replace(test=place(node.operand)))
        elif isinstance(node, ast.BoolOp):
            conjunction = isinstance(node.op, ast.And)
            for part in node.values[:-1]:
                following = self.new_block()
                part_about = about._replace(test=place(part))
                self.test(part, following if conjunction else yes, no if conjunction else following, part_about)
                self.start(following)
            self.test(node.values[-1], yes, no, about._replace(test=place(node.values[-1])))
        else:
            self._branch(self.expression(node), yes, no, about)

    def _branch(self, value: int, yes: int, no: int, about: Test) -> None:
        self.code.tests[self.block] = about
        self.end("branch", value, yes, no)


def _viewed(node: ast.expr) -> str:
    """The variable of which a call gives a view, as in `x.view(-1)`: what changes one changes the other."""
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr in _VIEWS and isinstance(called.value, ast.Name):
        return called.value.id
    return ""
