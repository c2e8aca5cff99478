"""More rewritings that change nothing, of syntax trees: names, tests, imports, order and documentation."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_BINDING = (ast.NamedExpr, ast.Await, ast.Yield)


class _Named(ast.NodeTransformer):
    """Names replaced by others."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self._names.get(node.id, node.id), node.ctx), node)


class _Function(ast.NodeTransformer):
    """A rewriting of each outermost function."""

    def visit_FunctionDef(self, node: Any) -> Any:
        return self.rewritten(node)

    def visit_AsyncFunctionDef(self, node: Any) -> Any:
        return self.rewritten(node)

    def rewritten(self, node: Any) -> Any:
        raise NotImplementedError


class _Locals(_Function):
    """Local variables get other names; parameters and attributes keep theirs."""

    def rewritten(self, node: Any) -> Any:
        inside = list(ast.walk(node))
        params = {each.arg for each in inside if isinstance(each, ast.arg)}
        held = {name for each in inside if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
        inner = {each.name for each in inside if isinstance(each, (*Functions, ast.ClassDef))}
        inner |= {each.name for each in inside if isinstance(each, ast.ExceptHandler | ast.MatchAs) and each.name}
        bound = {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        fields = {
            each.id
            for cls in inside
            if isinstance(cls, ast.ClassDef)
            for each in ast.walk(cls)
            if isinstance(each, ast.Name)
        }
        names = {name: f"own_{name}" for name in bound - params - held - inner - fields}
        return _Named(names).visit(node)


class _Tests(_Function):
    """`if test:` becomes `holds = test` and `if holds:`, but for `elif`."""

    def rewritten(self, node: Any) -> Any:
        for each in list(ast.walk(node)):
            for name in ("body", "orelse", "finalbody"):
                body = getattr(each, name, None)
                is_elif = name == "orelse" and isinstance(each, ast.If)
                if isinstance(body, list) and not (is_elif and len(body) == 1 and isinstance(body[0], ast.If)):
                    setattr(each, name, list(self._block(body)))
        return node

    @staticmethod
    def _block(body: list[ast.stmt]) -> Any:
        for each in body:
            if isinstance(each, ast.If) and not any(isinstance(n, ast.NamedExpr) for n in ast.walk(each.test)):
                name = f"holds_{each.lineno}"
                yield ast.Assign([ast.Name(name, ast.Store())], each.test)
                each.test = ast.Name(name, ast.Load())
            yield each


class _Turned(ast.NodeTransformer):
    """`if t: A else: B` becomes `if not t: B else: A`."""

    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse or [ast.Pass()], node.body)


class _Tried(_Function):
    """The body of a function goes into `try: … finally: pass`."""

    def rewritten(self, node: Any) -> Any:
        if not any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node)):
            node.body = [ast.Try(node.body, [], [], [ast.Pass()])]
        return node


class _Documented(_Function):
    """Functions get documentation that speaks of what rules look for."""

    def rewritten(self, node: Any) -> Any:
        text = "Notes: barrier all_reduce rank world_size divide assert % group src wait no_sync set_epoch"
        node.body.insert(0, ast.Expr(ast.Constant(text)))
        return node


class _Aliased(ast.NodeTransformer):
    """What is imported at the top gets another name."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        names: dict[str, str] = {}
        for statement in node.body:
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            if isinstance(statement, ast.ImportFrom) and (statement.level or statement.module == "__future__"):
                continue
            for alias in statement.names:
                name = alias.asname or (alias.name if isinstance(statement, ast.ImportFrom) else "")
                if name and name != "*":
                    names[name] = alias.asname = f"{name}_here"
        return _Named(names).visit(node)  # type: ignore[no-any-return]


class _Reversed(ast.NodeTransformer):
    """Functions of a module stand in the opposite order, behind all the rest, where nothing needs them before."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        functions = [each for each in node.body if isinstance(each, Functions)]
        early: list[ast.AST] = [each for each in node.body if not isinstance(each, (*Functions, ast.ClassDef))]
        for each in node.body:
            early += [*getattr(each, "decorator_list", []), *getattr(each, "bases", [])]
        used = {n.id for each in early for n in ast.walk(each) if isinstance(n, ast.Name)}
        if not any(each.name in used for each in functions):
            node.body = [each for each in node.body if each not in functions] + list(reversed(functions))
        return node


class _Asked(ast.NodeTransformer):
    """`if test:` becomes `if _holds(test):`, of a function that gives back what it gets."""

    def __init__(self) -> None:
        self._used = False

    def visit_Module(self, node: ast.Module) -> ast.Module:
        self.generic_visit(node)
        starts = (index for index, each in enumerate(node.body) if isinstance(each, (*Functions, ast.ClassDef)))
        if self._used:
            node.body.insert(next(starts, len(node.body)), ast.parse("def _holds(value):\n    return value").body[0])
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        if not any(isinstance(each, ast.NamedExpr | ast.Await) for each in ast.walk(node.test)):
            self._used = True
            node.test = ast.Call(ast.Name("_holds", ast.Load()), [node.test], [])
        return node


