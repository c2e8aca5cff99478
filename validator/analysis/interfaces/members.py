"""Which members an object of a project class can have, as far as the source can tell.

Saying that a member does *not* exist needs a class whose members can be listed: nothing dynamic, no base outside
the project, no attribute set from elsewhere.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property

from validator.analysis.interfaces.binding import bind
from validator.analysis.interfaces.getters import looks_up
from validator.analysis.interfaces.made_classes import MadeClasses
from validator.definitions import PLAIN_BASES, REGISTERING, External, plain_decorators
from validator.facts.model import Assign, Call, Guard
from validator.flow.constructors import takes_more
from validator.flow.program.flow import Flow
from validator.flow.queries.base import Place
from validator.ir.expressions import MADE_UP
from validator.models.members import is_known, listed, of_base
from validator.models.members.classes import members_of, set_outside
from validator.project import ClassDef, Method, Project

_SETTING = frozenset({"setattr", "object.__setattr__", "delattr"})
_ASKING = frozenset({"hasattr", "getattr"})
# Classes have these without saying so: through a metaclass, from `typing.Protocol`, or as bindings of C++.
_OF_OBJECT = frozenset({
    "mro", "register", "_abc_impl", "_is_protocol", "_is_runtime_protocol", "_pybind11_conduit_v1_",
})  # fmt: skip
_FILLING = frozenset({"locals", "vars", "exec", "setattr"})  # in a class body: names that no reader can list
_READING = frozenset({"items", "keys", "values", "get", "copy"})
_OF_MAPPINGS = frozenset(dir(dict))
# What these give to the classes below them is known: public names that are listed, and those that begin with `_`.
_PLAIN = PLAIN_BASES | listed()
_ANY = ("__getattr__", "__getattribute__")  # what gives members that nobody lists


class Members:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._made_classes = project.analysis(MadeClasses)
        self._closed: dict[ClassDef, bool] = {}
        self._listed: dict[ClassDef, bool] = {}
        self._known: dict[tuple[ClassDef, bool], bool] = {}
        self._looks_up: dict[ClassDef, bool] = {}

    def lacks(self, cls: ClassDef, name: str) -> bool:
        """Whether no object of the class, or of a class below it, can have the member."""
        return self.may_lack(cls, name) and all(self.may_lack(each, name) for each in cls.descendants())

    def may_lack(self, cls: ClassDef, name: str) -> bool:
        """Whether objects of just this class cannot have the member."""
        return self.lacks_where_made(cls, name) and self.closed(cls)

    def lacks_where_made(self, cls: ClassDef, name: str) -> bool:
        """The same for objects that the project itself is known to make."""
        if self.is_given_outside(name) or name in cls.attributes or not self._is_spelled_out(cls):
            return False
        if name in _OF_MAPPINGS and cls.fields_are_parameters and self._makes_mappings:
            return False
        return not any(_gives(base, cls, name) for base in cls.external_bases if base not in PLAIN_BASES)

    @cached_property
    def _makes_mappings(self) -> bool:
        """Whether a library of the project makes dictionaries of data classes, which go by the names of these."""
        return self.flow.mentions.libraries("omegaconf", "hydra")

    def is_given_outside(self, name: str) -> bool:
        """Whether all objects have a member of that name, or any may get it from code outside of its class."""
        if name.startswith("__") and name.endswith("__") or name in _OF_OBJECT:
            return True
        return name in self.written or name in self._made_classes.members

    def closed(self, cls: ClassDef) -> bool:
        """Whether the members of the class can be listed from the source."""
        if cls not in self._closed:
            self._closed[cls] = self._is_closed(cls)
        return self._closed[cls]

    def _is_closed(self, cls: ClassDef) -> bool:
        return self._is_spelled_out(cls) and not self._mixed_in_elsewhere(cls) and cls not in self._lending

    @cached_property
    def _filled_from_outside(self) -> frozenset[ClassDef]:
        """The classes whose objects get attributes under computed names from code that is not theirs."""
        found: set[ClassDef] = set()
        for unit in self.flow.units(iter(self.flow.stores.writers(MADE_UP))):
            owners = (v.args[0] for v in unit.code.values if v.op == "store_attr" and v.data == MADE_UP)
            others = (Place(self.flow, unit, owner) for owner in owners if not unit.is_receiver(owner))
            found.update(o[1] for other in others for o in other.closed.each if o[0] in ("inst", "self"))
        return frozenset(found)

    @cached_property
    def _lending(self) -> frozenset[ClassDef]:
        """The classes whose methods code binds to objects of others: `MethodType(Sharded.gather, model)`."""
        rows = self.project.calls("MethodType")
        found = (self.project.lookup(f, call.args[0].value) for f, call in rows if call.args and call.args[0].value)
        return frozenset(each.cls for each in found if isinstance(each, Method) and each.cls is not None)

    def _is_spelled_out(self, cls: ClassDef) -> bool:
        """Whether the source of a class and of those above it gives all members of its objects; a mixin has none."""
        if "Mixin" in cls.name:
            return False
        if any(self._adds_unlisted(each) for each in cls.mro):
            return False
        given = self._given_bases | self._made_classes.open_bases | self._filled_from_outside
        if not given.isdisjoint(cls.mro):
            return False
        return all(self._lists_own(each) for each in cls.mro)

    def _adds_unlisted(self, cls: ClassDef) -> bool:
        """Whether a class has members that neither its source nor the tables of libraries list."""
        known = frozenset(base for base in cls.outer_bases if base in _PLAIN or members_of(base) is not None)
        if cls.adds_more_than(known) or any(name in _ANY for name, _ in cls.facts.attributes):
            return True
        return not self._is_kept_by_decorators(cls)

    @cached_property
    def _given_bases(self) -> frozenset[ClassDef]:
        """The classes that code gives other bases than those with which they are defined: a decorator, say."""
        units = map(self.flow.unit_of, self.flow.stores.writers("__bases__"))
        places = (
            Place(self.flow, unit, value.args[0])
            for unit in units
            if unit is not None
            for value in unit.code.values
            if value.op == "store_attr" and value.data == "__bases__"
        )
        return frozenset(o[1] for place in places for o in place.closed.of("class"))

    def _is_kept_by_decorators(self, cls: ClassDef) -> bool:
        """Whether the decorators of a class give the class itself back: a registry, say."""
        if cls.has_plain_decorators:
            return True
        makers = [each for each in cls.facts.decorators if not plain_decorators((each,))]
        found = [(each, self.project.lookup(cls.module.top, each.removesuffix("()"))) for each in makers]
        if any(
            isinstance(symbol, External) if each.endswith("()") else not isinstance(symbol, ClassDef | Method)
            for each, symbol in found
        ):
            return False  # a function of a library, which may make a class of its own of it, or add members
        body = self.flow.body_of(cls)
        if body is None or body.outer is None:
            return False
        given = [Place(self.flow, body.outer, number) for number in body.outer.decorating(body)]
        return bool(given) and all(place.closed.objs == {("class", cls)} for place in given)

    def closed_but_for_libraries(self, cls: ClassDef) -> bool:
        """Whether the members of the class can be listed but for those that bases of libraries give."""
        if any(name in each.methods for each in cls.mro for name in ("__getattr__", "__getattribute__")):
            return False
        return all(each.has_plain_decorators and self._lists_own(each) for each in cls.mro)

    def is_known(self, cls: ClassDef, *, called: bool = False) -> bool:
        """Whether all that may give members, or methods, to objects of just this class is the project's or of libraries
        whose names are known, even where that is under computed names."""
        known = self._known.get((cls, called))
        if known is None:
            known = all(self._is_known_itself(each, called=called) for each in cls.mro)
            self._known[cls, called] = known
        return known

    def is_known_below(self, cls: ClassDef, *, called: bool = False) -> bool:
        """The same for objects of the class and of all below it."""
        return all(self._is_known_itself(each, called=called) for each in cls.relatives)

    def runs_known(self, cls: ClassDef, *, called: bool = False) -> bool:
        """The same for some objects that run the methods of a class, which no library has made around it."""
        if cls.is_protocol or self._mixed_in_elsewhere(cls):
            return False
        heirs = (each for each in (cls, *cls.descendants()) if not each.subclasses or each in self.made)
        return any(self.is_known(each, called=called) for each in heirs)

    def _is_known_itself(self, cls: ClassDef, *, called: bool) -> bool:
        """The same for what the class itself gives, without its bases. What `__getattr__` looks up may be data from
        anywhere, but where it is called it is the project's."""
        if "__getattribute__" in cls.methods or _becomes_another(cls):
            return False
        if "__getattr__" in cls.methods and not (called and self._only_looks_up(cls)):
            return False
        if _copies_another(cls):
            return False
        if not all(is_known(base) or base in _PLAIN for base in cls.outer_bases):
            return False
        makers = [d.removesuffix("()") for d in cls.facts.decorators if not plain_decorators((d,))]
        makers += [value for name, value in cls.facts.keywords if name == "metaclass" and not value.endswith("ABCMeta")]
        return all(isinstance(self.project.lookup(cls.module.top, each), ClassDef | Method) for each in makers)

    def _only_looks_up(self, cls: ClassDef) -> bool:
        known = self._looks_up.get(cls)
        if known is None:
            known = self._looks_up[cls] = looks_up(self.flow, cls)
        return known

    def closed_but_for_itself(self, cls: ClassDef) -> bool:
        """Whether the members of the class can be listed but for those that its own methods set by computed names."""
        if cls.is_opaque or self._mixed_in_elsewhere(cls) or "Mixin" in cls.name:
            return False
        return all(self._lists_own(each) for each in cls.mro[1:])

    def _lists_own(self, cls: ClassDef) -> bool:
        """Whether what the class itself, without its bases, gives to its objects is spelled out."""
        if cls not in self._listed:
            self._listed[cls] = not _fills_itself(cls)
        return self._listed[cls]

    def _mixed_in_elsewhere(self, cls: ClassDef) -> bool:
        """A class that sets nothing up, above which there are mixins alone, and that nobody makes by name: some
        framework builds objects around it. One that only sets fields up may be a part of another class too, where no
        code speaks of it."""
        if cls.subclasses or cls in self.made or cls.find("__init__") is not None:
            return False
        if cls.fields_are_parameters:
            return not self.flow.fields.is_spoken_of(cls)
        return all("Mixin" in each.name for each in cls.mro[1:])

    @cached_property
    def made(self) -> frozenset[ClassDef]:
        """The classes of which the project makes objects by name."""
        found: set[ClassDef] = set()
        names = {cls.name for cls in self.project.classes()}
        for function in self.project.functions():
            for call in function.facts.calls:
                target = call.target.removesuffix(".remote").removesuffix(".options()")
                if target.rpartition(".")[2] in names and isinstance(
                    cls := self.project.lookup(function, target), ClassDef
                ):
                    found.add(cls)
        return frozenset(found)

    @cached_property
    def ambiguous(self) -> frozenset[str]:
        """Names that some module imports from two places, one of which wins at run time."""
        found: set[str] = set()
        for module in self.project.modules.values():
            seen: dict[tuple[str, str], tuple[str, str | None, int]] = {}
            for row in module.facts.imports:
                source = (row.module, row.name, row.level)
                if row.name is not None and seen.setdefault((row.scope, row.bound_as), source) != source:
                    found.add(row.bound_as)
        return frozenset(found)

    @cached_property
    def written(self) -> frozenset[str]:
        """Attribute names that code sets on an object other than its own, or asks its own object for by a string."""
        found: set[str] = set()
        for function in self.project.functions():
            own = own_object(method_of(function))
            for ref in function.facts.refs:
                if ref.context == "store":
                    head, _, name = ref.path.rpartition(".")
                    if head != own:
                        found.add(name)
            for call in function.facts.calls:
                if call.target in _SETTING or call.target in _ASKING and call.args and call.args[0].value == own:
                    found |= _literal_names(function, call) or set()
        return frozenset(found)


