"""What a name may stand for: modules, functions, classes with their members and bases, and what is not known.

A `Project` makes them of the facts of its files and says which of them a name means where it stands.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from validator.facts.model import At, Class, FileFacts, Function, Import
from validator.facts.text import Text
from validator.files import naming
from validator.source import SourceFile

if TYPE_CHECKING:
    from validator.project import Project


class External(NamedTuple):
    """Something that is defined outside the files of the run, e.g. `torch.distributed.barrier`."""

    path: str


class Unknown(NamedTuple):
    """A value that the source alone does not tell, e.g. a local variable. `path` as written."""

    path: str


class Missing(NamedTuple):
    """A name that `module` would have to define and does not. `name` is None when the module itself is missing."""

    module: str
    name: str | None
    owner: Module | None = None  # the module that lacks the name


class Value(NamedTuple):
    """A module-level variable of the project."""

    module: Module
    name: str


def _meant(facts: FileFacts) -> Iterator[Class]:
    """The classes of a file; of several of one name the last, or, where conditions choose, the one with the most
    methods: the others stand in its place where a library is missing."""
    by_name: dict[str, list[Class]] = {}
    for each in facts.classes:
        by_name.setdefault(each.qualname, []).append(each)
    for rows in by_name.values():
        if len(rows) == 1 or not all(each.guards for each in rows):
            yield rows[-1]
            continue
        size = {each.at: sum(_is_inside(one.at, each.at) for one in facts.functions) for each in rows}
        yield max(reversed(rows), key=lambda each: size[each.at])


def _is_inside(at: At, around: At) -> bool:
    """Whether a definition stands on the lines of another one."""
    return around[0] <= at[0] and at[2] <= around[2]


class Module:
    """A module of the project."""

    def __init__(self, project: Project, source: SourceFile, location: naming.Location) -> None:
        self.project = project
        self.source = source
        self.facts: FileFacts = source.facts
        self.name = location.name
        self.is_package = location.is_package
        self.path = source.path
        self.functions: dict[str, Method] = {}
        self.classes: dict[str, ClassDef] = {}
        self.imports: dict[tuple[str, str], Import] = {}  # (scope, bound name)
        for row in self.facts.imports:
            self.imports.setdefault((row.scope, row.bound_as), row)
        for definition in _meant(self.facts):
            self.classes[definition.qualname] = ClassDef(self, definition)
        for function in self.facts.functions:
            method = Method(self, function, self.classes.get(function.owner))
            if method.cls is not None and not _is_inside(function.at, method.cls.facts.at):
                self.functions.setdefault(function.qualname, method)  # of another class of that name
                method.cls.add_other(method)
                continue
            # of several definitions under one name the last that is no overload or accessor wins
            if function.qualname not in self.functions or not (function.is_overload or _is_accessor(function)):
                self.functions[function.qualname] = method
            if method.cls is not None and function.name != "<class>":
                method.cls.add(method)

    def __repr__(self) -> str:
        return f"<Module {self.name}>"

    @cached_property
    def source_text(self) -> Text:
        """The lines of the file, for the places of syntax nodes."""
        return Text(self.source.text)

    @cached_property
    def definitions_by_line(self) -> dict[tuple[int, str], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
        """The syntax of its functions and classes by line and name."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return {(node.lineno, node.name): node for node in ast.walk(self.source.tree) if isinstance(node, kinds)}

    @property
    def top(self) -> Method:
        """The top level of the module as a function."""
        return self.functions["<module>"]

    def imports_of(self, name: str) -> list[Import]:
        """The imports of its top level that bind a name: a fallback of another one, mostly."""
        return self._imports_by_name.get(name, [])

    @cached_property
    def _imports_by_name(self) -> dict[str, list[Import]]:
        found: dict[str, list[Import]] = {}
        for row in self.facts.imports:
            if row.scope == "<module>":
                found.setdefault(row.bound_as, []).append(row)
        return found

    def absolute(self, module: str, level: int) -> str:
        """The absolute name of a module imported relatively from here."""
        if not level:
            return module
        parts = self.name.split(".")
        parts = parts[: len(parts) - level + self.is_package]
        return ".".join([*parts, module] if module else parts)

    def member(self, name: str) -> Symbol:
        """What `name` means as an attribute of this module."""
        return self.project._member(self, name)


