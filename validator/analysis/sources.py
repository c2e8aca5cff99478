"""Where a value comes from: the expressions that a name, an attribute, a parameter or a call's result stands for."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from validator.analysis.bindings import Bindings, call_node, first_name, own_nodes
from validator.analysis.interfaces.binding import bind
from validator.analysis.interfaces.members import method_of, own_object
from validator.facts.model import Argument, Call, Param
from validator.facts.text import path_of
from validator.flow.constructors import Constructors
from validator.flow.objects import Objects
from validator.project import ClassDef, Method, Module, Project, Value

_CALLERS = 12  # of a parameter that more calls fill nothing is said: the answers would differ anyway


class Source(NamedTuple):
    """An expression with the function that it stands in; None for one that is no whole expression, or unknown."""

    function: Method
    value: ast.expr | None


class Sources:
    """Answers for one project. An empty list means "not known"."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.bindings = project.analysis(Bindings)

    def of(self, function: Method, path: str) -> list[Source]:
        """What a name or an attribute chain read in a function may be: one step, which the caller repeats."""
        owner, _, name = path.rpartition(".")
        return self._attribute(function, owner, name) if owner else self._name(function, name)

    def returned(self, function: Method, node: ast.Call) -> list[Source]:
        """What a call of project functions gives: the values that they return."""
        text = function.module.source_text
        return self._all_returned(self.project.analysis(Objects).run_at(function.module, text.at(node)))

    def _all_returned(self, functions: Iterable[Method]) -> list[Source]:
        found: list[Source] = []
        for function in dict.fromkeys(functions):
            rows = self._returns(function) if not function.facts.stub else []
            if not rows and not function.facts.stub:
                return []
            found += rows
        return found

    @staticmethod
    def _returns(function: Method) -> list[Source]:
        if function.name == "__init__" or function.facts.is_generator or function.facts.is_async:
            return []
        nodes = own_nodes(function.node) if function.node is not None else ()
        return [Source(function, n.value or ast.Constant(None)) for n in nodes if isinstance(n, ast.Return)]

    # -- names ---------------------------------------------------------------------------------------------

    def _name(self, function: Method, name: str) -> list[Source]:
        scope: Method | None = function
        while scope is not None and scope.qualname != "<module>":
            rows = self._bound(scope, name) if not _is_global(scope, name) else []
            param = next((p for p in scope.facts.params if p.name == name), None)
            if param is not None:
                rows += self._given(scope, param)
            if rows or param is not None:
                return rows
            scope = scope.enclosing
        symbol = self.project.lookup(function, name)
        return self._of_module(symbol.module, symbol.name) if isinstance(symbol, Value) else []

    def _of_module(self, module: Module, name: str) -> list[Source]:
        """What a module binds to a name, at its top or in functions that declare it global."""
        rows = self._bound(module.top, name)
        if f"global {name}" in module.source.text:
            setters = [f for f in module.functions.values() if f.name != "<module>" and _is_global(f, name)]
            rows += [row for setter in setters for row in self._bound(setter, name)]
        return rows

    def _bound(self, function: Method, path: str) -> list[Source]:
        """What a function binds to a path, elements of the tuple that a call returns included."""
        values = self.bindings.of(function).get(path, [])
        found = [Source(function, value) for value in values if value is not None]
        return found + (self._unpacked(function, path) if None in values else [])

    def _unpacked(self, function: Method, path: str) -> list[Source]:
        """`a` of `a, b = build()`: the first elements of the tuples that are returned."""
        found: list[Source] = []
        nodes = own_nodes(function.node) if function.node is not None else ()
        for node in (n for n in nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)):
            for target in (t for t in node.targets if isinstance(t, ast.Tuple | ast.List)):
                names = [path_of(e) if isinstance(e, ast.Name | ast.Attribute) else "" for e in target.elts]
                if path in names:
                    rows = self.returned(function, node.value) if isinstance(node.value, ast.Call) else []
                    found += [Source(f, _element(value, names.index(path), len(names))) for f, value in rows]
        # a loop, or a tuple that is not seen: one source is unknown
        unknown = [value for value in self.bindings.of(function).get(path, []) if value is None]
        return found if found and len(unknown) == 1 else [Source(function, None)]

    def _given(self, function: Method, param: Param) -> list[Source]:
        """What the calls that reach a function by its name pass for a parameter; of a constructor `cls(…)` as well."""
        calls = [*self.project.analysis(Objects).callers(function), *_made_by_class(function)]
        if len(calls) > _CALLERS or param.kind in ("*", "**"):
            return []
        return [_argument(caller, call, bind(function, call).get(param.name), param) for caller, call in calls]

    # -- attributes ----------------------------------------------------------------------------------------

    def _attribute(self, function: Method, owner: str, name: str) -> list[Source]:
        method = method_of(function)
        own = own_object(method) == owner and method.cls is not None
        named = self.project.analysis(Objects).named(function, owner) if not own else ()
        classes = [method.cls] if own else sorted(named, key=lambda c: c.qualname)
        found: list[Source] = []
        for cls in classes:
            rows = self._member(cls, name) if cls is not None else []
            if not rows:
                return []
            found += rows
        return found

    def _member(self, cls: ClassDef, name: str) -> list[Source]:
        """What gives an attribute of a class's objects its value: a property, assignments, a dataclass's callers."""
        getters = [m for m in cls.find_below(name).values() if m is not None]
        if getters:
            return self._all_returned(getters) if all(m.facts.is_property for m in getters) else []
        if self._written_elsewhere(cls, name):
            return []
        methods = dict.fromkeys(method for method, _ in self.bindings.attribute(cls, name))
        rows = [row for m in methods for row in self._bound(m, f"{first_name(m) or 'self'}.{name}")]
        return rows or self._field(cls, name)

    def _field(self, cls: ClassDef, name: str) -> list[Source]:
        """What those who make objects of a dataclass pass for a field."""
        is_field = name in dict(cls.facts.attributes) and cls.find("__init__") is None
        params = self.project.analysis(Constructors).of(cls) or () if is_field else ()
        index = next((i for i, p in enumerate(params) if p.name == name), -1)
        made = self.project.calls(cls.name) if index >= 0 else []
        rows = [(f, c) for f, c in made if self.project.lookup(f, c.target) is cls]
        if len(rows) > _CALLERS:
            return []
        return [_argument(f, c, _filled(c, name, index), params[index]) for f, c in rows]

    def _written_elsewhere(self, cls: ClassDef, name: str) -> bool:
        """Whether code outside the class sets the attribute on one of its objects."""
        rows = self._stores.get(name, ())
        return any(not self.project.analysis(Objects).named(f, owner).isdisjoint(cls.relatives) for f, owner in rows)

    @cached_property
    def _stores(self) -> dict[str, list[tuple[Method, str]]]:
        """By attribute the functions that set it on an object other than their own, with the object's path."""
        found: dict[str, list[tuple[Method, str]]] = {}
        for function in self.project.functions():
            stores = [r.path.rpartition(".") for r in function.facts.refs if r.context == "store" and "." in r.path]
            own = own_object(method_of(function)) if stores else None
            for owner, _, name in stores:
                if owner != own:
                    found.setdefault(name, []).append((function, owner))
        return found


