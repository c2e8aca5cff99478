"""Which project classes the value of an expression may be an instance of.

Flow-insensitive and optimistic: assignments, constructors, factories, annotations, attributes set anywhere in a
class, and arguments passed at the calls that resolve by name. An empty answer means "not known".
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from validator.analysis.choices import NOTHING, Choices, Classes
from validator.facts.model import Assign, Call
from validator.flow.annotations import classes_of, declared
from validator.project import ClassDef, Method, Project, Value

if TYPE_CHECKING:
    from collections.abc import Iterator


_WRAPPERS = (".remote", ".options().remote")  # Ray: Actor.remote(…) makes an Actor
_DEPTH = 12


class Types:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[tuple[Method, str], Classes] = {}
        self._attributes: dict[tuple[ClassDef, str], Classes] = {}
        self._values: dict[ClassDef, tuple[dict[str, str], dict[str, list[tuple[Method, Assign | None]]]]] = {}
        self._called: dict[tuple[Method, str], list[Method]] = {}
        self._choices = Choices(project, self.of)
        self._depth = 0

    # -- questions -----------------------------------------------------------------------------------------

    def of(self, function: Method, path: str) -> Classes:
        """The classes that the value of `path`, read inside `function`, may be an instance of."""
        key = (function, path)
        if key not in self._known:
            self._known[key] = NOTHING  # a cycle adds nothing
            if self._depth < _DEPTH:
                self._depth += 1
                self._known[key] = self._of(function, path)
                self._depth -= 1
        return self._known[key]

    def targets(self, function: Method, call: Call) -> list[Method]:
        """The project functions that a call may reach: by name, by the receiver's type, through a constructor."""
        if call.method not in self.project.defined and not call.target.endswith(_WRAPPERS):
            return []
        found = self.called(function, call.target)
        if found:
            return found
        if call.receiver:
            methods = (cls.find(call.method) for cls in self.of(function, call.receiver))
            return [m for m in methods if m is not None]
        return []

    def called(self, function: Method, target: str) -> list[Method]:
        """The functions that a called path means without types: names, `self.x`, `super().x`, constructors."""
        key = (function, target)
        if key not in self._called:
            self._called[key] = self._meant(function, target)
        return self._called[key]

    def _meant(self, function: Method, target: str) -> list[Method]:
        for wrapper in _WRAPPERS:
            target = target.removesuffix(wrapper)
        if function.cls is not None and function.facts.params and not function.facts.is_static:
            head, _, name = target.rpartition(".")
            if head == function.facts.params[0].name and "." not in head:
                overriding = [c.methods[name] for c in function.cls.descendants() if name in c.methods]
                own = function.cls.find(name)
                return [*([own] if own else []), *overriding]
            if head == "super()":
                found = next((c.methods[name] for c in function.cls.mro[1:] if name in c.methods), None)
                return [found] if found else []
        symbol = self.project.lookup(function, target)
        if isinstance(symbol, Method):
            return [symbol]
        if isinstance(symbol, ClassDef):
            made = symbol.find("__init__")
            return [made] if made else []
        return []

    # -- answers -------------------------------------------------------------------------------------------

    def _of(self, function: Method, path: str) -> Classes:
        if path.endswith("()"):
            return self._result(function, path[:-2])
        head, _, name = path.rpartition(".")
        if head:
            if "[" in name or "(" in name:
                return NOTHING
            owners = self.of(function, head)
            if owners:
                return frozenset().union(*(self._attribute(cls, name) for cls in owners))
            return self._annotated_value(function, path)
        return self._name(function, path)

    def _result(self, function: Method, target: str) -> Classes:
        """What calling `target` gives."""
        bare = target
        for wrapper in _WRAPPERS:
            bare = bare.removesuffix(wrapper)
        symbol = self.project.lookup(function, bare)
        if isinstance(symbol, ClassDef):
            return frozenset({symbol})
        reached = [symbol] if isinstance(symbol, Method) else self.called(function, bare)
        if not reached and "." in bare:
            receiver, _, name = bare.rpartition(".")
            reached = [m for cls in self.of(function, receiver) if (m := cls.find(name)) is not None]
        if not reached:
            return self._choices.named(function, bare)
        return frozenset().union(*(self.returned(m) for m in reached))

    def returned(self, function: Method) -> Classes:
        """The classes of what a function returns."""
        found: set[ClassDef] = set()
        for row in function.facts.returns:
            if row.kind == "call":
                found |= self.of(function, row.value + "()")
            elif row.kind == "path":
                found |= self.of(function, row.value)
            elif row.kind == "other":
                found |= self._choices.made(function, row.value)
        return frozenset(found) or self.annotated(function, function.facts.returns_annotation)

    def annotated(self, function: Method, annotation: str) -> Classes:
        """The project classes that an annotation names (`Optional[X]`, `X | None`, `"X"`); containers give nothing."""
        return classes_of(declared(self.project, function, annotation))

    def _name(self, function: Method, name: str) -> Classes:
        facts = function.facts
        if function.is_method and facts.params and facts.params[0].name == name and not facts.is_classmethod:
            assert function.cls is not None
            return frozenset({function.cls})
        scope: Method | None = function
        while scope is not None and scope.qualname != "<module>":
            if name in scope.facts.bound:
                return self._local(scope, name)
            scope = scope.enclosing
        symbol = self.project.lookup(function, name)
        if isinstance(symbol, Value):
            return self._local(symbol.module.top, symbol.name)
        return NOTHING

    def _local(self, function: Method, name: str) -> Classes:
        found: set[ClassDef] = set()
        for param in function.facts.params:
            if param.name == name:
                found |= self.annotated(function, param.annotation)
                if not found and param.kind in ("any", "kw", "pos"):
                    for caller, value in self.passed(function, name):
                        found |= self.of(caller, value)
        for row in function.facts.assigns:
            if row.target == name:
                found |= self._assigned(function, row)
        return frozenset(found)

    def _assigned(self, function: Method, row: Assign) -> Classes:
        if row.annotation and (classes := self.annotated(function, row.annotation)):
            return classes
        if row.kind == "call" or row.kind == "with":
            return self.of(function, row.value + "()")
        if row.kind == "other":
            return self._choices.made(function, row.value)
        return self.of(function, row.value) if row.kind == "path" and row.value != row.target else NOTHING

    def _attribute(self, cls: ClassDef, name: str) -> Classes:
        key = (cls, name)
        if key not in self._attributes:
            self._attributes[key] = NOTHING
            self._attributes[key] = self._find_attribute(cls, name)
        return self._attributes[key]

    def _find_attribute(self, cls: ClassDef, name: str) -> Classes:
        found: set[ClassDef] = set()
        for owner in cls.mro:
            annotations, values = self._own_values(owner)
            if name in annotations:
                found |= self.annotated(owner.module.top, annotations[name])
            for method, row in values.get(name, ()):
                found |= self.returned(method) if row is None else self._assigned(method, row)
        return frozenset(found)

    def _own_values(self, cls: ClassDef) -> tuple[dict[str, str], dict[str, list[tuple[Method, Assign | None]]]]:
        """The annotations of a class by attribute, and what gives each its value: a property or an assignment."""
        if cls not in self._values:
            values: dict[str, list[tuple[Method, Assign | None]]] = {}
            for method in cls.every_method():
                if method.facts.is_property:
                    values.setdefault(method.name, []).append((method, None))
                own = (method.facts.params[0].name if method.facts.params else "self") + "."
                for row in method.facts.assigns:
                    if row.target.startswith(own):
                        values.setdefault(row.target.removeprefix(own), []).append((method, row))
            self._values[cls] = dict(cls.facts.attributes), values
        return self._values[cls]

    def _annotated_value(self, function: Method, path: str) -> Classes:
        symbol = self.project.lookup(function, path)
        return self._local(symbol.module.top, symbol.name) if isinstance(symbol, Value) else NOTHING

    def set_on(self, cls: ClassDef, name: str) -> list[tuple[Method, Assign]]:
        """The assignments to an attribute of a class's objects, in its methods and those of its bases."""
        rows = (row for owner in cls.mro for row in self._own_values(owner)[1].get(name, ()))
        return [(method, row) for method, row in rows if row is not None]

    # -- callers -------------------------------------------------------------------------------------------

    @cached_property
    def callers(self) -> dict[Method, list[tuple[Method, Call]]]:
        """For every function the calls that reach it by name."""
        found: dict[Method, list[tuple[Method, Call]]] = {}
        for function, call in self.project.calls(
            *self.project.defined, *(each.rpartition(".")[2] for each in _WRAPPERS)
        ):
            for target in self.called(function, call.target):
                found.setdefault(target, []).append((function, call))
        return found

    def called_on(self, cls: ClassDef, names: set[str]) -> bool:
        """Whether code outside a class may call one of the named methods on its objects."""
        for function in self.project.functions():
            own = function.facts.params[0].name if function.is_method and function.facts.params else None
            for call in function.facts.calls:
                receiver, _, method = call.target.removesuffix(".remote").rpartition(".")
                if method in names and receiver not in ("", own, "super()") and cls in self.of(function, receiver):
                    return True
        return False

    def passed(self, function: Method, name: str) -> Iterator[tuple[Method, str]]:
        """The (caller, path) pairs of what callers pass for a parameter."""
        from validator.analysis.binding import bind

        for caller, call in self.callers.get(function, ()):
            argument = bind(function, call).get(name)
            if argument is None:
                continue
            if argument.kind == "path":
                yield caller, argument.value
            elif argument.kind == "call":
                yield caller, argument.value + "()"