class _Factored(_Function):
    """`x = a * b + c` becomes `part = a * b` and `x = part + c`: the left operand gets a name."""

    def rewritten(self, node: Any) -> Any:
        for each in list(ast.walk(node)):
            for name in ("body", "orelse", "finalbody"):
                body = getattr(each, name, None)
                if isinstance(body, list):
                    setattr(each, name, list(self._block(body)))
        return node

    @staticmethod
    def _block(body: list[ast.stmt]) -> Any:
        for each in body:
            value = each.value if isinstance(each, ast.Assign | ast.Return) else None
            bound = value is not None and any(isinstance(n, _BINDING) for n in ast.walk(value))
            if isinstance(value, ast.BinOp) and not bound and not isinstance(value.left, ast.Constant | ast.Name):
                name = f"part_{each.lineno}"
                yield ast.Assign([ast.Name(name, ast.Store())], value.left)
                value.left = ast.Name(name, ast.Load())
            yield each


class _Nested(ast.NodeTransformer):
    """`if a and b:` becomes `if a:` and below it `if b:`, where nothing is to be done else."""

    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) and not node.orelse:
            first, *rest = node.test.values
            test = rest[0] if len(rest) == 1 else ast.BoolOp(ast.And(), rest)
            return ast.If(first, [ast.If(test, node.body, [])], [])
        return node


class _Chosen(_Function):
    """`x = a if t else b` becomes `if t: x = a`, `else: x = b`; a return likewise."""

    def rewritten(self, node: Any) -> Any:
        for each in list(ast.walk(node)):
            for name in ("body", "orelse", "finalbody"):
                body = getattr(each, name, None)
                if isinstance(body, list):
                    setattr(each, name, [self._branched(statement) for statement in body])
        return node

    @staticmethod
    def _branched(node: ast.stmt) -> ast.stmt:
        if not isinstance(node, ast.Assign | ast.Return) or not isinstance(node.value, ast.IfExp):
            return node
        ways = node.value.body, node.value.orelse
        made = [ast.Return(w) if isinstance(node, ast.Return) else ast.Assign(node.targets, w) for w in ways]
        return ast.If(node.value.test, [made[0]], [made[1]])


class _Opposed(ast.NodeTransformer):
    """`a == b` becomes `not a != b`, and so on."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        (op, *more) = node.ops
        if more or type(op) not in _OPPOSITES:
            return node
        return ast.UnaryOp(ast.Not(), ast.Compare(node.left, [_OPPOSITES[type(op)]()], node.comparators))


_OPPOSITES: dict[type, Any] = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is}


class _Held(_Function):
    """An argument that is a call gets a name before the statement."""

    def rewritten(self, node: Any) -> Any:
        for each in list(ast.walk(node)):
            for name in ("body", "orelse", "finalbody"):
                body = getattr(each, name, None)
                if isinstance(body, list):
                    setattr(each, name, list(self._block(body)))
        return node

    @staticmethod
    def _block(body: list[ast.stmt]) -> Any:
        for each in body:
            call = each.value if isinstance(each, ast.Assign | ast.Return | ast.Expr) else None
            if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Call):
                name = f"given_{each.lineno}"
                yield ast.Assign([ast.Name(name, ast.Store())], call.args[0])
                call.args[0] = ast.Name(name, ast.Load())
            yield each


class _Sizes(_Function):
    """Parameters and variables that are named after sizes and ranks get names that say less, with all uses."""

    def rewritten(self, node: Any) -> Any:
        inside = list(ast.walk(node))
        if any(isinstance(each, ast.Lambda | ast.Global | ast.Nonlocal | ast.ClassDef) for each in inside):
            return node
        params = {each.arg for each in inside if isinstance(each, ast.arg)}
        stored = {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        named = [name for name in sorted(stored - params) if {"rank", "size", "group"} & set(name.split("_"))]
        return _Named({name: f"{'ring' if 'rank' in name else 'local'}_{name}" for name in named}).visit(node)


PLAIN: dict[str, Callable[[], ast.NodeTransformer]] = {
    "local names": _Locals,
    "test in a variable": _Tests,
    "turned test": _Turned,
    "finally": _Tried,
    "documentation": _Documented,
    "import under another name": _Aliased,
    "functions in reverse": _Reversed,
    "test in a function": _Asked,
    "factored formula": _Factored,
    "nested tests": _Nested,
    "test for a choice": _Chosen,
    "opposite comparison": _Opposed,
    "argument in a variable": _Held,
    "names of sizes": _Sizes,
}


def plain(text: str, name: str) -> str:
    """A source rewritten; raises SyntaxError where it cannot be read."""
    tree = PLAIN[name]().visit(ast.parse(text))
    made = ast.unparse(ast.fix_missing_locations(tree))
    compile(made, "example.py", "exec")
    return made