def _is_accessor(function: Function) -> bool:
    return any(d.endswith((".setter", ".deleter", ".getter")) for d in function.decorators)


_OBJECTS = ("self", "cls")
# Libraries whose decorators leave a method what it is.
_WRAPPING_METHODS = frozenset({
    "abc", "abstractmethod", "contextlib", "functools", "property", "ray", "torch", "typing", "typing_extensions",
})  # fmt: skip


class Method:
    """A function or method of the project with the place it belongs to."""

    def __init__(self, module: Module, facts: Function, cls: ClassDef | None) -> None:
        self.module = module
        self.facts = facts
        self.cls = cls
        self.name = facts.name
        self.qualname = facts.qualname
        self.path = module.path

    def __repr__(self) -> str:
        return f"<Method {self.module.name}:{self.qualname}>"

    @cached_property
    def node(self) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | None:
        """The syntax of the function, parsed for itself: few are asked for it, and whole trees are large.

        None for the body of a class. Lines and columns are those of the file.
        """
        if self.name == "<module>":
            return self.module.source.tree
        if self.name == "<class>":
            return None
        first, column, last, _ = self.facts.at
        text = "\n".join(self.module.source_text.lines[first - 1 : last])
        # empty lines before it put the function on its own lines; `if 1:` admits its indentation
        above = "\n" * (first - 2) + "if 1:\n" if column > 1 else "\n" * (first - 1)
        try:
            body = ast.parse(above + text).body
        except SyntaxError:  # a form feed starts the count of an indentation anew: its lines do not stand alone
            return self._node_of_tree()
        node = body[0].body[0] if isinstance(body[0], ast.If) else body[0]
        return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None

    def _node_of_tree(self) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        first, _, last, _ = self.facts.at
        functions = [
            n for n in ast.walk(self.module.source.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        return next((n for n in functions if n.name == self.name and first <= n.lineno <= last), None)

    @property
    def is_method(self) -> bool:
        """Whether calls through an instance bind a first parameter."""
        return self.cls is not None and not self.is_static

    @cached_property
    def is_static(self) -> bool:
        """Whether the first parameter is no object of the class: of a static method, of a function that the class
        only keeps (`Scaler.overflows(gradient)`): all calls of it are on the class and none passes on `self`; and of
        one that a library takes to call it with something of its own (`@bindings.add("c-c")` on `_(event)`)."""
        facts, cls = self.facts, self.cls
        if facts.is_static or cls is None or not facts.params or facts.params[0].name in _OBJECTS:
            return facts.is_static
        if facts.decorators:
            return any(map(self._is_taken_by, facts.decorators))
        found = False
        for caller, call in self.module.project.calls(self.name):
            around = caller.cls
            while around is None and (outer := caller.enclosing) is not None:
                caller, around = outer, outer.cls
            own = caller.facts.params[0].name if around is not None and caller.facts.params else None
            meant = self.module.project.lookup(caller, call.receiver) if call.receiver != own else around
            if not isinstance(meant, ClassDef):
                return False  # on an object, of whatever class
            if cls in meant.mro or meant in cls.mro:
                if call.receiver == own or not call.args or call.args[0].value == own:
                    return False
                found = True
        return found

    def _is_taken_by(self, decorator: str) -> bool:
        """Whether a decorator is something of which nothing is known: no function of the project, no wrapper of a
        method that is known to leave it one."""
        found = self.module.project.lookup(self.module.top, decorator.removesuffix("()"))
        if isinstance(found, Method | ClassDef) or self.facts.is_property or self.facts.is_classmethod:
            return False
        return not isinstance(found, External) or found.path.partition(".")[0] not in _WRAPPING_METHODS

    @cached_property
    def own_object(self) -> str | None:
        """The name by which a method knows its object (`self`); None outside methods and in static ones."""
        facts = self.facts
        if self.cls is None or self.is_static or not facts.params or facts.params[0].kind not in ("any", "pos"):
            return None
        name = facts.params[0].name
        return None if any(row.target == name for row in facts.assigns) else name

    @cached_property
    def enclosing(self) -> Method | None:
        """The function whose body holds this one."""
        outer, found, _ = self.qualname.rpartition(".<locals>.")
        if not found and self.facts.owner:
            outer, found, _ = self.facts.owner.rpartition(".<locals>.")
        return self.module.functions.get(outer) if found else None


class ClassDef:
    """A class of the project."""

    def __init__(self, module: Module, facts: Class) -> None:
        self.module = module
        self.facts = facts
        self.name = facts.name
        self.qualname = facts.qualname
        self.path = module.path
        self.methods: dict[str, Method] = {}
        self.definitions: dict[str, list[Method]] = {}
        self.subclasses: list[ClassDef] = []

    def __repr__(self) -> str:
        return f"<Class {self.module.name}:{self.qualname}>"

    def add(self, method: Method) -> None:
        if method.name not in self.methods or not (method.facts.is_overload or _is_accessor(method.facts)):
            self.methods[method.name] = method
        self.definitions.setdefault(method.name, []).append(method)

    def add_other(self, method: Method) -> None:
        """Add a method of another definition of the class, which may be the one that is run."""
        self.methods.setdefault(method.name, method)
        self.definitions.setdefault(method.name, []).append(method)

    @cached_property
    def bases(self) -> tuple[Symbol, ...]:
        """Its bases as written, of generic ones (`Config[Model]`) the class that they are a form of."""
        self.__dict__["bases"] = ()  # until then: `class D(D.x)` means an older D, which has this one's name
        paths = (base.removesuffix("[]") for base in self.facts.bases)
        return tuple(self.module.project.lookup(self.module.top, path) for path in paths)

    @cached_property
    def mro(self) -> tuple[ClassDef, ...]:
        """The class and its bases within the project, in the order in which Python looks names up (C3)."""
        bases = [base for base in self.bases if isinstance(base, ClassDef)]
        above = _above(self)
        if self in above:  # a circle, which Python refuses
            return (self, *(base for base in above if base is not self))
        if len(bases) == 1:
            return (self, *bases[0].mro)
        return tuple(_merged([self], *(list(base.mro) for base in bases), bases)) or (self, *above)

    @cached_property
    def external_bases(self) -> tuple[str, ...]:
        """Bases that are not classes of the project, anywhere up the hierarchy: dotted names as far as known."""
        return tuple(base for cls in self.mro for base in cls.outer_bases)

    @cached_property
    def outer_bases(self) -> tuple[str, ...]:
        """Those among its own bases that are not classes of the project."""
        return tuple(_path(base) for base in self.bases if not isinstance(base, ClassDef))

    @cached_property
    def is_open(self) -> bool:
        """Whether the class may have members that the project's source does not show."""
        return self.is_opaque or any(cls._writes_itself for cls in self.mro)

    @cached_property
    def is_opaque(self) -> bool:
        """Whether a base outside the project, a metaclass, a decorator or `__getattr__` may add members."""
        return any(cls.adds_members or not cls.has_plain_decorators for cls in self.mro)

    @cached_property
    def has_plain_decorators(self) -> bool:
        """Whether its decorators are known to add no members."""
        return plain_decorators(self.facts.decorators)

    @cached_property
    def adds_members(self) -> bool:
        """Whether a base outside the project, a metaclass or `__getattr__` of its own may add members."""
        return self.adds_more_than(PLAIN_BASES)

    def adds_more_than(self, bases: frozenset[str]) -> bool:
        """The same, where what some bases outside the project add is known."""
        if any(base not in bases for base in self.outer_bases):
            return True
        if any(name in self.methods for name in ("__getattr__", "__getattribute__", "__setattr__")):
            return True
        return _metaclass(self.facts)

    @cached_property
    def fields_are_parameters(self) -> bool:
        """Whether its objects are made from its annotated names: data classes, named tuples, pydantic models."""
        return self.is_record or any(
            base.rpartition(".")[2] in ("NamedTuple", "namedtuple", "BaseModel", "TypedDict")
            for base in self.facts.bases
        )

    @cached_property
    def is_record(self) -> bool:
        """Whether a decorator makes a data class of it: a library's, or a function of the project that calls one."""
        return any(self._makes_record(each.removesuffix("()")) for each in self.facts.decorators)

    def _makes_record(self, decorator: str) -> bool:
        if "dataclass" in decorator or decorator in RECORDS:
            return True
        project = self.module.project
        found = project.lookup(self.module.top, decorator)
        inside = (found, *project.nested(found)) if isinstance(found, Method) else ()
        return any("dataclass" in call.method or call.target in RECORDS for each in inside for call in each.facts.calls)

    @cached_property
    def is_protocol(self) -> bool:
        """Whether whatever has the right members counts as an object of the class, without saying so."""
        return any(base.rpartition(".")[2].removesuffix("[]") == "Protocol" for base in self.facts.bases)

    @cached_property
    def is_abstract(self) -> bool:
        """Whether the class is a protocol, or some abstract method is left: it is not meant to be instantiated."""
        if self.is_protocol:
            return True
        names = frozenset().union(*(cls._abstract for cls in self.mro))
        return any((method := self.find(name)) is not None and method.facts.is_abstract for name in names)

    @cached_property
    def _abstract(self) -> frozenset[str]:
        return frozenset(name for name, method in self.methods.items() if method.facts.is_abstract)

    @cached_property
    def _writes_itself(self) -> bool:
        """`setattr(self, …)`, `self.__dict__.update(…)`, `keep(locals())`: attributes no reader can list."""
        for method in self.every_method():
            for call in method.facts.calls:
                if any((row.kind, row.value, row.keyword) == ("call", "locals", None) for row in call.args):
                    return True
                first = call.args[0].value if call.args else ""
                if call.target in ("setattr", "vars") and first in ("self", "cls", self.name):
                    return True
                if call.target.startswith("self.__dict__.") or call.target in (
                    "object.__setattr__",
                    "super().__setattr__",
                ):
                    return True
            if any(ref.path.startswith("self.__dict__") for ref in method.facts.refs):
                return True
        return False

    def every_method(self) -> Iterator[Method]:
        """All functions of the class body, shadowed definitions included."""
        for definitions in self.definitions.values():
            yield from definitions

    def find(self, name: str) -> Method | None:
        """The method that `name` means on an instance, looked up along the hierarchy."""
        return next((cls.methods[name] for cls in self.mro if name in cls.methods), None)

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Every name that is set on the class or, through `self`, on its instances; inherited ones included."""
        return frozenset().union(*(cls.own_attributes for cls in self.mro))

    @cached_property
    def own_attributes(self) -> frozenset[str]:
        """The same without what is inherited."""
        return frozenset([*(name for name, _ in self.facts.attributes), *self.methods, *self.instance_attributes])

    @cached_property
    def instance_attributes(self) -> dict[str, set[Method]]:
        """Attributes that methods of this class (not of its bases) set through their first parameter: which do."""
        found: dict[str, set[Method]] = {}
        for method in self.every_method():
            inside = [method, *self.module.project.nested(method)]
            first = method.facts.params[0].name if method.facts.params and not method.facts.is_static else "self"
            for function in inside:
                for ref in function.facts.refs:
                    head, _, name = ref.path.partition(".")
                    if ref.context == "store" and head == first and "." not in name:
                        found.setdefault(name, set()).add(method)
                for call in function.facts.calls:
                    if (
                        call.method in REGISTERING
                        and call.receiver == first
                        and call.args
                        and call.args[0].kind == "const"
                    ):
                        found.setdefault(call.args[0].value.strip("\"'"), set()).add(method)
        return found

    @property
    def every_instance_attribute(self) -> frozenset[str]:
        """The same, with those that methods of bases set."""
        return frozenset(name for cls in self.mro for name in cls.instance_attributes)

    def descendants(self) -> tuple[ClassDef, ...]:
        """All classes of the project below this one, each after a base that leads to it."""
        return self._descendants

    @cached_property
    def _descendants(self) -> tuple[ClassDef, ...]:
        found: dict[ClassDef, None] = {}
        stack = list(self.subclasses)
        while stack:
            cls = stack.pop()
            if cls not in found:
                found[cls] = None
                stack += cls.subclasses
        return tuple(found)

    @cached_property
    def relatives(self) -> tuple[ClassDef, ...]:
        """The class, those below it, and every base of any of them."""
        found: dict[ClassDef, None] = dict.fromkeys((self, *self.descendants()))
        stack = list(found)
        while stack:
            for base in stack.pop().bases:
                if isinstance(base, ClassDef) and base not in found:
                    found[base] = None
                    stack.append(base)
        return tuple(found)

    def runs(self, method: Method) -> bool:
        """Whether objects of just this class run a method: their own, or one that those below it call with `super()` or
        by the class that has it."""
        above = {"super()", *(each.name for each in self.mro)}
        for each in self.mro:
            own = each.methods.get(method.name)
            if own is method:
                return True
            calls = (call for call in own.facts.calls if call.method == method.name) if own is not None else ()
            if own is not None and not any(call.receiver.rpartition(".")[2] in above for call in calls):
                return False
        return False

    def find_below(self, name: str) -> dict[ClassDef, Method | None]:
        """What `find(name)` gives on the class and on each one below it: one walk, however long their hierarchy."""
        found: dict[ClassDef, Method | None] = {}
        for cls in (self, *self.descendants()):
            alone = cls.bases[0] if len(cls.bases) == 1 else None
            if name in cls.methods:
                found[cls] = cls.methods[name]
            else:
                found[cls] = found[alone] if isinstance(alone, ClassDef) and alone in found else cls.find(name)
        return found


def _above(cls: ClassDef) -> tuple[ClassDef, ...]:
    """All bases within the project, depth first."""
    found: dict[ClassDef, None] = {}
    stack = [base for base in cls.bases if isinstance(base, ClassDef)]
    while stack:
        base = stack.pop(0)
        if base not in found:
            found[base] = None
            stack = [b for b in base.bases if isinstance(b, ClassDef)] + stack
    return tuple(found)


def _merged(*rows: list[ClassDef]) -> list[ClassDef]:
    """One order that keeps each row's own; nothing where there is none, which Python refuses."""
    left, order = [list(row) for row in rows if row], []
    while left:
        first = next((row[0] for row in left if not any(row[0] in other[1:] for other in left)), None)
        if first is None:
            return []
        order.append(first)
        left = [rest for row in left if (rest := [cls for cls in row if cls is not first])]
    return order


def _metaclass(facts: Class) -> bool:
    """Whether a class is made in a way of its own (`metaclass=ABCMeta` adds nothing)."""
    return any(name != "metaclass" or value.rpartition(".")[2] != "ABCMeta" for name, value in facts.keywords)


# bases that add no members worth checking for
PLAIN_BASES = frozenset({
    "object", "abc.ABC", "ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol", "Exception",
})  # fmt: skip
# Methods of `torch.nn.Module` that give an object the attribute that their first argument names.
REGISTERING = frozenset({"register_buffer", "register_parameter", "add_module", "register_module"})
# Decorators by which the annotated names of a class are the parameters of its constructor.
RECORDS = frozenset({
    "dataclass", "dataclasses.dataclass", "attrs.define", "attrs.frozen", "attrs.mutable", "attr.define", "attr.frozen",
    "chz.chz", "flax.struct.dataclass",
})  # fmt: skip
_ADDING = frozenset({"flax.struct.dataclass"})  # these give their classes methods as well: `replace`
_KEEPING_DECORATORS = RECORDS - _ADDING | frozenset({
    "total_ordering", "functools.total_ordering", "final", "typing.final",
    "runtime_checkable", "typing.runtime_checkable", "ray.remote", "ray.remote()", "deprecated",
})  # fmt: skip


def plain_decorators(decorators: Iterable[str]) -> bool:
    """Whether decorators of a class are known to add no members."""
    return all(d.removesuffix("()") in _KEEPING_DECORATORS for d in decorators)


Symbol = Module | Method | ClassDef | Value | External | Unknown | Missing


def _path(symbol: Symbol) -> str:
    if isinstance(symbol, External | Unknown):
        return symbol.path
    return repr(symbol)
