"""Lowers the statements of a file: one `Code` for its top level and for each class, function and lambda in it."""

from __future__ import annotations

import ast
from collections.abc import Callable

from validator.ir.expressions import Expressions, Within, place
from validator.ir.model import CallShape, Code, Loop, Test, Unsupported, repeated
from validator.ir.parts import Part, parts_of
from validator.ir.scopes import Names, defaults, names_of, parameters, statements

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_ENDING = frozenset({("sys", "exit"), ("os", "_exit"), ("os", "abort"), ("", "exit"), ("", "quit")})


def lower(
    tree: ast.Module, walrus: bool = True, elsewhere: frozenset[str] | None = None
) -> tuple[dict[str, Code], int]:
    """The units of a file by their keys, and how many could not be lowered (their names are missing).

    `walrus`: whether the file may hold assignment expressions. Private functions that are called at one place are
    lowered as a part of their caller, too, but for those that others `elsewhere` are called like; none where that is
    not known.
    """
    units: dict[str, Code] = {}
    failed: list[str] = []
    code = Code("module", "<module>", "<module>", None, (1, 0, 1, 0))
    names = names_of((), tree.body, walrus)
    top = _Statements(code, names, None, units, failed)
    top.raising, top.walrus = _raising(tree), walrus
    top.parts = parts_of(tree, elsewhere) if elsewhere is not None else {}
    top.unit(tree.body)
    for code in units.values():
        for name in code.parts:
            if name in units:
                units[name].part_of = code.key
    return units, len(failed)