def _gives(base: str, cls: ClassDef, name: str) -> bool:
    """Whether objects of a class may have a member from a base outside the project, or from what that is made for."""
    if base in listed():
        return name.startswith("_") or takes_more(cls) or name in of_base(base)
    members = members_of(base)
    return members is None or name in members or name in set_outside(base)


def _becomes_another(cls: ClassDef) -> bool:
    """Whether objects of another class are made ones of this class, with all that they have."""
    refs = (ref for method in cls.every_method() for ref in method.facts.refs)
    return any(ref.path.endswith(".__class__") and ref.context == "store" for ref in refs)


def own_object(function: Method) -> str | None:
    """The name by which a method knows its object (`self`); None outside methods and in static ones."""
    return function.own_object


def method_of(function: Method) -> Method:
    """The method whose object a nested function speaks of when it names it; the function itself elsewhere."""
    outer = function
    while outer.cls is None and outer.enclosing is not None:
        outer = outer.enclosing
    if outer is function:
        return function
    own = own_object(outer)
    return outer if own is not None and own not in function.facts.bound else function


def excused(guards: tuple[Guard, ...], receiver: str, name: str) -> bool:
    """Whether what is tested or caught around a place lets a missing member pass."""
    own = re.escape(receiver)
    typed = re.compile(rf"isinstance|hasattr|\b{re.escape(name)}\b|type\({own}\)|{own}\.__class__")
    for guard in guards:
        if guard.kind in ("try", "with") and ("AttributeError" in guard.text or guard.text == "*"):
            return True
        if guard.kind in ("if", "loop") and typed.search(guard.text):
            return True
    return False


