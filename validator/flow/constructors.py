"""What calling a class of the project takes: the parameters of `__init__`, or the fields of a data class."""

from __future__ import annotations

from functools import cached_property

from validator.analysis.interfaces.binding import keeps_signature, parameters
from validator.definitions import PLAIN_BASES, RECORDS, ClassDef, Method
from validator.facts.model import Assign, Call, Param
from validator.project import Project

_LEFT_OUT = "left out"  # the kind of a field that the constructor does not take
_DATACLASS = RECORDS | {f"{name}()" for name in RECORDS}
REMOTE = frozenset({"ray.remote", "ray.remote()"})
_MAKING = _DATACLASS | REMOTE  # decorators that leave what a call of the class needs plain to see
_FIELD = frozenset({"field", "dataclasses.field", "attrs.field", "chz.field"})
# Bases of libraries by which the annotated names of a class are the parameters of its constructor.
TUPLES = frozenset({"typing.NamedTuple", "collections.namedtuple"})
PYDANTIC = frozenset({"pydantic.BaseModel"})


class Constructors:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[ClassDef, tuple[Param, ...] | None] = {}

    def of(self, cls: ClassDef) -> tuple[Param, ...] | None:
        """The parameters that a caller of the class fills; None where they are not plain to see."""
        if cls not in self._known:
            self._known[cls] = self._find(cls)
        return self._known[cls]

    @cached_property
    def _replaced(self) -> frozenset[ClassDef]:
        """The classes into which some code puts another `__init__`."""
        from validator.flow.program.flow import Flow

        flow, found = self.project.analysis(Flow), set[ClassDef]()
        for unit in flow.units(iter(flow.stores.writers("__init__"))):
            owners = (flow.close(owner, unit) for owner, _ in flow.result(unit).stored.get("__init__", ()))
            found.update(o[1] for owner in owners for o in owner.each if o[0] == "class")
        return frozenset(found)

    def _find(self, cls: ClassDef) -> tuple[Param, ...] | None:
        if _is_defined_again(cls) or cls.find("__new__") is not None or not self._replaced.isdisjoint(cls.mro):
            return None
        if any(
            _has_keywords(each) or not all(self._keeps(each, name) for name in each.facts.decorators)
            for each in cls.mro
        ):
            return None
        for each in cls.mro:
            if "__init__" in each.methods:
                made = each.methods["__init__"]
                plain = keeps_signature(made) and len(each.definitions["__init__"]) == 1
                return parameters(made, bound=True) if plain else None
            if not _DATACLASS.isdisjoint(each.facts.decorators):
                return _fields(cls, each)
            if any(not isinstance(base, ClassDef) for base in each.bases):
                return _fields_of_library(cls)
        return ()

    def _keeps(self, cls: ClassDef, decorator: str) -> bool:
        """Whether a decorator leaves what a call of the class needs plain to see: one of the project's gives back the
        class, or one below it that hands all arguments on."""
        if decorator in _MAKING:
            return True
        function = self.project.lookup(cls.module.top, decorator)
        if not isinstance(function, Method) or function.facts.decorators or len(function.facts.params) != 1:
            return False
        from validator.flow.program.flow import Flow

        unit = self.project.analysis(Flow).unit_of(function)
        if unit is None or unit.code.kind != "function" or not unit.code.returned:
            return False
        given = (unit.code.values[unit.root(number)] for number in unit.code.returned)
        inner = {f"{each.qualname}.<class>": each for each in function.module.classes.values()}
        name = function.facts.params[0].name
        return all(
            each.op == "param" or each.op == "closure" and _hands_on(inner.get(str(each.data)), name) for each in given
        )


def _hands_on(cls: ClassDef | None, base: str) -> bool:
    """Whether a class below the one that a name means hands on all that it is made with."""
    if cls is None or cls.facts.bases != (base,) or cls.facts.decorators or cls.facts.keywords:
        return False
    made = cls.methods.get("__init__")
    if made is None:
        return "__new__" not in cls.methods
    kinds = [param.kind for param in made.facts.params]
    handed = [call for call in made.facts.calls if call.target == "super().__init__"]
    return kinds[1:] == ["*", "**"] and any([a.keyword for a in call.args] == ["*", "**"] for call in handed)


def _has_keywords(cls: ClassDef) -> bool:
    """Whether a class is made in a way of its own; `extra` is a setting of pydantic."""
    return any(name != "extra" for name, _ in cls.facts.keywords)


def _fields_of_library(cls: ClassDef) -> tuple[Param, ...] | None:
    """The parameters that `NamedTuple` and pydantic's `BaseModel` give to a class of annotated names."""
    outer = set(cls.external_bases)
    if outer <= TUPLES:
        return _annotated(cls, "any")
    if not outer <= PYDANTIC or any(_looks_before(each) for each in cls.mro):
        return None
    said = " ".join(settings(each) for each in cls.mro)
    found = _annotated(cls, "kw")
    if found is None or "alias" in said or "extra" in said and "forbid" not in said:
        return None
    return found if "forbid" in said else (*found, Param("more", "**", None, "", cls.facts.name_at))


def _looks_before(cls: ClassDef) -> bool:
    """Whether a class of pydantic may change what it is given before the fields are looked at."""
    return any("validator" in each for method in cls.every_method() for each in method.facts.decorators)


