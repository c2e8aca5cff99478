"""Values that are certain to be objects of project classes, because every source of them is known.

`validator.analysis.types` is optimistic (a value *may* be one of the classes it names), which serves for finding
callers; a finding such as "this object has no member x" must not rest on it.
"""

from __future__ import annotations

import re

from validator.analysis.choices import NOTHING, Classes, union
from validator.analysis.members import Members, own_object
from validator.analysis.uses import is_test
from validator.facts.model import Assign, Param
from validator.project import ClassDef, Method, Project, Value

_DEPTH = 10
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_WRAPPING = frozenset({"None", "Optional", "typing.Optional", "Union", "typing.Union"})
_ANNOTATION = re.compile(r"[\w.\s|\[\],\"']+")


class Certain:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.members = project.analysis(Members)
        self._known: dict[tuple[Method, str], Classes] = {}
        self._values: dict[ClassDef, dict[str, list[tuple[Method, Assign]]]] = {}
        self._depth = 0

    def of(self, function: Method, path: str) -> Classes:
        """The classes of the value of `path` inside `function`; empty where one of its sources is not known."""
        key = (function, path)
        if key not in self._known:
            self._known[key] = NOTHING  # a cycle proves nothing
            if self._depth < _DEPTH:
                self._depth += 1
                self._known[key] = self._of(function, path)
                self._depth -= 1
        return self._known[key]

    def _of(self, function: Method, path: str) -> Classes:
        if path.endswith("()"):
            return self._result(function, path[:-2])
        if "[" in path or "(" in path:
            return NOTHING
        head, _, name = path.rpartition(".")
        return (
            union(self._attribute(cls, name) for cls in self.of(function, head)) if head else self._name(function, path)
        )

    def _name(self, function: Method, name: str) -> Classes:
        scope: Method | None = function
        while scope is not None and scope.qualname != "<module>":
            if name in scope.facts.bound:
                if own_object(scope) == name and scope.cls is not None:
                    return NOTHING if scope.facts.is_classmethod else frozenset({scope.cls})
                return self._local(scope, name)
            scope = scope.enclosing
        symbol = self.project.lookup(function, name)
        return self._local(symbol.module.top, symbol.name) if isinstance(symbol, Value) else NOTHING

    def _local(self, function: Method, name: str) -> Classes:
        params = [self._parameter(function, p) for p in function.facts.params if p.name == name]
        rows = [
            self._assigned(function, row) for row in function.facts.assigns if row.target == name and not _is_none(row)
        ]
        return union([*params, *rows])

    def _parameter(self, function: Method, param: Param) -> Classes:
        if param.kind in ("*", "**"):
            return NOTHING
        if param.annotation:
            return self.annotated(function, param.annotation)
        if function.is_method and function.name != "__init__":
            return NOTHING  # callers reach it through receivers of which not all are known
        passed = list(self.project.types.passed(function, param.name))
        if len(passed) != len(self.project.types.callers.get(function, ())):
            return NOTHING
        if all(is_test(caller.path) for caller, _ in passed):
            return NOTHING  # a test stands in for users who are not in this project
        return union(self.of(caller, value) for caller, value in passed)

    def annotated(self, function: Method, annotation: str) -> Classes:
        """The classes of an annotation that names nothing but project classes and None."""
        words = {w for w in _WORD.findall(annotation) if w not in _WRAPPING}
        if not _ANNOTATION.fullmatch(annotation):
            return NOTHING
        if not self.members.ambiguous.isdisjoint(word.rpartition(".")[2] for word in words):
            return NOTHING
        found = (self.project.lookup(function.module.top, word) for word in words)
        return union(frozenset({s}) if isinstance(s, ClassDef) else NOTHING for s in found)

    def _assigned(self, function: Method, row: Assign) -> Classes:
        if row.annotation and (classes := self.annotated(function, row.annotation)):
            return classes
        if row.kind == "call":
            return self.of(function, row.value + "()")
        return self.of(function, row.value) if row.kind == "path" and row.value != row.target else NOTHING

    def _attribute(self, cls: ClassDef, name: str) -> Classes:
        if not self.members.closed(cls) or name in self.members.written:
            return NOTHING
        sources: list[Classes] = []
        for owner in [*cls.mro, *cls.descendants()]:
            if any(each == name for each, _ in owner.facts.attributes):
                return NOTHING
            sources += [self._assigned(method, row) for method, row in self._own_values(owner).get(name, ())]
        return union(sources)

    def _own_values(self, cls: ClassDef) -> dict[str, list[tuple[Method, Assign]]]:
        """By attribute, what the methods of a class, without those of its bases, set it to."""
        if cls not in self._values:
            values: dict[str, list[tuple[Method, Assign]]] = {}
            for method in cls.every_method():
                own = f"{own_object(method)}."
                for inner in [method, *self.project.nested(method)]:
                    for row in inner.facts.assigns:
                        if row.target.startswith(own) and not _is_none(row):
                            values.setdefault(row.target.removeprefix(own), []).append((inner, row))
            self._values[cls] = values
        return self._values[cls]

    def _result(self, function: Method, target: str) -> Classes:
        symbol = self.project.lookup(function, target)
        if isinstance(symbol, ClassDef | Method) and symbol.name in self.members.ambiguous:
            return NOTHING
        if isinstance(symbol, ClassDef):
            return NOTHING if "__new__" in symbol.attributes or symbol.is_opaque else frozenset({symbol})
        if (
            not isinstance(symbol, Method)
            or symbol.facts.decorators
            or symbol.facts.is_async
            or symbol.facts.is_generator
        ):
            return NOTHING
        rows = [row for row in symbol.facts.returns if row.kind != "none"]
        paths = [row.value + "()" * (row.kind == "call") if row.kind in ("call", "path") else "?" for row in rows]
        return union(self.of(symbol, path) for path in paths)


def _is_none(row: Assign) -> bool:
    return row.kind == "none" or row.kind == "const" and row.value == "None"
