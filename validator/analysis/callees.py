"""What a call is certain to reach, with the parameters that its arguments must fit.

An empty answer means "not known": a decorator that may change the signature, a name that is bound twice, a base
class outside the project, a method that somebody replaces.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from validator.analysis.binding import keeps_signature, parameters
from validator.analysis.certain import Certain
from validator.analysis.members import Members, method_of, own_object
from validator.facts.model import Assign, Call, Param
from validator.project import ClassDef, Method, Project

_DATACLASS = frozenset({"dataclass", "dataclasses.dataclass", "dataclass()", "dataclasses.dataclass()"})
_REMOTE = frozenset({"ray.remote", "ray.remote()"})
_MAKING = _DATACLASS | _REMOTE  # decorators that leave what a call of the class needs plain to see
_FIELD = frozenset({"field", "dataclasses.field"})


class Callee(NamedTuple):
    """Something that a call reaches: what readers call it, its parameters as callers fill them, where it stands."""

    name: str
    params: tuple[Param, ...]
    place: Method | ClassDef


class Callees:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.members = project.analysis(Members)
        self.certain = project.analysis(Certain)
        self._constructors: dict[ClassDef, Callee | None] = {}
        self._one_line: dict[ClassDef, bool] = {}

    def of(self, function: Method, call: Call) -> list[Callee]:
        """Everything that a call inside `function` may reach, if all of it is known."""
        receiver, _, name = call.target.rpartition(".")
        owner = method_of(function)
        if receiver and receiver == own_object(owner) and owner.cls is not None:
            return self._own(owner, owner.cls, name)
        if receiver == "super()" and owner.cls is not None:
            return self._inherited(owner.cls, name)
        found = self._named(function, call.target)
        if found is not None:
            return [found]
        return self._on_object(function, receiver, name) if receiver and "(" not in receiver else []

    # -- by name -------------------------------------------------------------------------------------------

    def _named(self, function: Method, target: str) -> Callee | None:
        bare = target.removesuffix(".remote").removesuffix(".options()")
        symbol = self.project.lookup(function, bare)
        remote = bare != target
        if isinstance(symbol, ClassDef | Method) and symbol.name in self.members.ambiguous:
            return None
        if isinstance(symbol, ClassDef):
            decorated = not _REMOTE.isdisjoint(symbol.facts.decorators)
            return self.constructor(symbol) if decorated == remote else None
        if not isinstance(symbol, Method) or (not _REMOTE.isdisjoint(symbol.facts.decorators)) != remote:
            return None
        if symbol.cls is None:
            return self._plain(symbol, bound=False)
        return self._plain(symbol, bound=symbol.facts.is_classmethod)  # Class.method(object, …)

    def _plain(self, function: Method, *, bound: bool, cls: ClassDef | None = None) -> Callee | None:
        """A function as a callee, if it is sure to be called as it is written."""
        facts = function.facts
        if facts.is_property or not (keeps_signature(function) or _REMOTE.issuperset(facts.decorators)):
            return None
        if self._redefined(function) or function.cls is not None and function.name in self.members.written:
            return None
        shown = function.name if function.cls is None else f"{(cls or function.cls).name}.{function.name}"
        return Callee(shown, parameters(function, bound=bound), function)

    def _redefined(self, function: Method) -> bool:
        """Whether the name of a function means something else as well: a second definition, an import, a wrapper."""
        module, name = function.module, function.name
        if (module, function.qualname) in self._twice:
            return True
        if function.cls is not None:
            return any(row == name for row in self._class_values.get(function.cls, ()))
        outer = function.enclosing or module.top
        return (outer.qualname, name) in module.imports or any(row.target == name for row in outer.facts.assigns)

    @cached_property
    def _twice(self) -> set[tuple[object, str]]:
        seen: set[tuple[object, str]] = set()
        found: set[tuple[object, str]] = set()
        for module in self.project.modules.values():
            names = [*(f.qualname for f in module.facts.functions), *(c.qualname for c in module.facts.classes)]
            for name in names:
                key = (module, name)
                (found if key in seen else seen).add(key)
        return found

    @cached_property
    def _class_values(self) -> dict[ClassDef, set[str]]:
        """Names that class bodies assign: `forward = _other_function`."""
        found: dict[ClassDef, set[str]] = {}
        for cls in self.project.classes():
            found[cls] = {row.target for row in self._body(cls)}
        return found

    @staticmethod
    def _body(cls: ClassDef) -> tuple[Assign, ...]:
        body = cls.module.functions.get(f"{cls.qualname}.<class>")
        return body.facts.assigns if body is not None else ()

    # -- on objects ----------------------------------------------------------------------------------------

    def _own(self, owner: Method, cls: ClassDef, name: str) -> list[Callee]:
        """`self.name(…)`: the method of the class or of any class below it."""
        if any(name in each.instance_attributes for each in cls.relatives):
            return []
        found = cls.find_below(name)
        if not any(found[line] for line, method in cls.find_below(owner.name).items() if method is owner):
            return []  # only classes that replace the calling method have it
        nearest = {method: line for line, method in reversed(found.items()) if method is not None}
        return self._all(nearest, through_class=owner.facts.is_classmethod)

    def _inherited(self, cls: ClassDef, name: str) -> list[Callee]:
        """`super().name(…)`, where only one line of bases leads upwards."""
        if not self._has_one_line(cls):
            return []
        for base in cls.mro[1:]:
            if name in base.methods:
                return self._all({base.methods[name]: base})
        if name == "__init__" and len(cls.mro) > 1 and (made := self.constructor(cls.mro[1])) is not None:
            return [made]
        return []

    def _has_one_line(self, cls: ClassDef) -> bool:
        """Whether the class and all below it have one base each, so that `super()` means the same for all of them."""
        if cls not in self._one_line:
            self._one_line[cls] = all(len(each.bases) == 1 for each in cls.relatives if len(each.mro) > 1)
        return self._one_line[cls]

    def _on_object(self, function: Method, receiver: str, name: str) -> list[Callee]:
        found: dict[Method, ClassDef] = {}
        for cls in sorted(self.certain.of(function, receiver), key=lambda c: (c.module.path, c.facts.at)):
            if any(name in each.instance_attributes for each in cls.relatives):
                return []
            for line, method in cls.find_below(name).items():
                if method is None:
                    return []
                found.setdefault(method, line)
        return self._all(found)

    def _all(self, methods: dict[Method, ClassDef], *, through_class: bool = False) -> list[Callee]:
        bound = {m: m.facts.is_classmethod if through_class else m.is_method for m in methods}
        found = [self._plain(m, bound=bound[m], cls=cls) for m, cls in methods.items()]
        return [callee for callee in found if callee is not None] if all(found) else []

    # -- constructors --------------------------------------------------------------------------------------

    def constructor(self, cls: ClassDef) -> Callee | None:
        """What calling the class calls, seen from the caller."""
        if cls not in self._constructors:
            self._constructors[cls] = self._find_constructor(cls)
        return self._constructors[cls]

    def _find_constructor(self, cls: ClassDef) -> Callee | None:
        if (cls.module, cls.qualname) in self._twice or cls.find("__new__") is not None:
            return None
        if ("<module>", cls.name) in cls.module.imports:
            return None
        if any(each.facts.keywords or not _MAKING.issuperset(each.facts.decorators) for each in cls.mro):
            return None
        if any(row.target == cls.name for row in cls.module.top.facts.assigns):
            return None
        for each in cls.mro:
            if "__init__" in each.methods:
                made = self._plain(each.methods["__init__"], bound=True, cls=cls)
                return made and Callee(cls.name, made.params, made.place)
            if not _DATACLASS.isdisjoint(each.facts.decorators):
                fields = self._fields(cls, each)
                return Callee(cls.name, fields, cls) if fields is not None else None
            if any(not isinstance(base, ClassDef) for base in each.bases):
                return None
        return Callee(cls.name, (), cls)

    def _fields(self, cls: ClassDef, top: ClassDef) -> tuple[Param, ...] | None:
        """The parameters that `@dataclass` gives to `__init__`; None where they are not plain to see."""
        if top is not cls or cls.external_bases or not cls.module.facts.full:
            return None
        found: dict[str, Param] = {}
        for each in reversed(cls.mro):
            if _DATACLASS.isdisjoint(each.facts.decorators) or not each.module.facts.full or "__init__" in each.methods:
                return None
            if "dataclass()" in " ".join(each.facts.decorators) and "init=" in _decorator_text(each):
                return None
            for row in self._body(each):
                if row.annotation and "." not in row.target and "[" not in row.target:
                    param = self._field(each, row)
                    if param is None:
                        return None
                    if "ClassVar" not in row.annotation:
                        found[row.target] = param
        return tuple(found.values())

    def _field(self, cls: ClassDef, row: Assign) -> Param | None:
        default: str | None = row.value if row.kind != "none" else None
        if "KW_ONLY" in row.annotation:
            return None
        if row.kind == "call" and row.value in _FIELD:
            body = cls.module.functions[f"{cls.qualname}.<class>"]
            call = next(
                (c for c in body.facts.calls if c.target in _FIELD and row.at[:2] <= c.at[:2] <= row.at[2:]), None
            )
            words = {a.keyword for a in call.args} if call is not None else {"init"}
            if "init" in words or "kw_only" in words or "**" in words:
                return None
            default = "…" if words & {"default", "default_factory"} else None
        return Param(row.target, "any", default, row.annotation, row.at)


def _decorator_text(cls: ClassDef) -> str:
    lines = cls.module.source.lines
    return " ".join(lines[max(0, cls.facts.name_at[0] - 8) : cls.facts.name_at[0]])