class _Statements(Expressions):
    """The statements of one unit."""

    def __init__(
        self, code: Code, names: Names, outer: Expressions | None, units: dict[str, Code], failed: list[str]
    ) -> None:
        self.units = units
        self.failed = failed
        self.taken: set[str] = outer.taken if isinstance(outer, _Statements) else set()  # qualified names in the file
        self.raising: frozenset[str] = outer.raising if isinstance(outer, _Statements) else frozenset()
        self.walrus: bool = outer.walrus if isinstance(outer, _Statements) else True
        self.parts: dict[str, Part] = outer.parts if isinstance(outer, _Statements) else {}
        self._cleanups: list[Callable[[], None]] = []  # what runs when the block around is left, innermost last
        self._around: list[str] = []  # the functions around whose bodies are a part of this unit
        self._jumps: list[tuple[int, int, int]] = []  # of the loops around: (header, after, cleanups outside)
        super().__init__(code, names, outer)

    def unit(self, body: list[ast.stmt]) -> None:
        """Lower a whole body and register the unit; one that cannot be lowered is counted."""
        try:
            for position, (name, _) in enumerate(self.code.params):
                self.write(name, self.emit("param", (), (position, name)))
            self.body(body)
            if self.is_open():
                self._leave(self.emit("const", (), None))
            self.units[self.code.key] = self.finish()
        except (Unsupported, RecursionError):
            self.failed.append(self.code.qualname)

    def body(self, statements: list[ast.stmt]) -> None:
        for node in statements:
            if not self.is_open():
                self.start(self.new_block())  # dead code: no way leads here
            if self.handlers and self.code.blocks[self.block].values:
                self.next_block()
            self.at = place(node)
            made = getattr(self, "_" + type(node).__name__, None)
            if made is not None:
                made(node)

    # -- units inside --------------------------------------------------------------------------------------

    def qualified(self, name: str) -> str:
        outer = self.code.qualname
        if self.code.kind == "module":
            return name
        return f"{outer.removesuffix('.<class>')}.{name}" if self.code.kind == "class" else f"{outer}.<locals>.{name}"

    def closure(self, node: ast.Lambda | _Function, name: str) -> int:
        qualname = self.qualified(name)
        kind = "lambda" if isinstance(node, ast.Lambda) else "function"
        code = self._made(kind, name, qualname, node)
        code.is_async = isinstance(node, ast.AsyncFunctionDef)
        code.params = parameters(node.args)
        code.defaults = {parameter: self.expression(default) for parameter, default in defaults(node.args)}
        body: list[ast.stmt] = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
        if isinstance(node, ast.Lambda):
            ast.copy_location(body[0], node.body)
        names = names_of((n for n, _ in code.params), body, self.walrus)
        _Statements(code, names, self, self.units, self.failed).unit(body)
        return self.emit("closure", tuple(code.defaults.values()), code.key, place(node))

    def _made(self, kind: str, name: str, qualname: str, node: ast.AST) -> Code:
        code = Code(kind, name, qualname, self.code.key, place(node))
        if qualname in self.taken:
            code.key = repeated(qualname, code.at[0])
        self.taken.add(qualname)
        self.inside.append(code)
        return code

    def _FunctionDef(self, node: _Function) -> None:
        decorators = [self.expression(each) for each in node.decorator_list]
        value = self.closure(node, node.name)
        self._decorated(node, value, decorators)

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef) -> None:
        decorators = [self.expression(each) for each in node.decorator_list]
        bases = [self.expression(each) for each in node.bases]
        for keyword in node.keywords:
            self.expression(keyword.value)
        qualname = self.qualified(node.name)
        code = self._made("class", node.name, f"{qualname}.<class>", node)
        _Statements(code, names_of((), node.body, self.walrus), self, self.units, self.failed).unit(node.body)
        self._decorated(node, self.emit("closure", tuple(bases), code.key, place(node)), decorators)

    def _decorated(self, node: _Function | ast.ClassDef, value: int, decorators: list[int]) -> None:
        for decorator in reversed(decorators):
            value = self.emit("call", (decorator, value), CallShape(("@",)), place(node))
        self.bind(node.name, value, node)

    # -- simple statements ---------------------------------------------------------------------------------

    def _Expr(self, node: ast.Expr) -> None:
        if self._part(node.value) is not None or isinstance(node.value, ast.Constant):
            return  # documentation does nothing
        value = self.expression(node.value)
        if isinstance(node.value, ast.Call) and (
            _ends_process(node.value.func) or _asked(node.value.func) in self.raising
        ):
            self.end("raise", value, "process" if _ends_process(node.value.func) else "")

    def _Assign(self, node: ast.Assign) -> None:
        value, given = self._part(node.value) or (self.expression(node.value), node.value)
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List) and isinstance(given, ast.Tuple | ast.List):
                plain = not any(isinstance(e, ast.Starred) for e in (*target.elts, *given.elts))
                if plain and len(target.elts) == len(given.elts):
                    parts = self.code.values[value].args
                    for each, part in zip(target.elts, parts, strict=True):
                        self.assign(each, part)
                    continue
            self.assign(target, value)

    def _part(self, node: ast.expr) -> tuple[int, ast.expr] | None:
        """The body of a function that is called here alone, as a part of this unit: the value that it returns, and how
        that is written. None where a call is a call."""
        part = self.parts.get(_asked(node.func)) if isinstance(node, ast.Call) and self.parts else None
        if part is None or self.code.kind != "function" or not isinstance(node, ast.Call):
            return None
        given = part.given(node)
        if given is None or part.cls and (self.code.outer != f"{part.cls}.<class>" or not self._is_method()):
            return None
        callee = self.expression(node.func)
        values = {name: self.expression(argument) for name, argument in given.items()}
        self.emit("part", (callee, *values.values()), CallShape(tuple(values)), place(node))
        names: dict[str, str] = {"self": self.variable("self") or "self"} if part.cls else {}
        for name, argument in given.items():
            held = self.variable(argument.id) if isinstance(argument, ast.Name) else None
            if held is not None and name not in part.bound:
                names[name] = held  # the same variable, under the name that it has there
            else:
                names[name] = self._fresh(name, part)
                self.write(names[name], values[name])
        for name in part.bound - set(names):
            names[name] = self._fresh(name, part)
        self.code.parts.append(f"{part.cls}.{part.name}" if part.cls else part.name)
        self._around.append(part.name)
        self._inner_names.append(Within(names))
        *firsts, last = part.body
        self.body(firsts)
        if isinstance(last, ast.Return):
            self.at = place(last)
            written = last.value or ast.copy_location(ast.Constant(None), last)
            value, written = self._part(written) or (self.expression(written), written)
        else:
            self.body([last])
            written = ast.copy_location(ast.Constant(None), last)
            value = self.emit("const", (), None, place(node))
        self._inner_names.pop()
        self._around.pop()
        self.at = place(node)
        return value, written

    def _is_method(self) -> bool:
        return bool(self.code.params) and self.code.params[0][0] == "self"

    def _fresh(self, name: str, part: Part) -> str:
        return name if name not in self.names.bound and not self._around else f"{name}@{part.name}"

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.code.annotated.append(node.target.id)
        if node.value is not None:
            self.assign(node.target, self.expression(node.value))

    def _AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            old = self.load(target.id, target)
        elif isinstance(target, ast.Attribute):
            old = self._Attribute(target)
        else:
            old = self._Subscript(target)
        value = self.expression(node.value)
        self.assign(target, self.emit("binary", (old, value), type(node.op).__name__, place(node)))

    def _Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                if (variable := self.variable(target.id)) is not None:
                    self.write(variable, self.emit("undefined", (), target.id, place(target)))
            elif isinstance(target, ast.Attribute):
                self.emit("delete", (self.expression(target.value),), target.attr, place(target))
            elif isinstance(target, ast.Subscript):
                self.emit("delete", (self.expression(target.value), self.expression(target.slice)), None, place(target))

    def _Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                value = self.emit("import", (), (alias.name, "", 0), place(node))
                self.bind(alias.asname, value, node)
            else:
                top = alias.name.partition(".")[0]
                self.bind(top, self.emit("import", (), (top, "", 0), place(node)), node)

    def _ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name != "*":
                value = self.emit("import", (), (node.module or "", alias.name, node.level), place(node))
                self.bind(alias.asname or alias.name, value, node)

    # -- leaving -------------------------------------------------------------------------------------------

    def _Return(self, node: ast.Return) -> None:
        if node.value is None:
            value = self.emit("const", (), None, place(node))
        elif (part := self._part(node.value)) is not None:
            value = part[0]
        else:
            value = self.expression(node.value)
        self._unwind(0)
        self._leave(value)

    def _leave(self, value: int) -> None:
        if not self.is_open():
            return
        kept = {name: self.read(name) for name, _ in self.code.params}
        self.code.exits.append((self.block, kept))
        self.end("return", value)

    def _Raise(self, node: ast.Raise) -> None:
        self.end("raise", self.expression(node.exc) if node.exc is not None else -1)

    def _Assert(self, node: ast.Assert) -> None:
        failing, going = self.new_block(), self.new_block()
        self.test(node.test, going, failing, Test("assert", place(node), place(node.test), False))
        self.start(failing)
        self.end("raise", self.expression(node.msg) if node.msg is not None else -1)
        self.start(going)

    def _Break(self, node: ast.Break) -> None:
        self._jump_out(1)

    def _Continue(self, node: ast.Continue) -> None:
        self._jump_out(0)

    def _jump_out(self, which: int) -> None:
        if not self._jumps:
            return
        self._unwind(self._jumps[-1][2])
        self.jump(self._jumps[-1][which])

    def _unwind(self, outside: int) -> None:
        """Run what must run when the blocks inside are left, innermost first."""
        kept = self._cleanups
        for depth in range(len(kept), outside, -1):
            self._cleanups = kept[: depth - 1]
            kept[depth - 1]()
        self._cleanups = kept

    # -- branches and loops --------------------------------------------------------------------------------

    def _If(self, node: ast.If) -> None:
        yes, after = self.new_block(), self.new_block()
        no = self.new_block() if node.orelse else after
        block_of_test = self.block
        self.test(node.test, yes, no, Test("if", place(node), place(node.test), False))
        self.start(yes)
        self.body(node.body)
        leaves = not self.is_open() and not node.orelse
        self.jump(after)
        if node.orelse:
            self.start(no)
            self.body(node.orelse)
            self.jump(after)
        if leaves:
            for block in range(block_of_test, yes + 1):
                if (about := self.code.tests.get(block)) is not None and about.at == place(node):
                    self.code.tests[block] = about._replace(leaves=True)
        self.start(after)

    def _For(self, node: ast.For | ast.AsyncFor) -> None:
        def body() -> None:
            header = self.loop
            self._jumps.append((header, self.code.loops[header].after, len(self._cleanups)))
            self.body(node.body)
            self._jumps.pop()

        otherwise = (lambda: self.body(node.orelse)) if node.orelse else None
        iterable = self.expression(node.iter)
        self.rounds(node, iterable, place(node.iter), node.target, isinstance(node, ast.AsyncFor), body, otherwise)

    _AsyncFor = _For

    def _While(self, node: ast.While) -> None:
        before, header, after = self.loop, self.new_block(), self.new_block()
        done = self.new_block() if node.orelse else after
        self.loop = header
        self.code.blocks[header].loop = header
        first = self.new_block()
        self.code.loops[header] = Loop(header, first, done, after, place(node), -1)
        self.jump(header)
        self.start(header, seal=False)
        if isinstance(node.test, ast.Constant) and node.test.value:
            self.jump(first)
        else:
            self.test(node.test, first, done, Test("while", place(node), place(node.test), False))
        self.start(first)
        self._jumps.append((header, after, len(self._cleanups)))
        self.body(node.body)
        self._jumps.pop()
        self.jump(header)
        self.seal(header)
        self.loop = before
        if node.orelse:
            self.start(done)
            self.body(node.orelse)
            self.jump(after)
        self.start(after)

    def _Match(self, node: ast.Match) -> None:
        subject, after = self.expression(node.subject), self.new_block()
        for case in node.cases:
            going, following = self.new_block(), self.new_block()
            fits = self._pattern(case.pattern, subject)
            if fits is None:
                self.jump(going)
            else:
                self._branch(fits, going, following, Test("match", place(node), place(case.pattern), False))
            self.start(going)
            if case.guard is not None:
                inside = self.new_block()
                self.test(case.guard, inside, following, Test("match", place(node), place(case.guard), False))
                self.start(inside)
            self.body(case.body)
            self.jump(after)
            self.start(following)
        self.jump(after)
        self.start(after)

    def _pattern(self, pattern: ast.pattern, subject: int) -> int | None:
        """Whether a pattern fits, or None where it always does; its names are bound."""
        if isinstance(pattern, ast.MatchAs):
            fits = self._pattern(pattern.pattern, subject) if pattern.pattern is not None else None
            if pattern.name:
                self.bind(pattern.name, subject, pattern)
            return fits
        if isinstance(pattern, ast.MatchValue):
            return self.emit("compare", (subject, self.expression(pattern.value)), "Eq", place(pattern))
        if isinstance(pattern, ast.MatchSingleton):
            value = self.emit("const", (), pattern.value, place(pattern))
            return self.emit("compare", (subject, value), "Is", place(pattern))
        if isinstance(pattern, ast.MatchOr):
            parts = [self._pattern(each, subject) for each in pattern.patterns]
            known = [part for part in parts if part is not None]
            return self.emit("join", tuple(known), None, place(pattern)) if len(known) == len(parts) else None
        for inner in ast.walk(pattern):
            name = getattr(inner, "name", None) or getattr(inner, "rest", None)
            if isinstance(name, str):
                self.bind(name, self.emit("unpack", (subject,), (0, 1, -1), place(pattern)), pattern)
        return self.emit("match", (subject,), None, place(pattern))

    # -- with and try --------------------------------------------------------------------------------------

    def _With(self, node: ast.With | ast.AsyncWith) -> None:
        if (as_try := _suppressing(node)) is not None:
            self._Try(as_try)
            return
        depth, kind = len(self._cleanups), "async" if isinstance(node, ast.AsyncWith) else None
        for item in node.items:
            manager = self.expression(item.context_expr)
            entered = self.emit("enter", (manager,), kind, place(item.context_expr))
            if item.optional_vars is not None:
                self.assign(item.optional_vars, entered)
            at = place(item.context_expr)
            self._cleanups.append(lambda m=manager, at=at: void(self.emit("leave", (m,), kind, at)))  # type: ignore[misc]
        self.body(node.body)
        if self.is_open():
            self._unwind(depth)
        del self._cleanups[depth:]

    _AsyncWith = _With

    def _Try(self, node: ast.Try) -> None:
        outer, after = self.handlers, self.new_block()
        catching = [self.new_block() for _ in node.handlers]
        finishing = self.new_block() if node.finalbody else None
        last = (finishing,) if finishing is not None else ()
        depth = len(self._cleanups)
        if node.finalbody:
            self._cleanups.append(lambda: self.body(node.finalbody))
        self.handlers = (*catching, *last, *outer)
        self.next_block()
        self.body(node.body)
        self.handlers = (*last, *outer)
        if self.is_open():
            self.next_block()
            self.body(node.orelse)
        self._ended(depth, after)
        for block, handler in zip(catching, node.handlers, strict=True):
            self.code.blocks[block].handlers = (*last, *outer)
            for each in last:
                self.code.blocks[each].preds.append((block, True))
            self.handlers = (*last, *outer)
            self.start(block)
            self._handler(handler)
            self._ended(depth, after)
        self.handlers = outer
        del self._cleanups[depth:]
        if finishing is not None:
            self.start(finishing)
            self.body(node.finalbody)
            self.end("raise", -1)
        self.start(after)

    _TryStar = _Try

    def _handler(self, node: ast.ExceptHandler) -> None:
        names = ast.unparse(node.type) if node.type is not None else "*"
        types = (self.expression(node.type),) if node.type is not None else ()
        value = self.emit("caught", types, names, place(node))
        if node.name:
            self.bind(node.name, value, node)
        self.body(node.body)

    def _ended(self, depth: int, after: int) -> None:
        """The end of a `try` body or a handler: what is left to do, then on behind the statement."""
        if self.is_open():
            handlers, self.handlers = self.handlers, ()
            self._unwind(depth)
            self.handlers = handlers
            self.jump(after)