def _made_by_class(function: Method) -> list[tuple[Method, Call]]:
    """The calls `cls(…)` in the class methods of a constructor's class."""
    makers = function.cls.every_method() if function.name == "__init__" and function.cls is not None else ()
    return [
        (m, call) for m in makers if m.facts.is_classmethod for call in m.facts.calls if call.target == m.own_object
    ]


def _is_global(function: Method, name: str) -> bool:
    """Whether a function declares a name of its module as global."""
    if "global " not in function.module.source.text or function.node is None:
        return False
    return any(isinstance(n, ast.Global) and name in n.names for n in own_nodes(function.node))


def _element(value: ast.expr | None, index: int, count: int) -> ast.expr | None:
    whole = isinstance(value, ast.Tuple) and len(value.elts) == count
    return value.elts[index] if whole and isinstance(value, ast.Tuple) else None


def _filled(call: Call, name: str, index: int) -> Argument | None:
    positional = call.positional
    return call.keyword(name) or (positional[index] if index < len(positional) else None)


def _argument(caller: Method, call: Call, argument: Argument | None, param: Param) -> Source:
    """What a call passes for a parameter, as syntax."""
    if argument is None:
        unpacked = any(a.keyword in ("*", "**") for a in call.args)
        default = param.default if not unpacked else None
        return Source(caller, ast.Constant(None) if default == "None" else None)
    node = call_node(caller, call)
    values = [*node.args, *(k.value for k in node.keywords)] if node is not None else []
    text = caller.module.source_text
    return Source(caller, next((v for v in values if text.at(v)[:2] == argument.at[:2]), None))