def settings(cls: ClassDef) -> str:
    """What a class of pydantic says about the keys that it takes, as its source has it."""
    body = cls.module.functions.get(f"{cls.qualname}.<class>")
    calls = body.facts.calls if body is not None else ()
    inner = cls.module.functions.get(f"{cls.qualname}.Config.<class>")
    rows = [*(row for row in body_of(cls) if row.target == "model_config"), *(inner.facts.assigns if inner else ())]
    said = [f"{row.target}={row.value}" for row in rows]
    said += [f"{a.keyword}={a.value}" for call in calls if call.method == "ConfigDict" for a in call.args]
    return " ".join([*said, *(f"{name}={value}" for name, value in cls.facts.keywords)])


def takes_more(cls: ClassDef) -> bool:
    """Whether objects of a class of pydantic keep what they are given beside their fields."""
    return any("allow" in settings(each) for each in cls.mro)


def length_of(cls: ClassDef) -> int | None:
    """How many parts objects of a class have that is a named tuple; None of others, and of those that say it anew."""
    if TUPLES.isdisjoint(cls.external_bases) or cls.find("__iter__") is not None or cls.find("__new__") is not None:
        return None
    fields = _annotated(cls, "any")
    return len(fields) if fields else None


def _annotated(cls: ClassDef, kind: str) -> tuple[Param, ...] | None:
    """The annotated names of a class and of those above it as parameters; None where one goes by another name."""
    found: dict[str, Param] = {}
    for each in reversed(cls.mro):
        for row in body_of(each):
            if not row.annotation or row.target.startswith("_") or "ClassVar" in row.annotation:
                continue
            default: str | None = row.value if row.kind != "none" else None
            if row.kind == "call" and row.value.rpartition(".")[2] == "Field":
                call = _call_in(each, row)
                words = {a.keyword for a in call.args} if call is not None else {"alias"}
                if call is None or words & {"alias", "validation_alias", "**"}:
                    return None
                first = call.positional[0].value if call.positional else "..."
                default = "…" if words & {"default", "default_factory"} or first != "..." else None
            found[row.target] = Param(row.target, kind, default, row.annotation, row.at)
    return tuple(found.values())


def _call_in(cls: ClassDef, row: Assign) -> Call | None:
    """The call whose result a row of the body of a class is."""
    body = cls.module.functions[f"{cls.qualname}.<class>"]
    inside = (call for call in body.facts.calls if call.target == row.value)
    return next((call for call in inside if row.at[:2] <= call.at[:2] <= row.at[2:]), None)


def _is_defined_again(cls: ClassDef) -> bool:
    """Whether the name of a class means something else as well: a second definition, an import, an assignment."""
    module = cls.module
    return (
        sum(each.qualname == cls.qualname for each in module.facts.classes) > 1
        or ("<module>", cls.name) in module.imports
        or any(row.target == cls.name for row in module.top.facts.assigns)
    )


def _fields(cls: ClassDef, top: ClassDef) -> tuple[Param, ...] | None:
    """The parameters that `@dataclass` gives to `__init__`; None where they are not plain to see."""
    if top is not cls or cls.external_bases:
        return None
    found: dict[str, Param] = {}
    for each in reversed(cls.mro):
        if _DATACLASS.isdisjoint(each.facts.decorators) or "__init__" in each.methods:
            return None
        if "dataclass()" in " ".join(each.facts.decorators) and "init=" in _decorator_text(each):
            return None
        for row in body_of(each):
            if row.annotation and "." not in row.target and "[" not in row.target:
                param = _field(each, row)
                if param is None:
                    return None
                if param.kind == _LEFT_OUT:
                    found.pop(row.target, None)
                elif "ClassVar" not in row.annotation:
                    found[row.target] = param
    return tuple(found.values())


def fields_of(cls: ClassDef) -> frozenset[str] | None:
    """The fields of a data class; None of other classes, and of those whose fields are not all plain."""
    found: set[str] = set()
    for each in reversed(cls.mro):
        rows = [(name, annotation) for name, annotation in each.facts.attributes if annotation]
        plain = any(d.rpartition(".")[2].startswith("dataclass") for d in each.facts.decorators)
        if rows and not plain or "__init__" in each.methods:
            return None
        for name, annotation in rows:
            if "ClassVar" in annotation or "InitVar" in annotation or "KW_ONLY" in annotation:
                found.discard(name)
            else:
                found.add(name)
    return frozenset(found) if found and PLAIN_BASES.issuperset(cls.external_bases) else None


def body_of(cls: ClassDef) -> tuple[Assign, ...]:
    """The assignments and annotated names in the body of a class, without those of its bases."""
    body = cls.module.functions.get(f"{cls.qualname}.<class>")
    return body.facts.assigns if body is not None else ()


def _field(cls: ClassDef, row: Assign) -> Param | None:
    """The parameter that a field is; None where that is not plain to see."""
    default: str | None = row.value if row.kind != "none" else None
    kind = "any"
    if "KW_ONLY" in row.annotation:
        return None
    if row.kind == "call" and row.value in _FIELD:
        call = _call_in(cls, row)
        words = {a.keyword: a.value for a in call.args} if call is not None else {"**": ""}
        asked = [words[name] for name in ("init", "kw_only") if name in words]
        if "**" in words or any(each not in ("True", "False") for each in asked):
            return None
        kind = _LEFT_OUT if words.get("init") == "False" else "kw" if words.get("kw_only") == "True" else "any"
        default = "…" if words.keys() & {"default", "default_factory", "factory"} else None
    return Param(row.target, kind, default, row.annotation, row.at)


def _decorator_text(cls: ClassDef) -> str:
    lines = cls.module.source.lines
    return " ".join(lines[max(0, cls.facts.name_at[0] - 8) : cls.facts.name_at[0]])