def _ends_process(callee: ast.expr) -> bool:
    if isinstance(callee, ast.Attribute) and isinstance(callee.value, ast.Name):
        return (callee.value.id, callee.attr) in _ENDING
    return isinstance(callee, ast.Name) and ("", callee.id) in _ENDING


def _asked(callee: ast.expr) -> str:
    """How a function of the same file is called: by its name, or on `self` (".name")."""
    if isinstance(callee, ast.Attribute) and isinstance(callee.value, ast.Name) and callee.value.id == "self":
        return f".{callee.attr}"
    return callee.id if isinstance(callee, ast.Name) else ""


def _raising(tree: ast.Module) -> frozenset[str]:
    """The functions of a file that only ever raise (`def fail(error): raise Failed(…) from error`), or end the process
    (`sys.exit(1)`), as they are called.

    A method that raises NotImplementedError stands for those of other classes. Of several with one name all must raise.
    """
    rows = [("", node) for node in tree.body if isinstance(node, _Function)]
    for cls in statements(tree.body, inside=True):
        if isinstance(cls, ast.ClassDef):
            rows += [(".", node) for node in cls.body if isinstance(node, _Function)]
    found: dict[str, bool] = {}
    for owner, node in rows:
        name = owner + node.name
        plain = all(isinstance(d, ast.Name) and d.id in ("staticmethod", "classmethod") for d in node.decorator_list)
        found[name] = found.get(name, True) and plain and _only_raises(node)
    return frozenset(name for name, raises in found.items() if raises)


