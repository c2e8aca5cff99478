"""Rewritings that change nothing: a rule says of the rewritten example what it says of the example.

Each is a function from the files of an example, as modules of LibCST, to other files that do the same; None where it
has nothing to rewrite. `python -m tests.validator.rewritings [CODE…]` rewrites the examples of the rules whose codes
begin so and prints, by rewriting, how many reported places are kept and how many silent examples stay silent.
"""

# ruff: noqa: N802, N815  (LibCST calls visitors by the names of nodes)
from __future__ import annotations

import ast
import builtins
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple, TypeVar

import libcst as cst
import libcst.matchers as m

from validator.examples import files, run
from validator.registry import load_rules
from validator.rule import LoadedRule

Files = dict[str, cst.Module]
Function = cst.FunctionDef
Node = TypeVar("Node", bound=cst.CSTNode)
_BUILTINS = frozenset(dir(builtins))
_MOVED = "moved_parts.py"


# -- names -----------------------------------------------------------------------------------------------------


class _Names(cst.CSTVisitor):
    """The names that a piece of code reads and binds, those of inner functions too, and what else stands in it."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.bound: dict[str, None] = {}
        self.leaves = False  # it returns, breaks, continues, yields or awaits: it is no part of its own
        self.scopes = False  # it defines functions or classes, or declares names

    def visit_Name(self, node: cst.Name) -> None:
        self.read.add(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._bind(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._bind(node.target)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self._bind(node.target)

    def visit_For(self, node: cst.For) -> None:
        self._bind(node.target)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._bind(node.target)

    def visit_AsName(self, node: cst.AsName) -> None:
        self._bind(node.name)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self.scopes = self.scopes or bool(m.findall(node, m.NamedExpr()))

    def _bind(self, target: cst.BaseExpression) -> None:
        if isinstance(target, cst.Name):
            self.bound[target.value] = None
        elif isinstance(target, cst.Tuple | cst.List):
            for each in target.elements:
                self._bind(each.value)
        elif isinstance(target, cst.StarredElement):
            self._bind(target.value)

    def _leave(self, _: cst.CSTNode) -> None:
        self.leaves = True

    def _open(self, _: cst.CSTNode) -> None:
        self.scopes = True

    visit_Return = visit_Break = visit_Continue = visit_Yield = visit_Await = _leave
    visit_FunctionDef = visit_ClassDef = visit_Lambda = visit_Global = visit_Nonlocal = visit_Import = _open
    visit_ImportFrom = visit_Del = _open


def _names(*nodes: cst.CSTNode) -> _Names:
    found = _Names()
    for node in nodes:
        node.visit(found)
    return found


def _occurring(node: cst.CSTNode) -> Counter[str]:
    return Counter(each.value for each in m.findall(node, m.Name()) if isinstance(each, cst.Name))


def _params(function: Function) -> list[str]:
    return [p.name.value for p in function.params.params]


def _is_plain(function: Function) -> bool:
    """Whether a function has nothing but parameters by position without defaults, and no decorators."""
    params = function.params
    rest = params.kwonly_params or params.posonly_params or params.star_kwarg or isinstance(params.star_arg, cst.Param)
    return not (function.decorators or function.asynchronous or rest or any(p.default for p in params.params))


def _statement(text: str) -> cst.BaseStatement:
    parsed = cst.parse_module(text).body[0]
    assert isinstance(parsed, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return parsed


def _block(body: Sequence[cst.BaseStatement]) -> cst.IndentedBlock:
    return cst.IndentedBlock(body=list(body))


def _body(node: cst.BaseSuite) -> Sequence[cst.BaseStatement]:
    return node.body if isinstance(node, cst.IndentedBlock) else ()  # type: ignore[return-value]


def _after_imports(module: cst.Module, added: Sequence[cst.BaseStatement]) -> cst.Module:
    """A module with more definitions behind its imports."""
    at = 0
    for index, statement in enumerate(module.body):
        if m.matches(statement, m.SimpleStatementLine(body=[m.Import() | m.ImportFrom()])):
            at = index + 1
    return module.with_changes(body=[*module.body[:at], *added, *module.body[at:]])


def _importing(module: cst.Module, line: str) -> cst.Module:
    at = 0
    for index, statement in enumerate(module.body):
        if m.matches(statement, m.SimpleStatementLine(body=[m.ImportFrom(module=m.Name("__future__"))])):
            at = index + 1
    return module.with_changes(body=[*module.body[:at], _statement(line), *module.body[at:]])


def _each(rewrite: Callable[[cst.Module], cst.Module]) -> Callable[[Files], Files | None]:
    """A rewriting of each file for itself."""

    def rewritten(given: Files) -> Files | None:
        found = {path: rewrite(module) for path, module in given.items()}
        return found if any(found[path].code != given[path].code for path in given) else None

    return rewritten


def _visited(visitor: Callable[[], cst.CSTTransformer]) -> Callable[[cst.Module], cst.Module]:
    def rewrite(module: cst.Module) -> cst.Module:
        made = module.visit(visitor())
        assert isinstance(made, cst.Module)
        return made

    return rewrite


# -- the rewritings --------------------------------------------------------------------------------------------


def _bound_before(body: Sequence[cst.BaseStatement], place: Node) -> set[str]:
    """The names that are bound on every way to a place in a body, where loops go round and nothing is raised."""
    bound: set[str] = set()
    for each in body:
        if each is place:
            return bound | set(_names(each.target).bound if isinstance(each, cst.For) else ())
        if isinstance(each, cst.If):
            ways = [_body(each.body), _body(each.orelse.body) if isinstance(each.orelse, cst.Else) else [each.orelse]]
            ways = [[one for one in way if isinstance(one, cst.BaseStatement)] for way in ways]
            here = [way for way in ways if any(_holds(one, place) for one in way)]
            bound |= set.intersection(*(_bound_before(way, place) for way in here or ways))
        elif isinstance(each, cst.For | cst.While | cst.With | cst.Try):
            header = each.with_changes(body=_block([]))
            bound |= {*_names(header).bound, *_bound_before(_body(each.body), place)}
        else:
            bound |= set(_names(each).bound)
        if _holds(each, place):
            break
    return bound


def _holds(node: cst.CSTNode, place: cst.CSTNode) -> bool:
    return node is place or any(_holds(child, place) for child in node.children)


class _Extract(cst.CSTTransformer):
    """The bodies of `if` and `for` become methods, or functions, that get what they read and give what they bind."""

    def __init__(self) -> None:
        self._functions: list[Function] = []
        self._classes: list[list[Function]] = []
        self._module: list[Function] = []
        self._count = 0

    def visit_FunctionDef(self, node: Function) -> None:
        self._functions.append(node)

    def leave_FunctionDef(self, original_node: Function, updated_node: Function) -> Function:
        self._functions.pop()
        return updated_node

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._classes.append([])

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        body = [*_body(updated_node.body), *self._classes.pop()]
        return updated_node.with_changes(body=_block(body)) if body else updated_node

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        return self._extracted(original_node, updated_node)

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        return self._extracted(original_node, updated_node)

    def _extracted(self, original: Node, updated: Node) -> Node:
        body = _body(original.body)  # type: ignore[attr-defined]
        if len(self._functions) != 1 or len(self._classes) > 1 or not body:
            return updated
        function, names = self._functions[0], _names(*body)
        is_method = bool(self._classes) and _params(function)[:1] == ["self"]
        if names.leaves or names.scopes or function.asynchronous or bool(self._classes) and not is_method:
            return updated
        whole = _names(function)
        local = {*whole.bound, *(p.name.value for p in _all_params(function))}
        certain = {name for each in body if m.matches(each, m.SimpleStatementLine()) for name in _names(each).bound}
        if set(names.bound) - certain or whole.read & {"locals", "super", "exec"}:
            return updated
        given = [*(["self"] if is_method else []), *sorted((names.read & local) - {"self"} - self._fresh(body))]
        params = {param.name.value for param in _all_params(function)}
        if not params | _bound_before(_body(function.body), original) >= set(given):
            return updated  # a name that may be unbound there is no argument
        there, here = _occurring(function), Counter[str]()
        for each in body:
            here += _occurring(each)
        kept = sorted(name for name in names.bound if there[name] > here[name])
        name = f"_part_{self._count}"
        self._count += 1
        made = _statement(f"def {name}({', '.join(given)}):\n    pass\n")
        assert isinstance(made, Function)
        gives = [_statement(f"return {', '.join(kept)}\n")] if kept else []
        made = made.with_changes(body=_block([*_body(updated.body), *gives]))  # type: ignore[attr-defined]
        (self._classes[0] if is_method else self._module).append(made)
        callee, passed = (f"self.{name}", given[1:]) if is_method else (name, given)
        call = f"{callee}({', '.join(passed)})"
        line = _statement(f"{', '.join(kept)} = {call}\n" if kept else f"{call}\n")
        return updated.with_changes(body=_block([line]))

    @staticmethod
    def _fresh(body: Sequence[cst.BaseStatement]) -> set[str]:
        """Names that a body binds before it reads them."""
        seen: set[str] = set()
        fresh: set[str] = set()
        for each in body:
            names = _names(each)
            plain = m.matches(each, m.SimpleStatementLine(body=[m.Assign()]))
            assign = each.body[0] if isinstance(each, cst.SimpleStatementLine) and plain else None
            read = _names(assign.value).read if isinstance(assign, cst.Assign) else names.read
            seen |= read
            fresh |= set(names.bound) - seen if plain else set()
            seen |= names.read
        return fresh

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return _after_imports(updated_node, self._module) if self._module else updated_node


def _all_params(function: Function) -> Iterator[cst.Param]:
    params = function.params
    yield from (*params.params, *params.kwonly_params, *params.posonly_params)
    for each in (params.star_arg, params.star_kwarg):
        if isinstance(each, cst.Param):
            yield each


class _Renamed(cst.CSTTransformer):
    """Names replaced by others; attributes and keywords keep theirs."""

    def __init__(self, names: dict[str, str]) -> None:
        self._new = names

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        self._kept = node.attr

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=self._new.get(original_node.value, original_node.value))

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)


class _Inline(cst.CSTTransformer):
    """A helper that is called in one place only, as a statement or for an assignment, is written out there."""

    def __init__(self, module: cst.Module) -> None:
        self._helpers: dict[str, Function] = {}
        self._of_class: dict[str, cst.ClassDef | None] = {}
        defined: Counter[str] = Counter(f.name.value for f in _functions(module))
        mentioned: Counter[str] = Counter()
        for node in m.findall(module, m.Name()):
            assert isinstance(node, cst.Name)
            mentioned[node.value] += 1
        for function, owner in _owned(module):
            name = function.name.value
            once = defined[name] == 1 and mentioned[name] == 2  # its definition, and the call
            if once and _is_plain(function) and not name.startswith("__") and self._fits(function):
                self._helpers[name] = function
                self._of_class[name] = owner
        inside = {n for f in self._helpers.values() for n in _names(f.body).read | _attributes(f.body)}
        self._helpers = {name: f for name, f in self._helpers.items() if name not in inside}
        self.used: set[str] = set()
        self._class: list[cst.ClassDef] = []
        self._functions: list[Function] = []

    @staticmethod
    def _fits(function: Function) -> bool:
        *firsts, last = _body(function.body) or [cst.Pass()]  # type: ignore[list-item]
        names = _names(*firsts)
        ends = m.matches(last, m.SimpleStatementLine(body=[m.Return(value=m.DoNotCare())]))
        value = last.body[0].value if ends and isinstance(last, cst.SimpleStatementLine) else None  # type: ignore[union-attr]
        rest = _names(value) if value is not None else _names(last)
        return not (names.leaves or names.scopes or rest.leaves or rest.scopes) and bool(_body(function.body))

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._class.append(node)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._class.pop()
        return updated_node

    def visit_FunctionDef(self, node: Function) -> None:
        self._functions.append(node)

    def leave_FunctionDef(self, original_node: Function, updated_node: Function) -> Function:
        self._functions.pop()
        return updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        if len(original_node.body) != 1 or not self._functions:
            return updated_node
        (small,) = original_node.body
        value = small.value if isinstance(small, cst.Expr | cst.Assign | cst.Return) else None
        helper = self._called(value)
        if helper is None or not isinstance(value, cst.Call):
            return updated_node
        params, args = _params(helper), list(value.args)
        if isinstance(value.func, cst.Attribute):
            params = params[1:]
        if len(args) != len(params) or any(a.star for a in args):
            return updated_node
        given = dict(zip(params, args, strict=True))
        if any(a.keyword is not None for a in args):
            by_name = {a.keyword.value: a for a in args if a.keyword is not None}
            given = {p: by_name.get(p, a) for p, a in zip(params, args, strict=True)}
            if set(by_name) - set(params) or len({id(a) for a in given.values()}) != len(given):
                return updated_node
        self.used.add(helper.name.value)
        new = {name: f"in_{name}" for name in (*params, *_names(helper.body).bound)}
        lines: list[cst.BaseStatement] = []
        for name, argument in given.items():
            target = cst.AssignTarget(cst.Name(new[name]))
            lines.append(cst.SimpleStatementLine([cst.Assign([target], argument.value)]))
        inside = helper.body.visit(_Renamed(new))
        assert isinstance(inside, cst.IndentedBlock)
        *firsts, last = _body(inside)
        returned: cst.BaseExpression | None = None
        if m.matches(last, m.SimpleStatementLine(body=[m.Return()])):
            returned = last.body[0].value or cst.Name("None")  # type: ignore[union-attr, index]
        else:
            firsts.append(last)
        if not isinstance(small, cst.Expr):
            small = small.with_changes(value=returned or cst.Name("None"))
            firsts.append(original_node.with_changes(body=[small]))
        elif returned is not None:
            firsts.append(cst.SimpleStatementLine([cst.Expr(returned)]))
        return cst.FlattenSentinel([*lines, *firsts])

    def _called(self, value: cst.BaseExpression | None) -> Function | None:
        if not isinstance(value, cst.Call):
            return None
        if isinstance(value.func, cst.Name):
            found = self._helpers.get(value.func.value)
            return found if found is not None and self._of_class[found.name.value] is None else None
        if m.matches(value.func, m.Attribute(value=m.Name("self"))) and len(self._class) == 1:
            assert isinstance(value.func, cst.Attribute)
            found = self._helpers.get(value.func.attr.value)
            own = found is not None and self._of_class[found.name.value] is self._class[0]
            return found if own and found is not None and _params(found)[:1] == ["self"] else None
        return None


def _attributes(node: cst.CSTNode) -> set[str]:
    return {each.attr.value for each in m.findall(node, m.Attribute()) if isinstance(each, cst.Attribute)}


class _Without(cst.CSTTransformer):
    """Functions that nobody calls any more are gone."""

    def __init__(self, names: set[str]) -> None:
        self._gone = names

    def leave_FunctionDef(self, original_node: Function, updated_node: Function) -> Function | cst.RemovalSentinel:
        return cst.RemoveFromParent() if original_node.name.value in self._gone else updated_node

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        return (
            updated_node if _body(updated_node.body) else updated_node.with_changes(body=_block([_statement("pass\n")]))
        )


def _inlined(module: cst.Module) -> cst.Module:
    inline = _Inline(module)
    made = module.visit(inline)
    made = made.visit(_Without(inline.used)) if inline.used else module
    assert isinstance(made, cst.Module)
    return made


def _functions(module: cst.Module) -> list[Function]:
    return [node for node in m.findall(module, m.FunctionDef()) if isinstance(node, Function)]


def _owned(module: cst.Module) -> Iterator[tuple[Function, cst.ClassDef | None]]:
    """The functions of a module and of its classes, with the class."""
    for statement in module.body:
        if isinstance(statement, Function):
            yield statement, None
        elif isinstance(statement, cst.ClassDef):
            yield from ((each, statement) for each in _body(statement.body) if isinstance(each, Function))


def _moved(given: Files) -> Files | None:
    """Definitions that others use, and that need nothing but imports, go to a module of their own."""
    if len(given) != 1:
        return None
    ((path, module),) = given.items()
    top = {s.name.value: s for s in module.body if isinstance(s, Function | cst.ClassDef)}
    imports = [s for s in module.body if m.matches(s, m.SimpleStatementLine(body=[m.Import() | m.ImportFrom()]))]
    imported = {name for s in imports for name in _imported(s)}
    moving = dict(top)
    while True:  # what needs something that stays, stays
        stays = {n for n, s in moving.items() if _names(s).read & _defined(module) - imported - set(moving)}
        if not stays:
            break
        moving = {n: s for n, s in moving.items() if n not in stays}
    users = [s for s in module.body if getattr(getattr(s, "name", None), "value", None) not in moving]
    users += [s for n, s in moving.items() if not any(n in _names(o).read for o in module.body if o is not s)]
    roots = {n for n, s in moving.items() if s in users}
    moving = {n: s for n, s in moving.items() if n not in roots}
    while True:  # what stays is not used by what goes
        needs = {n for n, s in moving.items() if (_names(s).read - {n}) & (set(top) - set(moving))}
        if not needs:
            break
        moving = {n: s for n, s in moving.items() if n not in needs}
    if not moving:
        return None
    there = module.with_changes(body=[*imports, *moving.values()])
    stay = [s for s in module.body if s not in moving.values()]
    here = _after_imports(module.with_changes(body=stay), [])
    line = f"from {_MOVED[:-3]} import {', '.join(sorted(moving))}\n"
    return {path: _importing(here, line), _MOVED: there}


def _imported(statement: cst.CSTNode) -> Iterator[str]:
    for alias in m.findall(statement, m.ImportAlias()):
        assert isinstance(alias, cst.ImportAlias)
        name = alias.evaluated_alias or alias.evaluated_name
        yield name.partition(".")[0]


def _defined(module: cst.Module) -> set[str]:
    """The names that a module binds at its top level."""
    found: set[str] = set()
    for statement in module.body:
        if isinstance(statement, Function | cst.ClassDef):
            found.add(statement.name.value)
        else:
            found.update(_names(statement).bound, _imported(statement))
    return found


class _Guard(cst.CSTTransformer):
    """`if test: …` at the end of a function or loop becomes `if not test: return` (`continue`) and what follows."""

    def __init__(self) -> None:
        self._generators: list[bool] = []

    def leave_FunctionDef(self, original_node: Function, updated_node: Function) -> Function:
        return self._guarded(updated_node, "return")

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        return self._guarded(updated_node, "continue")

    def leave_While(self, original_node: cst.While, updated_node: cst.While) -> cst.While:
        return self._guarded(updated_node, "continue")

    @staticmethod
    def _guarded(node: Node, leave: str) -> Node:
        body = _body(node.body)  # type: ignore[attr-defined]
        last = body[-1] if body else None
        if not isinstance(last, cst.If) or last.orelse is not None or not _body(last.body):
            return node
        guard = _statement(f"if not x:\n    {leave}\n")
        assert isinstance(guard, cst.If)
        test = last.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        guard = guard.with_changes(test=cst.UnaryOperation(cst.Not(), test))
        return node.with_changes(body=_block([*body[:-1], guard, *_body(last.body)]))


class _Else(cst.CSTTransformer):
    """`if test: … return` and what follows becomes `if test: … else: what follows`."""

    def leave_FunctionDef(self, original_node: Function, updated_node: Function) -> Function:
        body = list(_body(updated_node.body))
        for index in range(len(body) - 2, -1, -1):
            each = body[index]
            if not isinstance(each, cst.If) or each.orelse is not None or not _body(each.body):
                continue
            *_, last = _body(each.body)
            if m.matches(last, m.SimpleStatementLine(body=[m.Return() | m.Raise()])):
                rest = _block(body[index + 1 :])
                body = [*body[:index], each.with_changes(orelse=cst.Else(body=rest))]
        return updated_node.with_changes(body=_block(body)) if body else updated_node


class _Fields(cst.CSTTransformer):
    """A class whose constructor stores what it gets becomes a data class; the rest goes to `__post_init__`."""

    def __init__(self) -> None:
        self.changed = False

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        body = list(_body(updated_node.body))
        init = next((s for s in body if isinstance(s, Function) and s.name.value == "__init__"), None)
        if updated_node.bases or updated_node.decorators or init is None or _params(init)[:1] != ["self"]:
            return updated_node
        params = init.params.params[1:]
        if init.decorators or init.params.star_kwarg or init.params.kwonly_params or not params:
            return updated_node
        stored: dict[str, str] = {}
        rest: list[cst.BaseStatement] = []
        for statement in _body(init.body):
            row = _stored(statement)
            if row is not None and row[1] in [p.name.value for p in params] and row[1] not in stored and not rest:
                stored[row[1]] = row[0]
            else:
                rest.append(statement)
        if any(stored.get(p.name.value) != p.name.value for p in params) or _names(*rest).bound.keys() & set(stored):
            return updated_node
        self.changed = True
        lines = [self._field(p) for p in params]
        made = [cst.parse_module("").with_changes(body=rest).visit(_OfSelf(set(stored)))] if rest else []
        after = [_statement("def __post_init__(self):\n    pass\n")] if rest else []
        if rest:
            assert isinstance(after[0], Function)
            inner = made[0]
            assert isinstance(inner, cst.Module)
            after = [after[0].with_changes(body=_block(inner.body))]
        others = [s for s in body if s is not init]
        decorator = cst.Decorator(cst.Name("dataclass"))
        return updated_node.with_changes(decorators=[decorator], body=_block([*lines, *after, *others]))

    @staticmethod
    def _field(param: cst.Param) -> cst.BaseStatement:
        annotation = param.annotation or cst.Annotation(cst.Name("object"))
        return cst.SimpleStatementLine([cst.AnnAssign(param.name, annotation, param.default)])

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return _importing(updated_node, "from dataclasses import dataclass\n") if self.changed else original_node


def _stored(statement: cst.BaseStatement) -> tuple[str, str] | None:
    """`self.attribute = name`."""
    pattern = m.SimpleStatementLine(
        body=[m.Assign(targets=[m.AssignTarget(m.Attribute(value=m.Name("self")))], value=m.Name())]
    )
    if not m.matches(statement, pattern):
        return None
    assign = statement.body[0]  # type: ignore[index, union-attr]
    return assign.targets[0].target.attr.value, assign.value.value  # type: ignore[union-attr]


class _OfSelf(cst.CSTTransformer):
    """Parameters of a constructor are read from the object."""

    def __init__(self, names: set[str]) -> None:
        self._fields = names

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return cst.Attribute(cst.Name("self"), updated_node) if original_node.value in self._fields else updated_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)


class _Manage(cst.CSTTransformer):
    """The body of each function stands in a context manager of the project that does nothing."""

    def __init__(self, manager: str, before: str) -> None:
        self._manager = manager
        self._before = before
        self._changed = False

    def leave_FunctionDef(self, original_node: Function, updated_node: Function) -> Function:
        body = list(_body(updated_node.body))
        names = _names(*body)
        if not body or names.scopes or m.findall(original_node, m.Yield()) or original_node.asynchronous:
            return updated_node
        self._changed = True
        managed = _statement(f"with {self._manager}:\n    pass\n")
        return updated_node.with_changes(body=_block([managed.with_changes(body=_block(body))]))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if not self._changed:
            return original_node
        line, _, rest = self._before.partition("\n")
        made = _importing(updated_node, f"{line}\n")
        return _after_imports(made, [_statement(rest)]) if rest else made


_OWN = "from contextlib import contextmanager\n@contextmanager\ndef _section(name):\n    yield name\n"


class _Loop(cst.CSTTransformer):
    """`x = [f(a) for a in b]` becomes a loop that appends."""

    def __init__(self) -> None:
        self._depth = 0

    def visit_FunctionDef(self, node: Function) -> None:
        self._depth += 1

    def leave_FunctionDef(self, original_node: Function, updated_node: Function) -> Function:
        self._depth -= 1
        return updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        small = original_node.body[0]
        made = small.value if isinstance(small, cst.Assign | cst.Return) else None
        if self._depth != 1 or not isinstance(made, cst.ListComp) or len(original_node.body) != 1:
            return updated_node
        if isinstance(small, cst.Assign) and not (
            len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name)
        ):
            return updated_node
        name = small.targets[0].target.value if isinstance(small, cst.Assign) else "gathered"  # type: ignore[union-attr]
        if name in _names(made).read:
            return updated_node
        line = _statement(f"{name}.append(x)\n")
        append = line.with_changes(
            body=[cst.Expr(cst.Call(cst.Attribute(cst.Name(name), cst.Name("append")), [cst.Arg(made.elt)]))]
        )
        inner: cst.BaseStatement = append
        loops: list[cst.CompFor] = []
        each: cst.CompFor | None = made.for_in
        while each is not None:
            loops.append(each)
            each = each.inner_for_in
        for loop in reversed(loops):
            for test in reversed(loop.ifs):
                inner = cst.If(test.test, _block([inner]))
            inner = cst.For(loop.target, loop.iter, _block([inner]))
        end = [] if isinstance(small, cst.Assign) else [_statement(f"return {name}\n")]
        return cst.FlattenSentinel([_statement(f"{name} = []\n"), inner, *end])


class _Gather(cst.CSTTransformer):
    """`x = []`, and a loop that appends to it, become a comprehension."""

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        body: list[cst.BaseStatement] = []
        for statement in _body(updated_node):
            made = self._gathered(body[-1], statement) if body else None
            if made is not None:
                body[-1] = made
            else:
                body.append(statement)
        return updated_node.with_changes(body=body)

    @staticmethod
    def _gathered(first: cst.BaseStatement, loop: cst.BaseStatement) -> cst.BaseStatement | None:
        empty = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())], value=m.List(elements=[]))])
        if not m.matches(first, empty) or not isinstance(loop, cst.For) or loop.orelse or loop.asynchronous:
            return None
        assign = first.body[0]  # type: ignore[index, union-attr]
        name = assign.targets[0].target.value  # type: ignore[union-attr]
        (only, *more) = _body(loop.body) or [cst.Pass()]  # type: ignore[list-item]
        ifs = []
        if isinstance(only, cst.If) and only.orelse is None and len(_body(only.body)) == 1:
            ifs = [cst.CompIf(only.test)]
            (only,) = _body(only.body)
        append = m.SimpleStatementLine(
            body=[m.Expr(m.Call(func=m.Attribute(m.Name(name), m.Name("append")), args=[m.Arg(keyword=None)]))]
        )
        if more or not m.matches(only, append):
            return None
        value = only.body[0].value.args[0].value  # type: ignore[index, union-attr]
        if name in _names(value, loop.iter, *ifs).read or m.findall(value, m.Await() | m.Yield()):
            return None
        made = cst.ListComp(value, cst.CompFor(loop.target, loop.iter, ifs))
        return first.with_changes(body=[assign.with_changes(value=made)])


class _Keywords(cst.CSTTransformer):
    """Functions of the file are called by the names of their parameters."""

    def __init__(self, module: cst.Module) -> None:
        defined = Counter(f.name.value for f in _functions(module))
        self._params = {
            f.name.value: _params(f)
            for f, owner in _owned(module)
            if owner is None
            and defined[f.name.value] == 1
            and not f.params.posonly_params
            and not f.decorators
            and not isinstance(f.params.star_arg, cst.Param)
        }

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        params = self._params.get(original_node.func.value) if isinstance(original_node.func, cst.Name) else None
        if not params or any(a.star for a in updated_node.args) or len(updated_node.args) > len(params):
            return updated_node
        args = [
            a if a.keyword else a.with_changes(keyword=cst.Name(params[i]), equal=_EQUAL)
            for i, a in enumerate(updated_node.args)
        ]
        return updated_node.with_changes(args=args)


_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def _keyworded(module: cst.Module) -> cst.Module:
    made = module.visit(_Keywords(module))
    assert isinstance(made, cst.Module)
    return made


REWRITINGS: dict[str, Callable[[Files], Files | None]] = {
    "extracted method": _each(_visited(_Extract)),
    "inlined helper": _each(_inlined),
    "moved definition": _moved,
    "early return": _each(_visited(_Guard)),
    "else for return": _each(_visited(_Else)),
    "dataclass field": _each(_visited(_Fields)),
    "own context manager": _each(_visited(lambda: _Manage('_section("part")', _OWN))),
    "null context": _each(_visited(lambda: _Manage("nullcontext()", "from contextlib import nullcontext\n"))),
    "loop": _each(_visited(_Loop)),
    "comprehension": _each(_visited(_Gather)),
    "keywords": _each(_keyworded),
}


# -- verdicts --------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """An example under a rewriting: how many findings it has as it was, and rewritten (or what went wrong)."""

    rewriting: str
    code: str
    wrong: bool
    index: int
    before: int
    after: int | str
    text: str

    @property
    def holds(self) -> bool:
        """The verdict is the same: what is reported stays so, what is silent stays silent."""
        if isinstance(self.after, str):
            return False
        return self.after >= self.before if self.wrong else not self.after


def rewritten(example: str, name: str) -> str | None:
    """An example rewritten; None where it has files of other kinds, or nothing to rewrite."""
    parsed: Files = {}
    for file in files(example):
        if file.size or file.link or not file.path.endswith(".py"):
            return None
        try:
            parsed[file.path] = cst.parse_module(file.text)
        except cst.ParserSyntaxError:
            return None
    made = REWRITINGS[name](parsed)
    if made is None:
        return None
    texts = {path: ast.unparse(ast.parse(module.code)) for path, module in made.items()}  # without marks
    return "".join(f"# file: {path}\n{text}\n" for path, text in texts.items())


def examples(*prefixes: str) -> Iterator[tuple[LoadedRule, bool, int, str]]:
    for rule in load_rules():
        if rule.rule.code.startswith(prefixes):
            for wrong, texts in ((True, rule.incorrect), (False, rule.correct)):
                yield from ((rule, wrong, index, text) for index, text in enumerate(texts))


def verdicts(name: str, *prefixes: str, every: int = 1) -> Iterator[Row]:
    """The examples of some rules under a rewriting, or one of so many."""
    for rule, wrong, index, example in islice(examples(*prefixes), 0, None, every):
        text = rewritten(example, name)
        if text is not None:
            before = _before(rule.rule.code, example)
            if isinstance(before, int):
                yield Row(name, rule.rule.code, wrong, index, before, _count(rule, text), text)


@cache
def _before(code: str, example: str) -> int | str:
    return _count(next(rule for rule in load_rules() if rule.rule.code == code), example)


def _count(rule: LoadedRule, example: str) -> int | str:
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(rule, example, folder)
    return "; ".join(map(str, outcome.errors)) if outcome.errors else sum(outcome.found.values())


def main(arguments: list[str]) -> int:
    show = "--show" in arguments
    prefixes = [each for each in arguments if not each.startswith("-")] or ["MP5", "MP6"]
    rows = [row for name in REWRITINGS for row in verdicts(name, *prefixes)]
    for name in REWRITINGS:
        print(f"{name:20} {_line([row for row in rows if row.rewriting == name])}")
    print(f"{'all':20} {_line(rows)}")
    for row in rows:
        if not row.holds:
            kind = "incorrect" if row.wrong else "correct"
            print(f"  {row.rewriting}: {row.code} {kind} {row.index}: {row.before} -> {row.after}")
            if show:
                print(row.text)
    return 0 if all(row.holds for row in rows) else 1


def _line(rows: list[Row]) -> str:
    wrong, right = ([row for row in rows if row.wrong is kind] for kind in (True, False))
    kept, silent = (sum(row.holds for row in part) for part in (wrong, right))
    return f"kept {kept}/{len(wrong)}  silent {silent}/{len(right)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
