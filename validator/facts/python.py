"""Python source to `FileFacts`, in one walk over the standard library's syntax tree.

Why `ast` and not LibCST here: facts need every file of a project but no white space, and the C parser of the
standard library is eight times faster (7 ms against 57 ms per 1000 lines). LibCST comes in where concrete
syntax matters: fixes, suppressions that are inserted, and grammar newer than the running interpreter's.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from validator.facts.control import catches, falls_through, stub_kind, terminates
from validator.facts.decode import conflict_marker, decode
from validator.facts.grammar import newer_syntax, reads_with_newer_python
from validator.facts.model import (
    Argument,
    Assign,
    Call,
    Class,
    FileFacts,
    Function,
    Guard,
    Import,
    Param,
    Problem,
    Ref,
    Return,
    Unresolved,
)  # fmt: skip
from validator.facts.scopes import Scope, resolves, type_parameters
from validator.facts.text import Text, path_of

if TYPE_CHECKING:
    from validator.source import SourceFile

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_TRY = (ast.Try, ast.TryStar) if hasattr(ast, "TryStar") else (ast.Try,)
_WRITES_NAMES = frozenset({"exec", "globals", "vars", "setattr"})
_LEAVES = frozenset({ast.Constant, ast.Load, ast.Store, ast.Del})


def extract(source: SourceFile) -> FileFacts:
    """The facts of one file. Bad input gives facts with a `problem`; nothing is raised for it."""
    text, problem = decode(source.data)
    lines = text.count("\n") + (not text.endswith("\n") and bool(text))
    if problem is not None:
        return FileFacts(problem=problem, lines=lines)
    try:
        tree = source.tree
        facts = _Extractor(text, source.own_names).module(tree, lines)
        return facts._replace(extra=_extra(source, text))
    except SyntaxError as error:
        features = newer_syntax(source.data, text)
        newest = max((f.minor for f in features), default=0)
        if newest > sys.version_info[1] and reads_with_newer_python(text):
            problem = Problem("newer", error.lineno or 1, 1, f"needs Python 3.{newest}")
            return FileFacts(problem=problem, lines=lines, extra={"newer_syntax": features})
        problem = conflict_marker(text) or Problem(
            "syntax", error.lineno or 1, max(error.offset or 1, 1), error.msg or "invalid syntax"
        )
    except (RecursionError, MemoryError):
        problem = Problem("nesting", 1, 1, "nested too deeply to be read")
    except ValueError as error:
        problem = Problem("syntax", 1, 1, str(error))
    return FileFacts(problem=problem, lines=lines)


def _extra(source: SourceFile, text: str) -> dict[str, Any]:
    """Facts of the specialised extractors, by name; those that found nothing are left out."""
    found = {"newer_syntax": newer_syntax(source.data, text)}
    return {name: rows for name, rows in found.items() if rows}


_TEST = 240  # characters of a test that are kept
_NAME = 200  # characters of a text that may name something
_TESTS = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Call)


class _Body:
    """What is collected for one function, class body or module top level."""

    __slots__ = ("assigns", "calls", "flags", "generator", "owner", "qualname", "refs", "returns")

    def __init__(self, qualname: str, owner: str = "") -> None:
        self.qualname = qualname
        self.owner = owner
        self.calls: list[Call] = []
        self.refs: list[Ref] = []
        self.assigns: list[Assign] = []
        self.returns: list[Return] = []
        self.generator = False
        self.flags: dict[str, ast.expr | None] = {}  # names given a test, once; None where something else, too


def _listed(statements: list[ast.stmt]) -> dict[str, list[ast.expr]]:
    """The names that statements give to literal lists and tuples, with their elements."""
    found: dict[str, list[ast.expr]] = {}
    for node in statements:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple):
            found.update({target.id: node.value.elts for target in node.targets if isinstance(target, ast.Name)})
    return found


class _Extractor:
    def __init__(self, text: str, own_names: dict[str, str]) -> None:
        self.text = Text(text, own_names)
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.imports: list[Import] = []
        self.names: dict[str, str] = {}
        self.texts: set[str] = set()
        self.star_imports: list[tuple[str, int]] = []
        self.scopes: list[Scope] = []
        self.top_level: list[ast.stmt] = []
        self.dynamic = False
        self.deferred_annotations = False
        self.guards: tuple[Guard, ...] = ()
        self.body = _Body("<module>")
        self.scope = self.enter("<module>", None)
        self.name_errors_caught = 0

    # -- the module ----------------------------------------------------------------------------------------

    def module(self, tree: ast.Module, lines: int) -> FileFacts:
        self.top_level = tree.body
        self.block(tree.body)
        at = (1, 1, max(lines, 1), 1)
        self.finish("<module>", self.body, self.scope, at, at)
        names = {**dict.fromkeys(self.scope.bound, "assign"), **self.names, **self.bound_again(tree)}
        dynamic = self.dynamic or "__getattr__" in names
        unresolved = [] if self.star_imports or dynamic else self.unresolved()
        return FileFacts(
            None, tuple(self.imports), tuple(self.functions), tuple(self.classes), names,
            self.exports(tree), tuple(self.star_imports), tuple(unresolved), dynamic, lines,
            tuple(sorted(self.texts)), {},
        )  # fmt: skip

    def bound_again(self, tree: ast.Module) -> dict[str, str]:
        """Imported names to which the module gives a value of its own later: `tqdm = partial(tqdm, ncols=80)`."""
        targets = (each.targets for each in tree.body if isinstance(each, ast.Assign))
        named = (target.id for several in targets for target in several if isinstance(target, ast.Name))
        return {name: "assign" for name in named if self.names.get(name) == "import"}

    def unresolved(self) -> list[Unresolved]:
        found = [
            Unresolved(name, scope.qualname, self.text.at(node))
            for scope in self.scopes
            for name, node in scope.loads.items()
            if not resolves(name, scope)
        ]
        return sorted(found, key=lambda u: u.at)

    def exports(self, tree: ast.Module) -> tuple[tuple[str, tuple[int, int, int, int]], ...] | None:
        """The names of a literal `__all__`; None where there is none or where it is computed."""
        found: list[tuple[str, tuple[int, int, int, int]]] | None = None
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
                    if not isinstance(node.value, ast.List | ast.Tuple):
                        return None
                    found = found or []
                    found += [
                        (e.value, self.text.at(e))
                        for e in node.value.elts
                        if isinstance(e, ast.Constant) and isinstance(e.value, str)
                    ]
        return None if found is None else tuple(found)

    # -- scopes --------------------------------------------------------------------------------------------

    def enter(self, qualname: str, parent: Scope | None, **kind: bool) -> Scope:
        scope = Scope(qualname, parent, **kind)
        self.scopes.append(scope)
        return scope

    def bind(self, name: str, kind: str = "assign") -> None:
        self.scope.bind(name)
        if self.scope.parent is None:
            self.names.setdefault(name, kind)

    def load(self, node: ast.Name) -> None:
        if not self.name_errors_caught:
            self.scope.loads.setdefault(node.id, node)

    # -- statements ----------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Visit statements; what an early exit or an assert proves guards the ones after it."""
        outer = self.guards
        for node in statements:
            visit = _STATEMENTS.get(type(node))
            if visit is not None:
                visit(self, node)
            else:
                self.children(node)
        self.guards = outer

    def guarded(self, guard: Guard, statements: Sequence[ast.stmt]) -> None:
        outer = self.guards
        self.guards = (*outer, guard)
        self.block(statements)
        self.guards = outer

    def test(self, node: ast.expr, negated: bool = False, kind: str = "if") -> Guard:
        line = node.lineno
        while True:
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                node, negated = node.operand, not negated
            elif isinstance(node, ast.Name) and (value := self.body.flags.get(node.id)) is not None:
                node = value
            else:
                return Guard(kind, self.tested(node)[:_TEST], negated, line)

    def tested(self, node: ast.expr) -> str:
        """The source of a test, with the tests that its names were given in the place of the names."""
        if isinstance(node, ast.Name) and (value := self.body.flags.get(node.id)) is not None:
            return f"({self.text.segment(value, _TEST)})"
        if isinstance(node, ast.BoolOp) and any(isinstance(part, ast.Name) for part in node.values):
            return (" and " if isinstance(node.op, ast.And) else " or ").join(map(self.tested, node.values))
        return self.text.segment(node, _TEST)

    def visit_if(self, node: ast.If) -> None:
        self.expr(node.test)
        self.guarded(self.test(node.test), node.body)
        if node.orelse:
            self.guarded(self.test(node.test, True), node.orelse)
        if terminates(node.body):
            if not terminates(node.orelse):
                self.guards = (*self.guards, self.test(node.test, True))
        elif node.orelse and terminates(node.orelse):
            self.guards = (*self.guards, self.test(node.test))

    def visit_assert(self, node: ast.Assert) -> None:
        self.expr(node.test)
        if node.msg is not None:
            self.expr(node.msg)
        self.guards = (*self.guards, self.test(node.test))

    def visit_while(self, node: ast.While) -> None:
        self.expr(node.test)
        self.guarded(self.test(node.test, kind="loop"), node.body)
        self.block(node.orelse)

    def visit_for(self, node: ast.For | ast.AsyncFor) -> None:
        self.expr(node.iter, "iterate")
        self.target(node.target, "for", node.iter, node)
        header = f"{self.text.segment(node.target)} in {self.text.segment(node.iter)}"
        self.guarded(Guard("loop", header, False, node.lineno), node.body)
        self.block(node.orelse)

    def visit_with(self, node: ast.With | ast.AsyncWith) -> None:
        outer = self.guards
        for item in node.items:
            self.expr(item.context_expr)
            if item.optional_vars is not None:
                self.target(item.optional_vars, "with", item.context_expr, node)
            self.guards = (
                *self.guards,
                Guard("with", self.text.segment(item.context_expr), False, node.lineno),
            )
        self.block(node.body)
        self.guards = outer

    def visit_try(self, node: Any) -> None:
        caught = catches(node.handlers)
        hides_names = "NameError" in caught or "UnboundLocalError" in caught
        self.name_errors_caught += hides_names
        self.guarded(Guard("try", ", ".join(caught), False, node.lineno), node.body) if caught else self.block(
            node.body
        )
        self.name_errors_caught -= hides_names
        for handler in node.handlers:
            if handler.type is not None:
                self.expr(handler.type)
            if handler.name:
                self.bind(handler.name)
            self.guarded(Guard("except", ", ".join(catches([handler])), False, handler.lineno), handler.body)
        self.block(node.orelse)
        self.block(node.finalbody)

    def visit_match(self, node: ast.Match) -> None:
        self.expr(node.subject)
        subject = self.text.segment(node.subject)
        for case in node.cases:
            self.pattern(case.pattern)
            if case.guard is not None:
                self.expr(case.guard)
            pattern = " ".join(ast.unparse(case.pattern).split())
            self.guarded(Guard("if", f"{subject} == {pattern}", False, case.pattern.lineno), case.body)

    def pattern(self, node: ast.pattern) -> None:
        for child in ast.walk(node):
            name = getattr(child, "name", None) or getattr(child, "rest", None)
            if isinstance(name, str):
                self.bind(name)
            if isinstance(child, ast.Name):
                self.load(child)

    def visit_import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imports.append(
                Import(alias.name, None, alias.asname, 0, self.scope.qualname, self.guards, self.text.at(alias))
            )
            self.bind(alias.asname or alias.name.partition(".")[0], "import")

    def visit_import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if module == "__future__":
            self.deferred_annotations |= any(a.name == "annotations" for a in node.names)
        for alias in node.names:
            if alias.name == "*":
                self.star_imports.append((module, node.level))
                continue
            self.imports.append(
                Import(
                    module,
                    alias.name,
                    alias.asname,
                    node.level,
                    self.scope.qualname,
                    self.guards,
                    self.text.at(alias),
                )
            )
            self.bind(alias.asname or alias.name, "import")

    def visit_global(self, node: ast.Global) -> None:
        self.scope.global_names.update(node.names)
        top = self.scopes[0]
        for name in node.names:
            top.bind(name)

    def visit_return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.expr(node.value, "return")
        self.body.returns.append(self.returned(node.value, node))

    def returned(self, value: ast.expr | None, node: ast.AST) -> Return:
        at = self.text.at(node)
        if value is None or isinstance(value, ast.Constant) and value.value is None:
            return Return("none", 0, "", self.guards, at)
        kind, text = self.text.value(value)
        if isinstance(value, ast.Tuple):
            starred = any(isinstance(e, ast.Starred) for e in value.elts)
            return Return("other" if starred else "tuple", len(value.elts), text, self.guards, at)
        return Return("other" if kind in ("tuple", "lambda") else kind, 0, text, self.guards, at)

    def visit_expr_statement(self, node: ast.Expr) -> None:
        self.expr(node.value, "discard")

    def visit_assign(self, node: ast.Assign) -> None:
        first = node.targets[0]
        self.expr(node.value, _unpacking(first))
        for target in node.targets:
            self.target(target, "", node.value, node)

    def visit_ann_assign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.expr(node.value)
        if self.scope.is_class or self.scope.parent is None:
            self.annotation(node.annotation)
        annotation = self.text.segment(node.annotation)
        if node.value is None and not isinstance(node.target, ast.Name):
            self.expr(node.target.value if isinstance(node.target, ast.Attribute) else node.target)
        self.target(node.target, "", node.value, node, annotation)

    def visit_aug_assign(self, node: ast.AugAssign) -> None:
        self.expr(node.value)
        if isinstance(node.target, ast.Name):
            self.load(node.target)
        elif isinstance(node.target, ast.Attribute):
            self.ref(node.target, "load")
        self.target(node.target, "aug", node.value, node)

    def visit_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                self.ref(target, "del")
            if isinstance(target, ast.Attribute | ast.Subscript):
                self.expr(target.value)
            else:
                self.children(target)

    def target(self, target: ast.expr, kind: str, value: ast.expr | None, node: ast.AST, annotation: str = "") -> None:
        """Bind a target. `kind` overrides the kind of the value (`for`, `with`, `aug`)."""
        if isinstance(target, ast.Tuple | ast.List):
            for index, element in enumerate(target.elts):
                inner = value
                part = f"unpack:{index}/{len(target.elts)}"
                if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) and not kind:
                    inner, part = value.elts[index], ""
                self.target(element, part or kind, inner, node)
            return
        if isinstance(target, ast.Starred):
            self.target(target.value, "other", value, node)
            return
        if isinstance(target, ast.Name):
            once = not kind and isinstance(value, _TESTS) and target.id not in self.scope.bound
            self.body.flags[target.id] = value if once else None
            self.bind(target.id)
        else:
            if isinstance(target, ast.Subscript):
                self.expr(target.value, "subscript")
                self.expr(target.slice)
            else:
                self.expr(target.value)  # type: ignore[attr-defined]
        value_kind, text = self.text.value(value) if value is not None else ("none", "")
        self.body.assigns.append(
            Assign(path_of(target), kind or value_kind, text, annotation, self.guards, self.text.at(node))
        )
        if isinstance(target, ast.Attribute):
            self.ref(target, "store")

    # -- definitions ---------------------------------------------------------------------------------------

    def qualified(self, name: str) -> str:
        outer = self.scope.qualname
        if outer == "<module>":
            return name
        return f"{outer}.{name}" if self.scope.is_class else f"{outer}.<locals>.{name}"

    def visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.expr(decorator)
        self.bind(node.name, "def")
        owner = self.scope.qualname if self.scope.is_class else ""
        qualname, outer = self.qualified(node.name), (self.scope, self.body, self.guards, self.name_errors_caught)
        self.enter_generic(node)
        params = self.parameters(node.args)
        if node.returns is not None:
            self.annotation(node.returns)
        self.scope, self.body = self.enter(qualname, self.scope), _Body(qualname, owner)
        self.scope.bound.update(p.name for p in params)
        self.name_errors_caught = 0
        definition_guards, self.guards = self.guards, ()
        self.block(node.body)
        scope, body = self.scope, self.body
        self.scope, self.body, self.guards, self.name_errors_caught = outer
        self.finish(node.name, body, scope, self.text.at(node), self.name_at(node), node, params, definition_guards)

    def decorator(self, node: ast.expr) -> str:
        """The path of a decorator, of the standard library by its own name: `ft.cached_property` is of functools."""
        path = path_of(node)
        first, dot, rest = path.partition(".")
        name, call, _ = first.partition("()")
        for row in reversed(self.imports):
            if row.bound_as == name and row.asname and not row.level:
                if row.module.partition(".")[0] in sys.stdlib_module_names:
                    return ".".join(filter(None, (row.module, row.name))) + call + dot + rest
                break
        return path

    def enter_generic(self, node: ast.AST) -> None:
        """PEP 695: the scope between a definition and its surroundings that binds its type parameters."""
        if names := type_parameters(node):
            self.scope = self.enter(self.scope.qualname, self.scope, is_comprehension=True)
            self.scope.bound.update(names)

    def finish(self, name: str, body: _Body, scope: Scope, at: Any, name_at: Any, node: Any = None,
               params: tuple[Param, ...] = (), guards: tuple[Guard, ...] = ()) -> None:  # fmt: skip
        self.functions.append(Function(
            name, body.qualname, body.owner, at, name_at, params,
            self.text.segment(node.returns) if node is not None and node.returns is not None else "",
            tuple(map(self.decorator, node.decorator_list)) if node is not None else (),
            isinstance(node, ast.AsyncFunctionDef), body.generator,
            stub_kind(node.body) if node is not None else "", falls_through(node.body) if node is not None else True,
            frozenset(scope.bound) if node is not None else frozenset(),
            tuple(body.calls), tuple(body.refs), tuple(body.assigns), tuple(body.returns), guards,
        ))  # fmt: skip

    def name_at(self, node: Any) -> tuple[int, int, int, int]:
        """The place of the name in a `def` or `class` line."""
        line = node.lineno
        text = self.text.lines[line - 1]
        start = text.find(
            node.name,
            self.text.column(line, node.col_offset) - 1 + (3 if "Function" in type(node).__name__ else 5),
        )
        return (line, start + 1, line, start + 1 + len(node.name)) if start >= 0 else self.text.at(node)

    def parameters(self, args: ast.arguments) -> tuple[Param, ...]:
        """The parameters of a function; their defaults and annotations are read in the enclosing scope."""
        plain = [*args.posonlyargs, *args.args]
        defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(args.defaults)), *args.defaults]
        rows: list[tuple[ast.arg, str, ast.expr | None]] = []
        for index, (arg, default) in enumerate(zip(plain, defaults, strict=True)):
            rows.append((arg, "pos" if index < len(args.posonlyargs) else "any", default))
        if args.vararg:
            rows.append((args.vararg, "*", None))
        rows += [(arg, "kw", default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        if args.kwarg:
            rows.append((args.kwarg, "**", None))
        params = []
        for arg, kind, default in rows:
            if default is not None:
                self.expr(default)
            if arg.annotation is not None:
                self.annotation(arg.annotation)
            params.append(Param(
                arg.arg, kind, None if default is None else self.text.segment(default),
                "" if arg.annotation is None else self.text.segment(arg.annotation), self.text.at(arg),
            ))  # fmt: skip
        return tuple(params)

    def annotation(self, node: ast.expr) -> None:
        """An annotation that Python evaluates: its names must exist (strings and deferred ones are not read)."""
        if not self.deferred_annotations:
            self.expr(node)

    def visit_class(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.expr(decorator)
        self.bind(node.name, "class")
        qualname, outer = self.qualified(node.name), (self.scope, self.body, self.guards)
        self.enter_generic(node)
        for expression in [*node.bases, *(k.value for k in node.keywords)]:
            self.expr(expression)
        self.scope = self.enter(qualname, self.scope, is_class=True)
        self.body = _Body(f"{qualname}.<class>", qualname)
        definition_guards, self.guards = self.guards, ()
        self.block(node.body)
        scope, body = self.scope, self.body
        self.scope, self.body, self.guards = outer
        annotations = {
            s.target.id: self.text.segment(s.annotation)
            for s in node.body
            if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
        }
        self.classes.append(Class(
            node.name, qualname, self.text.at(node), self.name_at(node), tuple(self.bases(node)),
            tuple((k.arg or "**", self.text.segment(k.value)) for k in node.keywords),
            tuple(map(self.decorator, node.decorator_list)),
            tuple((name, annotations.get(name, "")) for name in sorted(scope.bound)), definition_guards,
        ))  # fmt: skip
        if body.calls or body.refs or body.assigns:
            self.finish("<class>", body, scope, self.text.at(node), self.text.at(node))

    def bases(self, node: ast.ClassDef) -> Iterator[str]:
        """The paths of the bases; `class Config(*PARTS)` has those that a list of the module's top level says."""
        for base in node.bases:
            name = base.value.id if isinstance(base, ast.Starred) and isinstance(base.value, ast.Name) else ""
            yield from map(path_of, _listed(self.top_level).get(name, [base]) if name else [base])

    # -- expressions ---------------------------------------------------------------------------------------

    def expr(self, node: ast.expr, use: str = "value") -> None:
        kind = type(node)
        if kind is ast.Name:
            self.load(node)  # type: ignore[arg-type]
        elif kind is ast.Constant:
            self.constant(node)  # type: ignore[arg-type]
        elif kind is ast.Attribute:
            self.attribute(node)  # type: ignore[arg-type]
        elif kind is ast.Call:
            self.call(node, use)  # type: ignore[arg-type]
        else:
            visit = _EXPRESSIONS.get(kind)
            if visit is not None:
                visit(self, node, use)
            else:
                self.children(node)

    def children(self, node: ast.AST) -> None:
        for name in node._fields:
            child = getattr(node, name, None)
            if isinstance(child, ast.expr):
                self.expr(child)
            elif isinstance(child, list):
                for item in child:
                    if isinstance(item, ast.expr):
                        self.expr(item)
                    elif isinstance(item, ast.AST) and type(item) not in _LEAVES:
                        self.children(item)
            elif isinstance(child, ast.AST) and type(child) not in _LEAVES:
                self.children(child)

    def constant(self, node: ast.Constant) -> None:
        """A text without white space may be a name: a key, a module, a class that is looked up."""
        text = node.value
        if type(text) is str and len(text) <= _NAME and len(text.split(None, 1)) == 1:
            self.texts.add(text)

    def attribute(self, node: ast.Attribute) -> None:
        self.ref(node, "load")
        value = node.value
        while type(value) is ast.Attribute:
            value = value.value
        self.expr(value, "attribute")

    def ref(self, node: ast.Attribute, context: str) -> None:
        at = self.text.at(node)
        name_at = (at[2], at[3] - len(node.attr), at[2], at[3])
        self.body.refs.append(Ref(path_of(node), context, self.guards, at, name_at))

    def call(self, node: ast.Call, use: str) -> None:
        func = node.func
        at = self.text.at(node)
        end = self.text.at(func)
        last = func.attr if type(func) is ast.Attribute else func.id if type(func) is ast.Name else ""
        name_at = (end[2], end[3] - len(last), end[2], end[3]) if last else end
        self.body.calls.append(Call(path_of(func), self.arguments(node), use, self.guards, at, name_at))
        value: ast.expr = func
        while type(value) is ast.Attribute:
            value = value.value
        self.expr(value, "attribute")
        if type(func) is ast.Name and func.id in _WRITES_NAMES and _writes_names(func.id, node, use):
            self.dynamic = True
        for argument in node.args:
            self.expr(argument)
        for keyword in node.keywords:
            self.expr(keyword.value)

    def arguments(self, node: ast.Call) -> tuple[Argument, ...]:
        found = []
        for value in node.args:
            star = type(value) is ast.Starred
            kind, text = self.text.value(value.value if star else value)  # type: ignore[attr-defined]
            found.append(Argument("*" if star else None, kind, text, self.text.at(value)))
        for keyword in node.keywords:
            kind, text = self.text.value(keyword.value)
            found.append(Argument(keyword.arg or "**", kind, text, self.text.at(keyword)))
        return tuple(found)

    def visit_await(self, node: ast.Await, use: str) -> None:
        self.expr(node.value, use if use.startswith("unpack") else "await")

    def visit_yield(self, node: ast.Yield | ast.YieldFrom, use: str) -> None:
        self.body.generator = True
        if node.value is not None:
            self.expr(node.value)

    def visit_subscript(self, node: ast.Subscript, use: str) -> None:
        self.expr(node.value, "subscript")
        self.expr(node.slice)

    def visit_bool_op(self, node: ast.BoolOp, use: str) -> None:
        """The operands after the first are reached only where the earlier ones allow it."""
        outer = self.guards
        for value in node.values:
            self.expr(value)
            self.guards = (*self.guards, self.test(value, isinstance(node.op, ast.Or)))
        self.guards = outer

    def visit_if_exp(self, node: ast.IfExp, use: str) -> None:
        self.expr(node.test)
        outer = self.guards
        self.guards = (*outer, self.test(node.test))
        self.expr(node.body, use)
        self.guards = (*outer, self.test(node.test, True))
        self.expr(node.orelse, use)
        self.guards = outer

    def visit_named(self, node: ast.NamedExpr, use: str) -> None:
        self.expr(node.value)
        inner, self.scope = self.scope, self.scope.binding_scope()
        self.target(node.target, "", node.value, node)
        self.scope = inner

    def visit_lambda(self, node: ast.Lambda, use: str) -> None:
        params = self.parameters(node.args)
        outer, guards = self.scope, self.guards
        self.scope = self.enter(f"{outer.qualname}.<locals>.<lambda>", outer)
        self.scope.bound.update(p.name for p in params)
        self.guards = (*guards, Guard("lambda", "", False, node.lineno))
        self.expr(node.body)
        self.scope, self.guards = outer, guards

    def visit_comprehension(self, node: Any, use: str) -> None:
        outer, guards = self.scope, self.guards
        self.expr(node.generators[0].iter, "iterate")  # the first iterable belongs to the enclosing scope
        self.scope = self.enter(outer.qualname, outer, is_comprehension=True)
        for index, generator in enumerate(node.generators):
            if index:
                self.expr(generator.iter, "iterate")
            self.target(generator.target, "for", generator.iter, node)
            header = f"{self.text.segment(generator.target)} in {self.text.segment(generator.iter)}"
            self.guards = (*self.guards, Guard("loop", header, False, node.lineno))
            for condition in generator.ifs:
                self.expr(condition)
                self.guards = (*self.guards, self.test(condition))
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.expr(part)
        self.scope, self.guards = outer, guards


def _writes_names(function: str, node: ast.Call, use: str) -> bool:
    """Whether a call may bind module-level names that no reader can list."""
    if function == "setattr":  # setattr(sys.modules[__name__], …)
        return bool(node.args) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.args[0]))
    return function == "exec" or use in ("attribute", "subscript") and not node.args


def _unpacking(target: ast.expr) -> str:
    if isinstance(target, ast.Tuple | ast.List):
        starred = any(isinstance(e, ast.Starred) for e in target.elts)
        return "unpack:*" if starred else f"unpack:{len(target.elts)}"
    return "value"


_STATEMENTS: dict[type[ast.AST], Any] = {
    ast.FunctionDef: _Extractor.visit_function, ast.AsyncFunctionDef: _Extractor.visit_function,
    ast.ClassDef: _Extractor.visit_class, ast.If: _Extractor.visit_if, ast.While: _Extractor.visit_while,
    ast.For: _Extractor.visit_for, ast.AsyncFor: _Extractor.visit_for, ast.With: _Extractor.visit_with,
    ast.AsyncWith: _Extractor.visit_with, ast.Match: _Extractor.visit_match, ast.Import: _Extractor.visit_import,
    ast.ImportFrom: _Extractor.visit_import_from, ast.Global: _Extractor.visit_global,
    ast.Return: _Extractor.visit_return, ast.Expr: _Extractor.visit_expr_statement,
    ast.Assign: _Extractor.visit_assign, ast.AnnAssign: _Extractor.visit_ann_assign,
    ast.AugAssign: _Extractor.visit_aug_assign, ast.Delete: _Extractor.visit_delete,
    ast.Assert: _Extractor.visit_assert, **dict.fromkeys(_TRY, _Extractor.visit_try),
}  # fmt: skip
if hasattr(ast, "TypeAlias"):

    def _type_alias(self: _Extractor, node: Any) -> None:
        self.bind(node.name.id)

    _STATEMENTS[ast.TypeAlias] = _type_alias

_EXPRESSIONS: dict[type[ast.AST], Any] = {
    ast.Await: _Extractor.visit_await, ast.Yield: _Extractor.visit_yield, ast.YieldFrom: _Extractor.visit_yield,
    ast.Subscript: _Extractor.visit_subscript, ast.BoolOp: _Extractor.visit_bool_op,
    ast.IfExp: _Extractor.visit_if_exp, ast.NamedExpr: _Extractor.visit_named, ast.Lambda: _Extractor.visit_lambda,
    **dict.fromkeys(_COMPREHENSIONS, _Extractor.visit_comprehension),
}  # fmt: skip