# -- members under computed names ------------------------------------------------------------------------------


def _fills_itself(cls: ClassDef) -> bool:
    """Whether the class or its objects get members under names that the source does not spell out."""
    body = cls.module.functions.get(f"{cls.qualname}.<class>")
    if body is not None and any(call.target in _FILLING for call in body.facts.calls):
        return True
    for method in cls.every_method():
        own = own_object(method) or "cls"
        for function in [method, *cls.module.project.nested(method)]:
            if any(ref.path.startswith(f"{own}.__dict__") and not _only_reads(ref.path) for ref in function.facts.refs):
                return True
    return bool(fills(cls))


def _only_reads(path: str) -> bool:
    """Whether a method of a dictionary is named that leaves it as it is: `self.__dict__.items`."""
    return path.rpartition(".")[2] in _READING


def fills(cls: ClassDef) -> list[tuple[Method, Call]]:
    """The calls by which methods of a class set members under names that the source does not spell out."""
    found: list[tuple[Method, Call]] = []
    for method in cls.every_method():
        own = own_object(method) or "cls"
        for function in [method, *cls.module.project.nested(method)]:
            found += [(function, call) for call in function.facts.calls if _fills(function, call, (own, cls.name))]
    return found


def _fills(function: Method, call: Call, objects: tuple[str, str]) -> bool:
    return _fills_here(function, call, objects) or any(True for _ in _filled_by(function, call, objects[0]))