def _only_raises(node: _Function) -> bool:
    last = node.body[-1]
    leaves = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and _ends_process(last.value.func)
    raised = last.exc if isinstance(last, ast.Raise) else None
    if not (leaves or raised is not None) or isinstance(node, ast.AsyncFunctionDef):
        return False
    inside = list(ast.walk(node))
    named = {each.id for each in ast.walk(raised) if isinstance(each, ast.Name)} if raised is not None else set()
    leaving = (ast.Return, ast.Yield, ast.YieldFrom, ast.Try)
    return "NotImplementedError" not in named and not any(isinstance(each, leaving) for each in inside)


def _suppressing(node: ast.With | ast.AsyncWith) -> ast.Try | None:
    """`with contextlib.suppress(E): body` as the `try: body except E: pass` that it is."""
    call = node.items[0].context_expr
    if len(node.items) > 1 or not isinstance(call, ast.Call) or not call.args or call.keywords:
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name != "suppress":
        return None
    types: ast.expr = call.args[0] if len(call.args) == 1 else ast.Tuple(call.args, ast.Load())
    handler = ast.ExceptHandler(types, None, [ast.Pass()])
    made = ast.Try(node.body, [handler], [], [])
    for each in (types, handler, handler.body[0]):
        ast.copy_location(each, call)
    return ast.copy_location(made, node)


def void(_: object) -> None:
    """The cleanups of `with` give nothing."""