def _fills_here(function: Method, call: Call, objects: tuple[str, str]) -> bool:
    """Whether a call itself sets members of an object, known by two names, by computed names."""
    first = call.args[0].value if call.args else ""
    if any((row.kind, row.value, row.keyword) == ("call", "locals", None) for row in call.args):
        return True  # all variables are handed on, the object among them: `save__init__args(locals())`
    if call.target == "object.__setattr__":
        return _literal_names(function, call) is None
    if call.target.endswith(".__setattr__"):
        return True
    if call.target.startswith(f"{objects[0]}.__dict__."):
        return not _only_reads(call.target)
    if call.target == "vars":
        return first in objects
    if call.method in REGISTERING and call.receiver == objects[0]:
        return bool(call.args) and call.args[0].kind != "const"
    return call.target == "setattr" and first in objects and _literal_names(function, call) is None


def _filled_by(function: Method, call: Call, given: str) -> Iterator[Call]:
    """The calls by which functions of the project set members of an object that they are given, by computed names."""
    seen = {(function, given)}
    waiting = _given_to(function, call, given)
    while waiting:
        filler, name = each = waiting.pop()
        if each not in seen:
            seen.add(each)
            for inner in filler.facts.calls:
                if _fills_here(filler, inner, (name, name)):
                    yield inner
                waiting += _given_to(filler, inner, name)


def _given_to(function: Method, call: Call, given: str) -> list[tuple[Method, str]]:
    """The function of the project that a call gives an object, with the object's name in it."""
    if not any(row.value == given for row in call.args):
        return []
    filler = function.module.project.lookup(function, call.target)
    if not isinstance(filler, Method) or filler.cls is not None:
        return []
    return [(filler, name) for name, row in bind(filler, call).items() if row.value == given]


def _copies_another(cls: ClassDef) -> bool:
    """Whether objects of a class are given all that another object has: `self.__dict__.update(other.__dict__)`."""
    for function, call in fills(cls):
        inner = _filled_by(function, call, own_object(function) or "cls")
        if any(argument.value.endswith("__dict__") for each in (call, *inner) for argument in each.args):
            return True
    return False


def _literal_names(function: Method, call: Call) -> set[str] | None:
    """The names that a `setattr` or its kin may mean; None where they are not literals of the same function."""
    if len(call.args) < 2:
        return None
    argument = call.args[1]
    if argument.kind == "const":
        return {argument.value.strip("\"'")}
    if argument.kind != "path" or "." in argument.value:
        return None
    found: set[str] = set()
    tables = list(_tables(function, argument.value))
    for row, text in tables:
        names = _strings(function, row, text)
        if names is None:
            return None
        found |= names
    return found or None


def _tables(function: Method, name: str) -> Iterator[tuple[Assign, str]]:
    """Where the values of a variable come from: `for name in (…)`, or `table = {…}` and `name = table[…]`."""
    rows = function.facts.assigns
    for row in rows:
        if row.target == name:
            if row.kind == "path" and row.value.endswith("[]"):
                tables = [other for other in rows if other.target == row.value[:-2]]
                yield from ((other, "") for other in tables or [row])
            else:
                yield row, row.value if row.kind == "for" else ""


def _strings(function: Method, row: Assign, text: str) -> set[str] | None:
    """The strings of a literal tuple, list, set or dict (of a dict its values)."""
    line, column, end_line, end_column = row.at
    if not text:
        lines = function.module.source.lines[line - 1 : end_line]
        text = "\n".join(lines)[column - 1 :] if len(lines) > 1 else lines[0][column - 1 : end_column - 1]
    try:
        value = getattr(ast.parse(textwrap.dedent(text).strip()).body[0], "value", None)
    except (SyntaxError, IndexError):
        return None
    elements: list[ast.expr] = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", [])
    found = {e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)}
    return found if found and all(isinstance(e, ast.Constant) for e in elements) else None
